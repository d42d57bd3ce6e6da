/* select: one row of a sequence. */
#include "engine/model/layer.h"

struct select_config {
    int64_t row;
};

static enum error select_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct select_config *c = config;
    if (c->row >= x->dim[0])
        return FAIL(ERR_CONFIG, "row %lld does not exist: rows are counted from 0 to %lld", (long long)c->row,
                    (long long)x->dim[0] - 1);
    p->y = (struct shape){.ndim = 1, .dim = {x->dim[1]}};
    p->op = (struct op_desc){.kind = OP_SELECT, .x = *x, .y = p->y, .select = {c->row}};
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"row", CONFIG_INT, offsetof(struct select_config, row), "0", .also = "index", .help = "Which row, counted from 0",
     .min = 0, .max = 1 << 24},
    {0},
};

const struct layer_ops layer_select = {
    .section = {.name = "select",
                .fields = fields,
                .size = sizeof(struct select_config),
                .shorthand = "row",
                .help = "One row of a sequence, as the class token's",
                .also = "torch.select"},
    .out = {[INPUT_SEQUENCE] = "F"},
    .formula = "y = x[row]",
    .example = "- select: 0",
    .of = "65x192",
    .plan = select_plan,
};
