/* The numbers by which a run is judged: what it reports, stops at (train.until, train.patience), and keeps the best of. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct dataset;
struct config_variant;

/* The metrics of validation, in the order of JSON and CSV: the key, in words, whether it is a share (written in %),
 * whether larger is better, and the function that says why a run has no such number. */
#define VAL_METRICS_LIST(X)                                                                                            \
    X(loss, "loss", false, false, lacks_nothing)                                                                       \
    X(accuracy, "accuracy", true, true, lacks_classes)                                                                 \
    X(top5, "top-5", true, true, lacks_top5)                                                                           \
    X(perplexity, "perplexity", false, false, lacks_perplexity)                                                        \
    X(balanced_accuracy, "balanced accuracy", true, true, lacks_balance)                                               \
    X(rmse, "RMSE", false, false, lacks_values)                                                                        \
    X(mae, "MAE", false, false, lacks_values)                                                                          \
    X(r2, "R2", false, true, lacks_values)                                                                             \
    X(bits_per_byte, "bits per byte", false, false, lacks_bytes)
#define VAL_AT(key, ...) VAL_AT_##key,
enum { VAL_METRICS_LIST(VAL_AT) VAL_METRICS };
/* Members of a struct: each metric by its name, and all of them as 'array', by VAL_AT_... */
#define VAL_MEMBERS(member, array)                                                                                     \
    union {                                                                                                            \
        struct {                                                                                                       \
            VAL_METRICS_LIST(member)                                                                                   \
        };                                                                                                             \
        double array[VAL_METRICS];                                                                                     \
    }
#define VAL_MEMBER(key, ...) double key;
struct val_result {
    VAL_MEMBERS(VAL_MEMBER, of); /* NaN: this data and model have none */
    int64_t samples;
};
void val_result_clear(struct val_result *v); /* nothing was measured */

enum { METRIC_TARGETS = 100 }; /* a sample with more values to predict has none of the metrics of values */

/* The metrics that have names: "val.accuracy" and so on. */
struct metric {
    const char *name, *key, *words; /* key: without "val." */
    bool share, rises;              /* written in %; larger is better */
    /* Why a run with this loss has no such number, for the user; NULL: it has. */
    const char *(*lacks)(const struct dataset *data, const struct config_variant *loss);
};
/* Those of validation, VAL_METRICS of them, and after them train.loss, which every step measures. */
extern const struct metric metric_table[VAL_METRICS + 1];
const struct metric *metric_find(const char *name); /* NULL: there is none */
/* Whether the metric can be this: those that rise are shares and R2, which 97 for 97 % is beyond. */
static inline bool metric_can_be(const struct metric *m, double value) {
    return !m->rises || value <= 1;
}
static inline bool metric_is_val(const struct metric *m) {
    return m - metric_table < VAL_METRICS;
}
static inline double metric_value(const struct metric *m, const struct val_result *v, double train_loss) {
    return metric_is_val(m) ? v->of[m - metric_table] : train_loss;
}
/* All names, NULL-terminated. */
const char *const *metric_names(void);
static inline bool metric_better(const struct metric *m, double a, double b) {
    return m->rises ? a > b : a < b;
}
/* Whether a later validation takes the place of the best one so far. Of equal values the lower validation loss decides,
 * and of equal losses the later step. A value that is NaN gives way to any; the loss of 'best' may be NaN: not known. */
struct best {
    double value, loss;
};
static inline bool metric_beats(const struct metric *m, struct best now, struct best best) {
    if (isnan(best.value) || metric_better(m, now.value, best.value)) return true;
    return now.value == best.value && (now.loss <= best.loss || isnan(best.loss));
}
/* NaN reaches nothing. */
static inline bool metric_reaches(const struct metric *m, double value, double target) {
    return !isnan(value) && !metric_better(m, target, value);
}
