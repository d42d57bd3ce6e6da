/* Cross-entropy and mean squared error, plain. Sums are taken in sample order; a sample's loss and
 * its part of right answers are means over its rows. */
#include "engine/device/ref/ref.h"

#include "engine/base/real.h"

static int64_t first_largest(const float *x, int64_t count) {
    int64_t best = 0;
    for (int64_t k = 1; k < count; k++)
        if (x[k] > x[best]) best = k;
    return best;
}

static int64_t rows_each(const struct op_desc *d) {
    return shape_count(&d->x) / shape_last(&d->x);
}

/* ---- cross-entropy: y = softmax(x); loss = log(sum real_exp(x - max)) - (x[label] - max) --------- */
/* One row's softmax; gives its loss with this label, and whether the label is its answer. */
static double row_forward(const float *x, int64_t classes, int32_t label, float *y, bool *right) {
    int64_t best = first_largest(x, classes);
    double sum = 0;
    for (int64_t k = 0; k < classes; k++) sum += real_exp((double)x[k] - (double)x[best]);
    for (int64_t k = 0; k < classes; k++) y[k] = (float)(real_exp((double)x[k] - (double)x[best]) / sum);
    *right = best == label;
    return real_log(sum) - ((double)x[label] - (double)x[best]);
}

static enum error cross_entropy_forward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_last(&op->desc.x), rows = rows_each(&op->desc);
    for (int64_t i = 0; i < op_rows(&op->desc) && a->labels; i++) TRY(label_check(a->labels[i], classes));
    for (int64_t i = 0; i < op->desc.n; i++) {
        double loss = 0, rights = 0;
        for (int64_t r = i * rows; r < (i + 1) * rows; r++) {
            bool right;
            int32_t label = a->labels ? a->labels[r] : 0;
            loss += row_forward(a->x[0] + r * classes, classes, label, a->y + r * classes, &right);
            rights += right;
            if (a->top) *a->top += label_in_top(a->x[0] + r * classes, classes, label);
        }
        if (!a->labels) continue;
        a->sums[0] += loss / (double)rows;
        a->sums[1] += rights / (double)rows;
    }
    return ERR_NONE;
}

static enum error cross_entropy_backward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_last(&op->desc.x);
    float scale = a->scale / (float)rows_each(&op->desc);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++) {
        bool hit = a->labels[k / classes] == k % classes;
        a->dx[0][k] = (a->y[k] - (hit ? 1 : 0)) * scale;
    }
    return ERR_NONE;
}

static enum error cross_entropy_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&ref_cross_entropy, dev, d, out);
}

const struct op_impl ref_cross_entropy = {
    .name = "ref",
    .takes = op_takes_plain,
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
    int64_t features = shape_last(&op->desc.x), rows = rows_each(&op->desc);
    int64_t each = rows * features;
    for (int64_t i = 0; i < op_rows(&op->desc) && a->labels; i++) TRY(label_check(a->labels[i], features));
    for (int64_t i = 0; i < op->desc.n; i++) {
        double sum = 0, rights = 0;
        for (int64_t k = i * each; k < (i + 1) * each; k++) {
            double off = (double)a->x[0][k] - (double)target_of(a, features, k);
            sum += off * off;
        }
        for (int64_t r = i * rows; r < (i + 1) * rows && a->labels; r++) {
            const float *x = a->x[0] + r * features;
            rights += first_largest(x, features) == a->labels[r];
            if (a->top) *a->top += label_in_top(x, features, a->labels[r]);
        }
        a->sums[0] += sum / (double)each;
        a->sums[1] += rights / (double)rows;
    }
    return ERR_NONE;
}

static enum error mse_backward(struct op *op, const struct op_args *a) {
    int64_t features = shape_last(&op->desc.x);
    float each = (float)shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++)
        a->dx[0][k] = 2 * (a->x[0][k] - target_of(a, features, k)) * a->scale / each;
    return ERR_NONE;
}

static enum error mse_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&ref_mse, dev, d, out);
}

const struct op_impl ref_mse = {
    .name = "ref",
    .takes = op_takes_plain,
    .create = mse_create,
    .forward = mse_forward,
    .backward = mse_backward,
    .free = op_release,
};
