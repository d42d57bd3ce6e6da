/* gelu: x (1 + erf(x / sqrt 2)) / 2, exact, element by element. */
#include "engine/model/layer.h"

static enum error gelu_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    layer_plan_same(p, x, OP_GELU);
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_gelu = {
    .section = {.name = "gelu", .fields = fields, .help = "x (1 + erf(x / sqrt 2)) / 2, exact"},
    .inputs = 1,
    .plan = gelu_plan,
};
