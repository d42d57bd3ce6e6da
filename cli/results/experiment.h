/* What 'engine compare' and 'engine sweep' share: their options, and running an experiment. */
#pragma once
#include "cli/line/cli.h"
#include "cli/line/load.h"
#include "lab/compare/compare.h"

struct compare_options {
    struct option_list paths, gates;
    const char *modes, *repeats, *dir, *axis;
    struct option_list tuned; /* of sweep: KEY=VALUES */
    const char *budget, *search, *metric;
    struct cli_config sets;
    bool json, csv, markdown, quiet, quick, dry;
};
/* The first lines of an experiment that a command line is short for: its name, of the configuration's and what is asked,
 * and its base, a configuration or a run's. path: NULL is none. NULL: no memory. */
char *experiment_text(const char *path, const char *asked, struct pool *pool);
/* Opens it and runs it; with a search that is alone, only that. Gives the exit code. */
int experiment_command(const struct compare_options *o, const struct experiment_source *source);
/* A comparison in the format that is asked for. */
MUST_CHECK enum error experiment_show(const struct compare_options *o, const struct compared *c);
