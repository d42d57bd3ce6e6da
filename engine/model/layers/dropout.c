/* dropout: in training each element is dropped with probability p, the others grow by 1 / (1 - p).
 */
#include "engine/model/layer.h"

struct dropout_config {
    double p;
};

static enum error dropout_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct dropout_config *c = config;
    layer_plan_same(p, x, OP_DROPOUT);
    p->op.dropout.p = (float)c->p;
    p->view = p->op.dropout.p == 0; /* nothing is ever dropped */
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"p", CONFIG_REAL, offsetof(struct dropout_config, p), "0.5", .also = "dropout|rate",
     .help = "Probability that an element is dropped", .min = 0, .max = 0.999},
    {0},
};

const struct layer_ops layer_dropout = {
    .section = {.name = "dropout",
                .fields = fields,
                .size = sizeof(struct dropout_config),
                .shorthand = "p",
                .help = "Drops elements at random in training, and makes up for it in the others",
                .also = "torch.nn.Dropout"},
    .out = LAYER_SAME,
    .formula = "in training y = 0 with probability p, else x / (1 - p); in evaluation y = x",
    .example = "- dropout: 0.1",
    .of = "512",
    .plan = dropout_plan,
};
