/* What commands that read a configuration share: its keys as the command line gives them, loading and checking it. */
#pragma once
#include "engine/base/memory.h"

struct job;
struct job_facts;
struct launcher;
struct run_settings;
enum { CLI_SETS = 256 };
struct cli_config {
    const char *path;                    /* NULL: none given */
    const struct run_launched *launched; /* by another launcher, as cli_launched tells; or NULL */
    int asks;                            /* enum asks, as run_settings_load takes it */
    const char *sets[CLI_SETS];
    int nsets;
};
/* Adds "key=value" as if by --set; first: before all others, which may so change it. ERR_USAGE
 * beyond CLI_SETS. */
MUST_CHECK enum error cli_set(struct cli_config *c, const char *assignment); /* NULL: ERR_MEMORY, as its maker said */
MUST_CHECK enum error cli_set_all(struct cli_config *c, const char *const *assignments, size_t n);
MUST_CHECK enum error cli_set_first(struct cli_config *c, const char *assignment);
/* Before cli_load: one device that computes whole batches, whatever the run has; the file's other keys do not count. */
MUST_CHECK enum error cli_alone(struct cli_config *c);
/* Loads it, of a run directory its resolved.yaml; on error everything that is wrong has been printed.
 * run_settings_free in any case. */
enum error cli_load(const struct cli_config *c, struct run_settings *out);
/* The same, but nothing is printed: all that is wrong is in *report, in the pool of *out, or is the last error. */
enum error cli_read(const struct cli_config *c, struct run_settings *out, char **report);

/* Reads into l what the environment says about the launcher that started this process. Errors are reported with the
 * configuration, which may ignore the environment. */
struct run_launched cli_launched(struct launcher *l);

/* A text as a scalar of YAML, in quotes where it needs them; NULL: no memory. */
char *cli_as_yaml(const char *text, struct pool *pool);

/* Opens the data and builds the model; on error everything that is wrong has been printed. */
enum error cli_check(const struct job *job, struct job_facts *facts);

/* Makes the run directory and trains in it; job's settings and mode are set. *code is the exit code
 * of ranks that failed. */
MUST_CHECK enum error cli_train(struct job *job, const char *run_dir, int *code);

/* PATH, a configuration or a run directory whose resolved.yaml then is the configuration; *run_dir
 * is NULL for the former. The text of *config lies in the pool, or is path. */
MUST_CHECK enum error cli_run_dir(const char *path, struct pool *pool, const char **config, const char **run_dir);
