/* Scores of outputs besides their loss: numbers that a run reports, stops at, and keeps the best of. */
#pragma once
#include "engine/model/graph.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct dataset;
struct val_result {
    double loss, accuracy, top5, perplexity; /* NaN: this data and model have none */
    int64_t samples;
};

/* The metrics that have names: "val.accuracy" and so on. */
struct metric {
    const char *name;
    bool validation; /* measured by evaluation; else by every step */
    bool rises;      /* larger is better */
    double (*of)(const struct val_result *v, double train_loss);
    /* Why a run has no such number, for the user; NULL: it has. plain: its loss is cross-entropy itself. */
    const char *(*lacks)(const struct dataset *data, bool plain);
};
const struct metric *metric_find(const char *name); /* NULL: there is none */
/* All names, NULL-terminated. */
const char *const *metric_names(void);
static inline bool metric_better(const struct metric *m, double a, double b) {
    return m->rises ? a > b : a < b;
}
/* NaN reaches nothing. */
static inline bool metric_reaches(const struct metric *m, double value, double target) {
    return !isnan(value) && !metric_better(m, target, value);
}

enum { SCORE_TOP = LOSS_TOP, CONFUSION_MAX = 100 };
/* The largest of y[0..n): the first, if several. */
int64_t score_best(const float *y, int64_t n);
/* counts (classes, classes) += 1 at (label, answer) for each row. */
void score_confusion(const float *y, const int32_t *labels, int64_t rows, int64_t classes, double *counts);

/* The counts of one class of a confusion matrix. */
struct class_score {
    double samples, answers, right; /* samples of the class, samples that were predicted as the class, samples that
                                     * are both */
    double precision, recall;       /* NaN: nothing was said to be of it, or nothing is */
};
struct class_score confusion_class(const double *counts, int64_t classes, int64_t k);
