/* engine compare: which of two ways is better, by how much, and how sure that is. */
#include "cli/results/experiment.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <string.h>

#define OPTIONS_STRUCT struct compare_options

/* ---- finished runs ---- */

static int compare_finished_runs(const struct cli *cli, const struct compare_options *o) {
    struct experiment x;
    struct compared c;
    if (o->modes || o->repeats || o->quick || o->sets.nsets || o->gates.count || o->dir || o->dry)
        return cli_usage(cli, "finished runs take only --axis and the formats");
    enum error err = compare_finished(o->paths.of, o->paths.count, o->axis, &x, &c);
    if (err == ERR_NONE) err = experiment_show(o, &c);
    int code = cli_end(err);
    experiment_close(&x);
    return code;
}

/* ---- experiments ---- */

/* 'dp,ddp' CONFIG as the experiment that it is short for. */
static char *compare_text_of_modes(const struct compare_options *o, struct pool *pool) {
    char *text = experiment_text(o->paths.count ? o->paths.of[0] : NULL, o->modes, pool);
    return text ? pool_printf(pool, "%smatrix: {mode: [%s]}\n", text, o->modes) : NULL;
}

/* The command with all that changes the runs; the results name it. */
static char *compare_command_text(const struct compare_options *o, struct pool *pool) {
    const char *path = o->paths.count ? o->paths.of[0] : NULL;
    char *text = pool_printf(pool, "engine compare%s%s%s%s", o->modes ? " --modes " : "", o->modes ? o->modes : "",
                             path ? " " : "", path ? path : "");
    for (int i = 0; i < o->sets.nsets && text; i++) text = pool_printf(pool, "%s --set '%s'", text, o->sets.sets[i]);
    if (text && o->quick) text = pool_printf(pool, "%s --quick", text);
    if (text && o->repeats) text = pool_printf(pool, "%s --repeats %s", text, o->repeats);
    return text;
}

static int experiment_compare(const struct cli *cli, const struct compare_options *o) {
    int64_t repeats = 0;
    if (o->axis) return cli_usage(cli, "--axis is for finished runs");
    if (o->repeats && strcmp(o->repeats, "auto") != 0 &&
        !(text_int(o->repeats, &repeats) && repeats >= 1 && repeats <= STATISTICS_RUNS))
        return cli_usage(cli, "--repeats is auto or a number from 1 to %d, not '%s'", STATISTICS_RUNS, o->repeats);
    if (!o->modes && o->paths.count == 0) return cli_usage(cli, "compare what?");
    if (!o->modes && file_is_folder(o->paths.of[0]))
        return cli_fail(FAIL(ERR_INPUT,
                             "'%s' is a folder, and an experiment is a file\na run is compared with others: engine "
                             "compare %s RUN; or its settings in other modes: --modes dp,ddp %s/resolved.yaml",
                             o->paths.of[0], o->paths.of[0], o->paths.of[0]));
    struct experiment_source source = {.path = o->modes ? NULL : o->paths.of[0],
                                       .text = o->modes ? compare_text_of_modes(o, cli->pool) : NULL,
                                       .command = compare_command_text(o, cli->pool),
                                       .repeats = (int)repeats,
                                       .quick = o->quick,
                                       .sets = o->sets.sets,
                                       .nsets = o->sets.nsets,
                                       .gates = o->gates.of,
                                       .ngates = o->gates.count};
    return source.path || source.text ? experiment_command(o, &source) : cli_fail(ERR_MEMORY);
}

static int compare_command(const struct cli *cli) {
    const struct compare_options *o = cli->options;
    if (o->json + o->csv + o->markdown > 1) return cli_usage(cli, "one of --json, --csv and --markdown");
    if (o->paths.count < 2) return experiment_compare(cli, o);
    if (o->modes) return cli_usage(cli, "--modes takes one configuration");
    return compare_finished_runs(cli, o);
}

static const struct option options[] = {
    {"EXPERIMENT.yaml | RUN RUN... | CONFIG", NULL,
     "an experiment (base, matrix or sides, repeats, ...: see below); or finished runs, each compared with the first: "
     "times, settings, losses and weights bit for bit; or, for --modes, a configuration",
     .at = AT(paths), .max = EXPERIMENT_VALUES, .many = OPTION_LIST},
    {"--modes", "M,M", "the modes to compare on one configuration: --modes dp,ddp", CONFIG_STRING, AT(modes)},
    {"--repeats", "N", "runs of each side; auto: the spread of the first runs decides", CONFIG_STRING, AT(repeats)},
    {"--quick", NULL, "one run of each side (or --repeats N), for a first look without verdicts", CONFIG_BOOL,
     AT(quick)},
    OPTION_SET(sets, "changes one key of the base, as in 'engine run'"),
    {"--fail-if", "GATE",
     "exit code 1 if the condition is true, such as 'ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4'",
     .at = AT(gates), .max = 32, .many = OPTION_LIST},
    {"--axis", "KEY", "the setting in which finished runs may differ", CONFIG_STRING, AT(axis)},
    {"--dir", "FOLDER", "folder of runs and results; default: runs/NAME. Runs that it already has are not repeated",
     CONFIG_STRING, AT(dir)},
    OPTION_JSON("on standard output instead of the table"),
    {"--csv", NULL, "likewise", CONFIG_BOOL, AT(csv)},
    {"--markdown", NULL, "likewise", CONFIG_BOOL, AT(markdown)},
    {"--dry-run", NULL, "only says how many runs it would make, and how long they would take", CONFIG_BOOL, AT(dry)},
    {"--quiet", NULL, "no progress", CONFIG_BOOL, AT(quiet), .also = "-q"},
    {0}};

const struct command command_compare = {
    .name = "compare",
    .also = "experiment|ab",
    .summary = "runs an experiment and reports which side is better, by how much and how surely",
    OPTIONS(options),
    .notes = "\n"
             "An experiment:\n"
             "  name: ps-vs-ring           of its folder\n"
             "  base: {...} or FILE        the configuration that all runs share\n"
             "  matrix:                    keys and their values; those of the first are compared\n"
             "    mode: [dp, ddp]\n"
             "    devices: [cpu:1, cpu:2]\n"
             "  sides:                     or what is compared by name, each with its keys; the matrix\n"
             "    dp: {mode: dp}           then only says where\n"
             "    int8: {mode: ddp, comm.compress: int8}\n"
             "    mine: {command: \"python train.py --seed $ENGINE_SEED\", devices: 2}\n"
             "                             a script of your own, which writes a line for each step to the\n"
             "                             file $ENGINE_METRICS, or prints it: {\"step\": 1, \"loss\": 2.3,\n"
             "                             \"ms\": 12.1, \"samples\": 128}, and {\"step\": 9, \"val_accuracy\": 0.9}\n"
             "  env: {OMP_NUM_THREADS: 1}  of base, a side or the matrix (env.NAME: [...]): variables\n"
             "  under: srun -N 2           words before each run: mpirun -np 2, nice, numactl\n"
             "  hosts: [a, b]              a process on each by ssh, which meet at the first\n"
             "  timeout: 10min             a run that takes longer is ended\n"
             "  pairs: first | all         each side against the first, or against each other one\n"
             "  exclude: [{devices: cpu:1}]\n"
             "  scaling: strong | weak     weak: batch is for each device\n"
             "  repeats: auto | N | {most: N} | {seeds: 8}    seeds: run k of every cell has seed k\n"
             "  tune: {optimizer.lr: log 1e-4..1e-1, budget: 16 runs}    each side at its best: values are\n"
             "                             chosen on other seeds before the comparison ('engine help sweep')\n"
             "  warmup: 10st               seed: 0         of the order of runs\n"
             "  confidence: 95%            practical: 2%   smaller differences count as none; or\n"
             "                             {step_time: 2%, val_accuracy: 0.5pt}\n"
             "  model_fit: true            measures links that are not emulated, to predict steps on "
             "them\n"
             "  metrics: [step_time, throughput, comm_exposed, {time_to: {val.accuracy: 0.95}}]\n"
             "                             the first one leads; also step_q25, step_best, load,\n"
             "                             forward, backward, comm_hidden, update, time, bytes, memory,\n"
             "                             train_loss, val_loss, val_accuracy, val_top5,\n"
             "                             val_perplexity, val_balanced_accuracy, val_rmse, val_mae,\n"
             "                             val_r2, val_bits_per_byte\n"
             "  fail_if: ['B.step_time > A.step_time']\n"
             "\n"
             "Step times are predicted, too: from one cell on the fewest devices, over the links that "
             "are\n"
             "emulated; results tell how far off that is.\n"
             "Each run is a fresh process; sides take turns in random order. Runs of a repeat, or of a\n"
             "seed, are compared with each other (Wilcoxon's signed ranks, exact; of few runs Mann and\n"
             "Whitney's). A side is faster or slower when p is small enough among all pairs and metrics\n"
             "(Holm), the same when the whole interval lies within 'practical'. Runs that end in the same\n"
             "weights are copies of one training: of losses and accuracy they count as one.\n"
             "Exit codes: 0; 1 a gate failed; 64 usage; 66 no such file; 78 bad experiment, or sides\n"
             "that are no fair comparison; a failed run's own; 130/143 stopped: the same command\n"
             "continues it\n",
    .run = compare_command,
};
