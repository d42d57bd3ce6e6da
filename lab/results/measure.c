#include "lab/results/measure.h"

#include <math.h>
#include <string.h>

static const struct measure measures[] = {
    {"step_time", "ms", ABOUT_MACHINE, MEASURE_STEP_TIME, .words = "step time", .ahead = "is faster than"},
    {"step_q25", "ms", ABOUT_MACHINE, MEASURE_STEP_QUARTER, .words = "step that a quarter of the steps beat",
     .ahead = "is faster than"},
    {"step_best", "ms", ABOUT_MACHINE, MEASURE_STEP_BEST, .words = "fastest step", .ahead = "is faster than"},
    {"throughput", "samples/s", ABOUT_MACHINE, MEASURE_THROUGHPUT, .more_is_better = true, .words = "samples a second",
     .ahead = "is faster than"},
    {"load", "ms", ABOUT_MACHINE, MEASURE_PHASE, PHASE_LOAD, .words = "loading in a step",
     .ahead = "loads faster than"},
    {"forward", "ms", ABOUT_MACHINE, MEASURE_PHASE, PHASE_FORWARD, .words = "forward in a step",
     .ahead = "is faster than"},
    {"backward", "ms", ABOUT_MACHINE, MEASURE_PHASE, PHASE_BACKWARD, .words = "backward in a step",
     .ahead = "is faster than"},
    {"comm_exposed", "ms", ABOUT_MACHINE, MEASURE_PHASE, PHASE_COMM, .words = "exposed communication in a step",
     .ahead = "waits less than"},
    {"comm_hidden", "ms", ABOUT_MACHINE, MEASURE_PHASE, RESULT_COMM_HIDDEN, .words = "hidden communication in a step",
     .ahead = "has less of it than"},
    {"update", "ms", ABOUT_MACHINE, MEASURE_PHASE, PHASE_UPDATE, .words = "update in a step",
     .ahead = "is faster than"},
    {"computing", "", ABOUT_MACHINE, MEASURE_COMPUTING, .more_is_better = true, .scale = SCALE_DIFFERENCE,
     .practical = 0.02, .words = "share of the time that computes", .ahead = "waits less than"},
    {"time", "s", ABOUT_MACHINE, MEASURE_TIME, .words = "training time", .ahead = "is faster than"},
    {"bytes", "bytes", ABOUT_MACHINE, MEASURE_BYTES, .words = "bytes sent by the busiest rank",
     .ahead = "sends less than"},
    {"memory", "bytes", ABOUT_MACHINE, MEASURE_MEMORY, .words = "peak memory", .ahead = "needs less than"},
    {"train_loss", "", ABOUT_TRAINING, MEASURE_TRAIN_LOSS, .words = "training loss", .ahead = "is better than"},
/* Those that are best at 1 are compared by their difference, and the others (losses, errors) by their ratio. */
#define X(key, in_words, share, rises, lacks)                                                                          \
    {"val_" #key,                                                                                                      \
     "",                                                                                                               \
     ABOUT_TRAINING,                                                                                                   \
     MEASURE_VAL,                                                                                                      \
     VAL_AT_##key,                                                                                                     \
     .more_is_better = rises,                                                                                          \
     .scale = rises ? SCALE_DIFFERENCE : SCALE_RATIO,                                                                  \
     .practical = rises ? 0.005 : 0,                                                                                   \
     .words = "validation " in_words,                                                                                  \
     .ahead = "is better than"},
    VAL_METRICS_LIST(X)
#undef X
};

const struct measure *measure_list(int *n) {
    *n = sizeof measures / sizeof *measures;
    return measures;
}

const struct measure *measure_find(const char *name, int n) {
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++)
        if (strlen(measures[i].name) == (size_t)n && !memcmp(measures[i].name, name, (size_t)n)) return &measures[i];
    return NULL;
}

bool measure_timed(const struct measure *m) {
    return m->kind <= MEASURE_TIME || m->kind == MEASURE_TIME_TO;
}

bool measure_is_accuracy(const struct measure *m) {
    return m->kind == MEASURE_VAL && m->part == VAL_AT_accuracy;
}

static double measure_most(const double *v, int n) {
    double m = n ? v[0] : (double)NAN;
    for (int i = 1; i < n; i++) m = fmax(m, v[i]);
    return m;
}

static double measure_throughput(const struct run_result *r, int64_t warmup) {
    double samples = 0, ms = 0;
    for (int64_t i = run_result_warm(r, warmup); i < r->nsteps; i++)
        if (!isnan(r->step[i].ms)) samples += r->step[i].samples, ms += r->step[i].ms;
    return ms > 0 ? samples / ms * 1000 : (double)NAN;
}

static double measure_fastest(const struct run_result *r, int64_t warmup) {
    double least = (double)NAN;
    for (int64_t i = run_result_warm(r, warmup); i < r->nsteps; i++) least = fmin(least, r->step[i].ms);
    return least;
}

static double measure_time_to(const struct measure *m, const struct run_result *r) {
    const struct metric *of = metric_find(m->of);
    if (!metric_is_val(of)) {
        for (int64_t i = 0; i < r->nsteps; i++)
            if (r->step[i].loss <= m->target) return run_result_seconds(r, r->step[i].step);
        return INFINITY;
    }
    for (int64_t i = 0; i < r->nvals; i++)
        if (metric_reaches(of, r->val[i].of[of - metric_table], m->target))
            return run_result_seconds(r, r->val[i].step);
    return r->nvals ? INFINITY : (double)NAN;
}

double measure_of(const struct measure *m, const struct run_result *r, int64_t warmup) {
    int64_t n, steps = run_result_stretch(r);
    bool whole = r->first_step == 0;
    switch (m->kind) {
    case MEASURE_STEP_TIME:
        return run_result_step_ms(r, warmup, &n);
    case MEASURE_STEP_QUARTER:
        return run_result_quantile_ms(r, warmup, 0.25, &n);
    case MEASURE_STEP_BEST:
        return measure_fastest(r, warmup);
    case MEASURE_THROUGHPUT:
        return measure_throughput(r, warmup);
    case MEASURE_PHASE:
        return steps > 0 ? r->time_s[m->part] / (double)steps * 1000 : (double)NAN;
    case MEASURE_COMPUTING:
        return 1 - r->time_s[PHASE_COMM] / r->time_s[RESULT_TOTAL];
    case MEASURE_TIME: /* a resumed run has neither of all its steps */
        return whole ? r->time_s[RESULT_TOTAL] : (double)NAN;
    case MEASURE_BYTES:
        return whole ? measure_most(r->sent, r->ranks) : (double)NAN;
    case MEASURE_MEMORY:
        return measure_most(r->rss, r->processes);
    case MEASURE_TRAIN_LOSS:
        return r->train_loss;
    case MEASURE_VAL:
        return r->val_of[m->part];
    case MEASURE_TIME_TO:
        return measure_time_to(m, r);
    }
    return (double)NAN;
}
