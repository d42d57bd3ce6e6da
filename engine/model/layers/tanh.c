/* tanh: the hyperbolic tangent, element by element. */
#include "engine/model/layer.h"

static enum error tanh_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    layer_plan_activation(p, x, ACT_TANH);
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_tanh = {
    .section = {.name = "tanh", .fields = fields, .help = "The hyperbolic tangent"},
    .inputs = 1,
    .plan = tanh_plan,
};
