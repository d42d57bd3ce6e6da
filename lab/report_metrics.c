/* What an experiment has asked for besides times of steps and their parts, which have plots of their own. */
#include "lab/report_data.h"

#include <math.h>
#include <string.h>

struct report_metric report_metric(const struct report_data *d, int i) {
    const struct json_value *all = report_member(d->root, "metrics", JSON_ARRAY);
    struct report_metric m = {.name = "", .factor = 1};
    if (!all || i >= all->count) return m;
    const char *unit = report_text(&all->children[i], "unit");
    m.name = report_text(&all->children[i], "name");
    if (!strcmp(m.name, "val_accuracy")) m.unit = PLOT_SHARE;
    if (!strcmp(unit, "bytes")) m.unit = PLOT_BYTES;
    if (!strcmp(unit, "s") || !strcmp(unit, "ms")) m.unit = PLOT_SECONDS;
    if (!strcmp(unit, "ms")) m.factor = 1e-3;
    return m;
}

double report_metric_of(const struct report_cell *c, const struct report_metric *m) {
    return report_number(c->medians, m->name) * m->factor;
}

static bool shown_elsewhere(const char *name) {
    static const char *const names[] = {"",         "step_time",    "step_best",   "throughput", "load",  "forward",
                                        "backward", "comm_exposed", "comm_hidden", "update",     "memory"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* The cells that come first of their place and number of devices; gives how many. */
static int rows_of(const struct report_data *d, int row[REPORT_CELLS]) {
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

static bool any(const struct report_data *d, const struct report_metric *m) {
    for (int i = 0; i < d->ncells; i++)
        if (isfinite(report_metric_of(&d->cell[i], m))) return true;
    return false;
}

/* Of a side that is called by a number alone: "every 16". */
static const char *side_name(struct report *r, const struct report_data *d, int side) {
    const char *name = d->side[side], *dot = strrchr(d->axis, '.');
    if (*name < '0' || *name > '9') return name;
    return report_say(r, "%s %s", dot ? dot + 1 : d->axis, name);
}

/* "model mlp, momentum 0.9" is "mlp, momentum 0.9": words say by themselves what they are, numbers do not. */
static const char *values_of(struct report *r, const char *place) {
    const char *out = "";
    if (strchr(place, '{')) return place;
    for (const char *at = place; *at;) {
        size_t n = strcspn(at, ","), key = strcspn(at, " ") + 1;
        bool number = key >= n || strspn(at + key, "0123456789.") == n - key;
        size_t from = number ? 0 : key;
        out = report_say(r, "%s%s%.*s", out, *out ? ", " : "", (int)(n - from), at + from);
        at += n + strspn(at + n, ", ");
    }
    return out;
}

/* There is little room beside bars: what is the same in all rows is left out. */
static const char *row_name(struct report *r, const struct report_data *d, const struct report_cell *c) {
    double counts[REPORT_COUNTS];
    if (!*c->place) return report_where(r, c);
    if (report_device_counts(d, counts) == 1) return values_of(r, c->place);
    return report_say(r, "%s \xC3\x97 %lld", values_of(r, c->place), (long long)c->devices);
}

static enum error metric_plot(struct report *r, struct report_section *s, const struct report_data *d,
                              const struct report_metric *m) {
    int row[REPORT_CELLS], n = rows_of(d, row);
    struct plot *p;
    TRY(report_plot(r, s, PLOT_GROUPED, d->nsides, &p));
    if (!p) return ERR_NONE;
    p->title = m->name;
    p->about = report_say(r, "The median of the runs of each cell: %s.", m->name);
    p->x = (struct plot_axis){.label = m->name, .unit = m->unit, .zero = true};
    p->ncategories = n;
    TRY(report_take(r, (size_t)n, sizeof *p->category, &p->category));
    for (int i = 0; i < n; i++) p->category[i] = row_name(r, d, &d->cell[row[i]]);
    for (int side = 0; side < d->nsides; side++) {
        double *y;
        TRY(report_take(r, (size_t)n, sizeof *y, &y));
        for (int i = 0; i < n; i++) {
            int k = report_find(d, side, d->cell[row[i]].place, d->cell[row[i]].devices);
            y[i] = k < 0 ? (double)NAN : report_metric_of(&d->cell[k], m);
        }
        p->series[p->nseries++] =
            (struct plot_series){.name = side_name(r, d, side), .y = y, .n = n, .colour = side % PLOT_COLOURS};
    }
    return ERR_NONE;
}

enum error report_metrics(struct report *r, const struct report_data *d) {
    const struct json_value *all = report_member(d->root, "metrics", JSON_ARRAY);
    struct report_section *s = NULL;
    for (int i = 0; all && i < all->count; i++) {
        struct report_metric m = report_metric(d, i);
        if (shown_elsewhere(m.name) || !any(d, &m)) continue;
        if (!s) s = report_section(r, "metrics", "What else was measured");
        TRY(metric_plot(r, s, d, &m));
    }
    return ERR_NONE;
}
