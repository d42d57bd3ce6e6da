/* Activations, plain. */
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"
#include "engine/base/real.h"

#include <math.h>
#include <stdio.h>

static double normal(double x) {
    return 0.5 * (1 + real_erf(x * 0.70710678118654752));
}

static double sigmoid(double x) {
    return 1 / (1 + real_exp(-x));
}

/* What gelu's approximation puts into tanh, halved: (1 + tanh u) / 2 = sigmoid(2u). */
static double gelu_inner(double x) {
    return 1.5957691216057308 * (x + 0.044715 * x * x * x);
}

static double gelu_tanh_slope(double x) {
    double s = sigmoid(gelu_inner(x));
    return s + x * s * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}

double act_value(const struct op_desc *d, double x) {
    double alpha = (double)d->act_alpha;
    (void)alpha;
    switch (d->act) {
#define PLAIN(NAME, value, slope)                                                                                      \
    case ACT_##NAME:                                                                                                   \
        return value;
#include "engine/device/activations.def"
    }
    return x;
}

double act_slope(const struct op_desc *d, double x) {
    double alpha = (double)d->act_alpha;
    (void)alpha;
    switch (d->act) {
#define PLAIN(NAME, value, slope)                                                                                      \
    case ACT_##NAME:                                                                                                   \
        return slope;
#include "engine/device/activations.def"
    }
    return 1;
}

static enum error activation_forward(struct op *op, const struct op_args *a) {
    for (int64_t k = 0; k < op_xs(&op->desc); k++) a->y[k] = (float)act_value(&op->desc, (double)a->x[0][k]);
    return ERR_NONE;
}

static enum error activation_backward(struct op *op, const struct op_args *a) {
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++)
        a->dx[0][k] = (float)((double)a->dy[k] * act_slope(&op->desc, (double)a->x[0][k]));
    return ERR_NONE;
}

/* ---- as ONNX operators ---------------------------------------------------------------------- */
/* x (1 + erf(x / sqrt 2)) / 2 */
static const char *gelu_onnx(struct onnx_graph *g, const char *name, const char *x) {
    const char *e = onnx_unary(g, "Erf", onnx_name(g, name, "erf"),
                               onnx_binary(g, "Mul", onnx_name(g, name, "scaled"), x, onnx_float(g, (float)sqrt(0.5))));
    const char *one = onnx_binary(g, "Add", onnx_name(g, name, "up"), e, onnx_float(g, 1));
    const char *half = onnx_binary(g, "Mul", onnx_name(g, name, "half"), x, onnx_float(g, 0.5f));
    return onnx_binary(g, "Mul", name, half, one);
}

/* x / (1 + e^(-2 sqrt(2 / pi) (x + 0.044715 x^3))) */
static const char *gelu_tanh_onnx(struct onnx_graph *g, const char *name, const char *x) {
    const char *square = onnx_binary(g, "Mul", onnx_name(g, name, "square"), x, x);
    const char *bent = onnx_binary(g, "Mul", onnx_name(g, name, "bent"), square, onnx_float(g, 0.044715f));
    const char *up = onnx_binary(g, "Add", onnx_name(g, name, "up"), bent, onnx_float(g, 1));
    const char *inner = onnx_binary(g, "Mul", onnx_name(g, name, "inner"), x, up);
    const char *scaled = onnx_binary(g, "Mul", onnx_name(g, name, "scaled"), inner, onnx_float(g, 1.5957691216f));
    return onnx_binary(g, "Mul", name, x, onnx_unary(g, "Sigmoid", onnx_name(g, name, "gate"), scaled));
}

/* x above 0, else alpha x */
static const char *leaky_relu_onnx(struct onnx_graph *g, const char *name, const char *x, double alpha) {
    char text[48];
    snprintf(text, sizeof text, "alpha=f%.9g", alpha);
    return onnx_node(g, "LeakyRelu", name, ONNX_LIST(x), ONNX_LIST(text));
}

static const char *silu_onnx(struct onnx_graph *g, const char *name, const char *x) {
    return onnx_binary(g, "Mul", name, x, onnx_unary(g, "Sigmoid", onnx_name(g, name, "gate"), x));
}

static const char *activation_onnx(const struct onnx_form *f) {
    struct onnx_graph *g = f->g;
    const char *x = f->x[0], *name = f->name;
    double alpha = (double)f->d->act_alpha;
    switch (f->d->act) {
#define ONNX(NAME, form)                                                                                               \
    case ACT_##NAME:                                                                                                   \
        return form;
#include "engine/device/activations.def"
    }
    return x;
}

const struct op_row op_activation = {
    .name = "activation",
    .sees = SEES_ROW,
    .elementwise = true,
    .activates = true,
    .onnx = activation_onnx,
    .plain = {.name = "ref", .forward = activation_forward, .backward = activation_backward},
};
