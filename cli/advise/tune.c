/* engine tune lr: a learning rate by one short run, in which it grows by the same factor in every step (Smith 2015,
 * arXiv:1506.01186): too small a rate leaves the loss as it is, a good one lowers it, too large a one lets it rise. The run
 * is made in a folder that is removed afterwards. */
#include "cli/advise/step_source.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/train/stop.h"
#include "lab/numbers/rate.h"

#include <math.h>
#include <string.h>

enum { LEAST = 16, PARTS = 20, ROWS = 24, WIDTH = 40 };
struct rate_options {
    struct option_list words;
    struct cli_config config;
    double from, to;
    int64_t steps;
    bool json;
};
#define OPTIONS_STRUCT struct rate_options

struct rate_curve {
    double *rate, *loss, *smooth; /* (n): of the steps until the loss was no number */
    int n;
    bool diverged;
    struct rate_found found;
};

/* ---- the run ---- */

/* Keys of the run: rates relative to the configured one, so that groups of weights keep theirs relative to it. */
static enum error rate_set(const struct rate_options *o, const char *run, struct pool *pool, struct cli_config *c) {
    struct run_settings s;
    enum error err = step_source_read(c, &s);
    double lr = err == ERR_NONE ? optim_lr(s.config.optimizer.kind.config) : 1;
    run_settings_free(&s);
    TRY(err);
    if (!(lr > 0)) return FAIL(ERR_CONFIG, "optimizer.lr is 0\nset it to any other rate");
    const char *texts[] = {
        pool_printf(pool, "schedule={name: exponential, from: %.17g, to: %.17g}", o->from / lr, o->to / lr),
        "log.trace=off", "ema=off"};
    TRY(step_source_short((int)o->steps, run, pool, c));
    return cli_set_all(c, texts, sizeof texts / sizeof *texts);
}

static enum error rate_take(const struct rate_options *o, const struct run_result *r, struct pool *pool,
                            struct rate_curve *out) {
    double *all = pool_alloc(pool, 3 * (size_t)(r->nsteps + 1) * sizeof *all);
    if (!all) return ERR_MEMORY;
    *out = (struct rate_curve){all, all + r->nsteps, all + 2 * r->nsteps, 0, false, {0}};
    while (out->n < r->nsteps && isfinite(r->step[out->n].loss)) {
        out->rate[out->n] = o->from * pow(o->to / o->from, (double)out->n / (double)o->steps);
        out->loss[out->n] = r->step[out->n].loss;
        out->n++;
    }
    out->diverged = out->n < o->steps;
    if (out->n < LEAST)
        return FAIL(ERR_RESULT, "the loss was no number after %d steps, at a rate of %.2g\nlower --from", out->n,
                    out->n ? out->rate[out->n - 1] : o->from);
    int reach = (int)(o->steps / PARTS);
    rate_smooth(out->loss, out->n, reach, out->smooth);
    out->found = rate_find(out->rate, out->loss, out->smooth, out->n, reach);
    return ERR_NONE;
}

static enum error rate_measure_in(const struct rate_options *o, const char *dir, struct pool *pool,
                                  struct rate_curve *out) {
    struct cli_config c = o->config;
    struct run_settings s;
    struct run_result r = {.event = ""};
    const char *run = pool_printf(pool, "%s/run", dir);
    c.path = o->words.of[1];
    TRY(run ? rate_set(o, run, pool, &c) : ERR_MEMORY);
    enum error err = step_source_read(&c, &s);
    const struct trial t = {ENGINE_ITSELF, &s, 0};
    if (err == ERR_NONE) err = trial_run(&t, pool, &r);
    run_settings_free(&s);
    if (err == ERR_RESULT && !stop_signal()) err = run_result_metrics(run, true, pool, &r); /* it diverged */
    return err == ERR_NONE ? rate_take(o, &r, pool, out) : err;
}

static enum error rate_measure(const struct rate_options *o, struct pool *pool, struct rate_curve *out) {
    char *dir;
    TRY(file_make_temporary("tune", pool, &dir));
    return step_source_clear(rate_measure_in(o, dir, pool, out), dir);
}

/* ---- showing ---- */

/* The curve from a thousandth of the steepest rate until it is far above where it began, a row for some steps. */
static void rate_picture(const struct rate_curve *c) {
    const struct rate_found *f = &c->found;
    double low = c->smooth[f->lowest], high = c->smooth[0], most = high + (high - low) / 4;
    int begin = 0, end = f->lowest;
    while (c->rate[begin] < c->rate[f->steepest] / 1000) begin++;
    while (end < c->n && c->smooth[end] < most) end++;
    int each = (end - begin + ROWS - 1) / ROWS;
    printf("   rate        loss\n");
    for (int i = begin; i < end; i += each) {
        int bar = (int)lround((c->smooth[i] - low) / (most - low) * WIDTH);
        const char *note = f->steepest >= i && f->steepest < i + each ? "  falls fastest"
                           : f->lowest >= i && f->lowest < i + each   ? "  lowest"
                                                                      : "";
        printf("%9.2e  %10.5g  |%.*s%s\n", c->rate[i], c->smooth[i], bar,
               "########################################################", note);
    }
}

static void rate_tell(const struct rate_options *o, const struct rate_curve *c) {
    const struct rate_found *f = &c->found;
    rate_picture(c);
    printf("\nThe loss (a mean of neighbouring steps) falls fastest at a rate of %.2g and is lowest at %.2g%s.\n",
           c->rate[f->steepest], c->rate[f->lowest],
           !f->turns     ? ", where the run ended: a higher --to may show more"
           : c->diverged ? "; later it was no number"
                         : "");
    printf(
        "Proposed is the first, or a third of the second where that is smaller: a run of %d steps makes a guess, and\n"
        "engine sweep compares whole trainings.\n\nengine run %s",
        c->n, o->words.of[1]);
    for (int i = 0; i < o->config.nsets; i++) printf(" --set '%s'", o->config.sets[i]);
    printf(" --set optimizer.lr=%g\n", f->rate);
}

static enum error rate_json(const struct rate_curve *c) {
    const struct rate_found *f = &c->found;
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_put(&j, JSON_REAL("lr", f->rate), JSON_REAL("steepest", c->rate[f->steepest]),
             JSON_REAL("lowest", c->rate[f->lowest]), JSON_BOOL("turns", f->turns), JSON_BOOL("diverged", c->diverged));
    json_array(&j, "steps", i, c->n)
        json_object(&j, NULL, JSON_REAL("lr", c->rate[i]), JSON_REAL("loss", c->loss[i]),
                    JSON_REAL("smooth", c->smooth[i]));
    json_close(&j, '}');
    return cli_json(ERR_NONE, &j, stdout);
}

static enum error rate_show(const struct rate_options *o, const struct rate_curve *c) {
    if (!c->found.falls)
        return FAIL(ERR_RESULT,
                    "the loss does not fall by more than its noise at any rate from %.2g to %.2g\n"
                    "use more --steps, or another range: --from, --to",
                    o->from, c->rate[c->n - 1]);
    if (o->json) return rate_json(c);
    rate_tell(o, c);
    return ERR_NONE;
}

static int tune_command(const struct cli *cli) {
    const struct rate_options *o = cli->options;
    struct rate_curve c = {0};
    if (o->words.count < 2 || strcmp(o->words.of[0], "lr") != 0)
        return cli_usage(cli, "tune what? engine tune lr CONFIG; engine sweep tries values of other keys");
    if (!(o->from < o->to)) return cli_usage(cli, "--from must be below --to");
    stop_install();
    enum error err = rate_measure(o, cli->pool, &c);
    if (stop_signal()) return stop_exit_code(stop_signal());
    return cli_end(err == ERR_NONE ? rate_show(o, &c) : err);
}

/* ---- options ---- */

static const struct option options[] = {
    {"lr CONFIG", NULL, "the configuration whose learning rate is looked for", .at = AT(words), .max = 2,
     .many = OPTION_LIST, .missing = "tune what? engine tune lr CONFIG"},
    {"--from", "RATE", "of the first step; default: 1e-7", CONFIG_REAL, AT(from), .min = 1e-30, .max = 1e30},
    {"--to", "RATE", "of the last step; default: 10", CONFIG_REAL, AT(to), .min = 1e-30, .max = 1e30},
    {"--steps", "N", "default: 200", CONFIG_INT, AT(steps), .min = 2 * LEAST, .max = 100000},
    OPTION_SET(config, "changes one key of the configuration"),
    OPTION_JSON("one JSON object with the proposal and all steps, in place of the curve"),
    {0}};
static const struct rate_options standard = {.from = 1e-7, .to = 10, .steps = 200};

const struct command command_tune = {
    .name = "tune",
    .also = "lr_find|lr_finder|find_lr|lr-finder",
    .summary = "proposes a learning rate by a short run in which it grows",
    OPTIONS(options),
    .standard = &standard,
    .notes = "It trains in a folder that is removed afterwards, on the configured devices, and shows the loss against\n"
             "the rate. Rates of 'optimizer.groups' grow in proportion. The last line can be pasted.\n"
             "Exit codes: 0; 1 the loss falls at no rate, or is no number at once; 64 usage; 66 no such file;\n"
             "78 bad configuration; those of a run that failed; 130/143 stopped\n",
    .run = tune_command,
};
