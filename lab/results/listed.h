/* The rows of a list of runs, and what a reading has in common with the one before it, so that a row is read again only
 * where its files have changed. */
#pragma once
#include "lab/results/remark.h"
#include "lab/results/result.h"

/* RUNNING: a process of this host holds the folder. FINISHED, STOPPED: metrics.jsonl says so, and summary.json is of
 * this run. FAILED: run.json says so. UNFINISHED: none of these, so a process was killed, or runs on another host.
 * UNREADABLE: a file that decides is missing or damaged. */
enum run_state { RUN_RUNNING, RUN_FINISHED, RUN_STOPPED, RUN_FAILED, RUN_UNFINISHED, RUN_UNREADABLE, RUN_STATES };
extern const char *const run_state_names[RUN_STATES];

enum { LISTED_ID = 17 };
struct listed {         /* texts are "" and numbers NaN or -1 where nothing is known */
    const char *name;   /* the path below the folder; control characters and what is no UTF-8 are '?' */
    const char *dir;    /* the path to open */
    char id[LISTED_ID]; /* of the name, as long as it is called so: the dashboard's */
    enum run_state state;
    const char *reason; /* why FAILED, UNFINISHED or UNREADABLE */
    const char *when;   /* of its last start: "2030-01-31T12:00:00Z" */
    bool experiment;
    /* The state of a run. An unfinished or running one has the newest numbers of metrics.jsonl. */
    const char *run_id, *mode, *weights;
    int64_t devices, steps, planned; /* planned: what it is or was to come to */
    double loss, seconds, samples_per_s;
    VAL_MEMBERS(RESULT_VAL_MEMBER, val_of);
    double best;       /* the largest validation accuracy so far, or the least loss where there is no accuracy */
    int64_t best_step; /* of equal values, as checkpoint.best chooses */
    bool best_is_loss;
    /* Of an experiment. */
    const char *verdict;  /* the sentence of its results */
    int64_t done, wanted; /* runs */
    struct remark remark;
    uint64_t stamp;  /* of its files, by which runs_list_again knows that nothing has changed; 0: it may have */
    int64_t changed; /* the version in which this row was new or other than before; 0 of runs_list */
};
struct listing {
    struct listed *of; /* by name */
    int count;
    /* Of runs_list_again: the version of the newest change, a time in ms, and the one since when no row has gone. */
    int64_t version, since;
};

/* A digest of when the files that decide a run's row were written last; 0: one was a moment ago, and may be again without
 * a later time. The engine replaces all of these files but metrics.jsonl, which changes its folder's time. */
uint64_t listed_stamp(const char *dir);
/* The row of the earlier reading with this name, or NULL. */
const struct listed *listing_find(const struct listing *before, const char *name);
/* A copy whose texts lie in the pool. */
MUST_CHECK enum error listed_copy(const struct listed *from, struct pool *pool, struct listed *to);
/* Gives the rows of a reading, and itself, their versions. */
void listing_version(const struct listing *before, struct listing *now);
