/* The step that 'engine simulate' and 'engine advise' replay: a run's, or one that is measured now. */
#pragma once
#include "cli/line/cli.h"
#include "cli/line/load.h"
#include "engine/settings/run_config.h"
#include "lab/predict/measured.h"
#include "lab/predict/planned.h"
#include "lab/process/trial.h"

#define ENGINE_ITSELF "/proc/self/exe"

struct step_ask {
    const char *path; /* a run directory, or a configuration; NULL: the empty one */
    const struct cli_config *config;
    int cores;       /* that the run's devices shared; 0: each had its own, as what is measured now has */
    double quantile; /* which of its steps is typical */
    int steps;       /* to be measured */
    double limit;    /* seconds after which measuring has failed; 0: none */
    bool quiet;      /* prints nothing: what is wrong with the configuration is the error */
};
struct step_source {
    struct pool *pool;
    struct run_settings settings; /* as configured */
    struct run_result result;
    struct planned network;
    struct step_trace trace;
    struct measured_step step;
    bool measured_here;
    bool printed; /* what is wrong has been printed */
};
/* The step of a run directory; of a configuration, it is measured first, on one device in a fresh process and a folder
 * that is gone afterwards. step_source_close in any case. */
MUST_CHECK enum error step_source_open(const struct step_ask *ask, struct step_source *out);
void step_source_close(struct step_source *s);

/* For runs that are to be measured: 'steps' long, traced, into 'dir', with nothing beside them. */
MUST_CHECK enum error step_source_short(int steps, const char *dir, struct pool *pool, struct cli_config *out);
/* Removes the folder of such runs, and gives err, whose words stay those of the last error. */
MUST_CHECK enum error step_source_clear(enum error err, const char *dir);
/* Loads it; what is wrong is the error, with the first line of what would be printed. */
MUST_CHECK enum error step_source_read(const struct cli_config *c, struct run_settings *out);
