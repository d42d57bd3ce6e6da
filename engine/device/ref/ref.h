/* Plain C of every op: the specification that other implementations are tested against. Loops
 * follow the formulas, sums are taken in double, and every description is taken, fusions included.
 */
#pragma once
#include "engine/device/impl.h"

extern const struct device_ops device_ref;
const struct op_impl *ref_impl(enum op_kind kind);

extern const struct op_impl ref_linear, ref_conv2d, ref_pool2d, ref_activation, ref_dropout,
    ref_batchnorm, ref_reorder, ref_add, ref_cross_entropy, ref_mse;
extern const struct op_impl ref_layernorm, ref_rmsnorm, ref_embedding, ref_position, ref_prepend,
    ref_select, ref_tokens, ref_mean, ref_attention;

/* What a fused activation does to a value, and to the gradient where the output was y. */
static inline float act_forward(enum activation act, float v) {
    return act == ACT_RELU && v < 0 ? 0 : v; /* NaN stays NaN */
}
static inline float act_backward(enum activation act, float y, float dy) {
    return act == ACT_RELU && !(y > 0) ? 0 : dy;
}
/* The same of every activation, from what it read. */
double act_value(enum activation act, double x);
double act_slope(enum activation act, double x);
