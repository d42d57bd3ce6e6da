/* Activations, plain. */
#include "engine/device/ref/ref.h"

#include "engine/base/real.h"

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

static enum error activation_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&ref_activation, dev, d, out);
}

const struct op_impl ref_activation = {
    .name = "ref",
    .takes = op_takes_plain,
    .create = activation_create,
    .forward = activation_forward,
    .backward = activation_backward,
    .free = op_release,
};
