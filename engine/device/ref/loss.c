/* Cross-entropy, mean squared error and binary cross-entropy, plain. Sums are taken in sample order; a sample's loss and
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
/* One row's softmax, its largest x and log(sum). */
static double row_softmax(const float *x, int64_t classes, float *y, int64_t *best) {
    double sum = 0;
    *best = first_largest(x, classes);
    for (int64_t k = 0; k < classes; k++) sum += real_exp((double)x[k] - (double)x[*best]);
    for (int64_t k = 0; k < classes; k++) y[k] = (float)(real_exp((double)x[k] - (double)x[*best]) / sum);
    return real_log(sum);
}

/* -log of softmax(x)[k]. */
static double class_surprise(const float *x, int64_t best, double log_sum, int64_t k) {
    return log_sum - ((double)x[k] - (double)x[best]);
}

static double row_loss(const struct op *op, const struct op_args *a, int64_t row, int64_t best, double log_sum) {
    int64_t classes = shape_last(&op->desc.x);
    const float *x = a->x[0] + row * classes, *w = a->class_weights;
    if (!loss_is_soft(a)) return class_surprise(x, best, log_sum, a->labels[row]);
    struct soft_target t = soft_target(&op->desc, a, row, class_weights_sum(a, classes));
    double loss = t.at.of_label * class_surprise(x, best, log_sum, t.at.label);
    if (t.at.of_other > 0) loss += t.at.of_other * class_surprise(x, best, log_sum, t.at.other);
    for (int64_t k = 0; k < classes && t.of_each > 0; k++)
        loss += t.of_each * (w ? (double)w[k] : 1) * class_surprise(x, best, log_sum, k);
    return loss;
}

static enum error cross_entropy_forward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_last(&op->desc.x), rows = rows_each(&op->desc);
    TRY(labels_check(&op->desc, a));
    for (int64_t i = 0; i < op->desc.n; i++) {
        double loss = 0, rights = 0;
        for (int64_t r = i * rows; r < (i + 1) * rows; r++) {
            int64_t best;
            double log_sum = row_softmax(a->x[0] + r * classes, classes, a->y + r * classes, &best);
            if (!a->labels) continue;
            loss += row_loss(op, a, r, best, log_sum);
            rights += best == a->labels[r];
            if (a->top) *a->top += label_in_top(a->x[0] + r * classes, classes, a->labels[r]);
        }
        if (!a->labels) continue;
        a->sums[0] += loss / (double)rows;
        a->sums[1] += rights / (double)rows;
    }
    return ERR_NONE;
}

/* w q, summed over the classes and multiplied by y, less w q. */
static enum error soft_backward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_last(&op->desc.x);
    double scale = (double)a->scale / (double)rows_each(&op->desc), weights = class_weights_sum(a, classes);
    for (int64_t r = 0; r < op_rows(&op->desc) && a->dx[0]; r++) {
        struct soft_target t = soft_target(&op->desc, a, r, weights);
        for (int64_t k = 0; k < classes; k++) {
            double each = t.of_each * (a->class_weights ? (double)a->class_weights[k] : 1);
            double y = (double)a->y[r * classes + k];
            a->dx[0][r * classes + k] = (float)((y * t.all - each - loss_target_at(&t.at, k)) * scale);
        }
    }
    return ERR_NONE;
}

static enum error cross_entropy_backward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_last(&op->desc.x);
    float scale = a->scale / (float)rows_each(&op->desc);
    if (loss_is_soft(a)) return soft_backward(op, a);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++) {
        bool hit = a->labels[k / classes] == k % classes;
        a->dx[0][k] = (a->y[k] - (hit ? 1 : 0)) * scale;
    }
    return ERR_NONE;
}

const struct op_row op_cross_entropy = {
    .name = "cross_entropy",
    .loss = true,
    .plain = {.name = "ref", .forward = cross_entropy_forward, .backward = cross_entropy_backward},
};

/* ---- of each feature by itself: mean squared error, binary cross-entropy ---------------------- */
static double target_of(const struct op *op, const struct op_args *a, int64_t at) {
    int64_t features = shape_last(&op->desc.x);
    if (!a->labels) return (double)a->target[at];
    struct loss_target t = loss_target(&op->desc, a, at / features);
    return loss_target_at(&t, at % features);
}

static inline __attribute__((always_inline)) enum error features_forward(struct op *op, const struct op_args *a,
                                                                         double (*loss)(double x, double target)) {
    int64_t features = shape_last(&op->desc.x), rows = rows_each(&op->desc);
    int64_t each = rows * features;
    TRY(labels_check(&op->desc, a));
    for (int64_t i = 0; i < op->desc.n; i++) {
        double sum = 0, rights = 0;
        for (int64_t k = i * each; k < (i + 1) * each; k++) sum += loss((double)a->x[0][k], target_of(op, a, k));
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

static double difference_square(double x, double target) {
    return (x - target) * (x - target);
}

static enum error mse_forward(struct op *op, const struct op_args *a) {
    return features_forward(op, a, difference_square);
}

static enum error mse_backward(struct op *op, const struct op_args *a) {
    float each = (float)shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++)
        a->dx[0][k] = 2 * (a->x[0][k] - (float)target_of(op, a, k)) * a->scale / each;
    return ERR_NONE;
}

const struct op_row op_mse = {
    .name = "mse",
    .loss = true,
    .plain = {.name = "ref", .forward = mse_forward, .backward = mse_backward},
};

/* log(1 + e^x) - x target, by e^-|x| so that nothing overflows. */
static double bit_loss(double x, double target) {
    return (x > 0 ? x : 0) - x * target + real_log(1 + real_exp(x > 0 ? -x : x));
}

static enum error bce_forward(struct op *op, const struct op_args *a) {
    return features_forward(op, a, bit_loss);
}

static enum error bce_backward(struct op *op, const struct op_args *a) {
    double scale = (double)a->scale / (double)shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++)
        a->dx[0][k] = (float)((1 / (1 + real_exp(-(double)a->x[0][k])) - target_of(op, a, k)) * scale);
    return ERR_NONE;
}

const struct op_row op_bce = {
    .name = "bce",
    .loss = true,
    .plain = {.name = "ref", .forward = bce_forward, .backward = bce_backward},
};
