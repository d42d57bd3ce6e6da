/* class_token: a learned row of features in front of the sequence. */
#include "engine/model/layer.h"

struct class_token_config {
    double deviation;
    int64_t lead;
};

static enum error class_token_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct class_token_config *c = config;
    p->y = (struct shape){.ndim = 2, .dim = {x->dim[0] + 1, x->dim[1]}};
    p->op = (struct op_desc){.kind = OP_PREPEND, .x = *x, .y = p->y};
    struct shape row = {.ndim = 1, .dim = {x->dim[1]}};
    layer_plan_param(
        p, (struct layer_tensor){"weight", layer_lead(row, c->lead), INIT_NORMAL, .deviation = (float)c->deviation});
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"deviation", CONFIG_REAL, offsetof(struct class_token_config, deviation), "0",
     .help = "Standard deviation of the first values", .min = 0, .max = 1e3},
    {"lead", CONFIG_INT, offsetof(struct class_token_config, lead), "0",
     .help = "Dimensions of 1 before the parameter's own, as torchvision stores it", .min = 0, .max = 2},
    {0},
};

const struct layer_ops layer_class_token = {
    .section = {.name = "class_token",
                .fields = fields,
                .size = sizeof(struct class_token_config),
                .help = "Puts a learned row of features in front of a sequence",
                .also = "torch.cat of a torch.nn.Parameter"},
    .out = {[INPUT_SEQUENCE] = "T + 1, F"},
    .formula = "y[0] = weight, y[t + 1] = x[t]",
    .example = "- class_token: {deviation: 0.02}",
    .of = "64x192",
    .plan = class_token_plan,
};
