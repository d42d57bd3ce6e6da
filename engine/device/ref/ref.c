/* The ref device: plain C on the calling thread. */
#include "engine/device/ref/ref.h"

#include <stdlib.h>

static const struct op_impl *const lists[OP_KINDS][2] = {
    [OP_LINEAR] = {&ref_linear},
    [OP_CONV2D] = {&ref_conv2d},
    [OP_POOL2D] = {&ref_pool2d},
    [OP_RELU] = {&ref_relu},
    [OP_GELU] = {&ref_gelu},
    [OP_DROPOUT] = {&ref_dropout},
    [OP_BATCHNORM] = {&ref_batchnorm},
    [OP_ADD] = {&ref_add},
    [OP_CROSS_ENTROPY] = {&ref_cross_entropy},
    [OP_MSE] = {&ref_mse},
};

const struct op_impl *ref_impl(enum op_kind kind) {
    return lists[kind][0];
}

static enum error ref_open(const struct device_params *p, struct device **out) {
    struct device *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "cannot allocate a device");
    d->ops = &device_ref;
    d->params = *p;
    *out = d;
    return ERR_NONE;
}

static void ref_close(struct device *d) {
    free(d);
}

static const struct op_impl *const *ref_impls(struct device *d, enum op_kind kind) {
    (void)d;
    return lists[kind];
}

const struct device_ops device_ref = {
    .name = "ref",
    .summary = "plain C on one thread: the specification",
    .open = ref_open,
    .close = ref_close,
    .impls = ref_impls,
};
