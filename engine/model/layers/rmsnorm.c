/* rmsnorm: each row divided by the root of the mean of its squares, then scaled. */
#include "engine/model/layer.h"

struct rmsnorm_config {
    double eps;
};

static enum error rmsnorm_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct rmsnorm_config *c = config;
    layer_plan_same(p, x, OP_RMSNORM);
    p->op.norm.eps = (float)c->eps;
    struct shape features = {.ndim = 1, .dim = {shape_last(x)}};
    layer_plan_param(p, (struct layer_tensor){"weight", features, INIT_ONE, 0});
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"eps", CONFIG_REAL, offsetof(struct rmsnorm_config, eps), "1e-6", .help = "Added to the mean of squares",
     .min = 1e-12, .max = 1},
    {0},
};

const struct layer_ops layer_rmsnorm = {
    .section = {.name = "rmsnorm",
                .fields = fields,
                .size = sizeof(struct rmsnorm_config),
                .help = "Divides each row of features by the root of the mean of its squares, then scales it",
                .also = "torch.nn.RMSNorm"},
    .out = {[INPUT_FEATURES] = "F", [INPUT_SEQUENCE] = "T, F"},
    .formula = "y = weight * x / sqrt(mean of x^2 + eps)",
    .example = "- rmsnorm",
    .of = "128x192",
    .plan = rmsnorm_plan,
};
