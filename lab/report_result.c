/* What came out: the verdict, the final tables, whether the bits are the same, the losses. */
#include "lab/report_data.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the verdict in one sentence ---- */

static int count(const struct report_data *d, const char *verdict) {
    int n = 0;
    for (int i = 0; i < d->npairs; i++) n += !strcmp(d->pair[i].verdict, verdict);
    return n;
}

/* The pair whose sides differ most among those of a verdict; -1: there is none. */
static int extreme(const struct report_data *d, const char *verdict) {
    int best = -1;
    for (int i = 0; i < d->npairs; i++) {
        if (strcmp(d->pair[i].verdict, verdict) != 0) continue;
        if (best < 0 || fabs(log(d->pair[i].ratio)) > fabs(log(d->pair[best].ratio))) best = i;
    }
    return best;
}

const char *report_where(struct report *r, const struct report_cell *c) {
    return report_say(r, "%lld device%s%s", (long long)c->devices, c->devices == 1 ? "" : "s", report_in(r, c->place));
}

/* "ddp is faster than dp in 5 of 7 comparisons, up to 6.6 times (8 devices)". */
static const char *clause(struct report *r, const struct report_data *d, const char *verdict, bool faster) {
    int n = count(d, verdict), k = extreme(d, verdict);
    if (!n) return "";
    const struct report_pair *p = &d->pair[k];
    double ratio = faster ? p->ratio : 1 / p->ratio;
    const char *most = isfinite(ratio) && ratio > 0
                           ? report_say(r, ", up to %.2f times (%s)", ratio, report_where(r, &d->cell[p->b]))
                           : "";
    return report_say(r, "%s is faster than %s in %d of %d comparisons%s", d->side[d->cell[faster ? p->b : p->a].side],
                      d->side[d->cell[faster ? p->a : p->b].side], n, d->npairs, most);
}

static const char *more(struct report *r, const char *text) {
    return *text ? report_say(r, "%s; in", text) : "In";
}

static const char *verdict_of_pairs(struct report *r, const struct report_data *d) {
    const char *faster = clause(r, d, "faster", true), *slower = clause(r, d, "slower", false);
    int same = count(d, "same"), untested = count(d, "untested"),
        rest = d->npairs - same - untested - count(d, "faster") - count(d, "slower");
    const char *text = report_say(r, "%s%s%s", faster, *faster && *slower ? "; " : "", slower);
    if (same) text = report_say(r, "%s %d of %d there is no difference that matters", more(r, text), same, d->npairs);
    if (rest) text = report_say(r, "%s %d of %d more runs would be needed to tell", more(r, text), rest, d->npairs);
    if (untested) text = report_say(r, "%s %d of %d nothing was tested", more(r, text), untested, d->npairs);
    return report_say(r, "%s.", text);
}

static const char *rate_text(struct report *r, double samples_per_s) {
    return isfinite(samples_per_s) ? report_say(r, "%.0f", samples_per_s) : "-";
}

static const char *verdict_of_run(struct report *r, const struct report_cell *c) {
    const struct run_result *run = c->run;
    double busy = 0, waits = run->time_s[PHASE_COMM];
    for (int p = 0; p < PHASES; p++) busy += run->time_s[p];
    const char *right =
        isfinite(run->val_accuracy) ? report_say(r, " (%.2f %% right on validation)", run->val_accuracy * 100) : "";
    return report_say(r,
                      "%s on %s trained %lld steps to a loss of %.4g%s, %s samples a second; "
                      "communication holds up %.0f %% of a step.",
                      run->mode, report_where(r, c), (long long)run->steps, run->train_loss, right,
                      rate_text(r, c->samples_per_s), busy > 0 ? 100 * waits / busy : 0);
}

static void say_resumed(struct report *r, struct report_section *s, const struct report_data *d) {
    for (int i = 0; i < d->ncells; i++) {
        const struct run_result *run = &d->cell[i].run[0];
        if (run->first_step > 0)
            report_paragraph(s, report_say(r,
                                           "%s: the run was resumed after step %lld. Its times and bytes are of "
                                           "the %lld steps since; its losses are of all steps.",
                                           report_where(r, &d->cell[i]), (long long)run->first_step,
                                           (long long)run_result_stretch(run)));
        if (run->began > 0)
            report_paragraph(s,
                             report_say(r,
                                        "%s: the run began with %lld devices, lost some, and ended with %lld. Its "
                                        "times and bytes are of the steps on these.",
                                        report_where(r, &d->cell[i]), (long long)run->began, (long long)run->devices));
    }
}

static void list_texts(struct report *r, struct report_section *s, const struct json_value *list, const char *before,
                       const char *key) {
    for (int i = 0; list && i < list->count; i++) {
        const struct json_value *v = &list->children[i];
        const char *text = key ? report_text(v, key) : v->kind == JSON_STRING ? v->text : "";
        const struct json_value *passed = report_member(v, "passed", JSON_BOOL);
        const struct json_value *judged = report_member(v, "judged", JSON_BOOL);
        if (*text)
            report_paragraph(s, report_say(r, "%s%s%s", before, text,
                                           !passed                    ? ""
                                           : judged && !judged->truth ? ": could not be judged"
                                           : passed->truth            ? ": passed"
                                                                      : ": FAILED"));
    }
}

enum error report_verdict(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "verdict", "Verdict");
    r->verdict = *d->verdict     ? d->verdict
                 : d->npairs     ? verdict_of_pairs(r, d)
                 : d->experiment ? "Nothing is compared: the experiment has no pair of finished cells."
                                 : verdict_of_run(r, &d->cell[0]);
    report_paragraph(s, r->verdict);
    const char *untested = report_text(d->root, "untested");
    if (*untested) report_paragraph(s, report_say(r, "%c%s.", toupper((unsigned char)*untested), untested + 1));
    say_resumed(r, s, d);
    const struct json_value *complete = report_member(d->root, "complete", JSON_BOOL);
    if (complete && !complete->truth)
        report_paragraph(s, "The experiment is not complete: some runs are missing. The same "
                            "engine compare goes on with it.");
    list_texts(r, s, report_member(d->root, "gates", JSON_ARRAY), "Gate: ", "text");
    list_texts(r, s, report_member(d->root, "warnings", JSON_ARRAY), "Warning: ", NULL);
    return ERR_NONE;
}

/* ---- the final tables ---- */

/* "ddp faster"; of a side whose name begins with a number, which would be read as an amount, "B faster". */
static const char *verdict_text_of(struct report *r, const struct report_data *d, const struct report_pair *p) {
    const char *words = *p->words ? p->words : p->verdict, *b = d->side[d->cell[p->b].side];
    if (strcmp(p->verdict, "faster") != 0 && strcmp(p->verdict, "slower") != 0) return words;
    return report_say(r, "%s %s", *b >= '0' && *b <= '9' ? "B" : b, words);
}

static const char *metric_text(struct report *r, const struct report_cell *c, const struct report_metric *m) {
    char text[32];
    plot_value_text(m->unit, report_metric_of(c, m), text);
    return report_say(r, "%s", text);
}

static enum error pairs_table(struct report *r, struct report_section *s, const struct report_data *d) {
    const struct report_metric m = report_metric(d, 0);
    const bool steps = !*m.name || !strcmp(m.name, "step_time");
    const char *what = steps ? "step" : m.name;
    const char *const heads[] = {
        "where", "A",        "B",       "verdict", report_say(r, "%s of A", what), report_say(r, "%s of B", what),
        "A / B", "interval", "p (Holm)"};
    struct table *t;
    TRY(report_table(r, s, "Each comparison of B with A", 9, d->npairs, heads, &t));
    t->words = 4;
    for (int i = 0; i < d->npairs; i++) {
        const struct report_pair *p = &d->pair[i];
        const struct report_cell *a = &d->cell[p->a], *b = &d->cell[p->b];
        const char **row = table_row(t, i + 1);
        row[0] = report_where(r, b);
        row[1] = d->side[a->side];
        row[2] = d->side[b->side];
        row[3] = verdict_text_of(r, d, p);
        row[4] = steps ? report_ms(r, a->median_s) : metric_text(r, a, &m);
        row[5] = steps ? report_ms(r, b->median_s) : metric_text(r, b, &m);
        row[6] = isfinite(p->ratio) ? report_say(r, "%.3f", p->ratio) : "-";
        row[7] = isfinite(p->low) ? report_say(r, "%.3f to %.3f", p->low, p->high) : "-";
        row[8] = isfinite(p->p) ? report_say(r, "%.3g", p->p) : "-";
    }
    report_paragraph(s, report_say(r,
                                   "A / B is the ratio of the medians of %s, turned so that above "
                                   "1 B is better. The interval holds what the test does not refuse, at "
                                   "%.0f %%. Each run counts once; where losses or accuracy are "
                                   "compared, runs that end in the same weights count as one.",
                                   d->metric, d->confidence * 100));
    return ERR_NONE;
}

static void cell_row(struct report *r, const struct report_data *d, const struct report_cell *c, const char **row) {
    const struct run_result *run = &c->run[0];
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < c->nruns; i++) low = fmin(low, c->step_s[i]), high = fmax(high, c->step_s[i]);
    row[0] = report_where(r, c);
    row[1] = d->side[c->side];
    row[2] = report_say(r, "%d", c->nruns);
    row[3] = report_ms(r, c->median_s);
    row[4] = c->nruns > 1 ? report_say(r, "%s to %s", report_ms(r, low), report_ms(r, high)) : "-";
    row[5] = rate_text(r, c->samples_per_s);
    row[6] = isfinite(run->train_loss) ? report_say(r, "%.5g", run->train_loss) : "-";
    row[7] = isfinite(run->val_accuracy) ? report_say(r, "%.2f %%", run->val_accuracy * 100) : "-";
    row[8] = report_say(r, "%lld", (long long)run->steps);
}

enum error report_final(struct report *r, const struct report_data *d) {
    static const char *const heads[] = {"where",     "mode", "runs",        "step", "range",
                                        "samples/s", "loss", "right (val)", "steps"};
    struct report_section *s = report_section(r, "table", "Final table");
    struct table *t;
    if (d->npairs) TRY(pairs_table(r, s, d));
    TRY(report_table(r, s, d->experiment ? "Each cell: step and samples/s are medians of its runs" : "The run", 9,
                     d->ncells, heads, &t));
    t->words = 2;
    table_row(t, 0)[1] = d->axis;
    for (int i = 0; i < d->ncells; i++) cell_row(r, d, &d->cell[i], table_row(t, i + 1));
    report_paragraph(s, report_say(r,
                                   "step: the median of a run's steps%s. samples/s: the samples of "
                                   "the same steps by their time, which is a mean: a few slow steps "
                                   "lower it and leave the median as it is. loss and right (val): "
                                   "of the%s run's end.",
                                   d->warmup > 0 ? " behind the warm-up" : "", d->experiment ? " first" : ""));
    if (strcmp(d->scaling, "") != 0)
        report_paragraph(s, report_say(r,
                                       !strcmp(d->scaling, "weak")
                                           ? "Weak scaling: the batch grows with the devices."
                                           : "Scaling: %s. The batch is the same on any number of devices.",
                                       d->scaling));
    return ERR_NONE;
}

/* ---- the same bits ---- */

/* The first step at which the two runs' losses differ, -1: at none that both have. */
static int64_t first_difference(const struct run_result *a, const struct run_result *b) {
    for (int64_t i = 0; i < a->nsteps && i < b->nsteps; i++)
        if (a->step[i].loss != b->step[i].loss) return a->step[i].step;
    return -1;
}

static const char *difference(struct report *r, const struct report_data *d, const struct report_pair *p) {
    int64_t step = first_difference(d->cell[p->a].run, d->cell[p->b].run);
    const char *at = report_where(r, &d->cell[p->b]);
    if (*p->difference) return report_say(r, "%s: %s", at, p->difference);
    return step < 0 ? report_say(r, "%s: the losses or the weights are not the same", at)
                    : report_say(r, "%s: from step %lld on the losses differ", at, (long long)step);
}

static bool same_digests(const struct run_result *a, const struct run_result *b) {
    return !strcmp(a->weights, b->weights) && !strcmp(a->losses, b->losses);
}

/* How many runs from 'from' on have come to the same as that one. */
static int same_from(const struct report_cell *c, int from) {
    int n = 1;
    while (from + n < c->nruns && same_digests(&c->run[from], &c->run[from + n])) n++;
    return n;
}

static enum error digests(struct report *r, struct report_section *s, const struct report_data *d) {
    static const char *const heads[] = {"where", "mode", "weights, sha256", "losses, sha256", "runs"};
    int rows = 0, at = 1;
    struct table *t;
    for (int i = 0; i < d->ncells; i++)
        for (int k = 0; k < d->cell[i].nruns; k += same_from(&d->cell[i], k)) rows++;
    TRY(report_table(r, s, "Digests of the runs", 5, rows, heads, &t));
    t->words = 4;
    for (int i = 0; i < d->ncells; i++)
        for (int k = 0, n; k < d->cell[i].nruns; k += n, at++) {
            const char **row = table_row(t, at);
            n = same_from(&d->cell[i], k);
            row[0] = report_where(r, &d->cell[i]);
            row[1] = d->side[d->cell[i].side];
            row[2] = report_say(r, "%.16s", d->cell[i].run[k].weights);
            row[3] = report_say(r, "%.16s", d->cell[i].run[k].losses);
            row[4] = report_say(r, "%d", n);
        }
    return ERR_NONE;
}

/* Of an experiment whose runs do not all end in the same bits: as each pair's sides have it. */
static const char *bits_of_pairs(struct report *r, const struct report_data *d, int same, int runs) {
    int yes = 0, no = 0;
    for (int i = 0; i < d->npairs; i++) yes += d->pair[i].same == 1, no += d->pair[i].same == 0;
    if (yes && !no)
        return report_say(r,
                          "Yes, in all %d comparisons: the losses of every step and the final "
                          "weights are equal bit for bit on both sides, which differ in time and in "
                          "nothing else. Cells of different places compute different things, so "
                          "their bits differ.",
                          yes);
    if (d->npairs && !no)
        return report_say(r,
                          "Not compared: '%s' changes what is computed, so that the sides cannot "
                          "end in the same bits.",
                          d->axis);
    return report_say(r, "Not everywhere: %d of %d runs end in the bits of the first.", same, runs);
}

enum error report_same_bits(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "bits", "The same bits");
    int runs = 0, same = 0;
    for (int i = 0; i < d->ncells; i++)
        for (int k = 0; k < d->cell[i].nruns; k++, runs++) same += same_digests(&d->cell[i].run[k], &d->cell[0].run[0]);
    if (runs == 1)
        report_paragraph(s, "One run has nothing to be the same as; its digests are what another "
                            "run of this configuration, in any mode and on any number of devices, "
                            "has to come to.");
    else if (same == runs)
        report_paragraph(s, report_say(r,
                                       "Yes: the losses of every step and the final weights are "
                                       "equal bit for bit in all %d runs. The modes differ in time "
                                       "and in nothing else.",
                                       runs));
    else
        report_paragraph(s, bits_of_pairs(r, d, same, runs));
    for (int i = 0; i < d->npairs; i++)
        if (d->pair[i].same == 0) report_paragraph(s, difference(r, d, &d->pair[i]));
    return digests(r, s, d);
}

/* ---- the losses ---- */

enum { LOSS_POINTS = 120 };

static enum error loss_series(struct report *r, const struct report_data *d, const struct report_cell *c,
                              struct plot_series *out) {
    const struct run_result *run = &c->run[0];
    int64_t stride = (run->nsteps + LOSS_POINTS - 1) / LOSS_POINTS;
    double *x, *y;
    TRY(report_take(r, LOSS_POINTS + 1, sizeof *x, &x));
    TRY(report_take(r, LOSS_POINTS + 1, sizeof *y, &y));
    *out = (struct plot_series){.name = d->side[c->side], .x = x, .y = y, .colour = c->side};
    for (int64_t i = 0; i < run->nsteps; i += stride) {
        if (i + stride >= run->nsteps) i = run->nsteps - 1; /* the last is always there */
        x[out->n] = (double)run->step[i].step;
        y[out->n++] = run->step[i].loss;
    }
    return ERR_NONE;
}

/* Those of one place and number of devices lie over each other. */
static enum error loss_plot(struct report *r, struct report_section *s, const struct report_data *d,
                            const struct report_cell *like) {
    struct plot *p;
    TRY(report_plot(r, s, PLOT_LINE, d->nsides, &p));
    if (!p) return ERR_NONE;
    p->title = report_say(r, "Loss of each step, %s", report_where(r, like));
    p->about = "Training loss against steps. Curves that coincide lie over each other: the first "
               "is drawn wider.";
    p->x = (struct plot_axis){.label = "step"};
    p->y = (struct plot_axis){.label = "loss"};
    for (int side = 0; side < d->nsides; side++) {
        int k = report_find(d, side, like->place, like->devices);
        if (k >= 0 && d->cell[k].run[0].nsteps > 0) TRY(loss_series(r, d, &d->cell[k], &p->series[p->nseries++]));
    }
    return ERR_NONE;
}

/* One plot for each number of devices: links do not change losses. */
enum error report_loss(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "loss", "Losses over each other");
    int64_t seen[REPORT_PLOTS];
    int nseen = 0;
    for (int i = d->ncells - 1; i >= 0 && nseen < 6; i--) {
        int k = 0;
        while (k < nseen && seen[k] != d->cell[i].devices) k++;
        if (k < nseen || d->cell[i].run[0].nsteps == 0) continue;
        seen[nseen++] = d->cell[i].devices;
        TRY(loss_plot(r, s, d, &d->cell[i]));
    }
    if (!nseen)
        s->missing = "The runs' metrics.jsonl tell of no step: a run that was resumed at its end "
                     "has none to show; "
                     "one from the beginning has.";
    return ERR_NONE;
}
