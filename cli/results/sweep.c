/* engine sweep: the best values of some keys. It is the search of an experiment without the comparison. */
#include "cli/results/experiment.h"

#include <string.h>

#define OPTIONS_STRUCT struct compare_options

/* CONFIG --tune KEY=VALUES as the experiment that it is short for: "0.1,0.2" is a list. */
static char *sweep_text(const struct compare_options *o, struct pool *pool) {
    char *text = experiment_text(o->paths.of[0], "sweep", pool);
    if (text) text = pool_printf(pool, "%smetrics: [%s]\ntune:\n", text, o->metric);
    for (int i = 0; i < o->tuned.count && text; i++) {
        const char *key = o->tuned.of[i], *values = strchr(key, '=');
        bool list = *values && strchr(values, ',') && values[1] != '[';
        text =
            pool_printf(pool, list ? "%s  %.*s: [%s]\n" : "%s  %.*s: %s\n", text, (int)(values - key), key, values + 1);
    }
    if (text && o->budget) text = pool_printf(pool, "%s  budget: %s\n", text, o->budget);
    return text && o->search ? pool_printf(pool, "%s  search: %s\n", text, o->search) : text;
}

static int sweep_command(const struct cli *cli) {
    static const struct experiment_search alone = {.alone = true};
    const struct compare_options *o = cli->options;
    struct experiment_source source = {
        .path = o->paths.of[0], .search = &alone, .sets = o->sets.sets, .nsets = o->sets.nsets};
    for (int i = 0; i < o->tuned.count; i++)
        if (!strchr(o->tuned.of[i], '=') || *o->tuned.of[i] == '=')
            return cli_usage(cli, "--tune is KEY=VALUES, as in optimizer.lr='log 1e-4..1e-1', not '%s'",
                             o->tuned.of[i]);
    if (!o->tuned.count && (o->budget || o->search || o->metric))
        return cli_usage(cli, "--budget, --search and --metric go with --tune; an experiment has its own");
    if (o->tuned.count && !o->metric) return cli_usage(cli, "--tune needs --metric: val_loss, val_accuracy, ...");
    if (o->tuned.count) source.path = NULL, source.text = sweep_text(o, cli->pool);
    return source.path || source.text ? experiment_command(o, &source) : cli_fail(ERR_MEMORY);
}

static const struct option options[] = {
    {"EXPERIMENT.yaml | CONFIG", NULL,
     "a base configuration and what is tuned (see below); sides and a matrix may be there; or, for --tune, a "
     "configuration",
     .at = AT(paths), .max = 1, .many = OPTION_LIST, .missing = "sweep what?"},
    {"--tune", "KEY=VALUES", "a key of CONFIG and its values: optimizer.lr='log 1e-4..1e-1', or optimizer.lr=0.01,0.1",
     .at = AT(tuned), .max = TUNE_KEYS, .many = OPTION_LIST},
    {"--metric", "M", "with --tune: what decides, such as val_loss", CONFIG_STRING, AT(metric)},
    {"--budget", "N", "with --tune: the most whole runs; a range needs it", CONFIG_STRING, AT(budget)},
    {"--search", NULL, "with --tune: how; default: grid", CONFIG_STRING, AT(search), .choices = "grid|random|halving"},
    OPTION_SET(sets, "changes one key of the base, as in 'engine run'"),
    {"--dir", "FOLDER", "folder of runs and results; default: runs/NAME. Runs that it already has are not repeated",
     CONFIG_STRING, AT(dir)},
    {"--dry-run", NULL, "only says how many runs it would make", CONFIG_BOOL, AT(dry)},
    OPTION_JSON("on standard output instead of the table"),
    {"--quiet", NULL, "no progress", CONFIG_BOOL, AT(quiet), .also = "-q"},
    {0}};

const struct command command_sweep = {
    .name = "sweep",
    .also = "search|hyperopt",
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
