/* embedding: a learned row of features for each token. */
#include "engine/model/layer.h"

struct embedding_config {
    int64_t vocabulary, units;
    double deviation;
};

static enum error embedding_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct embedding_config *c = config;
    p->y = (struct shape){.ndim = 2, .dim = {x->dim[0], c->units}};
    p->op = (struct op_desc){.kind = OP_EMBEDDING, .x = *x, .y = p->y};
    p->op.embedding.vocabulary = c->vocabulary;
    struct shape rows = {.ndim = 2, .dim = {c->vocabulary, c->units}};
    layer_plan_param(p, (struct layer_tensor){"weight", rows, INIT_NORMAL, .deviation = (float)c->deviation});
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"vocabulary", CONFIG_INT, offsetof(struct embedding_config, vocabulary), .required = true,
     .also = "num_embeddings|vocab_size", .min = 1, .max = 1 << 24,
     .help = "How many tokens there are: 0 to vocabulary - 1"},
    {"units", CONFIG_INT, offsetof(struct embedding_config, units), .required = true,
     .also = "embedding_dim|n_embd|d_model", .min = 1, .max = 1 << 24, .help = "Features of each token"},
    {"deviation", CONFIG_REAL, offsetof(struct embedding_config, deviation), "1",
     .help = "Standard deviation of the first values", .min = 0, .max = 1e3},
    {0},
};

const struct layer_ops layer_embedding = {
    .section = {.name = "embedding",
                .fields = fields,
                .size = sizeof(struct embedding_config),
                .help = "A learned row of features for each token; the first layer, on data that is tokens",
                .also = "torch.nn.Embedding"},
    .out = {[INPUT_TOKENS] = "T, units"},
    .instead = "put it first, on data that is tokens: data.set text, tokens or grammar",
    .formula = "y[t] = weight[x[t]]",
    .example = "- embedding: {vocabulary: 256, units: 192}",
    .of = "128",
    .plan = embedding_plan,
};
