/* Commands: one file each, listed in commands.def. A command is its table of options (options.h) and
 * what it does with them. */
#pragma once
#include "cli/line/options.h"
#include "engine/base/json.h"
#include "engine/settings/run_config.h"
#include "engine/train/job_check.h"

#include <stdio.h>

#define COMMAND(name, group) extern const struct command command_##name;
#include "cli/line/commands.def"
#undef COMMAND
enum command_group { GROUP_TRAIN, GROUP_RESULTS, GROUP_USE, GROUP_COMPARE, GROUP_LEARN, GROUP_SYSTEM, GROUP_HIDDEN };
struct command_row {
    const struct command *command;
    enum command_group group; /* GROUP_HIDDEN: for programs, not for people */
};
const struct command_row *command_rows(int *count);
const struct command *command_find(const char *name);
const char *command_name(int i); /* of those that are not hidden; NULL: there are fewer */

struct command_alias { /* "engine validate" is "engine config --check" */
    const char *old;
    const struct command *command;
    const char *option;
};
const struct command_alias *command_alias(const char *word); /* NULL: it is none */
/* The whole program (cli/main.c), from its words to its exit code. The library exports it for 'engine' of the same build;
 * it is no part of engine/engine.h. */
__attribute__((visibility("default"))) int engine_program(int argc, char **argv);

const char *cli_zoo_name(int i); /* of networks, likewise */

/* Prints the last error and its hint on standard error; gives the exit code. */
int cli_fail(enum error err);
int cli_end(enum error err); /* the same, or 0 where there is none */
/* The same of an error of which a report tells more; NULL: there is none. */
int cli_reported(enum error err, const char *report);
/* Prints what has been written as one line, unless that has failed with err, and frees it. */
MUST_CHECK enum error cli_json(enum error err, struct json *j, FILE *out);
/* Reads channels, height and width as in 3x32x32, or a number, into a struct shape. */
enum error cli_read_shape(const char *value, void *out);

/* ---- what commands that read a configuration share ---- */
enum { CLI_SETS = 256 };
struct launcher;
struct trainer;
struct cli_config {
    const char *path;                    /* NULL: none given */
    const struct run_launched *launched; /* by another launcher, as cli_launched tells; or NULL */
    enum asks asks;                      /* as run_settings_load takes it */
    const char *sets[CLI_SETS];
    int nsets;
};
/* Adds "key=value" as if by --set; first: before all others, which may so change it. ERR_USAGE
 * beyond CLI_SETS. */
MUST_CHECK enum error cli_set(struct cli_config *c, const char *assignment);
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

/* Opens the data and builds the model; on error everything that is wrong has been printed. */
enum error cli_check(const struct job *job, struct job_facts *facts);

/* Makes the run directory and trains in it; job's settings and mode are set. *code is the exit code
 * of ranks that failed. */
MUST_CHECK enum error cli_train(struct job *job, const char *run_dir, int *code);

/* PATH, a configuration or a run directory whose resolved.yaml then is the configuration; *run_dir
 * is NULL for the former. The text of *config lies in the pool, or is path. */
MUST_CHECK enum error cli_run_dir(const char *path, struct pool *pool, const char **config, const char **run_dir);

/* ---- trained networks: what eval, predict and generate share ---- */
struct cli_trained {
    struct cli_config config;
    const char *path;       /* CONFIG or RUN_DIR */
    const char *checkpoint; /* --checkpoint; NULL: the best of the run, else its last */
    bool raw;               /* not their average (ema) */
    bool json;
    struct pool *pool; /* the command line's */
    const char *run_dir;
    struct run_settings settings; /* run_settings_free in any case */
    struct job job;
};
/* Their rows, for an OPTIONS_STRUCT whose member 'trained' this is. */
// clang-format off
#define TRAINED_PATH \
    "CONFIG|RUN_DIR", NULL, "a run, one of its checkpoints, or a configuration, whose newest run is meant", \
    CONFIG_STRING, AT(trained.path)
#define TRAINED_RAW \
    {"--raw", NULL, "the weights themselves, where the run has averaged them (ema)", CONFIG_BOOL, AT(trained.raw)}
#define TRAINED_OPTIONS \
    {"--checkpoint", "PATH", "a step's folder, a run's, or a .safetensors file; by itself the best " \
     "checkpoint of the run, or else its last", CONFIG_STRING, AT(trained.checkpoint)}, \
    TRAINED_RAW, \
    OPTION_SET(trained.config, "changes one key"), \
    OPTION_KEY("--mode", "M", trained.config, "mode"), \
    OPTION_KEY("--devices", "D", trained.config, "devices"), \
    OPTION_KEY("--threads", "N", trained.config, "threads")
// clang-format on
/* Load the configuration; find the weights (job.resume). What is wrong has been printed. */
enum error cli_trained_load(struct cli_trained *t);
enum error cli_trained_weights(struct cli_trained *t);
/* Loads the network here, with settings for one device. What is wrong has been printed; close it in any case. */
MUST_CHECK enum error cli_trained_open(struct cli_trained *t, struct pool *pool, struct trainer **out);
void cli_trained_close(struct cli_trained *t, struct trainer *trainer);

/* ---- run directories ---- */
struct run_place {
    char *dir;          /* exists, locked by this process until it ends */
    char *resume;       /* checkpoint to begin from, or NULL */
    const char *run_id; /* node 0's; NULL on other nodes */
    bool fresh;         /* a run begins; else the one of this directory goes on */
    bool elsewhere;     /* 'resume' is a path that the user names */
    struct {
        char *text; /* NULL: there was none */
        size_t n;
    } was[2]; /* config.yaml and resolved.yaml, before run_place_record() */
};
/* Chooses (and makes) the run's directory, which run it is, and what to resume from. given: a run
 * directory named by the user, or NULL. ERR_CREATE: a run would begin where another has left
 * checkpoints; nothing has been written. */
MUST_CHECK enum error run_place_open(const struct run_settings *s, const char *given, struct run_place *out);
/* The newest directory that log.dir may have meant and that holds a checkpoint, and this; out is not
 * touched when there is none. */
void run_place_newest(const struct run_settings *s, struct run_place *out);
/* Writes config.yaml, resolved.yaml, env.json and run.json; where a run begins, removes first what
 * one before it has left here. */
MUST_CHECK enum error run_place_record(struct run_place *p, const struct run_settings *s);
/* Puts back what they were, for settings that the checkpoint refuses must not stay with it. */
void run_place_restore(const struct run_place *p, struct pool *pool);
