/* The files that one run left in its directory, read for comparisons, models and reports: summary.json,
 * metrics.jsonl, resolved.yaml, env.json. The files are not trusted: a file of another form is ERR_DATA, and a run
 * that has not finished is ERR_INPUT. */
#pragma once
#include "engine/base/limits.h"
#include "engine/config/tree.h"
#include "engine/settings/held.h"
#include "engine/tell/phases.h"
#include "engine/tell/score.h"

enum { RESULT_SETTINGS = 4096 };
/* The parts of time_s: the phases of a step, and the other numbers of summary.json beside them. */
enum { RESULT_COMM_HIDDEN = PHASES, /* runs beside backward */ RESULT_TOTAL, RESULT_TIMES };

struct result_setting { /* "optimizer.lr", "0.1" */
    const char *key, *value;
};
struct result_step {
    int64_t step, epoch;
    double loss, accuracy, lr, ms, samples; /* lr: NaN in old runs, which did not record it */
};
struct result_val { /* a measurement on validation data; NaN: not measured */
    int64_t step;
    VAL_MEMBERS(VAL_MEMBER, of);
};
#define RESULT_VAL_MEMBER(key, ...) double val_##key;
struct result_environment { /* from env.json; "" and 0: unknown */
    const char *time, *processor, *governor, *kernel, *host, *engine;
    int64_t cores;
    double load; /* average of the minute before */
};
struct run_result {
    const char *dir, *mode, *run_id; /* run_id: "" if unknown */
    int64_t devices, shards, steps, epochs;
    int64_t began; /* devices before some were lost; 0: none was */
    /* Times, samples_per_s and bytes are of the steps after this one, at which the run was last
     * resumed; 0: of all. */
    int64_t first_step;
    double train_loss; /* NaN: not measured, as are metrics of validation: val_loss, val_accuracy, ... */
    VAL_MEMBERS(RESULT_VAL_MEMBER, val_of);
    double train_s;                 /* that all steps took; NaN: an older run */
    const char *patience;           /* the metric of train.patience, and the evaluations since it */
    int64_t waits;                  /* improved; "": there was none */
    const struct json_value *tuned; /* what its first steps have chosen: an object of each key; NULL: nothing */
    const struct json_value *noise; /* summary.json's noise_scale; NULL: it was not measured */
    double p50_ms, p95_ms, samples_per_s;
    double time_s[RESULT_TIMES];
    int ranks, processes;
    const double *sent, *received;  /* bytes, by rank: what steps moved */
    const double *start_sent;       /* before the first step; NULL: an older run */
    const double *rss;              /* bytes, by process */
    const double *state;            /* bytes of optimizer state, by rank */
    const double *held[HELD_PARTS]; /* bytes, by rank; NULL: an older run */
    const char *weights, *losses;   /* sha256; those of a command's run may be "" */
    struct result_step *step;       /* of the whole run, ascending: what was done again counts once */
    int64_t nsteps;
    int64_t stretch;        /* the first of them that was done since the run was last resumed */
    struct result_val *val; /* of the whole run */
    int64_t nvals;
    const char *event; /* the last one of metrics.jsonl: "finished", "stopped", "started"; "": none */
    int64_t event_step;
    int64_t planned; /* steps that the training was to have when it was started last; 0: not known */
    struct result_environment environment;
    struct result_setting *setting; /* every key of resolved.yaml with a value, in its order */
    int nsettings;
};
MUST_CHECK enum error run_result_read(const char *dir, struct pool *pool, struct run_result *out);
/* Read only parts of a run, for programs that read many runs. The first one empties the rest of *out. */
MUST_CHECK enum error run_result_summary(const char *dir, struct pool *pool, struct run_result *out);
/* metrics.jsonl; steps: all of them, else the last one alone. Whole lines are read, so the run may be going on. */
MUST_CHECK enum error run_result_metrics(const char *dir, bool steps, struct pool *pool, struct run_result *out);
MUST_CHECK enum error run_result_environment(const char *dir, struct pool *pool, struct result_environment *out);
MUST_CHECK enum error run_result_settings(const char *dir, struct pool *pool, struct run_result *out);
/* NULL: no such key. */
const char *result_setting_of(const struct result_setting *s, int n, const char *key);
/* "" when there is no such key. */
const char *run_result_setting(const struct run_result *r, const char *key);
/* Every scalar below a node by its path ("optimizer.lr"), at most 'most' of them into out; how many. */
int result_flatten(const struct node *root, struct pool *pool, struct result_setting *out, int most);
/* The validation that a run's best checkpoint is of (metric_beats), and by which metric: 'asked' where it was measured;
 * NULL or not measured: the accuracy or, without one, the loss. NULL: there was no validation. */
const struct result_val *run_result_best(const struct run_result *r, const struct metric *asked,
                                         const struct metric **by);
/* Whether the last event and the summary agree that the run has ended, and at which step. */
bool run_result_ended(const struct run_result *r);
bool run_event_is_end(const char *event);
/* The identity of a training, equal for runs that are the same training: the weights at the end, or the losses if a
 * command reports no weights; NULL if it reports neither. */
const char *run_result_training(const struct run_result *r);
/* Whether both runs have the same validations. */
bool run_result_same_vals(const struct run_result *a, const struct run_result *b);
/* How many steps the times and bytes are of. */
int64_t run_result_stretch(const struct run_result *r);
/* The first step after the stretch's first 'warmup' ones, at most nsteps. */
int64_t run_result_warm(const struct run_result *r, int64_t warmup);
/* Of the steps up to this one alone: what measuring takes is no part of it. */
double run_result_seconds(const struct run_result *r, int64_t step);
/* A quantile of the steps from there on, and their median; NaN when none is left. *n: how many. */
double run_result_quantile_ms(const struct run_result *r, int64_t warmup, double q, int64_t *n);
double run_result_step_ms(const struct run_result *r, int64_t warmup, int64_t *n);
