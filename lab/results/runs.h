/* The runs and experiments below a folder, by their files. Nothing there is changed or locked against its writers,
 * and unreadable files are reported as such. */
#pragma once
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
};
struct listing {
    struct listed *of; /* by name */
    int count;
};
/* Folders are searched to some depth, links are not followed. cells: also the runs of experiments. ERR_INPUT: there is
 * no such folder. */
MUST_CHECK enum error runs_list(const char *folder, bool cells, struct pool *pool, struct listing *out);
/* The folder itself, which is known to be a run's. Of one that goes on no loss and the like is told: asking for its state
 * again and again shall cost little. */
MUST_CHECK enum error runs_one(const char *dir, struct pool *pool, struct listed *out);
/* Whether the folder holds a run's files. */
bool runs_is_one(const char *dir);
