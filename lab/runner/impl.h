/* Inside of running an experiment: its runs, and one of them. */
#pragma once
#include "lab/experiment/experiment.h"
#include "lab/process/process.h"

struct compared;
struct runner;
struct one_run {
    const struct experiment *x;
    const struct experiment_cell *cell;
    int repeat;
    const char *program;            /* the engine's */
    const char *config, *dir, *log; /* files and folder, as the caller sees them */
    const char *stop;               /* train.stop; NULL: it trains to its end */
    bool goes_on;                   /* from its last checkpoint, where it has one */
    struct pool *pool;
};
/* Runs it to its end, however that is. ERR_NONE, unless it could not be started; end says how it ended, and of a command
 * that ended well the folder holds what 'engine run' leaves. */
MUST_CHECK enum error one_run(const struct one_run *r, struct process_end *end);
/* The file with the messages of a process of the run: its standard error. NULL: no memory. */
char *one_run_log(const struct one_run *r, int which);
/* Removes a run's folder, and those that its other hosts make beside it. */
MUST_CHECK enum error one_run_remove(const struct one_run *r);
/* Whether a rank or a host was lost, so that the same run may end well another time. */
bool one_run_lost(const struct one_run *r, const struct process_end *end);

/* The runs of an experiment, or of a search: a part of it. */
struct runner_part {
    int at;
    double until;   /* the share of its training that a run has made at its end */
    const bool *in; /* the cells that make it */
    double *score;  /* [(cell * most + repeat) * TUNE_PARTS + part]: of the first metric; infinity: it diverged, or the
                       metric was not measured */
};
struct runner_state {
    const struct runner *r;
    const struct experiment *x;
    struct compared *out;
    const struct runner_part *part; /* NULL: a comparison's whole runs */
    struct pool *pool;
    bool *done;      /* [cell * most + repeat] */
    double *seconds; /* likewise; of those that are done */
    int most;        /* repeats that there is room for */
};
/* Takes a folder for this process, until fd is closed. */
MUST_CHECK enum error runner_lock_folder(const char *folder, struct pool *pool, int *fd);
/* Makes room for what is known of each run. */
MUST_CHECK enum error runner_make_room(struct runner_state *s);
/* Writes the cells' configurations, and makes room. */
MUST_CHECK enum error runner_begin(struct runner_state *s);
/* Takes what was run before, and tells how much that is. */
void runner_take_all(struct runner_state *s);
/* Puts the runs that are done into the cells: those that are missing leave no gap. */
void runner_gather(struct runner_state *s);
/* Runs what is missing. ERR_NONE, too, where this process was asked to stop. */
MUST_CHECK enum error runner_run_all(struct runner_state *s);
/* The path of a run's folder, or of what lies beside or below it. NULL: no memory. */
char *runner_run_path(const struct runner_state *s, int cell, int repeat, const char *end);
