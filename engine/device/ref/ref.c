/* The ref device: plain C on the calling thread. */
#include "engine/device/ref/ref.h"
#include "engine/device/runtime.h"

#include <stdlib.h>

static const struct op_impl *const lists[OP_KINDS][2] = {
    [OP_LINEAR] = {&ref_linear},     [OP_CONV2D] = {&ref_conv2d},
    [OP_POOL2D] = {&ref_pool2d},     [OP_ACTIVATION] = {&ref_activation},
    [OP_DROPOUT] = {&ref_dropout},   [OP_BATCHNORM] = {&ref_batchnorm},
    [OP_ADD] = {&ref_add},           [OP_CROSS_ENTROPY] = {&ref_cross_entropy},
    [OP_MSE] = {&ref_mse},           [OP_LAYERNORM] = {&ref_layernorm},
    [OP_RMSNORM] = {&ref_rmsnorm},   [OP_EMBEDDING] = {&ref_embedding},
    [OP_POSITION] = {&ref_position}, [OP_PREPEND] = {&ref_prepend},
    [OP_SELECT] = {&ref_select},     [OP_TOKENS] = {&ref_tokens},
    [OP_MEAN] = {&ref_mean},         [OP_ATTENTION] = {&ref_attention},
    [OP_REORDER] = {&ref_reorder},
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

static bool ref_has_bf16(void) {
    return false;
}

const struct device_ops device_ref = {
    .name = "ref",
    .summary = "plain C on one thread: the specification",
    .open = ref_open,
    .close = ref_close,
    .impls = ref_impls,
    .runtime = &host_runtime,
    .precisions = 1u << PRECISION_F32 | 1u << PRECISION_BF16,
    .has_bf16 = ref_has_bf16,
};
