/* engine sweep: the best values of some keys. It is the search of an experiment without the comparison. */
#include "cli/results/experiment.h"

#define OPTIONS_STRUCT struct compare_options

static int sweep_command(const struct cli *cli) {
    static const struct experiment_search alone = {.alone = true};
    const struct compare_options *o = cli->options;
    const struct experiment_source source = {
        .path = o->paths.of[0], .search = &alone, .sets = o->sets.sets, .nsets = o->sets.nsets};
    return experiment_command(o, &source);
}

static const struct option options[] = {
    {"EXPERIMENT.yaml", NULL, "a base configuration and what is tuned (see below); sides and a matrix may be there",
     .at = AT(paths), .max = 1, .many = OPTION_LIST, .missing = "sweep what?"},
    OPTION_SET(sets, "changes one key of the base, as in 'engine run'"),
    {"--dir", "FOLDER", "folder of runs and results; default: runs/NAME. Runs that it already has are not repeated",
     CONFIG_STRING, AT(dir)},
    {"--dry-run", NULL, "only says how many runs it would make", CONFIG_BOOL, AT(dry)},
    OPTION_JSON("on standard output instead of the table"),
    {"--quiet", NULL, "no progress", CONFIG_BOOL, AT(quiet), .also = "-q"},
    {0}};

const struct command command_sweep = {
    .name = "sweep",
    .also = "search|hyperopt|tune",
    .summary = "tries values of some keys, and writes the best configuration",
    OPTIONS(options),
    .notes = "\n"
             "The file:\n"
             "  base: {...} or FILE        the configuration that is tuned\n"
             "  metrics: [val_accuracy]    the first one decides\n"
             "  tune:\n"
             "    optimizer.lr: log 1e-4..1e-1     a range, by factors; 0..0.3: by differences\n"
             "    optimizer.momentum: [0.8, 0.9]   or a list\n"
             "    budget: 16 runs          the most whole runs that it may take (of each side)\n"
             "    search: grid | random | halving   halving: all begin, and the better half goes on from its\n"
             "                             checkpoints, three times\n"
             "    seeds: 1                 runs of each try, on seeds of their own\n"
             "    widen: true              tries on beyond the range where the best is at its edge\n"
             "\n"
             "The score of a try is the mean of its seeds; a training that diverges is the worst. The best\n"
             "configuration is written to runs/NAME/best.yaml. With sides, each has its own best, from the\n"
             "same tries; 'engine compare' on the same file takes them and compares the sides on fresh seeds.\n"
             "Exit codes: 0; 1 all tries diverged; 66 no such file; 78 bad experiment; a failed run's own;\n"
             "130/143 stopped: the same command continues it\n",
    .run = sweep_command,
};
