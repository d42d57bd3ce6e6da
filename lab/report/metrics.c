/* The metrics of an experiment: what each is called, what its runs came to, and a plot for each. */
#include "lab/report/data.h"
#include "lab/results/measure.h"

#include <math.h>
#include <string.h>

/* ---- what they are ---- */

/* v: its entry in results.json, or NULL, where the metric's own table says what there is to say. */
static enum error metric_of(const char *name, const struct json_value *v, struct pool *pool, struct report_metric *m) {
    const struct measure *known = measure_find(name, (int)strlen(name));
    const char *unit = json_text(v, "unit"), *about = json_text(v, "about");
    if (!*unit && known) unit = known->unit;
    *m = (struct report_metric){
        .name = name, .words = known ? known->words : name, .ahead = known ? known->ahead : "is ahead of", .factor = 1};
    if (!strncmp(name, "time_to", 7)) {
        char *words = pool_printf(pool, "time to %s", name + 7 + strspn(name + 7, ":_ "));
        if (words && strchr(words, ':')) *strchr(words, ':') = ' ';
        m->words = words;
        m->ahead = "is sooner there than";
    }
    if (known && known->kind == MEASURE_VAL && metric_table[known->part].share) m->unit = PLOT_SHARE;
    if (!strcmp(unit, "bytes")) m->unit = PLOT_BYTES;
    if (!strcmp(unit, "s") || !strcmp(unit, "ms")) m->unit = PLOT_SECONDS;
    if (!strcmp(unit, "ms")) m->factor = 1e-3;
    m->training = *about ? !strcmp(about, "training") : known && known->about == ABOUT_TRAINING;
    m->difference = !strcmp(json_text(v, "scale"), "difference");
    return m->words ? ERR_NONE : ERR_MEMORY;
}

enum error report_metrics_read(struct report_data *d, struct pool *pool) {
    const struct json_value *all = json_member(d->root, "metrics", JSON_ARRAY);
    for (int i = 0; all && i < all->count && d->nmetrics < REPORT_METRICS; i++)
        TRY(metric_of(json_text(&all->children[i], "name"), &all->children[i], pool, &d->metric[d->nmetrics++]));
    return d->nmetrics ? ERR_NONE : metric_of("step_time", NULL, pool, &d->metric[d->nmetrics++]);
}

/* ---- values ---- */

static double metric_run_value(const struct report_data *d, const struct report_cell *c, const struct report_metric *m,
                               int i) {
    const struct measure *known = measure_find(m->name, (int)strlen(m->name));
    if (!strcmp(m->name, "step_time")) return c->step_s[i];
    if (!strcmp(m->name, "steps")) return (double)c->run[i].steps;
    double v = c->told ? json_number(&c->told->children[i], m->name) : (double)NAN;
    if (!isfinite(v) && known) v = measure_of(known, &c->run[i], d->warmup);
    return v * m->factor;
}

bool report_copies(const struct run_result *a, const struct run_result *b) {
    return a == b || (*a->weights && !strcmp(a->weights, b->weights));
}

int report_values(const struct report_data *d, const struct report_cell *c, const struct report_metric *m,
                  double v[REPORT_RUNS]) {
    int n = 0;
    for (int i = 0; i < c->nruns; i++) {
        int first = 0;
        while (!report_copies(&c->run[first], &c->run[i])) first++;
        double mine = metric_run_value(d, c, m, i);
        if (isfinite(mine) && (first == i || !m->training)) v[n++] = mine;
    }
    return n;
}

double report_median(const struct report_data *d, const struct report_cell *c, const struct report_metric *m) {
    double v[REPORT_RUNS];
    if (!strcmp(m->name, "step_time")) return c->median_s;
    if (c->medians && json_get(c->medians, m->name)) return json_number(c->medians, m->name) * m->factor;
    return statistics_median_of(v, report_values(d, c, m, v));
}

const char *report_amount(struct report *r, const struct report_metric *m, double v) {
    return report_value(r, m->unit, v);
}

/* ---- plots ---- */

/* "model mlp, momentum 0.9" is "mlp, momentum 0.9": words say by themselves what they are, numbers do not. */
static const char *metric_place_values(struct report *r, const char *place) {
    const char *out = "";
    if (strchr(place, '{')) return place;
    for (const char *at = place; *at;) {
        size_t n = strcspn(at, ","), key = strcspn(at, " ") + 1;
        bool number = key >= n || strspn(at + key, "0123456789.") == n - key;
        size_t from = number ? 0 : key;
        out = report_join(r, out, ", ", report_say(r, "%.*s", (int)(n - from), at + from));
        at += n + strspn(at + n, ", ");
    }
    return out;
}

/* A cell's name beside a plot, where there is little room: without what is the same in all rows. */
static const char *metric_row_name(struct report *r, const struct report_data *d, const struct report_cell *c) {
    double counts[REPORT_COUNTS];
    if (!*c->place) return report_where(r, c);
    if (report_device_counts(d, counts) == 1) return metric_place_values(r, c->place);
    return report_say(r, "%s \xC3\x97 %lld", metric_place_values(r, c->place), (long long)c->devices);
}

/* The cells that come first of their place and number of devices, those of few devices first; gives how many. */
static int metric_rows_of(const struct report_data *d, int row[REPORT_CELLS]) {
    int n = 0;
    for (int i = 0; i < d->ncells && n < PLOT_ROWS; i++) {
        int k = 0;
        while (k < n &&
               (d->cell[row[k]].devices != d->cell[i].devices || strcmp(d->cell[row[k]].place, d->cell[i].place) != 0))
            k++;
        if (k == n) row[n++] = i;
    }
    return n;
}

struct dots { /* of a side, by row: the medians and their intervals */
    struct plot *p;
    struct plot_span *span;
    double *middle, *low, *high;
};

/* Each run of a row, the median, and its interval where there are enough. */
static void dots_put(const struct report_data *d, const struct report_cell *c, const struct report_metric *m, int row,
                     const struct dots *to) {
    double v[REPORT_RUNS];
    int n = report_values(d, c, m, v);
    for (int i = 0; i < n; i++)
        to->span[to->p->nspans++] = (struct plot_span){.row = row, .series = to->p->nseries, .from = v[i], .to = v[i]};
    to->middle[row] = report_median(d, c, m);
    struct shift where = statistics_paired(v, n, d->confidence);
    to->low[row] = where.low, to->high[row] = where.high;
}

enum error report_dots(struct report *r, struct report_section *s, const struct report_data *d, int metric) {
    const struct report_metric *m = &d->metric[metric];
    int row[REPORT_CELLS], n = metric_rows_of(d, row), runs = 0;
    double low = INFINITY, high = 0;
    struct plot *p;
    struct plot_span *span;
    TRY(report_plot(r, s, PLOT_DOTS, d->nsides, &p));
    if (!p) return ERR_NONE;
    for (int i = 0; i < d->ncells; i++) runs += d->cell[i].nruns;
    p->title = report_say(r, "The runs: %s", m->words);
    p->about = report_say(
        r, "Each dot is a %s; the line is their median, and the bar is its %.0f %% interval if there are enough runs.",
        m->training ? "training (runs that end in the same weights are one)" : "run", d->confidence * 100);
    p->x = (struct plot_axis){.label = m->words, .unit = m->unit, .zero = !m->training};
    p->ncategories = n;
    TRY(report_take(r, (size_t)n, sizeof *p->category, &p->category));
    TRY(report_take(r, (size_t)runs, sizeof *span, &span));
    p->span = span;
    for (int i = 0; i < n; i++) p->category[i] = metric_row_name(r, d, &d->cell[row[i]]);
    for (int side = 0; side < d->nsides; side++) {
        double *v;
        TRY(report_take(r, 3 * (size_t)n, sizeof *v, &v));
        const struct dots to = {p, span, v, v + n, v + 2 * (size_t)n};
        for (int i = 0; i < n; i++) {
            int k = report_find(d, side, d->cell[row[i]].place, d->cell[row[i]].devices);
            v[i] = v[n + i] = v[2 * n + i] = (double)NAN;
            if (k >= 0) dots_put(d, &d->cell[k], m, i, &to);
        }
        p->series[p->nseries++] = (struct plot_series){.name = d->side[side],
                                                       .y = to.middle,
                                                       .low = to.low,
                                                       .high = to.high,
                                                       .n = n,
                                                       .colour = side % PLOT_COLOURS};
    }
    for (int i = 0; i < p->nspans; i++) low = fmin(low, span[i].from), high = fmax(high, span[i].from);
    p->x.log = low > 0 && high > 8 * low && p->x.unit != PLOT_SHARE;
    return ERR_NONE;
}

static bool metric_shown_elsewhere(const char *name) {
    static const char *const others[] = {"",        "step_time", "step_q25",     "step_best",   "throughput", "load",
                                         "forward", "backward",  "comm_exposed", "comm_hidden", "update",     "memory"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i])) return true;
    return false;
}

static bool metric_is_measured(const struct report_data *d, const struct report_metric *m) {
    for (int i = 0; i < d->ncells; i++)
        if (isfinite(report_median(d, &d->cell[i], m))) return true;
    return false;
}

enum error report_metrics(struct report *r, const struct report_data *d) {
    struct report_section *s = NULL;
    for (int i = 1; d->experiment && i < d->nmetrics; i++) {
        if (metric_shown_elsewhere(d->metric[i].name) || !metric_is_measured(d, &d->metric[i])) continue;
        if (!s) s = report_section(r, "metrics", "Other metrics");
        TRY(report_dots(r, s, d, i));
    }
    if (s)
        report_paragraph(
            s, "For each of these metrics, the table of comparisons says how far the sides differ, and how surely.");
    return ERR_NONE;
}
