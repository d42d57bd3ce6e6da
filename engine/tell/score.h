/* Scores of outputs: how the metrics of validation besides its loss are computed. */
#pragma once
#include "engine/model/graph.h"
#include "engine/settings/metric.h"

enum { SCORE_TOP = LOSS_TOP, CONFUSION_MAX = 100 };
/* The largest of y[0..n): the first, if several. */
int64_t score_best(const float *y, int64_t n);
/* counts (classes, classes) += 1 at (label, answer) for each row. */
void score_confusion(const float *y, const int32_t *labels, int64_t rows, int64_t classes, double *counts);

/* counts (classes, 2): the samples of each class, and those of them whose answer is right; += for each row. */
void score_recalls(const float *y, const int32_t *labels, int64_t rows, int64_t classes, double *counts);
/* The mean of right / samples over the classes that have samples; NaN: none has. */
double score_balance(const double *counts, int64_t classes);

/* What one target's predictions are off by, over some samples. Sums of squares about a mean are updated sample by sample
 * (Welford), so that a large mean costs no digits. */
struct normalization;
struct residuals {
    double absolute, squares; /* sums of |y - target| and (y - target)^2 */
    double mean, spread;      /* of the target, and the sum of its squares about that mean */
};
/* of (targets) += rows of y and target (rows, targets), after 'before' samples. */
void score_residuals(const float *y, const float *target, int64_t rows, int64_t targets, int64_t before,
                     struct residuals *of);
struct residual_parts {
    const struct residuals *of; /* (parts, targets) */
    const double *samples;      /* part p has samples[p * stride] */
    int stride, parts;
    int64_t targets;
};
/* v's rmse, mae and r2, each the mean over the targets, from the residuals of all parts, which are added in order. y and
 * target were learned as 'norm' says; rmse and mae are in the user's unit. r2 is NaN where no target varies; those that do
 * not vary are left out of it. */
void score_regression(const struct residual_parts *all, const struct normalization *norm, struct val_result *v);

/* The counts of one class of a confusion matrix. */
struct class_score {
    double samples, answers, right; /* samples of the class, samples that were predicted as the class, samples that
                                     * are both */
    double precision, recall;       /* NaN: nothing was said to be of it, or nothing is */
};
struct class_score confusion_class(const double *counts, int64_t classes, int64_t k);
