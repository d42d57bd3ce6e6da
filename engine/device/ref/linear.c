/* y = act(x w' + b), plain. */
#include "engine/device/ref/ref.h"

static enum error linear_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t in = shape_count(&d->x), out = shape_count(&d->y);
    for (int64_t i = 0; i < d->n; i++)
        for (int64_t o = 0; o < out; o++) {
            double sum = d->linear.bias ? (double)a->w[1][o] : 0;
            for (int64_t k = 0; k < in; k++)
                sum += (double)a->x[0][i * in + k] * (double)a->w[0][o * in + k];
            a->y[i * out + o] = act_forward(d->act, (float)sum);
        }
    return ERR_NONE;
}

/* The gradient behind the activation. */
static double behind_act(const struct op *op, const struct op_args *a, int64_t at) {
    return (double)act_backward(op->desc.act, a->y[at], a->dy[at]);
}

static enum error linear_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t in = shape_count(&d->x), out = shape_count(&d->y);
    for (int64_t o = 0; o < out; o++) {
        double bias = 0;
        for (int64_t i = 0; i < d->n; i++) bias += behind_act(op, a, i * out + o);
        if (d->linear.bias) a->dw[1][o] = (float)bias;
        for (int64_t k = 0; k < in; k++) {
            double sum = 0;
            for (int64_t i = 0; i < d->n; i++)
                sum += behind_act(op, a, i * out + o) * (double)a->x[0][i * in + k];
            a->dw[0][o * in + k] = (float)sum;
        }
    }
    for (int64_t i = 0; i < d->n && a->dx[0]; i++)
        for (int64_t k = 0; k < in; k++) {
            double sum = 0;
            for (int64_t o = 0; o < out; o++)
                sum += behind_act(op, a, i * out + o) * (double)a->w[0][o * in + k];
            a->dx[0][i * in + k] = (float)sum;
        }
    return ERR_NONE;
}

static enum error linear_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&ref_linear, dev, d, out);
}

const struct op_impl ref_linear = {
    .name = "ref",
    .takes = op_takes_any,
    .create = linear_create,
    .forward = linear_forward,
    .backward = linear_backward,
    .free = op_release,
};
