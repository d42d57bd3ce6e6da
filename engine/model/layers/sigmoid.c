/* sigmoid: 1 / (1 + e^-x), element by element. */
#include "engine/model/layer.h"

static enum error sigmoid_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    layer_plan_activation(p, x, ACT_SIGMOID);
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_sigmoid = {
    .section = {.name = "sigmoid", .fields = fields, .help = "1 / (1 + e^-x)"},
    .inputs = 1,
    .plan = sigmoid_plan,
};
