/* attention: of each head, softmax(q k' / sqrt(size)) v; queries, keys and values come in side by
 * side, as a linear layer of three times the features makes them. */
#include "engine/model/layer.h"

struct attention_config {
    int64_t heads;
    bool causal;
};

static enum error attention_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct attention_config *c = config;
    long long features = x->dim[1], heads = c->heads;
    if (features % (3 * heads))
        return FAIL(ERR_CONFIG,
                    "%lld features are not queries, keys and values of %lld heads\n"
                    "put a linear layer of 3 * heads * size units before it, as linear: %lld",
                    features, heads, (features + heads - 1) / heads * heads * 3);
    p->y = (struct shape){.ndim = 2, .dim = {x->dim[0], x->dim[1] / 3}};
    p->op = (struct op_desc){.kind = OP_ATTENTION, .x = *x, .y = p->y};
    p->op.attention.heads = (int)c->heads;
    p->op.attention.causal = c->causal;
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"heads", CONFIG_INT, offsetof(struct attention_config, heads), .required = true, .also = "num_heads|nhead|n_head",
     .min = 1, .max = 1 << 16, .help = "Heads, each with a part of the features"},
    {"causal", CONFIG_BOOL, offsetof(struct attention_config, causal), "false", .also = "is_causal",
     .help = "Whether a position sees only itself and those before it"},
    {0},
};

const struct layer_ops layer_attention = {
    .section = {.name = "attention",
                .fields = fields,
                .size = sizeof(struct attention_config),
                .shorthand = "heads",
                .help = "Mixes the positions of a sequence, each head by weights of its own; queries, keys and values "
                        "come from a linear layer of 3 times the features, and with another linear layer after it "
                        "this is MultiheadAttention",
                .also = "torch.nn.functional.scaled_dot_product_attention|MultiheadAttention"},
    .out = {[INPUT_SEQUENCE] = "T, F / 3"},
    .formula = "of each head y = softmax(q k' / sqrt(size)) v, where size = F / (3 * heads)",
    .example = "- attention: {heads: 6, causal: true}",
    .of = "128x576",
    .plan = attention_plan,
};
