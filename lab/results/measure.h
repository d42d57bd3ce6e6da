/* The measures by which runs are compared: one number for each run. */
#pragma once
#include "lab/numbers/statistics.h"
#include "lab/results/result.h"

/* The subject of a measure, which decides what counts as one sample of it. */
enum measure_about {
    ABOUT_MACHINE,  /* each run measures it anew: times, bytes, memory */
    ABOUT_TRAINING, /* runs that end in the same weights are copies of one training: losses */
    ABOUT_BOTH      /* a time that depends on what was learned: of the machine between sides that
                       train the same weights, of the training otherwise */
};
struct measure {
    const char *name, *unit;
    enum measure_about about;
    enum measure_kind {
        MEASURE_STEP_TIME,
        MEASURE_STEP_QUARTER, /* a quarter of the steps are faster: less disturbed than the median, and still of many */
        MEASURE_STEP_BEST,    /* the fastest step: the one that others on the machine have disturbed least */
        MEASURE_THROUGHPUT,
        MEASURE_PHASE, /* a step's share of it */
        MEASURE_COMPUTING,
        MEASURE_TIME,
        MEASURE_BYTES,
        MEASURE_MEMORY,
        MEASURE_TRAIN_LOSS,
        MEASURE_VAL, /* a metric of validation */
        MEASURE_TIME_TO
    } kind;
    int part; /* of time_s, or VAL_AT_... */
    bool more_is_better;
    enum scale scale;
    double practical; /* smaller differences count as none: a share of a ratio, or in the measure's own unit */
    const char *of;   /* TIME_TO: the name of a metric, val.accuracy */
    double target;
    const char *words, *ahead; /* "step time"; of two sides the better one "is faster than" the other */
};
/* Whether it is the accuracy, of which each run leaves which samples it had right. */
bool measure_is_accuracy(const struct measure *m);
/* Every measure with a name alone (time_to has a target, and is not among them). */
const struct measure *measure_list(int *n);
const struct measure *measure_find(const char *name, int n); /* the first n characters; or NULL */
bool measure_timed(const struct measure *m);                 /* it depends on how fast the machine is */
/* The value of a measure for one run, without its first 'warmup' steps if that makes sense; NaN: not measured.
 * MEASURE_TIME_TO: infinity if the goal was never reached. */
double measure_of(const struct measure *m, const struct run_result *r, int64_t warmup);
