/* add: the layer before plus the layer that 'from' names: a residual connection. */
#include "engine/model/layer.h"

static enum error add_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    layer_plan_same(p, x, OP_ADD);
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_add = {
    .section = {.name = "add", .fields = fields, .help = "Sum with the output of layer 'from'"},
    .inputs = 2,
    .plan = add_plan,
};
