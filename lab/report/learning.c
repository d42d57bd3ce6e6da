/* How the training went: losses, validation and learning rate, against steps and against seconds. */
#include "lab/report/data.h"

#include "engine/base/file.h"

#include <math.h>
#include <string.h>

enum { POINTS = 120, GROUPS = 6 };
enum curve { TRAIN_LOSS, VAL_LOSS, VAL_ACCURACY, RATE, CURVES };
static const struct {
    const char *title, *label;
    enum plot_unit unit;
} told[CURVES] = {{"Training loss", "loss", PLOT_PLAIN},
                  {"Validation loss", "loss", PLOT_PLAIN},
                  {"Validation accuracy", "accuracy", PLOT_SHARE},
                  {"Learning rate", "learning rate", PLOT_PLAIN}};

/* ---- one side's line ---- */

/* The runs of a cell that end in weights of their own, as indices; gives how many. */
static int cell_trainings(const struct report_cell *c, int out[REPORT_RUNS]) {
    int n = 0;
    for (int i = 0; i < c->nruns; i++) {
        int k = 0;
        while (k < n && !report_copies(&c->run[out[k]], &c->run[i])) k++;
        if (k == n) out[n++] = i;
    }
    return n;
}

static int64_t curve_count_of(const struct run_result *run, enum curve what) {
    return what == VAL_LOSS || what == VAL_ACCURACY ? run->nvals : run->nsteps;
}

static double curve_value_at(const struct run_result *run, enum curve what, int64_t i) {
    return what == TRAIN_LOSS ? run->step[i].loss
           : what == RATE     ? run->step[i].lr
           : what == VAL_LOSS ? run->val[i].loss
                              : run->val[i].accuracy;
}

static int64_t curve_step_at(const struct run_result *run, enum curve what, int64_t i) {
    return what == VAL_LOSS || what == VAL_ACCURACY ? run->val[i].step : run->step[i].step;
}

struct bin { /* neighbours become one point */
    double sum, low, high;
    int n;
};

static void bin_add(struct bin *b, double v) {
    if (!isfinite(v)) return;
    b->low = b->n ? fmin(b->low, v) : v;
    b->high = b->n ? fmax(b->high, v) : v;
    b->sum += v;
    b->n++;
}

/* One training: the steps of the bin. Several: the mean of each over the bin. */
static struct bin bin_of(const struct report_cell *c, const int *run, int n, enum curve what, int64_t from,
                         int64_t to) {
    struct bin all = {0};
    for (int k = 0; k < n; k++) {
        const struct run_result *mine = &c->run[run[k]];
        struct bin one = {0};
        for (int64_t i = from; i < to && i < curve_count_of(mine, what); i++)
            bin_add(n > 1 ? &one : &all, curve_value_at(mine, what, i));
        if (n > 1 && one.n) bin_add(&all, one.sum / one.n);
    }
    return all;
}

static double curve_median_seconds(const struct report_cell *c, int64_t step) {
    double v[REPORT_RUNS];
    for (int i = 0; i < c->nruns; i++) v[i] = run_result_seconds(&c->run[i], step);
    return statistics_median_of(v, c->nruns);
}

static enum error curve_line(struct report *r, const struct report_data *d, const struct report_cell *c,
                             enum curve what, bool seconds, struct plot *p) {
    int run[REPORT_RUNS], n = cell_trainings(c, run);
    int64_t count = curve_count_of(&c->run[0], what), stride = (count + POINTS - 1) / POINTS;
    double *v;
    TRY(report_take(r, 4 * (POINTS + 1), sizeof *v, &v));
    struct plot_series out = {
        .name = d->side[c->side], .x = v, .y = v + (POINTS + 1), .colour = c->side % PLOT_COLOURS};
    double *low = v + 2 * (POINTS + 1), *high = v + 3 * (POINTS + 1);
    for (int64_t i = 0; i < count; i += stride) {
        int64_t end = i + stride < count ? i + stride : count;
        struct bin b = bin_of(c, run, n, what, i, end);
        int64_t step = curve_step_at(&c->run[0], what, end - 1);
        if (!b.n) continue;
        v[out.n] = seconds ? curve_median_seconds(c, step) : (double)step;
        v[(POINTS + 1) + out.n] = b.sum / b.n;
        low[out.n] = b.low, high[out.n++] = b.high;
    }
    if (n > 1 || stride > 1) out.low = low, out.high = high;
    if (out.n) p->series[p->nseries++] = out;
    return ERR_NONE;
}

/* ---- plots ---- */

static void curve_range_of(const struct plot *p, double *low, double *high) {
    *low = INFINITY, *high = -INFINITY;
    for (int i = 0; i < p->nseries; i++)
        for (int k = 0; k < p->series[i].n; k++) {
            *low = fmin(*low, p->series[i].y[k]);
            *high = fmax(*high, p->series[i].y[k]);
        }
}

static const char *curve_about(struct report *r, const struct report_data *d, const struct report_cell *like,
                               enum curve what) {
    int run[REPORT_RUNS], n = cell_trainings(like, run);
    int64_t stride = (curve_count_of(&like->run[0], what) + POINTS - 1) / POINTS;
    const char *each = stride > 1 ? report_say(r, "Each point is the mean of %lld steps. ", (long long)stride) : "";
    const char *band = n > 1 ? report_say(r, "The line is the mean of %d trainings, and the band is their range. ", n)
                       : stride > 1 ? "The band goes from the smallest of them to the largest. "
                                    : "";
    return report_say(r, "%s%s%s", each, band, d->nsides > 1 ? "If curves coincide, the first is drawn wider." : "");
}

static enum error curve_plot(struct report *r, struct report_section *s, const struct report_data *d,
                             const struct report_cell *like, enum curve what, bool seconds) {
    struct plot *p;
    double low, high;
    TRY(report_plot(r, s, PLOT_LINE, d->nsides, &p));
    if (!p) return ERR_NONE;
    p->title = report_say(r, "%s against %s%s%s", told[what].title, seconds ? "seconds" : "steps",
                          d->experiment ? ", " : "", d->experiment ? report_where(r, like) : "");
    p->x = (struct plot_axis){.label = seconds ? "time of steps" : "step", .unit = seconds ? PLOT_SECONDS : PLOT_PLAIN};
    p->y = (struct plot_axis){.label = told[what].label, .unit = told[what].unit};
    p->about = curve_about(r, d, like, what);
    for (int side = 0; side < d->nsides; side++) {
        int k = report_find(d, side, like->place, like->devices);
        if (k >= 0) TRY(curve_line(r, d, &d->cell[k], what, seconds, p));
    }
    int most = 0;
    for (int i = 0; i < p->nseries; i++) most = p->series[i].n > most ? p->series[i].n : most;
    curve_range_of(p, &low, &high);
    p->both = (what == TRAIN_LOSS || what == VAL_LOSS) && low > 0 && high > 1.5 * low;
    p->y.log = p->both && high > 20 * low; /* on a linear axis such a curve is a corner */
    bool leads =
        !d->experiment && s != r->section && r->section->nplots && !strcmp(r->section->plot[0].title, p->title);
    if (leads || most < (what == TRAIN_LOSS ? 1 : 3) || (what == RATE && low == high)) s->nplots--;
    return ERR_NONE;
}

enum error report_curves(struct report *r, struct report_section *s, const struct report_data *d,
                         const struct report_cell *like, bool first) {
    if (first) {
        int before = s->nplots;
        TRY(curve_plot(r, s, d, like, VAL_ACCURACY, false));
        return s->nplots > before ? ERR_NONE : curve_plot(r, s, d, like, TRAIN_LOSS, false);
    }
    TRY(curve_plot(r, s, d, like, TRAIN_LOSS, false));
    TRY(curve_plot(r, s, d, like, VAL_LOSS, false));
    TRY(curve_plot(r, s, d, like, VAL_ACCURACY, false));
    TRY(curve_plot(r, s, d, like, VAL_ACCURACY, true));
    return curve_plot(r, s, d, like, RATE, false);
}

/* ---- words ---- */

/* A sentence on the best evaluation of a run, by the metric that checkpoint.best names; "": there is none. */
const char *report_best(struct report *r, const struct run_result *run) {
    const struct metric *by;
    const struct result_val *v = run_result_best(run, metric_find(run_result_setting(run, "checkpoint.best")), &by);
    if (!v) return "";
    const char *value = report_value(r, by->share ? PLOT_SHARE : PLOT_PLAIN, v->of[by - metric_table]);
    const char *folder = report_say(r, "ckpt/step-%09lld", (long long)v->step);
    bool kept = file_exists(report_say(r, "%s/%s/manifest.json", run->dir, folder));
    return report_say(r, "The best validation %s was %s, after step %lld%s%s%s.", by->words, value, (long long)v->step,
                      kept ? " (its checkpoint is " : "", kept ? folder : "", kept ? ")" : "");
}

const char *report_noise(struct report *r, const struct run_result *run) {
    const struct json_value *twice = json_member(run->noise, "twice_the_batch", JSON_OBJECT);
    double scale = json_number(run->noise, "samples"), batch = json_number(run->noise, "batch");
    double steps = json_number(twice, "steps"), samples = json_number(twice, "samples");
    if (!run->noise) return "";
    if (!isfinite(scale) || !isfinite(steps) || !isfinite(samples))
        return "The gradient-noise scale was measured in too few steps to find the gradient in its noise.";
    return report_say(
        r,
        "The gradient-noise scale was %.3g samples: by it, a batch of %.0f in place of %.0f would come to "
        "the same loss in %.0f %% fewer steps, for %.0f %% more samples.",
        scale, 2 * batch, batch, 100 * (1 - steps), 100 * (samples - 1));
}

static const char *curve_losses_at(const struct report_data *d, int side, const struct report_cell *like) {
    int k = report_find(d, side, like->place, like->devices);
    const struct run_result *run = k < 0 ? NULL : &d->cell[k].run[0];
    return !run ? "" : *run->losses ? run->losses : run->dir; /* losses that are not known are nobody else's */
}

/* Whether an earlier one has the same losses on every side. */
static bool curve_is_seen(const struct report_data *d, const int *seen, int n, const struct report_cell *like) {
    for (int i = 0; i < n; i++) {
        bool same = true;
        for (int side = 0; side < d->nsides; side++)
            same &= !strcmp(curve_losses_at(d, side, &d->cell[seen[i]]), curve_losses_at(d, side, like));
        if (same) return true;
    }
    return false;
}

/* Devices and links seldom change what is learned: places that do not are shown once. */
enum error report_learning(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "loss", "How the training went");
    int seen[GROUPS], n = 0;
    for (int i = d->ncells - 1; i >= 0 && n < GROUPS; i--) {
        const struct report_cell *c = &d->cell[i];
        if (c->run[0].nsteps == 0 || curve_is_seen(d, seen, n, c)) continue;
        seen[n++] = i;
        TRY(report_curves(r, s, d, c, false));
    }
    if (!n)
        s->missing =
            "The metrics.jsonl of the runs have no steps, because a run that was resumed at its end makes none.";
    else if (!s->nplots)
        r->nsections--; /* the first picture is all there is */
    bool places = false;
    for (int i = 1; i < d->ncells; i++)
        places |= strcmp(d->cell[i].place, d->cell[0].place) != 0 || d->cell[i].devices != d->cell[0].devices;
    if (n && places)
        report_paragraph(s, n == 1 ? "One set of curves represents all places, because their runs have the same losses."
                                   : "Places whose runs have the same losses are shown once.");
    return ERR_NONE;
}
