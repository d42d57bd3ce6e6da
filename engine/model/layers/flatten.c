/* flatten: an image as plain features. Memory stays as it is, so there is nothing to compute. */
#include "engine/model/layer.h"

static enum error flatten_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    (void)config;
    p->y = (struct shape){.ndim = 1, .dim = {shape_count(x)}};
    p->view = true;
    return ERR_NONE;
}

static const struct config_field fields[] = {{0}};

const struct layer_ops layer_flatten = {
    .section = {.name = "flatten",
                .fields = fields,
                .help = "An image or a sequence as plain features; nothing is computed",
                .also = "torch.nn.Flatten"},
    .out = {[INPUT_FEATURES] = "F", [INPUT_SEQUENCE] = "T * F", [INPUT_IMAGE] = "C * H * W"},
    .formula = "y[(c * H + i) * W + j] = x[c, i, j]",
    .example = "- flatten",
    .of = "1x28x28",
    .plan = flatten_plan,
};
