/* Running an experiment: what it would take, the search of each side's best, the comparison. */
#include "cli/results/experiment.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/train/stop.h"
#include "lab/runner/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- showing ---- */

enum error experiment_show(const struct compare_options *o, const struct compared *c) {
    if (o->csv) return compare_csv(c, stdout), ERR_NONE;
    if (o->markdown) return compare_markdown(c, stdout), ERR_NONE;
    if (!o->json) {
        compare_table(c, stdout);
        if (*c->folder) printf("wrote %s/results.json, results.csv, results.md, verdicts.csv\n", c->folder);
        return ERR_NONE;
    }
    struct json j = {0};
    return cli_json(compare_json(c, &j), &j, stdout);
}

char *experiment_text(const char *path, const char *asked, struct pool *pool) {
    const char *file = path ? file_last_part(path) : "run", *base = path, *run_dir;
    const char *name = pool_printf(pool, "%.*s-%s", (int)strcspn(file, "."), file, asked);
    if (name) name = cli_as_yaml(name, pool);
    char *text = name ? pool_printf(pool, "name: %s\n", name) : NULL;
    if (!path) return text;
    if (cli_run_dir(path, pool, &base, &run_dir) != ERR_NONE) base = path;
    base = cli_as_yaml(base, pool);
    return text && base ? pool_printf(pool, "%sbase: %s\n", text, base) : NULL;
}

static int experiment_run(const struct compare_options *o, const struct runner *r, struct experiment *x) {
    struct compared c;
    enum error err = runner_run(r, x, &c), later = ERR_NONE;
    int code = cli_end(err);
    bool any = false;
    for (int i = 0; i < x->ncells && c.cell; i++) any |= c.cell[i].nruns > 0;
    if (any) later = compare_judge(&c);
    if (any && later == ERR_NONE) compare_predict(&c);
    if (any && later == ERR_NONE) later = compare_write(&c);
    if (any && later == ERR_NONE && code == 0) later = experiment_show(o, &c);
    if (later != ERR_NONE) return cli_fail(later);
    if (code == 0 && stop_signal()) code = stop_exit_code(stop_signal());
    if (code) return code;
    err = compare_gates(&c);
    return cli_end(err);
}

/* ---- what it would take ---- */

/* The tries of a search, as the experiment that they are. */
static enum error experiment_plan_tries(const struct runner *r, const struct experiment_source *source,
                                        const struct experiment_search *tries, struct runner_plan *out) {
    struct experiment_source tried = *source;
    struct experiment x;
    struct runner in = *r;
    char *report;
    tried.search = tries;
    enum error err = experiment_open(&tried, &x, &report);
    in.folder = err == ERR_NONE ? pool_printf(x.pool, "%s/tune", r->folder) : NULL;
    if (in.folder) err = runner_plan(&in, &x, out);
    experiment_close(&x);
    return err;
}

static enum error experiment_plan_show(const struct runner *r, const struct experiment *x,
                                       const struct experiment_source *source) {
    struct runner_plan plan = {0}, tuning = {0};
    struct tune_try tries[TUNE_TRIES];
    const bool alone = source->search != NULL;
    char when[32];
    double runs = 0, seconds = (double)NAN;
    int n;
    if (x->tune.nkeys) {
        TRY(tune_first(&x->tune, x->seed, x->pool, tries, &n));
        const struct experiment_search search = {.alone = alone, .tries = tries, .ntries = n};
        TRY(experiment_plan_tries(r, source, &search, &tuning));
        double all = tune_cost(&x->tune, n) * x->ncells;
        printf(
            "tuning: %d tries of %d cell%s, %d seed%s each (%s): as long as %g whole run%s; %d of %d runs are made%s\n",
            n, x->ncells, x->ncells == 1 ? "" : "s", x->tune.nseeds, x->tune.nseeds == 1 ? "" : "s",
            tune_searches[x->tune.search], all, all == 1 ? "" : "s", tuning.done, tuning.runs,
            x->tune.widen ? "; more where it is widened" : "");
        runs += all * (1 - (double)tuning.done / tuning.runs);
        if (x->tune.search != TUNE_HALVING) seconds = tuning.seconds; /* whose runs are parts */
    }
    if (!alone) {
        TRY(runner_plan(r, x, &plan));
        printf("comparison: %d cells, %d run%s each", x->ncells, x->repeats, x->repeats == 1 ? "" : "s");
        if (x->most > x->repeats) printf(", or up to %d by their spread", x->most);
        printf(": %d runs", plan.runs);
        if (!x->tune.nkeys) printf(", %d of them done", plan.done); /* else their values are not known yet */
        putchar('\n');
        runs += plan.runs - plan.done;
        if (plan.done) seconds = plan.seconds;
    }
    if (isfinite(seconds))
        printf("time: about %s more, by the runs that are done\n", text_of_seconds(runs * seconds, when));
    else
        printf("time: not known before a run was made\n");
    return ERR_NONE;
}

/* ---- each side at its best ---- */

static int experiment_tuned_show(const struct compare_options *o, const struct experiment *x, const char *folder) {
    struct json j = {0};
    if (o->json) {
        compare_tuned_json(x, NULL, &j);
        return cli_end(cli_json(ERR_NONE, &j, stdout));
    }
    compare_tuned_table(x, table_text, stdout);
    for (int i = 0; i < x->ncells; i++) printf("%s\n", compare_tuned(x, i));
    printf("wrote %s/best%s.yaml, tuning.json\n", folder, x->ncells == 1 ? "" : "-*");
    return 0;
}

/* Opens it again with what the search has chosen for its cells. */
static int experiment_tuned_open(const struct compare_options *o, const struct runner *r, const struct tuned *tuned,
                                 struct experiment_source source) {
    bool alone = source.search != NULL;
    const struct experiment_search search = {.alone = alone, .tuned = tuned};
    struct experiment x;
    char *report;
    source.search = &search;
    enum error err = experiment_open(&source, &x, &report);
    int code = err == ERR_NONE ? 0 : cli_reported(err, report);
    if (!code && !alone) code = experiment_run(o, r, &x);
    if (!code && alone) code = cli_end(compare_tuned_write(&x, r->folder));
    if (!code && alone) code = experiment_tuned_show(o, &x, r->folder);
    experiment_close(&x);
    return code;
}

static int experiment_run_search(const struct compare_options *o, const struct runner *r, const struct experiment *x,
                                 const struct experiment_source *source) {
    struct tuned tuned;
    enum error err = search_run(r, source, x, &tuned);
    if (err != ERR_NONE) return cli_fail(err);
    return tuned.done ? experiment_tuned_open(o, r, &tuned, *source) : stop_exit_code(stop_signal());
}

static int experiment_opened(const struct compare_options *o, struct experiment *x,
                             const struct experiment_source *source) {
    struct runner r = {"/proc/self/exe", o->dir, o->quiet};
    if (!r.folder) r.folder = pool_printf(x->pool, "runs/%s", x->name);
    if (!r.folder) return cli_fail(ERR_MEMORY);
    if (o->dry) return cli_end(experiment_plan_show(&r, x, source));
    stop_install();
    return x->tune.nkeys ? experiment_run_search(o, &r, x, source) : experiment_run(o, &r, x);
}

int experiment_command(const struct compare_options *o, const struct experiment_source *source) {
    struct experiment x;
    char *report;
    enum error err = experiment_open(source, &x, &report);
    int code = err == ERR_NONE ? experiment_opened(o, &x, source) : cli_reported(err, report);
    experiment_close(&x);
    return code;
}
