/* maxpool: the largest of each window. */
#include "engine/model/layers/window.h"

static enum error maxpool_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    return pool_plan(config, POOL_MAX, x, p);
}

const struct layer_ops layer_maxpool = {
    .section = {.name = "maxpool",
                .fields = pool_fields,
                .size = sizeof(struct pool_config),
                .shorthand = "kernel",
                .help = "The largest of each window of an image",
                .also = "torch.nn.MaxPool2d"},
    .out = {[INPUT_IMAGE] = "C, (H + 2 * pad - kernel) / stride + 1, (W + 2 * pad - kernel) / stride + 1"},
    .formula = "y[c, i, j] = max over u, v of x[c, i * stride + u - pad, j * stride + v - pad]",
    .example = "- maxpool: {kernel: 3, stride: 2, pad: 1}",
    .of = "64x112x112",
    .plan = maxpool_plan,
};
