/* What 'engine compare' and 'engine sweep' share: their options, and running an experiment. */
#pragma once
#include "cli/line/cli.h"
#include "cli/line/load.h"
#include "lab/compare/compare.h"

struct compare_options {
    struct option_list paths, gates;
    const char *modes, *repeats, *dir, *axis;
    struct cli_config sets;
    bool json, csv, markdown, quiet, quick, dry;
};
/* Opens it and runs it; with a search that is alone, only that. Gives the exit code. */
int experiment_command(const struct compare_options *o, const struct experiment_source *source);
/* A comparison in the format that is asked for. */
MUST_CHECK enum error experiment_show(const struct compare_options *o, const struct compared *c);
