/* position: a learned row of features for each position, added to what comes in. */
#include "engine/model/layer.h"

struct position_config {
    double deviation;
    int64_t lead;
};

static enum error position_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct position_config *c = config;
    layer_plan_same(p, x, OP_POSITION);
    layer_plan_param(
        p, (struct layer_tensor){"weight", layer_lead(*x, c->lead), INIT_NORMAL, .deviation = (float)c->deviation});
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"deviation", CONFIG_REAL, offsetof(struct position_config, deviation), "0.02",
     .help = "Standard deviation of the first values", .min = 0, .max = 1e3},
    {"lead", CONFIG_INT, offsetof(struct position_config, lead), "0",
     .help = "Dimensions of 1 before the parameter's own, as torchvision stores it", .min = 0, .max = 2},
    {0},
};

const struct layer_ops layer_position = {
    .section = {.name = "position",
                .fields = fields,
                .size = sizeof(struct position_config),
                .help = "Adds a learned row of features to each position of a sequence",
                .also = "addition of a torch.nn.Parameter"},
    .out = {[INPUT_SEQUENCE] = "T, F"},
    .formula = "y[t] = x[t] + weight[t]",
    .example = "- position: {deviation: 0.02}",
    .of = "128x192",
    .plan = position_plan,
};
