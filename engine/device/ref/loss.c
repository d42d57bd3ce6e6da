/* Cross-entropy and mean squared error, plain. Sums are taken in sample order. */
#include "engine/device/ref/ref.h"

#include <math.h>

static int64_t first_largest(const float *x, int64_t count) {
    int64_t best = 0;
    for (int64_t k = 1; k < count; k++)
        if (x[k] > x[best]) best = k;
    return best;
}

/* ---- cross-entropy: y = softmax(x); loss = log(sum exp(x - max)) - (x[label] - max) --------- */
static enum error cross_entropy_forward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_count(&op->desc.x);
    for (int64_t i = 0; i < op->desc.n; i++) {
        const float *x = a->x[0] + i * classes;
        int64_t best = first_largest(x, classes);
        double sum = 0;
        for (int64_t k = 0; k < classes; k++) sum += exp((double)x[k] - (double)x[best]);
        for (int64_t k = 0; k < classes; k++)
            a->y[i * classes + k] = (float)(exp((double)x[k] - (double)x[best]) / sum);
        if (!a->labels) continue;
        TRY(label_check(a->labels[i], classes));
        a->sums[0] += log(sum) - ((double)x[a->labels[i]] - (double)x[best]);
        a->sums[1] += best == a->labels[i];
    }
    return ERR_NONE;
}

static enum error cross_entropy_backward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++) {
        bool hit = a->labels[k / classes] == k % classes;
        a->dx[0][k] = (a->y[k] - (hit ? 1 : 0)) * a->scale;
    }
    return ERR_NONE;
}

static enum error cross_entropy_create(struct device *dev, const struct op_desc *d,
                                       struct op **out) {
    return op_create_plain(&ref_cross_entropy, dev, d, out);
}

const struct op_impl ref_cross_entropy = {
    .name = "ref",
    .takes = op_takes_any,
    .create = cross_entropy_create,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
    .free = op_release,
};

/* ---- mean squared error --------------------------------------------------------------------- */
static float target_of(const struct op_args *a, int64_t features, int64_t at) {
    if (!a->labels) return a->target[at];
    return a->labels[at / features] == at % features ? 1 : 0;
}

static enum error mse_forward(struct op *op, const struct op_args *a) {
    int64_t features = shape_count(&op->desc.x);
    for (int64_t i = 0; i < op->desc.n; i++) {
        if (a->labels) TRY(label_check(a->labels[i], features));
        double sum = 0;
        for (int64_t k = i * features; k < (i + 1) * features; k++) {
            double off = (double)a->x[0][k] - (double)target_of(a, features, k);
            sum += off * off;
        }
        a->sums[0] += sum / (double)features;
        if (a->labels)
            a->sums[1] += first_largest(a->x[0] + i * features, features) == a->labels[i];
    }
    return ERR_NONE;
}

static enum error mse_backward(struct op *op, const struct op_args *a) {
    int64_t features = shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++)
        a->dx[0][k] = 2 * (a->x[0][k] - target_of(a, features, k)) * a->scale / (float)features;
    return ERR_NONE;
}

static enum error mse_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&ref_mse, dev, d, out);
}

const struct op_impl ref_mse = {
    .name = "ref",
    .takes = op_takes_any,
    .create = mse_create,
    .forward = mse_forward,
    .backward = mse_backward,
    .free = op_release,
};
