/* Trained networks: what eval, predict and generate share. */
#pragma once
#include "cli/line/load.h"
#include "cli/line/options.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"

struct trainer;
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
