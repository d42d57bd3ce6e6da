/* silu: x / (1 + e^-x), element by element. */
#include "engine/model/layer.h"

static enum error silu_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    layer_plan_activation(p, x, ACT_SILU);
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_silu = {
    .section = {.name = "silu", .fields = fields, .help = "x / (1 + e^-x)"},
    .inputs = 1,
    .plan = silu_plan,
};
