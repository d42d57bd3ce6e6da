/* batchnorm: each channel (or feature) to mean 0 and variance 1 over the batch, then scaled and
 * shifted. */
#include "engine/model/layer.h"

struct batchnorm_config {
    double eps, momentum;
};

static enum error batchnorm_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct batchnorm_config *c = config;
    layer_plan_same(p, x, OP_BATCHNORM);
    p->op.norm.eps = (float)c->eps;
    p->op.norm.momentum = (float)c->momentum;
    struct shape channels = {.ndim = 1, .dim = {x->dim[0]}};
    layer_plan_param(p, (struct layer_tensor){"weight", channels, INIT_ONE, 0});
    layer_plan_param(p, (struct layer_tensor){"bias", channels, INIT_ZERO, 0});
    layer_plan_buffer(p, (struct layer_tensor){"running_mean", channels, INIT_ZERO, 0});
    layer_plan_buffer(p, (struct layer_tensor){"running_var", channels, INIT_ONE, 0});
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"eps", CONFIG_REAL, offsetof(struct batchnorm_config, eps), "1e-5", .help = "Added to the variance", .min = 1e-12,
     .max = 1},
    {"momentum", CONFIG_REAL, offsetof(struct batchnorm_config, momentum), "0.1",
     .help = "Share of the newest batch in the running statistics", .min = 0, .max = 1},
    {0},
};

const struct layer_ops layer_batchnorm = {
    .section = {.name = "batchnorm",
                .fields = fields,
                .size = sizeof(struct batchnorm_config),
                .help = "Brings each channel (or feature) to mean 0 and variance 1 over a shard of the batch, then "
                        "scales and shifts it",
                .also = "torch.nn.BatchNorm2d|torch.nn.BatchNorm1d"},
    .out = {[INPUT_FEATURES] = "F", [INPUT_IMAGE] = "C, H, W"},
    .instead = "use layernorm or rmsnorm",
    .formula = "y = weight * (x - mean) / sqrt(var + eps) + bias; in evaluation mean and var are the running ones",
    .example = "- batchnorm",
    .of = "16x32x32",
    .moments = true,
    .plan = batchnorm_plan,
};
