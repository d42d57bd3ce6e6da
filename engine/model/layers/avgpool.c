/* avgpool: the mean of each window, padding counted as zeros. */
#include "engine/model/layers/window.h"

static enum error avgpool_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    return pool_plan(config, POOL_AVG, x, p);
}

const struct layer_ops layer_avgpool = {
    .section = {.name = "avgpool",
                .fields = pool_fields,
                .size = sizeof(struct pool_config),
                .shorthand = "kernel",
                .help = "The mean of each window of an image, padding counted as zeros",
                .also = "torch.nn.AvgPool2d"},
    .out = {[INPUT_IMAGE] = "C, (H + 2 * pad - kernel) / stride + 1, (W + 2 * pad - kernel) / stride + 1"},
    .formula = "y[c, i, j] = mean over u, v of x[c, i * stride + u - pad, j * stride + v - pad]",
    .example = "- avgpool: 2",
    .of = "6x28x28",
    .plan = avgpool_plan,
};
