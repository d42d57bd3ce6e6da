/* meanpool: the mean of each channel over the image, or of each feature over the sequence. */
#include "engine/model/layer.h"

static enum error meanpool_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    p->y = (struct shape){.ndim = 1, .dim = {x->dim[x->ndim == 2 ? 1 : 0]}};
    p->op = (struct op_desc){.kind = OP_MEAN, .x = *x, .y = p->y};
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_meanpool = {
    .section = {.name = "meanpool",
                .fields = fields,
                .help = "The mean of each channel over the image, or of each feature over the sequence",
                .also = "torch.nn.AdaptiveAvgPool2d|torch.mean"},
    .out = {[INPUT_SEQUENCE] = "F", [INPUT_IMAGE] = "C"},
    .formula = "y[c] = mean over i, j of x[c, i, j]; of a sequence y[f] = mean over t of x[t, f]",
    .example = "- meanpool",
    .of = "512x4x4",
    .plan = meanpool_plan,
};
