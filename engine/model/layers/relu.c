/* relu: max(x, 0), element by element. */
#include "engine/model/layer.h"

static enum error relu_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    layer_plan_activation(p, x, ACT_RELU);
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_relu = {
    .section = {.name = "relu", .fields = fields, .help = "max(x, 0)"},
    .inputs = 1,
    .plan = relu_plan,
};
