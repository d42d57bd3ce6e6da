/* gelu: x (1 + erf(x / sqrt 2)) / 2, or its approximation with tanh, element by element. */
#include "engine/model/layer.h"

struct gelu_config {
    int approximate; /* 0: none, 1: tanh */
};

static enum error gelu_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct gelu_config *c = config;
    layer_plan_activation(p, x, c->approximate ? ACT_GELU_TANH : ACT_GELU);
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"approximate", CONFIG_ENUM, offsetof(struct gelu_config, approximate), "none", .choices = "none|tanh",
     .help = "Use tanh instead of erf, as GPT-2 does"},
    {0},
};

const struct layer_ops layer_gelu = {
    .section = {.name = "gelu",
                .fields = fields,
                .size = sizeof(struct gelu_config),
                .shorthand = "approximate",
                .help =
                    "The smooth activation of transformers: x by the share of a normal distribution that lies below it",
                .also = "torch.nn.GELU"},
    .out = LAYER_SAME,
    .formula = "y = x * (1 + erf(x / sqrt(2))) / 2; tanh: y = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2",
    .example = "- gelu: tanh",
    .of = "768",
    .plan = gelu_plan,
};
