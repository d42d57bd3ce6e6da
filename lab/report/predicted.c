/* The predictions of the model for each cell, beside the measurements. */
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

enum { FEW = 3 }; /* fewer points make no plot */

static int count_predicted(const struct report_data *d) {
    int n = 0;
    for (int i = 0; i < d->ncells; i++) n += isfinite(d->cell[i].predicted_s);
    return n;
}

/* ---- in words ---- */

/* The cells that the others are predicted from. */
static const char *model_source_names(struct report *r, const struct report_data *d) {
    const char *all = "";
    for (int i = 0; i < d->ncells; i++)
        if (d->cell[i].reference)
            all =
                report_join(r, all, "; ",
                            report_say(r, "%s%s", report_cell_name(r, d, &d->cell[i]), report_in(r, d->cell[i].place)));
    return all;
}

static void model_say_where_from(struct report *r, struct report_section *s, const struct report_data *d) {
    const char *from = model_source_names(r, d);
    report_paragraph(
        s, *from
               ? report_say(r,
                            "Computing was measured in one cell (%s) and is divided among the devices and the cores of "
                            "each other cell. The prediction adds the messages of the algorithm, one by one, through "
                            "ports of the given rate and latency. Nothing is fitted to the times in the table.",
                            from)
               : "The model knows the computing time of a device and the messages of the algorithm.");
}

static void model_say_what_is_not(struct report *r, struct report_section *s, const struct report_data *d) {
    const char *why = "";
    int silent = 0;
    for (int i = 0; i < d->ncells; i++) {
        const struct report_cell *c = &d->cell[i];
        if (c->reference || !*c->why) continue;
        silent++;
        if (!strstr(why, c->why)) why = report_say(r, "%s%s%s", why, *why ? "; " : "", c->why);
    }
    if (silent) report_print(r, s, "Not predicted: %d cell%s. The reason: %s.", silent, silent == 1 ? "" : "s", why);
}

/* off: of each cell that is predicted, or NaN. */
static void model_say_how_far(struct report *r, struct report_section *s, const struct report_data *d,
                              const double *off) {
    double size[REPORT_CELLS];
    int n = 0, worst = -1;
    for (int i = 0; i < d->ncells; i++) {
        if (!isfinite(off[i])) continue;
        size[n++] = fabs(off[i]);
        if (worst < 0 || fabs(off[i]) > fabs(off[worst])) worst = i;
    }
    if (n == 0) return;
    const struct report_cell *c = &d->cell[worst];
    report_print(r, s,
                 "The model is off by %.1f %% in the median of %d cell%s, and %.1f %% too %s "
                 "at worst (%s%s).",
                 100 * statistics_median(size, n), n, n == 1 ? "" : "s", 100 * fabs(off[worst]),
                 off[worst] < 0 ? "short" : "long", report_cell_name(r, d, c), report_in(r, c->place));
}

/* ---- the table ---- */

static enum error predicted_table(struct report *r, struct report_section *s, const struct report_data *d, int n) {
    static const char *const heads[] = {"cell", "predicted", "measured", "residual", "formula", "ports"};
    struct table *t;
    double off[REPORT_CELLS];
    int row = 0;
    TRY(report_table(r, s, "Predicted beside measured", 6, n, heads, &t));
    for (int i = 0; i < d->ncells; i++) {
        const struct report_cell *c = &d->cell[i];
        off[i] = c->predicted_s / c->median_s - 1;
        if (!isfinite(c->predicted_s)) continue;
        const char **cell = table_row(t, ++row);
        cell[0] = report_say(r, "%s%s", report_cell_name(r, d, c), report_in(r, c->place));
        cell[1] = report_ms(r, c->predicted_s);
        cell[2] = report_ms(r, c->median_s);
        cell[3] = report_say(r, "%+.1f %%", 100 * off[i]);
        cell[4] = isfinite(c->formula_s) ? report_ms(r, c->formula_s) : "-";
        cell[5] = *c->port ? c->port : "-";
    }
    model_say_how_far(r, s, d, off);
    model_say_where_from(r, s, d);
    model_say_what_is_not(r, s, d);
    return ERR_NONE;
}

/* ---- the plot ---- */

static enum error model_side_points(struct report *r, const struct report_data *d, int side, struct plot *p) {
    struct plot_series *out = &p->series[p->nseries];
    double *x, *y;
    TRY(report_take(r, (size_t)d->ncells, sizeof *x, &x));
    TRY(report_take(r, (size_t)d->ncells, sizeof *y, &y));
    *out = (struct plot_series){.name = d->side[side], .x = x, .y = y, .colour = side, .points = true};
    for (int i = 0; i < d->ncells; i++) {
        if (d->cell[i].side != side || !isfinite(d->cell[i].predicted_s)) continue;
        x[out->n] = d->cell[i].predicted_s;
        y[out->n++] = d->cell[i].median_s;
    }
    p->nseries += out->n > 0;
    return ERR_NONE;
}

static enum error plot_diagonal(struct report *r, struct plot *p) {
    double *ends, low = INFINITY, high = 0;
    TRY(report_take(r, 2, sizeof *ends, &ends));
    for (int i = 0; i < p->nseries; i++)
        for (int k = 0; k < p->series[i].n; k++) {
            low = fmin(low, fmin(p->series[i].x[k], p->series[i].y[k]));
            high = fmax(high, fmax(p->series[i].x[k], p->series[i].y[k]));
        }
    ends[0] = low;
    ends[1] = high;
    p->series[p->nseries++] = (struct plot_series){
        .name = "predicted = measured", .x = ends, .y = ends, .n = 2, .colour = PLOT_COLOURS - 1, .model = true};
    return ERR_NONE;
}

static const char *model_why_none(struct report *r, const struct report_data *d) {
    for (int i = 0; i < d->ncells; i++)
        if (*d->cell[i].why && !d->cell[i].reference)
            return report_say(r, "No step time is predicted: %s.", d->cell[i].why);
    return "These step times were not predicted. engine compare predicts the step times of an experiment with emulated "
           "links; engine simulate RUN_DIR predicts a run's step time on other machines.";
}

enum error report_predicted(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "model", "Predicted against measured");
    int n = count_predicted(d);
    if (!n) {
        s->missing = model_why_none(r, d);
        return ERR_NONE;
    }
    if (n < FEW) return predicted_table(r, s, d, n);
    struct plot *p;
    TRY(report_plot(r, s, PLOT_LINE, d->nsides + 1, &p));
    if (!p) return ERR_NONE;
    p->title = "Measured against predicted step time";
    p->about = "Each point is a cell; the nearer it is to the line, the better is the model.";
    p->x = (struct plot_axis){.label = "predicted", .unit = PLOT_SECONDS, .log = true};
    p->y = (struct plot_axis){.label = "measured", .unit = PLOT_SECONDS, .log = true};
    for (int side = 0; side < d->nsides; side++) TRY(model_side_points(r, d, side, p));
    TRY(plot_diagonal(r, p));
    return predicted_table(r, s, d, n);
}
