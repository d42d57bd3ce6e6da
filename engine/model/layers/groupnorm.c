/* groupnorm: each group of channels of a sample to mean 0 and variance 1, then each channel scaled and shifted. */
#include "engine/model/layer.h"

struct groupnorm_config {
    int64_t groups;
    double eps;
    bool affine;
};

static enum error groupnorm_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct groupnorm_config *c = config;
    if (x->dim[0] % c->groups)
        return FAIL(ERR_CONFIG, "groups %lld does not divide %lld channels", (long long)c->groups,
                    (long long)x->dim[0]);
    layer_plan_same(p, x, OP_GROUPNORM);
    p->op.own.whole = c->groups;
    p->op.norm.eps = (float)c->eps;
    p->op.norm.bias = c->affine;
    struct shape channels = {.ndim = 1, .dim = {x->dim[0]}};
    if (!c->affine) return ERR_NONE;
    layer_plan_param(p, (struct layer_tensor){"weight", channels, INIT_ONE, 0});
    layer_plan_param(p, (struct layer_tensor){"bias", channels, INIT_ZERO, 0});
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"groups", CONFIG_INT, offsetof(struct groupnorm_config, groups), .required = true, .also = "num_groups", .min = 1,
     .max = 1 << 20, .help = "Cuts the channels into groups of adjacent ones, each normalised by itself"},
    {"eps", CONFIG_REAL, offsetof(struct groupnorm_config, eps), "1e-5", .help = "Added to the variance", .min = 1e-12,
     .max = 1},
    {"affine", CONFIG_BOOL, offsetof(struct groupnorm_config, affine), "true",
     .help = "Whether each channel is scaled and shifted by learned numbers"},
    {0},
};

const struct layer_ops layer_groupnorm = {
    .section = {.name = "groupnorm",
                .fields = fields,
                .size = sizeof(struct groupnorm_config),
                .shorthand = "groups",
                .help = "Brings each group of channels (or features) of a sample to mean 0 and variance 1, then scales "
                        "and shifts each channel; unlike batchnorm, a sample does not depend on its batch",
                .also = "torch.nn.GroupNorm"},
    .out = {[INPUT_FEATURES] = "F", [INPUT_IMAGE] = "C, H, W"},
    .instead = "use layernorm or rmsnorm",
    .formula = "y = weight * (x - mean) / sqrt(var + eps) + bias, mean and var of a sample's group",
    .example = "- groupnorm: 2",
    .of = "16x32x32",
    .plan = groupnorm_plan,
};
