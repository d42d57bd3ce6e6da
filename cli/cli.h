/* Commands: one file each, listed in commands.def. A command parses its own arguments and returns
 * the process's exit code. */
#pragma once
#include "engine/train/trainer.h"

struct command {
    const char *name, *arguments, *summary;
    const char *help;                  /* options, a line each */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};
const struct command *command_find(const char *name);
const struct command *const *command_list(int *count);

/* Prints the last error and its hint on standard error; gives the exit code. */
int cli_fail(enum error err);
/* "unknown option '--foo' ..." with the usage line; 64. */
int cli_usage(const struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- what commands that read a configuration share ---- */
enum { CLI_SETS = 256 };
struct launcher;
struct cli_config {
    const char *path;                    /* NULL: none given */
    const struct run_launched *launched; /* by another launcher, as cli_launched tells; or NULL */
    const char *sets[CLI_SETS];
    int nsets;
};
/* Adds "key=value" as if by --set. ERR_USAGE beyond CLI_SETS. */
MUST_CHECK enum error cli_set(struct cli_config *c, const char *assignment);
/* Loads it; on error everything that is wrong has been printed. run_settings_free in any case. */
enum error cli_load(const struct cli_config *c, struct run_settings *out);

/* What the environment says of a launcher that has started this process, in l. What is wrong with
 * it is reported with the configuration, which may ignore it. */
struct run_launched cli_launched(struct launcher *l);

/* Opens the data and builds the model; on error everything that is wrong has been printed. */
enum error cli_check(const struct job *job, struct job_facts *facts);

/* Makes the run directory and trains in it; job's settings and mode are set. *code is the exit code
 * of ranks that failed. */
MUST_CHECK enum error cli_train(struct job *job, const char *run_dir, int *code);

/* ---- run directories ---- */
struct run_place {
    char *dir;    /* exists, locked by this process until it ends */
    char *resume; /* checkpoint to begin from, or NULL */
};
/* Chooses (and makes) the run's directory, and what to resume from. given: a run directory named by
 * the user, or NULL. */
MUST_CHECK enum error run_place_open(const struct run_settings *s, const char *given,
                                     struct run_place *out);
/* Writes config.yaml and resolved.yaml. */
MUST_CHECK enum error run_place_record(const struct run_place *p, const struct run_settings *s);
