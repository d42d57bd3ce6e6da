/* A short run in a fresh process, to be measured. */
#pragma once
#include "lab/results/result.h"

struct run_settings;

struct trial {
    const char *program;                 /* the engine's */
    const struct run_settings *settings; /* log.dir is the run's directory; DIR.yaml and DIR.log are beside it */
    double limit;                        /* seconds after which it has failed; 0: none */
};
/* What is wrong with the run is its own error in its own words; ERR_RESULT where this process is asked to stop
 * meanwhile. */
MUST_CHECK enum error trial_run(const struct trial *t, struct pool *pool, struct run_result *out);
