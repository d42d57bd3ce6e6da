/* add: the layer before plus the layer that 'from' names: a residual connection. */
#include "engine/model/layer.h"

static enum error add_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    layer_plan_same(p, x, OP_ADD);
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_add = {
    .section = {.name = "add",
                .fields = fields,
                .help = "The sum of the layer before and of layer 'from', both of one shape: a residual connection",
                .also = "torch.add"},
    .out = LAYER_SAME,
    .formula = "y = x + y of layer 'from'",
    .example = "- add: {from: relu1}",
    .of = "64",
    .joins = true,
    .plan = add_plan,
};
