/* Activations on vector units, an even part of the elements for each thread. Elements know nothing
 * of their neighbours, so both layouts are the same. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/fast_math.h"
#include "engine/device/cpu/kernels.h"

enum { GRAIN = 4096 }; /* elements that are worth a thread */

/* ---- what formulas of activations.def call --------------------------------------------------- */
#define INLINE static inline __attribute__((always_inline))

/* x P(x), P the normal distribution. */
INLINE float gelu(float x) {
    float bell;
    return x * fast_normal(x, &bell);
}
INLINE float gelu_gradient(float x, float dy) {
    float bell, p = fast_normal(x, &bell);
    return dy * (p + x * (0.398942280f * bell));
}

/* gelu's approximation is x sigmoid(2u), 2u = sqrt(8 / pi) (x + 0.044715 x^3). */
INLINE float gelu_inner(float x) {
    return 1.59576912f * (x + 0.044715f * (x * x * x));
}
/* The sigmoid's slope s (1 - s) is taken as s^2 e, which keeps its digits where s is near 1. */
INLINE float gelu_tanh_gradient(float x, float dy) {
    float e = fast_exp(-gelu_inner(x)), s = 1.0f / (1.0f + e);
    return dy * (s + x * (1.59576912f + 0.214064449f * (x * x)) * (s * (s * e)));
}
INLINE float silu_gradient(float x, float dy) {
    float e = fast_exp(-x), s = 1.0f / (1.0f + e);
    return dy * (s + x * (s * (s * e)));
}

/* ---- kernels -------------------------------------------------------------------------------- */
#define CPU(NAME, reads, value, gradient)                                                                              \
    static void act_##NAME##_forward(int64_t n, const float *xs, float alpha, float *ys) {                             \
        (void)alpha;                                                                                                   \
        for (int64_t k = 0; k < n; k++) {                                                                              \
            float x = xs[k];                                                                                           \
            ys[k] = value;                                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static void act_##NAME##_backward(int64_t n, const float *reads##s, const float *dys, float alpha, float *dxs) {   \
        (void)alpha, (void)reads##s;                                                                                   \
        for (int64_t k = 0; k < n; k++) {                                                                              \
            float reads = reads##s[k], dy = dys[k];                                                                    \
            (void)reads;                                                                                               \
            dxs[k] = gradient;                                                                                         \
        }                                                                                                              \
    }
#include "engine/device/activations.def"

enum { BY_x, BY_y };
const struct act_kernel act_kernels[] = {
#define CPU(NAME, reads, value, gradient) {act_##NAME##_forward, act_##NAME##_backward, BY_##reads},
#include "engine/device/activations.def"
};

/* ---- the op --------------------------------------------------------------------------------- */
static void activation_forward_part(const struct cpu_pass *p, int64_t begin, int64_t end) {
    act_kernels[p->d->act].forward(end - begin, p->a->x[0] + begin, p->d->act_alpha, p->a->y + begin);
}

static void activation_backward_part(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct act_kernel *kernel = &act_kernels[p->d->act];
    const float *from = kernel->by_y ? p->a->y : p->a->x[0];
    kernel->backward(end - begin, from + begin, p->a->dy + begin, p->d->act_alpha, p->a->dx[0] + begin);
}

static enum error activation_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op_xs(&op->desc), GRAIN, activation_forward_part);
}

static enum error activation_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op_xs(&op->desc), GRAIN, activation_backward_part) : ERR_NONE;
}

static bool activation_takes(const struct op_desc *d) {
    return d->x_layout == d->y_layout;
}

const struct op_impl CPU_NAME(cpu_activation) = {
    .name = "vector",
    .takes = activation_takes,
    .forward = activation_forward,
    .backward = activation_backward,
};
