/* tokens: an image as a sequence of its pixels, each with its channels as features. */
#include "engine/model/layer.h"

static enum error tokens_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    p->y = (struct shape){.ndim = 2, .dim = {x->dim[1] * x->dim[2], x->dim[0]}};
    p->op = (struct op_desc){.kind = OP_TOKENS, .x = *x, .y = p->y};
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_tokens = {
    .section = {.name = "tokens",
                .fields = fields,
                .help = "An image as a sequence of its pixels, each with its channels as features",
                .also = "x.flatten(2).transpose(1, 2)"},
    .out = {[INPUT_IMAGE] = "H * W, C"},
    .formula = "y[i * W + j, c] = x[c, i, j]",
    .example = "- tokens",
    .of = "192x8x8",
    .plan = tokens_plan,
};
