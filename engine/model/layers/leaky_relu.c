/* leaky_relu: x where it is above 0, else slope x, element by element. */
#include "engine/model/layer.h"

struct leaky_relu_config {
    double slope;
};

static enum error leaky_relu_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct leaky_relu_config *c = config;
    layer_plan_activation(p, x, ACT_LEAKY_RELU);
    p->op.act_alpha = (float)c->slope;
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"slope", CONFIG_REAL, offsetof(struct leaky_relu_config, slope), "0.01", .also = "negative_slope|alpha",
     .help = "Factor of x if x is not above 0"},
    {0},
};

const struct layer_ops layer_leaky_relu = {
    .section = {.name = "leaky_relu",
                .fields = fields,
                .size = sizeof(struct leaky_relu_config),
                .shorthand = "slope",
                .help = "x if it is above 0, and a small part of x otherwise",
                .also = "torch.nn.LeakyReLU"},
    .out = LAYER_SAME,
    .formula = "y = x if x > 0, else slope * x",
    .example = "- leaky_relu: 0.1",
    .of = "64",
    .plan = leaky_relu_plan,
};
