/* layernorm: each row to mean 0 and variance 1, then scaled and shifted. */
#include "engine/model/layer.h"

struct layernorm_config {
    double eps;
    bool bias;
};

static enum error layernorm_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct layernorm_config *c = config;
    layer_plan_same(p, x, OP_LAYERNORM);
    p->op.norm.eps = (float)c->eps;
    p->op.norm.bias = c->bias;
    struct shape features = {.ndim = 1, .dim = {shape_last(x)}};
    layer_plan_param(p, (struct layer_tensor){"weight", features, INIT_ONE, 0});
    if (c->bias) layer_plan_param(p, (struct layer_tensor){"bias", features, INIT_ZERO, 0});
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"eps", CONFIG_REAL, offsetof(struct layernorm_config, eps), "1e-5", .help = "Added to the variance", .min = 1e-12,
     .max = 1},
    {"bias", CONFIG_BOOL, offsetof(struct layernorm_config, bias), "true",
     .help = "Whether a learned constant is added to each feature"},
    {0},
};

const struct layer_ops layer_layernorm = {
    .section = {.name = "layernorm",
                .fields = fields,
                .size = sizeof(struct layernorm_config),
                .help = "Brings each row of features to mean 0 and variance 1, then scales and shifts it",
                .also = "torch.nn.LayerNorm"},
    .out = {[INPUT_FEATURES] = "F", [INPUT_SEQUENCE] = "T, F"},
    .formula = "y = weight * (x - mean) / sqrt(var + eps) + bias, mean and var of a row",
    .example = "- layernorm",
    .of = "128x192",
    .plan = layernorm_plan,
};
