/* meanpool: the mean of each channel over the image, or of each feature over the sequence. */
#include "engine/model/layer.h"

static enum error meanpool_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    if (x->ndim < 2) return FAIL(ERR_CONFIG, "meanpool takes an image or a sequence");
    p->y = (struct shape){.ndim = 1, .dim = {x->dim[x->ndim == 2 ? 1 : 0]}};
    p->op = (struct op_desc){.kind = OP_MEAN, .x = *x, .y = p->y};
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_meanpool = {
    .section = {.name = "meanpool",
                .fields = fields,
                .help = "The mean of each channel of an image, of each feature of a sequence"},
    .inputs = 1,
    .plan = meanpool_plan,
};
