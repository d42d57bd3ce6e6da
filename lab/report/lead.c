/* The beginning of a report: the question in words, and the picture that shows the answer. For sides at many places
 * the picture is a map of which side is ahead by how much; for a question about learning it shows the cost; else it
 * shows the runs themselves. */
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

/* ---- the question ---- */

/* The keys that cells are placed by, but the first axis and devices, are those of any cell. */
static const char *axis_key(const struct report_data *d, int i) {
    const struct json_value *settings = d->cell[0].settings;
    const char *key = settings && i < settings->count ? settings->children[i].key : "";
    return !strcmp(key, d->axis) || !strcmp(key, "devices") ? "" : key;
}

static int axis_count(const struct report_data *d) {
    return d->cell[0].settings ? d->cell[0].settings->count : 0;
}

/* "1, 2, 4, 8 devices; bandwidth 1Gbit, 10Gbit": the values of every axis but the first. */
static const char *lead_where_asked(struct report *r, const struct report_data *d) {
    double counts[REPORT_COUNTS];
    const char *text = "";
    int n = report_device_counts(d, counts);
    for (int i = 0; i < n; i++) text = report_join(r, text, ", ", report_say(r, "%.0f", counts[i]));
    text = report_say(r, "%s device%s", text, n == 1 && counts[0] < 2 ? "" : "s");
    for (int a = 0; a < axis_count(d); a++) {
        const char *key = axis_key(d, a), *seen = "";
        for (int i = 0; *key && i < d->ncells; i++) {
            const char *v = json_text(d->cell[i].settings, key);
            bool first = true;
            for (int k = 0; k < i; k++) first &= strcmp(json_text(d->cell[k].settings, key), v) != 0;
            if (first) seen = report_join(r, seen, ", ", v);
        }
        if (*seen) text = report_say(r, "%s; %s %s", text, report_short(key), seen);
    }
    return text;
}

static const char *lead_of_experiment(struct report *r, const struct report_data *d) {
    const char *sides = "", *more = "", *warmup = "";
    int most = 0;
    for (int i = 0; i < d->nsides; i++) sides = report_join(r, sides, i + 1 < d->nsides ? ", " : " or ", d->side[i]);
    for (int i = 0; i < d->ncells; i++) most = d->cell[i].nruns > most ? d->cell[i].nruns : most;
    for (int m = 1; m < d->nmetrics; m++) more = report_join(r, more, ", ", d->metric[m].words);
    if (d->warmup > 0)
        warmup =
            report_say(r, ", whose first %lld step%s left out", (long long)d->warmup, d->warmup == 1 ? " is" : "s are");
    return report_say(r, "%s: %s? On %s. %d %s%s a side, each a fresh process%s%s%s.",
                      report_title(r, d->metric[0].words), sides, lead_where_asked(r, d), most,
                      d->seeds > 1 ? "seed" : "run", most == 1 ? "" : "s", warmup, *more ? ". Also: " : "", more);
}

static const char *lead_of_run(struct report *r, const struct report_data *d) {
    static const char *const keys[][2] = {{"model.zoo", "model"},    {"data.set", "data"},
                                          {"batch.size", "batch"},   {"optimizer.name", "optimizer"},
                                          {"optimizer.lr", "lr"},    {"data.sampling", "sampling"},
                                          {"precision", "precision"}};
    const char *text = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *v = run_result_setting(d->cell[0].run, keys[i][0]);
        if (*v) text = report_join(r, text, ", ", report_say(r, "%s %s", keys[i][1], v));
    }
    return report_say(r, "One run%s%s.", *text ? ": " : "", text);
}

/* ---- a map ---- */

struct map_grid { /* cells of pairs by two of their axes */
    const char *row[PLOT_ROWS], *column[PLOT_ROWS];
    int nrows, ncolumns;
};

static int lead_names_find(const char **names, int *n, const char *name) {
    int i = 0;
    while (i < *n && strcmp(names[i], name) != 0) i++;
    if (i == *n && *n < PLOT_ROWS) names[(*n)++] = name;
    return i;
}

/* Devices are the columns where they vary, else the last of the other axes. */
static const char *column_axis(const struct report_data *d) {
    double counts[REPORT_COUNTS];
    int last = axis_count(d) - 1;
    return report_device_counts(d, counts) == 1 && last >= 0 && *axis_key(d, last) ? axis_key(d, last) : "devices";
}

/* The place of a pair in the map: the column is its value of the axis; the row has its other values, and the side if there are several. */
static void lead_place_of(struct report *r, const struct report_data *d, const struct report_pair *p, const char *axis,
                          const char **row, const char **column) {
    const struct report_cell *c = &d->cell[p->b];
    const char *text = d->nsides > 2 ? report_versus(r, d, p) : "";
    for (int i = 0; c->settings && i < c->settings->count; i++) {
        const struct json_value *v = &c->settings->children[i];
        if (!v->text || !strcmp(v->key, d->axis) || !strcmp(v->key, axis) || !strcmp(v->key, "devices")) continue;
        text = report_join(r, text, ", ", report_say(r, "%s %s", report_short(v->key), v->text));
    }
    *row = *text ? text : d->side[c->side];
    *column =
        strcmp(axis, "devices") != 0 ? json_text(c->settings, axis) : report_say(r, "%lld", (long long)c->devices);
}

/* Finds the rows and columns of the grid that has a cell for each pair. */
static void lead_find_places(struct report *r, const struct report_data *d, const char *axis, struct map_grid *g) {
    *g = (struct map_grid){0};
    for (int i = 0; i < d->npairs; i++) {
        const char *row, *column;
        lead_place_of(r, d, &d->pair[i], axis, &row, &column);
        lead_names_find(g->row, &g->nrows, row);
        lead_names_find(g->column, &g->ncolumns, column);
    }
}

static enum error map_column(struct report *r, const struct report_data *d, const struct map_grid *g, const char *axis,
                             int k, struct plot_series *out) {
    const size_t n = (size_t)g->nrows;
    struct map_grid same = *g;
    double *v;
    enum plot_won *won;
    TRY(report_take(r, 3 * n, sizeof *v, &v));
    TRY(report_take(r, n, sizeof *won, &won));
    for (size_t i = 0; i < 3 * n; i++) v[i] = (double)NAN;
    for (int i = 0; i < d->npairs; i++) {
        const struct report_answer *a = &d->pair[i].answer[0];
        const char *row, *column;
        lead_place_of(r, d, &d->pair[i], axis, &row, &column);
        if (strcmp(column, g->column[k]) != 0) continue;
        size_t at = (size_t)lead_names_find(same.row, &same.nrows, row);
        if (at >= n) continue;
        v[at] = a->estimate, v[n + at] = a->low, v[2 * n + at] = a->high, won[at] = a->won;
    }
    *out =
        (struct plot_series){.name = g->column[k], .y = v, .low = v + n, .high = v + 2 * n, .won = won, .n = g->nrows};
    return ERR_NONE;
}

static enum error map_plot(struct report *r, struct report_section *s, const struct report_data *d,
                           const struct map_grid *g, const char *axis) {
    struct plot *p;
    TRY(report_plot(r, s, PLOT_MAP, g->ncolumns, &p));
    if (!p) return ERR_NONE;
    p->title = report_say(r, "Which side is ahead, and by what factor: %s", d->metric[0].words);
    p->about = "Each field is a comparison. It has the colour of the side that is ahead, stronger for a larger factor; "
               "without colour the runs do not decide.";
    p->x = (struct plot_axis){.label = report_short(axis)};
    p->who[0] = d->nsides == 2 ? d->side[0] : "compared with";
    p->who[1] = d->nsides == 2 ? d->side[1] : "the row's side";
    p->nseries = g->ncolumns;
    p->ncategories = g->nrows;
    TRY(report_take(r, (size_t)g->nrows, sizeof *p->category, &p->category));
    for (int i = 0; i < g->nrows; i++) p->category[i] = g->row[i];
    for (int k = 0; k < g->ncolumns; k++) TRY(map_column(r, d, g, axis, k, &p->series[k]));
    return ERR_NONE;
}

/* ---- what learning costs ---- */

struct cost { /* median, and where it lies */
    double at, low, high;
};

/* The median of a metric over a cell's runs, and the interval in which it lies. */
static struct cost lead_cost_of(const struct report_data *d, const struct report_cell *c,
                                const struct report_metric *m) {
    double v[REPORT_RUNS];
    int n = report_values(d, c, m, v);
    struct shift where = statistics_paired(v, n, d->confidence);
    return (struct cost){statistics_median_of(v, n), where.low, where.high};
}

static enum error lead_side_costs(struct report *r, const struct report_data *d, int side,
                                  const struct report_metric *x, const struct report_metric *y, struct plot *p) {
    double *v;
    const size_t n = (size_t)d->ncells;
    TRY(report_take(r, 6 * n, sizeof *v, &v));
    struct plot_series out = {.name = d->side[side],
                              .x = v,
                              .y = v + n,
                              .from = v + 2 * n,
                              .to = v + 3 * n,
                              .low = v + 4 * n,
                              .high = v + 5 * n,
                              .points = true,
                              .colour = side % PLOT_COLOURS};
    for (int i = 0; i < d->ncells; i++) {
        struct cost a = lead_cost_of(d, &d->cell[i], x), b = lead_cost_of(d, &d->cell[i], y);
        if (d->cell[i].side != side || !isfinite(a.at) || !isfinite(b.at)) continue;
        const double six[] = {a.at, b.at, a.low, a.high, b.low, b.high};
        for (size_t k = 0; k < 6; k++) v[k * n + (size_t)out.n] = six[k];
        out.n++;
    }
    if (out.n) p->series[p->nseries++] = out;
    return ERR_NONE;
}

/* How far apart the sides' medians of a metric lie: the largest by the smallest. */
static double lead_medians_apart(const struct report_data *d, const char *name) {
    const struct report_metric m = {.name = name, .factor = 1};
    double low = INFINITY, high = 0;
    for (int i = 0; i < d->ncells; i++) {
        double v = lead_cost_of(d, &d->cell[i], &m).at;
        if (isfinite(v)) low = fmin(low, v), high = fmax(high, v);
    }
    return high / low;
}

/* Sides that were given the same time differ in the steps that they made of it. */
static bool lead_have_one_time(const struct report_data *d) {
    double time = lead_medians_apart(d, "time");
    return time < 1.1 && lead_medians_apart(d, "steps") > time;
}

static enum error lead_trade_off(struct report *r, struct report_section *s, const struct report_data *d,
                                 const char *name, enum plot_unit unit, const char *label) {
    const struct report_metric x = {.name = name, .unit = unit, .factor = 1}, *y = &d->metric[0];
    struct plot *p;
    TRY(report_plot(r, s, PLOT_LINE, d->nsides, &p));
    if (!p) return ERR_NONE;
    p->title = report_say(r, "%s against %s", report_title(r, y->words), label);
    p->about = report_say(
        r, "Each point is a side%s: the medians of its runs, with %.0f %% intervals if there are enough runs.",
        d->ncells > d->nsides ? " and place" : "", d->confidence * 100);
    p->x = (struct plot_axis){.label = label, .unit = unit, .zero = true};
    p->y = (struct plot_axis){.label = y->words, .unit = y->unit};
    for (int side = 0; side < d->nsides; side++) TRY(lead_side_costs(r, d, side, &x, y, p));
    if (!p->nseries) s->nplots--;
    return ERR_NONE;
}

/* ---- which one ---- */

enum error report_lead(struct report *r, struct report_section *s, const struct report_data *d) {
    struct map_grid *g;
    r->question = d->experiment ? lead_of_experiment(r, d) : lead_of_run(r, d);
    if (!d->experiment) return report_curves(r, s, d, &d->cell[0], true);
    if (d->metric[0].training) {
        TRY(lead_have_one_time(d) ? lead_trade_off(r, s, d, "steps", PLOT_PLAIN, "steps made in the same time")
                                  : lead_trade_off(r, s, d, "time", PLOT_SECONDS, "training time"));
        bool none_sent = isnan(lead_medians_apart(d, "bytes")); /* 0 by 0 */
        return none_sent ? ERR_NONE : lead_trade_off(r, s, d, "bytes", PLOT_BYTES, "bytes sent by the busiest rank");
    }
    TRY(report_take(r, 1, sizeof *g, &g));
    const char *axis = column_axis(d);
    lead_find_places(r, d, axis, g);
    if (g->nrows > 1 && g->ncolumns > 1 && !d->metric[0].difference) return map_plot(r, s, d, g, axis);
    return report_dots(r, s, d, 0);
}
