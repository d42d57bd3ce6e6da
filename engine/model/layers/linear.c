/* linear: y = x w' + b, every output from every input of the row. */
#include "engine/model/layer.h"

struct linear_config {
    int64_t units;
    bool bias, transposed;
    double deviation;
    const char *tie;
};

static enum error linear_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct linear_config *c = config;
    int64_t in = shape_last(x), out = c->units;
    p->y = *x;
    p->y.dim[x->ndim - 1] = out;
    p->op = (struct op_desc){.kind = OP_LINEAR, .x = *x, .y = p->y};
    p->op.linear.bias = c->bias;
    p->op.linear.transposed = c->transposed;
    p->tie = c->tie;
    struct shape shape = {.ndim = 2, .dim = {out, in}};
    if (c->transposed) shape.dim[0] = in, shape.dim[1] = out;
    layer_plan_affine(p, shape, out, in, c->deviation, c->bias);
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"units", CONFIG_INT, offsetof(struct linear_config, units), .required = true, .also = "out_features", .min = 1,
     .max = 1 << 24, .help = "Outputs"},
    {"bias", CONFIG_BOOL, offsetof(struct linear_config, bias), "true",
     .help = "Whether a learned constant is added to each output"},
    {"transposed", CONFIG_BOOL, offsetof(struct linear_config, transposed), "false",
     .help = "Whether the weight is kept as (inputs, outputs), as GPT-2 has it"},
    {"deviation", CONFIG_REAL, offsetof(struct linear_config, deviation), "0",
     .help = "Standard deviation of the first weights, with biases of 0; 0: uniform, as PyTorch", .min = 0, .max = 1e3},
    {"tie", CONFIG_STRING, offsetof(struct linear_config, tie),
     .help = "Layer before it (an embedding) whose weight is this one's too"},
    {0},
};

const struct layer_ops layer_linear = {
    .section = {.name = "linear",
                .fields = fields,
                .size = sizeof(struct linear_config),
                .shorthand = "units",
                .help = "Fully connected: every output is a weighted sum of all inputs of a row",
                .also = "torch.nn.Linear"},
    .out = {[INPUT_FEATURES] = "units", [INPUT_SEQUENCE] = "T, units"},
    .formula = "y[o] = bias[o] + sum over i of weight[o, i] * x[i]",
    .example = "- linear: 10",
    .of = "784",
    .plan = linear_plan,
};
