#include "engine/tell/score.h"

#include "engine/data/loader.h"

#include <math.h>

/* ---- rows of outputs ---- */

int64_t score_best(const float *y, int64_t n) {
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++)
        if (y[k] > y[best]) best = k;
    return best;
}

void score_confusion(const float *y, const int32_t *labels, int64_t rows, int64_t classes, double *counts) {
    for (int64_t r = 0; r < rows; r++, y += classes) counts[labels[r] * classes + score_best(y, classes)]++;
}

void score_recalls(const float *y, const int32_t *labels, int64_t rows, int64_t classes, double *counts) {
    for (int64_t r = 0; r < rows; r++, y += classes) {
        double *of = counts + 2 * labels[r];
        of[0]++;
        of[1] += score_best(y, classes) == labels[r];
    }
}

/* The mean recall of the classes that occur: counts are pairs, of samples and of right ones. */
double score_balance(const double *counts, int64_t classes) {
    double sum = 0, present = 0;
    for (int64_t k = 0; k < classes; k++) {
        if (counts[2 * k] == 0) continue;
        sum += counts[2 * k + 1] / counts[2 * k];
        present++;
    }
    return sum / present;
}

struct class_score confusion_class(const double *counts, int64_t classes, int64_t k) {
    struct class_score s = {.right = counts[k * classes + k]};
    for (int64_t j = 0; j < classes; j++) {
        s.samples += counts[k * classes + j];
        s.answers += counts[j * classes + k];
    }
    s.precision = s.answers > 0 ? s.right / s.answers : (double)NAN;
    s.recall = s.samples > 0 ? s.right / s.samples : (double)NAN;
    return s;
}

/* ---- values ---- */

void score_residuals(const float *y, const float *target, int64_t rows, int64_t targets, int64_t before,
                     struct residuals *of) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < targets; k++) {
            struct residuals *one = &of[k];
            double t = (double)*target++, error = (double)*y++ - t, off = t - one->mean;
            one->absolute += fabs(error);
            one->squares += error * error;
            one->mean += off / (double)(before + r + 1);
            one->spread += off * (t - one->mean);
        }
}

/* Two parts become one (Chan, Golub and LeVeque). */
static void residuals_add(struct residuals *a, double na, const struct residuals *b, double nb) {
    double off = b->mean - a->mean, n = na + nb;
    if (nb == 0) return;
    a->absolute += b->absolute;
    a->squares += b->squares;
    a->mean += off * (nb / n);
    a->spread += b->spread + off * off * (na * nb / n);
}

void score_regression(const struct residual_parts *all, const struct normalization *norm, struct val_result *v) {
    double rmse = 0, mae = 0, r2 = 0, vary = 0, targets = (double)all->targets;
    for (int64_t k = 0; k < all->targets; k++) {
        struct residuals sum = {0};
        double n = 0, unit = normalization_unit(norm, k);
        for (int p = 0; p < all->parts; p++) {
            residuals_add(&sum, n, &all->of[p * all->targets + k], all->samples[p * all->stride]);
            n += all->samples[p * all->stride];
        }
        rmse += unit * sqrt(sum.squares / n);
        mae += unit * (sum.absolute / n);
        if (sum.spread > 0) r2 += 1 - sum.squares / sum.spread, vary++;
    }
    v->rmse = rmse / targets;
    v->mae = mae / targets;
    v->r2 = r2 / vary;
}
