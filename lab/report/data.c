/* Reading what reports tell of. results.json may hold anything: what is not of its form is ERR_DATA. */
#include "lab/report/data.h"

#include "engine/base/file.h"
#include "lab/results/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RESULTS_MOST = 64 << 20 };
static const struct json_limits limits = {12, 1 << 20, 1 << 16};

static int64_t data_member_whole(const struct json_value *in, const char *key, int64_t otherwise) {
    int64_t n;
    return json_get_int(in, key, INT64_MAX, &n) ? n : otherwise;
}

static enum error data_wrong(const struct report_data *d, const char *what) {
    return FAIL(ERR_DATA, "'%s/results.json' has %s\nengine compare writes it anew from the runs", d->path, what);
}

/* ---- cells ---------------------------------------------------------------------------------- */

static void data_about_run(struct report_cell *c) {
    const struct run_result *run = &c->run[0];
    long long batch = 0;
    if (!c->devices) c->devices = run->devices;
    if (sscanf(run_result_setting(run, "batch.size"), "%lld", &batch) == 1 && batch > 0) c->batch = batch;
}

/* "bandwidth 1Gbit": the last word of a key is enough to know it. */
static const char *data_more_of(const char *text, const struct json_value *v, struct pool *pool) {
    return pool_printf(pool, "%s%s%s %s", text, *text ? ", " : "", report_short(v->key), v->text);
}

static enum error cell_place(const struct report_data *d, const struct json_value *settings, struct pool *pool,
                             struct report_cell *c) {
    c->place = c->work = "";
    for (int i = 0; settings && i < settings->count; i++) {
        const struct json_value *v = &settings->children[i];
        if (!strcmp(v->key, d->axis) || !strcmp(v->key, "devices") || !v->text) continue;
        c->place = data_more_of(c->place, v, pool);
        if (strncmp(v->key, "comm.", 5) != 0) c->work = data_more_of(c->work, v, pool);
        if (!c->place || !c->work) return ERR_MEMORY;
    }
    return ERR_NONE;
}

static enum error cell_run(const struct report_data *d, const struct json_value *v, struct pool *pool,
                           struct report_cell *c) {
    const char *dir = json_text(v, "dir");
    if (!*dir) return data_wrong(d, "a run without its directory");
    char *path = *dir == '/' ? pool_printf(pool, "%s", dir) : pool_printf(pool, "%s/%s", d->path, dir);
    if (!path) return ERR_MEMORY;
    struct run_result *run = &c->run[c->nruns];
    TRY(run_result_read(path, pool, run));
    int64_t n;
    double ms = json_number(v, "step_time");
    if (!isfinite(ms)) ms = run_result_step_ms(run, d->warmup, &n);
    if (!isfinite(ms)) ms = run->p50_ms;
    c->step_s[c->nruns++] = ms / 1e3;
    return ERR_NONE;
}

static void cell_prediction(const struct json_value *v, struct report_cell *c) {
    c->predicted_s = json_number(v, "step_time") / 1e3;
    c->formula_s = json_number(v, "formula") / 1e3;
    c->why = json_text(v, "why");
    c->port = json_text(v, "port");
    c->reference = json_truth(v, "reference");
}

static double data_median_rate(const struct report_data *d, const struct report_cell *c) {
    const struct measure *rate = measure_find("throughput", 10);
    double v[REPORT_RUNS];
    for (int i = 0; i < c->nruns; i++) v[i] = measure_of(rate, &c->run[i], d->warmup);
    return statistics_median_of(v, c->nruns);
}

static enum error cell_read(const struct report_data *d, const struct json_value *v, struct pool *pool,
                            struct report_cell *c) {
    const struct json_value *runs = json_member(v, "runs", JSON_ARRAY);
    if (!runs) return data_wrong(d, "a cell without runs");
    if (runs->count > REPORT_RUNS) return data_wrong(d, "a cell of too many runs");
    const char *side = json_text(v, "side");
    for (c->side = 0; c->side < d->nsides && strcmp(d->key[c->side], side) != 0;) c->side++;
    if (c->side == d->nsides) return data_wrong(d, "a cell of no side");
    c->label = json_text(v, "label");
    c->devices = data_member_whole(v, "devices", 0);
    c->run = pool_alloc(pool, (size_t)(runs->count + 1) * sizeof *c->run);
    c->step_s = pool_alloc(pool, (size_t)(runs->count + 1) * sizeof *c->step_s);
    if (!c->run || !c->step_s) return ERR_MEMORY;
    c->settings = json_member(v, "settings", JSON_OBJECT);
    TRY(cell_place(d, c->settings, pool, c));
    for (int i = 0; i < runs->count; i++) TRY(cell_run(d, &runs->children[i], pool, c));
    if (!c->nruns) return ERR_NONE;
    data_about_run(c);
    c->median_s = statistics_median_of(c->step_s, c->nruns);
    c->samples_per_s = data_median_rate(d, c);
    c->medians = json_member(v, "median", JSON_OBJECT);
    c->told = runs;
    cell_prediction(json_member(v, "predicted", JSON_OBJECT), c);
    return ERR_NONE;
}

/* Cells that have not run yet are left out, and pairs of them. place: of each cell of the file; -1: it is left out. */
static enum error cells_read(struct report_data *d, const struct json_value *cells, struct pool *pool,
                             int place[REPORT_CELLS]) {
    for (int i = 0; i < cells->count; i++) {
        struct report_cell *c = &d->cell[d->ncells];
        TRY(cell_read(d, &cells->children[i], pool, c));
        place[i] = c->nruns ? d->ncells++ : -1;
    }
    if (d->ncells) return ERR_NONE;
    return FAIL(ERR_INPUT, "no run of '%s' has finished yet\nthe same engine compare command continues it", d->path);
}

/* Whether a pair's runs have the same losses and weights; -1: unknown, as in older results, which lack the weights. */
static int data_same_bits(const struct json_value *pair) {
    const struct json_value *losses = json_member(pair, "same_losses", JSON_BOOL),
                            *weights = json_member(pair, "same_weights", JSON_BOOL);
    if (losses && !losses->truth) return 0;
    return losses && weights ? weights->truth : -1;
}

static enum plot_won data_won_by(const char *verdict) {
    static const char *const words[][4] = {[PLOT_SAME] = {"same"},
                                           [PLOT_FIRST] = {"slower", "worse", "more"},
                                           [PLOT_SECOND] = {"faster", "better", "less"}};
    for (int w = PLOT_SAME; w <= PLOT_SECOND; w++)
        for (int i = 0; words[w][i]; i++)
            if (!strcmp(verdict, words[w][i])) return (enum plot_won)w;
    return PLOT_UNTOLD;
}

/* Reads the answer of a metric from its entry, or from the pair itself, which has that of the first metric. */
static struct report_answer answer_read(const struct json_value *v, const char *estimate) {
    const struct json_value *un = json_member(v, "unreached", JSON_ARRAY);
    struct report_answer a = {.estimate = json_number(v, estimate),
                              .low = json_number(v, "low"),
                              .high = json_number(v, "high"),
                              .p = json_number(v, "p_holm"),
                              .verdict = json_text(v, "verdict"),
                              .words = json_text(v, "words"),
                              .doubt = json_text(v, "doubt"),
                              .paired = json_truth(v, "paired"),
                              .needed = data_member_whole(v, "needed", 0)};
    a.won = data_won_by(a.verdict);
    for (int i = 0; un && i < 2 && i < un->count; i++)
        if (un->children[i].is_integer) a.unreached[i] = un->children[i].integer;
    return a;
}

static enum error answers_read(const struct report_data *d, const struct json_value *pair, struct pool *pool,
                               struct report_answer **out) {
    const struct json_value *all = json_member(pair, "answers", JSON_ARRAY);
    TRY_MEMORY(*out = pool_alloc(pool, (size_t)d->nmetrics * sizeof **out));
    for (int m = 0; m < d->nmetrics; m++) {
        (*out)[m] = answer_read(m == 0 ? pair : NULL, "ratio");
        for (int i = 0; all && i < all->count; i++)
            if (!strcmp(json_text(&all->children[i], "metric"), d->metric[m].name))
                (*out)[m] = answer_read(&all->children[i], "estimate");
    }
    return ERR_NONE;
}

static enum error pair_read(struct report_data *d, const struct json_value *v, int ncells,
                            const int place[REPORT_CELLS], struct pool *pool) {
    int64_t a = data_member_whole(v, "a", -1), b = data_member_whole(v, "b", -1);
    if (a < 0 || b < 0 || a >= ncells || b >= ncells) return data_wrong(d, "a pair of no cells");
    if (place[a] < 0 || place[b] < 0) return ERR_NONE;
    struct report_pair *p = &d->pair[d->npairs++];
    *p = (struct report_pair){.a = place[a],
                              .b = place[b],
                              .difference = json_text(json_member(v, "difference", JSON_OBJECT), "words"),
                              .same = data_same_bits(v)};
    return answers_read(d, v, pool, &p->answer);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* A number alone says little: "every 16". */
static const char *data_side_name(const struct report_data *d, const char *side, struct pool *pool) {
    if (*side < '0' || *side > '9') return side;
    return pool_printf(pool, "%s %s", report_short(d->axis), side);
}

static enum error data_read_sides(struct report_data *d, struct pool *pool) {
    const struct json_value *sides = json_member(d->root, "sides", JSON_ARRAY);
    d->axis = json_text(d->root, "axis");
    for (int i = 0; sides && i < sides->count; i++) {
        if (sides->children[i].kind != JSON_STRING) return data_wrong(d, "sides that are no words");
        if (d->nsides == REPORT_SIDES) return data_wrong(d, "more sides than a plot has colours");
        d->key[d->nsides] = sides->children[i].text;
        d->side[d->nsides] = data_side_name(d, d->key[d->nsides], pool);
        if (!d->side[d->nsides++]) return ERR_MEMORY;
    }
    return d->nsides ? ERR_NONE : data_wrong(d, "no sides");
}

static enum error data_read_experiment(const char *file, struct pool *pool, struct report_data *d) {
    TRY(json_read(file, RESULTS_MOST, limits, pool, &d->root));
    const struct json_value *cells = json_member(d->root, "cells", JSON_ARRAY);
    const struct json_value *pairs = json_member(d->root, "pairs", JSON_ARRAY);
    if (!cells || !cells->count || cells->count > REPORT_CELLS) return data_wrong(d, "no cells, or too many");
    TRY(data_read_sides(d, pool));
    TRY(report_metrics_read(d, pool));
    d->experiment = true;
    d->name = json_text(d->root, "name");
    d->scaling = json_text(d->root, "scaling");
    const struct json_value *seeds = json_member(d->root, "seeds", JSON_ARRAY);
    d->seeds = seeds ? seeds->count : 0;
    d->command = json_text(d->root, "command");
    d->warmup = data_member_whole(d->root, "warmup", 0);
    d->confidence = json_number(d->root, "confidence");
    if (!(d->confidence > 0 && d->confidence < 1)) d->confidence = 0.95;
    d->environment = json_member(d->root, "environment", JSON_OBJECT);
    int npairs = pairs ? pairs->count : 0, place[REPORT_CELLS];
    d->cell = pool_alloc(pool, (size_t)cells->count * sizeof *d->cell);
    d->pair = pool_alloc(pool, (size_t)(npairs + 1) * sizeof *d->pair);
    if (!d->cell || !d->pair) return ERR_MEMORY;
    TRY(cells_read(d, cells, pool, place));
    for (int i = 0; i < npairs; i++) TRY(pair_read(d, &pairs->children[i], cells->count, place, pool));
    return ERR_NONE;
}

/* env.json of a run is newer than this reader, or older than the run: any object will do. */
static enum error data_read_environment(const char *path, struct pool *pool, struct report_data *d) {
    char *file = pool_printf(pool, "%s/env.json", path);
    if (!file) return ERR_MEMORY;
    if (!file_exists(file)) return ERR_NONE;
    TRY(json_read(file, 1 << 20, limits, pool, &d->environment));
    if (d->environment->kind != JSON_OBJECT) d->environment = NULL;
    return ERR_NONE;
}

static enum error data_run_read(struct pool *pool, struct report_data *d) {
    struct report_cell *c = d->cell = pool_alloc(pool, sizeof *c);
    if (!c) return ERR_MEMORY;
    c->run = pool_alloc(pool, sizeof *c->run);
    c->step_s = pool_alloc(pool, sizeof *c->step_s);
    if (!c->run || !c->step_s) return ERR_MEMORY;
    TRY(run_result_read(d->path, pool, c->run));
    c->step_s[0] = c->median_s = c->run->p50_ms / 1e3;
    cell_prediction(NULL, c);
    c->nruns = d->ncells = d->nsides = 1;
    c->samples_per_s = data_median_rate(d, c);
    c->place = c->work = "";
    TRY(report_metrics_read(d, pool));
    c->label = pool_printf(pool, "%s, %s", c->run->mode, run_result_setting(c->run, "devices"));
    d->side[0] = d->key[0] = c->run->mode;
    data_about_run(c);
    return c->label ? data_read_environment(d->path, pool, d) : ERR_MEMORY;
}

enum error report_data_read(const char *path, struct pool *pool, struct report_data *out) {
    *out = (struct report_data){.axis = "mode", .name = "", .scaling = "", .command = "", .confidence = 0.95};
    out->path = pool_printf(pool, "%s", path);
    char *file = pool_printf(pool, "%s/results.json", path);
    if (!out->path || !file) return ERR_MEMORY;
    if (!file_is_folder(path))
        return FAIL(ERR_INPUT,
                    "no directory '%s'\ngive the directory of a run (engine run) or of an experiment (engine compare)",
                    path);
    TRY(file_exists(file) ? data_read_experiment(file, pool, out) : data_run_read(pool, out));
    if (out->environment || !out->experiment) return ERR_NONE;
    return data_read_environment(out->cell[0].run[0].dir, pool, out);
}
