#include "engine/tell/score.h"

#include "engine/base/vector.h"
#include "engine/data/dataset.h"

#include <math.h>
#include <string.h>

/* ---- the metrics ---- */

static double val_loss(const struct val_result *v, double train_loss) {
    (void)train_loss;
    return v->loss;
}

static double val_accuracy(const struct val_result *v, double train_loss) {
    (void)train_loss;
    return v->accuracy;
}

static double val_top5(const struct val_result *v, double train_loss) {
    (void)train_loss;
    return v->top5;
}

static double val_perplexity(const struct val_result *v, double train_loss) {
    (void)train_loss;
    return v->perplexity;
}

static double train_loss_of(const struct val_result *v, double train_loss) {
    (void)v;
    return train_loss;
}

static const char *lacks_nothing(const struct dataset *data, bool plain) {
    (void)data, (void)plain;
    return NULL;
}

static const char *lacks_classes(const struct dataset *data, bool plain) {
    (void)plain;
    return data->classes ? NULL : "the data has no classes";
}

static const char *lacks_top5(const struct dataset *data, bool plain) {
    (void)plain;
    return data->classes > SCORE_TOP ? NULL : "the data has no more than 5 classes";
}

static const char *lacks_perplexity(const struct dataset *data, bool plain) {
    if (data->labels < 2) return "the data has no label at each position";
    return plain ? NULL : "the loss is not cross_entropy without smoothing and weights";
}

/* name, by evaluation, larger is better, its number, who has none */
#define METRICS_LIST(X)                                                                                                \
    X("val.accuracy", true, true, val_accuracy, lacks_classes)                                                         \
    X("val.top5", true, true, val_top5, lacks_top5)                                                                    \
    X("val.loss", true, false, val_loss, lacks_nothing)                                                                \
    X("val.perplexity", true, false, val_perplexity, lacks_perplexity)                                                 \
    X("train.loss", false, false, train_loss_of, lacks_nothing)

static const struct metric metrics[] = {
#define X(...) {__VA_ARGS__},
    METRICS_LIST(X)
#undef X
};
enum { METRICS = sizeof metrics / sizeof *metrics };

const struct metric *metric_find(const char *name) {
    for (int i = 0; i < METRICS; i++)
        if (!strcmp(metrics[i].name, name)) return &metrics[i];
    return NULL;
}

const char *const *metric_names(void) {
#define X(name, ...) name,
    static const char *const names[METRICS + 1] = {METRICS_LIST(X)};
#undef X
    return names;
}

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
