/* engine compare: which of two ways is better, by how much, and how sure that is. */
#include "cli/cli.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/train/stop.h"
#include "lab/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct command command_compare;

enum { GATES = 32 };
struct options {
    const char *path[2];
    int npaths;
    const char *modes, *repeats, *dir, *axis;
    struct cli_config sets;
    const char *gate[GATES];
    int ngates;
    bool json, csv, markdown, quiet, quick;
};

/* ---- arguments ---- */

static int take_value(struct options *o, const char *option, const char *value) {
    static const char *const names[] = {"--modes", "--repeats", "--dir", "--axis"};
    const char **const into[] = {&o->modes, &o->repeats, &o->dir, &o->axis};
    for (int i = 0; i < 4; i++)
        if (!strcmp(option, names[i])) return *into[i] = value, 0;
    if (!strcmp(option, "--set"))
        return cli_set(&o->sets, value) == ERR_NONE ? 0 : cli_fail(ERR_USAGE);
    if (o->ngates == GATES) return cli_usage(&command_compare, "more than %d gates", GATES);
    o->gate[o->ngates++] = value;
    return 0;
}

static bool take_flag(struct options *o, const char *arg) {
    if (!strcmp(arg, "--json")) return o->json = true;
    if (!strcmp(arg, "--csv")) return o->csv = true;
    if (!strcmp(arg, "--markdown")) return o->markdown = true;
    if (!strcmp(arg, "--quick")) return o->quick = true;
    if (!strcmp(arg, "--quiet") || !strcmp(arg, "-q")) return o->quiet = true;
    return false;
}

static int parse(struct options *o, int argc, char **argv) {
    static const char *const valued[] = {"--modes", "--repeats", "--dir",
                                         "--axis",  "--set",     "--fail-if"};
    for (int i = 1; i < argc; i++) {
        bool value = false;
        for (int k = 0; k < 6; k++) value |= !strcmp(argv[i], valued[k]);
        if (value) {
            if (i + 1 == argc) return cli_usage(&command_compare, "%s needs a value", argv[i]);
            int code = take_value(o, argv[i], argv[i + 1]);
            if (code) return code;
            i++;
        } else if (take_flag(o, argv[i])) {
            continue;
        } else if (argv[i][0] == '-') {
            return cli_usage(&command_compare, "unknown option '%s'", argv[i]);
        } else if (o->npaths == 2) {
            return cli_usage(&command_compare, "an experiment, or two runs; '%s' is too much",
                             argv[i]);
        } else {
            o->path[o->npaths++] = argv[i];
        }
    }
    if (o->json + o->csv + o->markdown > 1)
        return cli_usage(&command_compare, "one of --json, --csv and --markdown");
    return 0;
}

/* ---- showing ---- */

static enum error show(const struct options *o, const struct compared *c) {
    if (o->csv) return compare_csv(c, stdout), ERR_NONE;
    if (o->markdown) return compare_markdown(c, stdout), ERR_NONE;
    if (!o->json) {
        compare_table(c, stdout);
        if (*c->folder) printf("wrote %s/results.json, results.csv, results.md\n", c->folder);
        return ERR_NONE;
    }
    struct json j;
    json_init(&j);
    enum error err = compare_json(c, &j);
    if (err == ERR_NONE) printf("%s\n", j.text);
    json_fini(&j);
    return err;
}

/* ---- two runs ---- */

static int two_runs(const struct options *o) {
    struct experiment x;
    struct compared c;
    if (o->modes || o->repeats || o->quick || o->sets.nsets || o->ngates || o->dir)
        return cli_usage(&command_compare, "two runs that are there take --axis and the formats");
    enum error err = compare_two(o->path, o->axis, &x, &c);
    if (err == ERR_NONE) err = show(o, &c);
    int code = err == ERR_NONE ? 0 : cli_fail(err);
    experiment_close(&x);
    return code;
}

/* ---- experiments ---- */

/* 'dp,ddp' CONFIG as the experiment that it is short for. */
static char *text_of_modes(const struct options *o, struct pool *pool) {
    const char *path = o->npaths ? o->path[0] : NULL, *file = path;
    if (file && strrchr(file, '/')) file = strrchr(file, '/') + 1;
    char *text =
        pool_printf(pool, "name: \"%.*s-%s\"\nmatrix: {mode: [%s]}\n",
                    file ? (int)strcspn(file, ".") : 3, file ? file : "run", o->modes, o->modes);
    return text && path ? pool_printf(pool, "%sbase: \"%s\"\n", text, path) : text;
}

static int run_experiment(const struct options *o, struct experiment *x) {
    struct compared c;
    struct runner r = {"/proc/self/exe", o->dir, o->quiet};
    if (!r.folder) r.folder = pool_printf(x->pool, "runs/%s", x->name);
    if (!r.folder) return cli_fail(ERR_MEMORY);
    stop_install();
    enum error err = runner_run(&r, x, &c), later = ERR_NONE;
    int code = err == ERR_NONE ? 0 : cli_fail(err);
    bool any = false;
    for (int i = 0; i < x->ncells && c.cell; i++) any |= c.cell[i].nruns > 0;
    if (any) later = compare_judge(&c);
    if (any && later == ERR_NONE) compare_predict(&c);
    if (any && later == ERR_NONE) later = compare_write(&c);
    if (any && later == ERR_NONE && code == 0) later = show(o, &c);
    if (later != ERR_NONE) return cli_fail(later);
    if (code == 0 && stop_signal()) code = stop_exit_code(stop_signal());
    if (code) return code;
    err = compare_gates(&c);
    return err == ERR_NONE ? 0 : cli_fail(err);
}

static int open_experiment(const struct options *o, const struct experiment_source *source) {
    struct experiment x;
    char *report;
    enum error err = experiment_open(source, &x, &report);
    int code = err == ERR_NONE ? run_experiment(o, &x) : error_exit_code(err);
    if (report)
        fputs(report, stderr);
    else if (err != ERR_NONE)
        code = cli_fail(err);
    experiment_close(&x);
    return code;
}

/* What changes the runs; results are told with it. */
static char *command_text(const struct options *o, struct pool *pool) {
    char *text =
        pool_printf(pool, "engine compare%s%s%s%s", o->modes ? " --modes " : "",
                    o->modes ? o->modes : "", o->npaths ? " " : "", o->npaths ? o->path[0] : "");
    for (int i = 0; i < o->sets.nsets && text; i++)
        text = pool_printf(pool, "%s --set '%s'", text, o->sets.sets[i]);
    if (text && o->quick) text = pool_printf(pool, "%s --quick", text);
    if (text && o->repeats) text = pool_printf(pool, "%s --repeats %s", text, o->repeats);
    return text;
}

static int experiment(const struct options *o) {
    int64_t repeats = 0;
    struct pool *pool;
    if (o->axis) return cli_usage(&command_compare, "--axis is for two runs that are there");
    if (o->repeats && strcmp(o->repeats, "auto") != 0 &&
        !(text_int(o->repeats, &repeats) && repeats >= 1 && repeats <= STATISTICS_RUNS))
        return cli_usage(&command_compare, "--repeats is auto or a number from 1 to %d, not '%s'",
                         STATISTICS_RUNS, o->repeats);
    if (!o->modes && o->npaths == 0) return cli_usage(&command_compare, "compare what?");
    enum error err = pool_create(&pool);
    if (err != ERR_NONE) return cli_fail(err);
    struct experiment_source source = {.path = o->modes ? NULL : o->path[0],
                                       .text = o->modes ? text_of_modes(o, pool) : NULL,
                                       .command = command_text(o, pool),
                                       .repeats = (int)repeats,
                                       .quick = o->quick,
                                       .sets = o->sets.sets,
                                       .nsets = o->sets.nsets,
                                       .gates = o->gate,
                                       .ngates = o->ngates};
    int code = source.path || source.text ? open_experiment(o, &source) : cli_fail(ERR_MEMORY);
    pool_free(pool);
    return code;
}

static int compare_run(int argc, char **argv) {
    struct options o = {0};
    int code = parse(&o, argc, argv);
    if (code) return code;
    if (o.npaths < 2) return experiment(&o);
    if (o.modes) return cli_usage(&command_compare, "--modes takes one configuration");
    return two_runs(&o);
}

const struct command command_compare = {
    .name = "compare",
    .arguments =
        "EXPERIMENT.yaml | RUN_A RUN_B | --modes M,M CONFIG  [--repeats N] [--quick] [--set "
        "KEY=VALUE]... [--fail-if GATE]... [--json | --csv | --markdown]",
    .summary = "runs an experiment and tells which side is better, by how much and how surely",
    .help =
        "  EXPERIMENT.yaml    base, matrix, repeats and such: see below\n"
        "  RUN_A RUN_B        two finished runs as they are: times, settings, losses and weights\n"
        "                     bit for bit\n"
        "  --axis KEY         of two runs: the setting in which they may differ\n"
        "  --modes M,M        the modes to compare on one configuration: --modes dp,ddp\n"
        "  --repeats N        runs of each side; auto: the fewest that can tell anything\n"
        "  --quick            one run of each side (or --repeats N): a first look; no verdicts\n"
        "  --set KEY=VALUE    changes one key of the base, as in 'engine run'\n"
        "  --fail-if GATE     exit code 1 where it is true, as in\n"
        "                     'ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4'\n"
        "  --dir FOLDER       where runs and results go; runs/NAME by itself. What is there from\n"
        "                     an earlier start is not run again\n"
        "  --json, --csv, --markdown  on standard output instead of the table\n"
        "  --quiet, -q        no progress\n"
        "\n"
        "An experiment:\n"
        "  name: ps-vs-ring           of its folder\n"
        "  base: {...} or FILE        the configuration that all runs share\n"
        "  matrix:                    keys and their values; sides of the first are compared\n"
        "    mode: [dp, ddp]\n"
        "    devices: [cpu:1, cpu:2]\n"
        "  exclude: [{devices: cpu:1}]\n"
        "  scaling: strong | weak     weak: batch is for each device\n"
        "  repeats: auto | N          warmup: 10st    seed: 0\n"
        "  confidence: 95%            practical: 2%   smaller differences count as none\n"
        "  model_fit: true            measures links that are not emulated, to predict steps on "
        "them\n"
        "  metrics: [step_time, throughput, comm_exposed, {time_to: {val.accuracy: 0.95}}]\n"
        "                             verdicts are about the first; also step_best, load, "
        "forward,\n"
        "                             backward, comm_hidden, update, time, bytes, memory,\n"
        "                             train_loss, val_loss, val_accuracy\n"
        "  fail_if: ['B.step_time > A.step_time']\n"
        "\n"
        "Step times are predicted, too: from one cell on the fewest devices, over the links that "
        "are\n"
        "emulated; results tell how far off that is.\n"
        "Each run is a fresh process; sides take turns in random order. A side is faster or "
        "slower\n"
        "when the exact test of Mann and Whitney says so among all pairs (Holm) and the medians\n"
        "differ by more than 'practical'; the interval is a bootstrap's. Runs that end in the "
        "same\n"
        "weights are copies of one training: of losses and accuracy they count as one.\n"
        "Exit codes: 0; 1 a gate failed; 64 usage; 66 no such file; 78 bad experiment, or sides\n"
        "that are no fair comparison; a failed run's own; 130/143 stopped, to be gone on with\n",
    .run = compare_run,
};
