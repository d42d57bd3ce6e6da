/* Activations on vector units, an even part of the elements for each thread. Elements know nothing
 * of their neighbours, so both layouts are the same. */
#include "engine/base/vector.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/fast_math.h"
#include "engine/device/cpu/kernels.h"

enum { GRAIN = 4096 }; /* elements that are worth a thread */

/* ---- kernels: those of relu and gelu are shared with others --------------------------------- */
/* gelu's approximation is x sigmoid(2u), 2u = sqrt(8 / pi) (x + 0.044715 x^3). */
static inline __attribute__((always_inline)) float gelu_gate(float x) {
    return 1.59576912f * (x + 0.044715f * (x * x * x));
}

VECTORISED static void gelu_tanh_loop(int64_t n, const float *x, float *y) {
    for (int64_t k = 0; k < n; k++) y[k] = x[k] * fast_sigmoid(gelu_gate(x[k]));
}

/* The sigmoid's slope s (1 - s) is taken as s^2 e, which keeps its digits where s is near 1. */
VECTORISED static void gelu_tanh_backward_loop(int64_t n, const float *x, const float *dy,
                                               float *dx) {
    for (int64_t k = 0; k < n; k++) {
        float v = x[k], e = fast_exp(-gelu_gate(v)), s = 1.0f / (1.0f + e);
        dx[k] = dy[k] * (s + v * (1.59576912f + 0.214064449f * (v * v)) * (s * (s * e)));
    }
}

VECTORISED static void silu_loop(int64_t n, const float *x, float *y) {
    for (int64_t k = 0; k < n; k++) y[k] = x[k] * fast_sigmoid(x[k]);
}

VECTORISED static void silu_backward_loop(int64_t n, const float *x, const float *dy, float *dx) {
    for (int64_t k = 0; k < n; k++) {
        float e = fast_exp(-x[k]), s = 1.0f / (1.0f + e);
        dx[k] = dy[k] * (s + x[k] * (s * (s * e)));
    }
}

VECTORISED static void sigmoid_loop(int64_t n, const float *x, float *y) {
    for (int64_t k = 0; k < n; k++) y[k] = fast_sigmoid(x[k]);
}

VECTORISED static void sigmoid_backward_loop(int64_t n, const float *y, const float *dy,
                                             float *dx) {
    for (int64_t k = 0; k < n; k++) dx[k] = dy[k] * (y[k] * (1 - y[k]));
}

VECTORISED static void tanh_loop(int64_t n, const float *x, float *y) {
    for (int64_t k = 0; k < n; k++) y[k] = fast_tanh(x[k]);
}

VECTORISED static void tanh_backward_loop(int64_t n, const float *y, const float *dy, float *dx) {
    for (int64_t k = 0; k < n; k++) dx[k] = dy[k] * (1 - y[k] * y[k]);
}

/* ---- by activation -------------------------------------------------------------------------- */
struct kernel {
    void (*forward)(int64_t n, const float *x, float *y);
    bool by_y; /* backward reads y, not x */
    void (*backward)(int64_t n, const float *x_or_y, const float *dy, float *dx);
};

void kernel_gelu_tanh(int64_t n, const float *x, float *y) {
    gelu_tanh_loop(n, x, y);
}
void kernel_gelu_tanh_backward(int64_t n, const float *x, const float *dy, float *dx) {
    gelu_tanh_backward_loop(n, x, dy, dx);
}
void kernel_silu(int64_t n, const float *x, float *y) {
    silu_loop(n, x, y);
}
void kernel_silu_backward(int64_t n, const float *x, const float *dy, float *dx) {
    silu_backward_loop(n, x, dy, dx);
}
static void sigmoid(int64_t n, const float *x, float *y) {
    sigmoid_loop(n, x, y);
}
static void sigmoid_backward(int64_t n, const float *y, const float *dy, float *dx) {
    sigmoid_backward_loop(n, y, dy, dx);
}
static void tanh_forward(int64_t n, const float *x, float *y) {
    tanh_loop(n, x, y);
}
static void tanh_backward(int64_t n, const float *y, const float *dy, float *dx) {
    tanh_backward_loop(n, y, dy, dx);
}

static const struct kernel kernels[] = {
    [ACT_RELU] = {kernel_relu, true, kernel_relu_backward},
    [ACT_GELU] = {kernel_gelu, false, kernel_gelu_backward},
    [ACT_GELU_TANH] = {kernel_gelu_tanh, false, kernel_gelu_tanh_backward},
    [ACT_SILU] = {kernel_silu, false, kernel_silu_backward},
    [ACT_SIGMOID] = {sigmoid, true, sigmoid_backward},
    [ACT_TANH] = {tanh_forward, true, tanh_backward},
};

/* ---- the op --------------------------------------------------------------------------------- */
struct pass {
    const struct op_args *a;
    const struct kernel *kernel;
};

static void forward_part(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    p->kernel->forward(end - begin, p->a->x[0] + begin, p->a->y + begin);
}

static void backward_part(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const float *from = p->kernel->by_y ? p->a->y : p->a->x[0];
    p->kernel->backward(end - begin, from + begin, p->a->dy + begin, p->a->dx[0] + begin);
}

static enum error activation_forward(struct op *op, const struct op_args *a) {
    struct pass p = {a, &kernels[op->desc.act]};
    cpu_parallel(op->dev, op_xs(&op->desc), GRAIN, forward_part, &p);
    return ERR_NONE;
}

static enum error activation_backward(struct op *op, const struct op_args *a) {
    struct pass p = {a, &kernels[op->desc.act]};
    if (a->dx[0]) cpu_parallel(op->dev, op_xs(&op->desc), GRAIN, backward_part, &p);
    return ERR_NONE;
}

static enum error activation_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&cpu_activation, dev, d, out);
}

static bool activation_takes(const struct op_desc *d) {
    return d->act != ACT_NONE && d->x_layout == d->y_layout;
}

const struct op_impl cpu_activation = {
    .name = "vector",
    .takes = activation_takes,
    .create = activation_create,
    .forward = activation_forward,
    .backward = activation_backward,
    .free = op_release,
};
