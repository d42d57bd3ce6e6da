/* The time of a step by phase, and the effect of more devices. */
#include "engine/base/file.h"
#include "engine/base/leaves.h"
#include "lab/experiment/experiment.h"
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

/* Indices of a place's cells, A beside B, ascending by devices. */
static int time_cells_of(const struct report_data *d, const char *place, int index[REPORT_CELLS]) {
    int n = 0;
    for (int i = 0; i < d->ncells; i++) {
        if (strcmp(d->cell[i].place, place) != 0) continue;
        int at = n++;
        const struct report_cell *c = &d->cell[i];
        for (; at > 0; at--) {
            const struct report_cell *before = &d->cell[index[at - 1]];
            if (before->devices < c->devices || (before->devices == c->devices && before->side <= c->side)) break;
            index[at] = index[at - 1];
        }
        index[at] = i;
    }
    return n;
}

/* ---- phases ---- */

/* The step time is a median; it is divided as the time of all the steps is. */
static double time_part(const struct report_cell *c, int p) {
    const struct run_result *run = &c->run[0];
    double all = 0;
    for (int i = 0; i < PHASES; i++) all += run->time_s[i];
    return all > 0 ? run->time_s[p] / all * c->median_s : (double)NAN;
}

/* Whether a trace says of all these runs which communication the step waited for. */
static bool time_are_traced(struct report *r, const struct report_data *d, const int *index, int n) {
    bool all = true;
    for (int i = 0; i < n; i++) {
        const struct run_result *run = d->cell[index[i]].run;
        all &= run->devices == 1 || file_is_folder(report_say(r, "%s/trace", run->dir));
    }
    return all;
}

static enum error phases_plot(struct report *r, struct report_section *s, const struct report_data *d,
                              const char *place) {
    int index[REPORT_CELLS], n = time_cells_of(d, place, index);
    struct plot *p;
    TRY(report_plot(r, s, PLOT_STACKED, PHASES, &p));
    if (!p) return ERR_NONE;
    p->title = report_say(r, "Step time by phase%s", report_in(r, place));
    p->about = "Each bar is a side on a number of devices: load, forward, backward, communication that computation "
               "waits for, update.";
    p->x = (struct plot_axis){.label = "step time", .unit = PLOT_SECONDS, .zero = true};
    p->ncategories = n;
    p->nseries = PHASES;
    TRY(report_take(r, (size_t)n, sizeof *p->category, &p->category));
    for (int i = 0; i < n; i++) p->category[i] = report_cell_name(r, d, &d->cell[index[i]]);
    const int waits = time_are_traced(r, d, index, n) ? 1 : REPORT_NEUTRAL, colours[PHASES] = {4, 0, 2, waits, 3};
    for (int k = 0; k < PHASES; k++) {
        double *y;
        TRY(report_take(r, (size_t)n, sizeof *y, &y));
        for (int i = 0; i < n; i++) y[i] = time_part(&d->cell[index[i]], k);
        p->series[k] = (struct plot_series){.name = phase_names[k].words, .y = y, .n = n, .colour = colours[k]};
    }
    return ERR_NONE;
}

static enum error time_hidden_table(struct report *r, struct report_section *s, const struct report_data *d) {
    static const char *const heads[] = {"cell", "communication", "exposed", "hidden during backward"};
    struct table *t;
    TRY(report_table(r, s, "Communication of a step", 4, d->ncells, heads, &t));
    t->fold = d->ncells > 4 ? FOLD_ASIDE : FOLD_NOT;
    for (int i = 0; i < d->ncells; i++) {
        double out = time_part(&d->cell[i], PHASE_COMM), in = time_part(&d->cell[i], RESULT_COMM_HIDDEN);
        const char **row = table_row(t, i + 1);
        row[0] = report_say(r, "%s%s", report_cell_name(r, d, &d->cell[i]), report_in(r, d->cell[i].place));
        row[1] = report_ms(r, out + in);
        row[2] = report_ms(r, out);
        row[3] = out + in > 0 ? report_say(r, "%.0f %%", 100 * in / (out + in)) : "-";
    }
    return ERR_NONE;
}

/* Reports where a device has more shards than another, once for each number of devices. */
static void time_say_imbalance(struct report *r, struct report_section *s, const struct report_data *d) {
    for (int i = 0; i < d->ncells; i++) {
        const struct run_result *run = &d->cell[i].run[0];
        int shards = (int)run->shards, devices = (int)run->devices, before = 0;
        while (before < i && d->cell[before].run[0].devices != run->devices) before++;
        if (before < i || devices < 1 || shards < devices || leaves_imbalance(shards, devices) <= 0) continue;
        int most = leaves_cut(shards, devices, 1);
        report_print(r, s,
                     "On %d devices some compute %d of the %d shards of a batch, others %d: an "
                     "imbalance of %.3g %%. The devices with fewer shards wait for the others.",
                     devices, most, shards, most - 1, 100 * leaves_imbalance(shards, devices));
    }
}

enum error report_phases(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "time", "Where the time goes");
    const char *place[REPORT_CELLS];
    bool many = false, told = false;
    int n = report_places(d, place);
    for (int i = 0; i < d->ncells; i++)
        many |= d->cell[i].devices > 1, told |= isfinite(time_part(&d->cell[i], PHASE_BACKWARD));
    if (!told) {
        s->missing = "The runs did not report the parts of a step; runs of engine run do.";
        return ERR_NONE;
    }
    for (int i = 0; i < n; i++) TRY(phases_plot(r, s, d, place[i]));
    report_print(r, s,
                 "The length of a bar is the step time, the median of the table; its parts have the "
                 "proportions of the time of all steps of %s.",
                 d->experiment ? "the first run" : "the run");
    if (many)
        report_paragraph(s, "Exposed communication is the part that computation waits for; hidden communication runs "
                            "during backward and is not in the bars.");
    time_say_imbalance(r, s, d);
    TRY(report_chosen(r, s, d));
    return many ? time_hidden_table(r, s, d) : ERR_NONE;
}

/* ---- speed-up ---- */

/* One device that does the same work: it sends nothing, so it stands for all links. side: -1 is any. */
static int time_cell_alone(const struct report_data *d, int side, const char *work) {
    for (int i = 0; i < d->ncells; i++)
        if (d->cell[i].devices == 1 && (side < 0 || d->cell[i].side == side) && !strcmp(d->cell[i].work, work))
            return i;
    return -1;
}

int report_base(const struct report_data *d, int side, const char *place) {
    int k = report_find(d, side, place, 1), least = -1;
    for (int i = 0; i < d->ncells; i++)
        if (d->cell[i].side == side && !strcmp(d->cell[i].place, place) &&
            (least < 0 || d->cell[i].devices < d->cell[least].devices))
            least = i;
    if (k < 0 && least >= 0) k = time_cell_alone(d, side, d->cell[least].work);
    if (k < 0 && least >= 0 && setting_shares(d->axis)) k = time_cell_alone(d, -1, d->cell[least].work);
    return k >= 0 ? k : least;
}

double report_work(const struct report_cell *base, const struct report_cell *c) {
    return base->batch && c->batch ? (double)c->batch / (double)base->batch : 1;
}

enum curve_kind { CURVE_TIME, CURVE_SPEEDUP, CURVE_EFFICIENCY, CURVE_KINDS };
static const struct curve_words {
    const char *title, *about, *axis;
    enum plot_unit unit;
} curve_words[] = {
    {"Step time", "The time of a step, on a logarithmic axis; thin lines are the model's.", "step time", PLOT_SECONDS},
    {"Speed-up", "Speed relative to the fewest devices, whose speed-up is 1; the thin line is ideal.",
     "speed-up, times", PLOT_PLAIN},
    {"Efficiency", "Speed-up divided by the number of devices relative to the baseline; 100 % is ideal.", "efficiency",
     PLOT_SHARE},
};
struct curve { /* of one side and place */
    double *x, *y, *low, *high, *model;
    int n;
    bool bands, modelled;
};

static enum error time_take_curve(struct report *r, int n, struct curve *v) {
    double *x;
    TRY(report_take(r, 5 * (size_t)n, sizeof *x, &x));
    *v = (struct curve){x, x + n, x + 2 * n, x + 3 * n, x + 4 * n, .bands = true};
    return ERR_NONE;
}

static void time_add_point(const struct report_data *d, const struct report_cell *base, const struct report_cell *c,
                           enum curve_kind kind, struct curve *v) {
    double k = report_work(base, c), of = c->median_s, model = c->predicted_s;
    if (kind == CURVE_EFFICIENCY) k *= (double)base->devices / (double)c->devices;
    if (kind != CURVE_TIME) of = k * base->median_s / of, model = k * base->median_s / model;
    struct comparison i = {.low = NAN, .high = NAN};
    if (c != base && kind != CURVE_TIME)
        i = statistics_compare(base->step_s, base->nruns, c->step_s, c->nruns, SCALE_RATIO, false, d->confidence);
    v->x[v->n] = (double)c->devices;
    v->y[v->n] = of;
    v->low[v->n] = isfinite(i.low) ? k * i.low : of;
    v->high[v->n] = isfinite(i.high) ? k * i.high : of;
    v->model[v->n] = isfinite(model) && (c != base || kind == CURVE_TIME) ? model : of;
    v->modelled |= c != base && isfinite(model);
    v->bands &= c == base || isfinite(i.low);
    v->n++;
}

static enum error side_curve(struct report *r, const struct report_data *d, int side, const char *place,
                             enum curve_kind kind, struct plot *p) {
    int index[REPORT_CELLS], n = time_cells_of(d, place, index), base = report_base(d, side, place);
    struct curve v;
    TRY(time_take_curve(r, n + 1, &v));
    if (base < 0) return ERR_NONE;
    if (d->cell[base].devices == 1 && report_find(d, side, place, 1) < 0)
        time_add_point(d, &d->cell[base], &d->cell[base], kind, &v);
    for (int i = 0; i < n; i++)
        if (d->cell[index[i]].side == side) time_add_point(d, &d->cell[base], &d->cell[index[i]], kind, &v);
    p->series[p->nseries++] = (struct plot_series){.name = d->side[side],
                                                   .x = v.x,
                                                   .y = v.y,
                                                   .low = v.bands ? v.low : NULL,
                                                   .high = v.bands ? v.high : NULL,
                                                   .n = v.n,
                                                   .colour = side};
    if (v.modelled)
        p->series[p->nseries++] = (struct plot_series){.name = report_say(r, "%s, model", d->side[side]),
                                                       .x = v.x,
                                                       .y = v.model,
                                                       .n = v.n,
                                                       .colour = side,
                                                       .model = true};
    return ERR_NONE;
}

/* from: devices of what the first side's speed-ups are multiples of. */
static enum error time_ideal_curve(struct report *r, enum curve_kind kind, double from, const double *x, int n,
                                   struct plot *p) {
    double *y;
    TRY(report_take(r, (size_t)n, sizeof *y, &y));
    for (int i = 0; i < n; i++) y[i] = kind == CURVE_EFFICIENCY ? 1 : x[i] / from;
    p->series[p->nseries++] =
        (struct plot_series){.name = "ideal", .x = x, .y = y, .n = n, .colour = PLOT_COLOURS - 1, .model = true};
    return ERR_NONE;
}

int report_device_counts(const struct report_data *d, double *x) {
    int n = 0;
    for (int i = 0; i < d->ncells && n < REPORT_COUNTS; i++) {
        int at = 0;
        while (at < n && x[at] < (double)d->cell[i].devices) at++;
        if (at < n && x[at] == (double)d->cell[i].devices) continue;
        memmove(x + at + 1, x + at, (size_t)(n - at) * sizeof *x);
        x[at] = (double)d->cell[i].devices;
        n++;
    }
    return n;
}

static enum error curves_plot(struct report *r, struct report_section *s, const struct report_data *d,
                              const char *place, enum curve_kind kind) {
    const struct curve_words *words = &curve_words[kind];
    double *x;
    struct plot *p;
    TRY(report_plot(r, s, PLOT_LINE, 2 * d->nsides + 1, &p));
    TRY(report_take(r, REPORT_COUNTS, sizeof *x, &x));
    if (!p) return ERR_NONE;
    int n = report_device_counts(d, x);
    p->title = report_say(r, "%s against devices%s", words->title, report_in(r, place));
    p->about = words->about;
    p->x = (struct plot_axis){.label = "devices", .log = true, .tick = x, .nticks = n};
    p->y = (struct plot_axis){
        .label = words->axis, .unit = words->unit, .log = kind != CURVE_EFFICIENCY, .zero = kind != CURVE_TIME};
    for (int side = 0; side < d->nsides; side++) TRY(side_curve(r, d, side, place, kind, p));
    if (kind == CURVE_TIME) return ERR_NONE;
    int base = report_base(d, 0, place);
    return time_ideal_curve(r, kind, base < 0 ? 1 : (double)d->cell[base].devices, x, n, p);
}

enum error report_speedup(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "speedup", "Speed-up and efficiency");
    const char *place[REPORT_CELLS];
    double counts[REPORT_COUNTS];
    int n = report_places(d, place);
    if (report_device_counts(d, counts) < 2) {
        s->missing = "All runs are on the same number of devices. An experiment with matrix: {devices: [cpu:1, cpu:2, "
                     "cpu:4]} shows the effect of more devices (engine compare).";
        return ERR_NONE;
    }
    for (int kind = 0; kind < CURVE_KINDS; kind++)
        for (int i = 0; i < n; i++) TRY(curves_plot(r, s, d, place[i], kind));
    report_print(r, s,
                 "The speed-up is relative to the same side on one device, over any link. If the side "
                 "has no run on one device, it is relative to another side's; if no side has one, it is "
                 "relative to the fewest devices of the side. This baseline is 1, here and in the "
                 "terminal's table. Bands are %.0f %% intervals, if a side has at least 4 runs.",
                 d->confidence * 100);
    return report_laws(r, s, d);
}
