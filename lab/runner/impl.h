/* Inside of running an experiment: one run. */
#pragma once
#include "lab/experiment/experiment.h"
#include "lab/process/process.h"

struct one_run {
    const struct experiment *x;
    const struct experiment_cell *cell;
    int repeat;
    const char *program;            /* the engine's */
    const char *config, *dir, *log; /* files and folder, as the caller sees them */
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
