/* Runs an experiment: one fresh 'engine run' after the other, each in a directory of its own. Sides of a place follow
 * each other, in an order drawn anew for each repeat, so that a machine that grows slower or faster does so for all.
 *
 *   FOLDER/cells/CELL/config.yaml   what runs
 *   FOLDER/cells/CELL/run-01/       a run's directory; compare.json is written last and says that it is finished
 *   FOLDER/cells/CELL/run-01.log    what it said
 *
 * A cell's folder bears the digest of its configuration and of the engine's build: what was run before is taken as it is, what was interrupted
 * or has changed is run again. */
#pragma once
#include "lab/compare/compare.h"

struct runner {
    const char *program; /* the engine's */
    const char *folder;  /* of the experiment */
    bool quiet;          /* no progress on standard error */
};
/* Fills out from compare_begin on. After SIGINT or SIGTERM (stop.h) it ends early, ERR_NONE, with what there is; so
 * it does on an error, which is that of the run that failed. */
MUST_CHECK enum error runner_run(const struct runner *r, const struct experiment *x, struct compared *out);
/* Reads the runs of an experiment that was made elsewhere, in the folders that its results.json names. Nothing is started and
 * nothing is written; a run that is missing is ERR_DATA. */
MUST_CHECK enum error runner_read(const struct runner *r, const struct experiment *x, struct compared *out);

/* What running it would take. Nothing is written. */
struct runner_plan {
    int runs, done;
    double seconds; /* of one run, as those that are done took; NaN: none is done */
};
MUST_CHECK enum error runner_plan(const struct runner *r, const struct experiment *x, struct runner_plan *out);
