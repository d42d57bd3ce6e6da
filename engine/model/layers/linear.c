/* linear: y = x w' + b, every output from every input. */
#include "engine/model/layer.h"

struct linear_config {
    int64_t units;
    bool bias;
};

static enum error linear_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct linear_config *c = config;
    if (c->units < 1) return FAIL(ERR_CONFIG, "units is missing\nlinear: 10");
    if (x->ndim != 1)
        return FAIL(ERR_CONFIG, "linear takes features, not an image\nput flatten before it");
    int64_t in = x->dim[0], out = c->units;
    p->y = (struct shape){.ndim = 1, .dim = {out}};
    p->op = (struct op_desc){.kind = OP_LINEAR, .x = *x, .y = p->y, .linear.bias = c->bias};
    struct shape weight = {.ndim = 2, .dim = {out, in}};
    layer_plan_param(p, (struct layer_tensor){"weight", weight, INIT_UNIFORM, in});
    if (c->bias) layer_plan_param(p, (struct layer_tensor){"bias", p->y, INIT_UNIFORM, in});
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"units", CONFIG_INT, offsetof(struct linear_config, units), .min = 1, .max = 1 << 24,
     .help = "Outputs"},
    {"bias", CONFIG_BOOL, offsetof(struct linear_config, bias), "true",
     .help = "Whether a learned constant is added to each output"},
    {0},
};

const struct layer_ops layer_linear = {
    .section = {.name = "linear",
                .fields = fields,
                .size = sizeof(struct linear_config),
                .shorthand = "units",
                .help = "Fully connected: every output from every input"},
    .inputs = 1,
    .plan = linear_plan,
};
