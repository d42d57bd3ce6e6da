/* Plain C of every op: the specification that other implementations are tested against. Loops
 * follow the formulas, sums are taken in double, and every description is taken, fusions included.
 */
#pragma once
#include "engine/device/impl.h"

extern const struct device_ops device_ref;

#define OP(KIND, name, cpu, cuda) extern const struct op_row op_##name;
#include "engine/device/ops.def"

/* Whether y = (channels, places of the window in x), after a 2x2 max-pool if there is one. */
bool window_fits(const struct op_desc *d, const struct window *w, bool maxpool);
/* A window as attributes of an ONNX operator. */
void window_onnx(const struct window *w, char out[3][128]);

/* What a fused activation does to a value, and to the gradient where the output was y. */
static inline float act_forward(enum activation act, float v) {
    return act == ACT_RELU && v < 0 ? 0 : v; /* NaN stays NaN */
}
static inline float act_backward(enum activation act, float y, float dy) {
    return act == ACT_RELU && !(y > 0) ? 0 : dy;
}
/* The value of d's activation, whichever it is, and its slope, both from what it reads. */
double act_value(const struct op_desc *d, double x);
double act_slope(const struct op_desc *d, double x);
