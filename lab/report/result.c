/* The results: the verdict, the final tables, whether the bits are the same, the losses. */
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

/* ---- the verdict ---- */

const char *report_where(struct report *r, const struct report_cell *c) {
    return report_say(r, "%lld device%s%s", (long long)c->devices, c->devices == 1 ? "" : "s", report_in(r, c->place));
}

static const char *result_verdict(struct report *r, const struct report_cell *c) {
    const struct run_result *run = c->run;
    double busy = 0, waits = run->time_s[PHASE_COMM];
    for (int p = 0; p < PHASES; p++) busy += run->time_s[p];
    const char *right = isfinite(run->val_accuracy)
                            ? report_say(r, " and a validation accuracy of %.2f %%", run->val_accuracy * 100)
                        : isfinite(run->val_r2) ? report_say(r, " and a validation R2 of %.4g", run->val_r2)
                                                : "";
    const char *held =
        run->devices > 1 && busy > 0
            ? report_say(r, "; a step waits for communication for %.0f %% of its time", 100 * waits / busy)
            : "";
    const char *in = run->first_step == 0 ? report_say(r, " in %s", report_ms(r, run->time_s[RESULT_TOTAL])) : "";
    const char *to = isnan(run->train_loss) ? "an unknown loss" : report_say(r, "a loss of %.4g", run->train_loss);
    return report_say(r, "%s on %s trained %lld steps%s to %s%s, at %s a step%s.", run->mode, report_where(r, c),
                      (long long)run->steps, in, to, right, report_ms(r, c->median_s), held);
}

static void verdict_say_resumed(struct report *r, struct report_section *s, const struct report_data *d) {
    for (int i = 0; i < d->ncells; i++) {
        const struct run_result *run = &d->cell[i].run[0];
        if (run->first_step > 0)
            report_print(r, s,
                         "%s: the run was resumed after step %lld. Its times and bytes cover the "
                         "%lld steps since then; its losses cover all steps.",
                         report_where(r, &d->cell[i]), (long long)run->first_step, (long long)run_result_stretch(run));
        if (run->began > 0)
            report_print(r, s,
                         "%s: the run began with %lld devices, lost some, and ended with %lld. Its "
                         "times and bytes cover the steps on these.",
                         report_where(r, &d->cell[i]), (long long)run->began, (long long)run->devices);
    }
}

static void verdict_list_texts(struct report *r, struct report_section *s, const struct json_value *list,
                               const char *before, const char *key) {
    for (int i = 0; list && i < list->count; i++) {
        const struct json_value *v = &list->children[i];
        const char *text = key ? json_text(v, key) : v->kind == JSON_STRING ? v->text : "";
        bool judged = !json_member(v, "judged", JSON_BOOL) || json_truth(v, "judged");
        const char *outcome = !json_member(v, "passed", JSON_BOOL) ? ""
                              : !judged                            ? ": could not be judged"
                              : json_truth(v, "passed")            ? ": passed"
                                                                   : ": FAILED";
        if (*text) report_print(r, s, "%s%s%s", before, text, outcome);
    }
}

static const char *result_bits_sentence(struct report *r, const struct report_data *d);

enum error report_verdict(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "verdict", "Answer");
    r->verdict = d->npairs       ? report_sentence(r, d, 0)
                 : d->experiment ? "Nothing is compared: the experiment has no pair of finished cells."
                                 : result_verdict(r, &d->cell[0]);
    report_paragraph(s, r->verdict);
    const char *untested = json_text(d->root, "untested"), *best = report_best(r, d->cell[0].run);
    if (*untested) report_print(r, s, "%s.", report_title(r, untested));
    for (int m = 1; d->npairs && m < d->nmetrics; m++) {
        const char *also = report_sentence(r, d, m);
        if (*also) report_print(r, s, "%s: %s", report_title(r, d->metric[m].words), also);
    }
    if (!d->experiment && *best) report_paragraph(s, best);
    const char *noise = report_noise(r, d->cell[0].run);
    if (!d->experiment && *noise) report_paragraph(s, noise);
    if (d->experiment) report_paragraph(s, result_bits_sentence(r, d));
    verdict_say_resumed(r, s, d);
    const struct json_value *complete = json_member(d->root, "complete", JSON_BOOL);
    if (complete && !complete->truth)
        report_paragraph(
            s, "The experiment is not complete: some runs are missing. The same engine compare command continues it.");
    verdict_list_texts(r, s, json_member(d->root, "gates", JSON_ARRAY), "Gate: ", "text");
    verdict_list_texts(r, s, json_member(d->root, "notes", JSON_ARRAY), "Note: ", NULL);
    verdict_list_texts(r, s, json_member(d->root, "warnings", JSON_ARRAY), "Warning: ", NULL);
    return report_lead(r, s, d);
}

/* ---- the tables ---- */

/* Sides that are named say what they set. */
static enum error result_sides_table(struct report *r, struct report_section *s, const struct report_data *d) {
    static const char *const heads[] = {"side", "sets"};
    const struct json_value *sides = json_member(d->root, "sides_settings", JSON_OBJECT);
    struct table *t;
    if (!sides) return ERR_NONE;
    TRY(report_table(r, s, "What each side is", 2, sides->count, heads, &t));
    t->words = 2;
    for (int i = 0; i < sides->count; i++) {
        const struct json_value *v = &sides->children[i];
        const char *all = "";
        for (int k = 0; v->kind == JSON_OBJECT && k < v->count; k++)
            all = report_join(r, all, ", ",
                              report_say(r, "%s: %s", v->children[k].key, json_text(v, v->children[k].key)));
        table_row(t, i + 1)[0] = v->key;
        table_row(t, i + 1)[1] = all;
    }
    return ERR_NONE;
}

enum { CELL_COLUMNS = 9 };
static const char *const cell_heads[CELL_COLUMNS] = {
    "where", "side", "runs", "step time (median)", "of the runs", "samples/s (mean)", "loss", "val accuracy", "steps"};

static void result_cell_row(struct report *r, const struct report_data *d, const struct report_cell *c,
                            const char *row[CELL_COLUMNS]) {
    const struct run_result *run = &c->run[0];
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < c->nruns; i++) low = fmin(low, c->step_s[i]), high = fmax(high, c->step_s[i]);
    row[0] = report_where(r, c);
    row[1] = d->side[c->side];
    row[2] = report_say(r, "%d", c->nruns);
    row[3] = report_ms(r, c->median_s);
    row[4] = c->nruns > 1 ? report_say(r, "%s to %s", report_ms(r, low), report_ms(r, high)) : "-";
    row[5] = isfinite(c->samples_per_s) ? report_say(r, "%.0f", c->samples_per_s) : "-";
    row[6] = isfinite(run->train_loss) ? report_say(r, "%.5g", run->train_loss) : "-";
    row[7] = isfinite(run->val_accuracy) ? report_say(r, "%.2f %%", run->val_accuracy * 100)
             : isfinite(run->val_r2)     ? report_say(r, "R2 %.4g", run->val_r2)
                                         : "-";
    row[8] = report_say(r, "%lld", (long long)run->steps);
}

/* One run is read from top to bottom. */
static enum error result_run_table(struct report *r, struct report_section *s, const struct report_data *d) {
    static const char *const heads[] = {"of the run", "value"};
    const char *row[CELL_COLUMNS];
    struct table *t;
    result_cell_row(r, d, &d->cell[0], row);
    row[4] = report_ms(r, d->cell[0].run[0].p95_ms / 1e3);
    TRY(report_table(r, s, "The run", 2, CELL_COLUMNS - 1, heads, &t));
    for (int i = 0, at = 1; i < CELL_COLUMNS; i++) {
        if (i == 2) continue;
        table_row(t, at)[0] = i == 4 ? "step time (95 % are below)" : i == 1 ? report_short(d->axis) : cell_heads[i];
        table_row(t, at++)[1] = row[i];
    }
    return ERR_NONE;
}

static enum error result_cells_table(struct report *r, struct report_section *s, const struct report_data *d) {
    struct table *t;
    TRY(report_table(r, s, "Each side at each place", CELL_COLUMNS, d->ncells, cell_heads, &t));
    t->words = 2;
    table_row(t, 0)[1] = report_short(d->axis);
    t->fold = d->npairs > 1 ? FOLD_ASIDE : FOLD_NOT;
    for (int i = 0; i < d->ncells; i++) result_cell_row(r, d, &d->cell[i], table_row(t, i + 1));
    return ERR_NONE;
}

enum error report_final(struct report *r, const struct report_data *d) {
    double counts[REPORT_COUNTS];
    struct report_section *s = report_section(r, "table", d->experiment ? "Every comparison" : "The run in numbers");
    TRY(result_sides_table(r, s, d));
    TRY(report_comparisons(r, s, d));
    TRY(d->experiment ? result_cells_table(r, s, d) : result_run_table(r, s, d));
    if (d->experiment && r->section[0].plot[0].kind != PLOT_DOTS) TRY(report_dots(r, s, d, 0));
    report_print(r, s,
                 "Step time is the median of a run's steps%s, everywhere on this page. samples/s is the number of "
                 "samples of the same steps divided by their time. It is a mean: a few slow steps lower it but do "
                 "not change the median. Loss and val accuracy are those at the%s run's end.",
                 d->warmup > 0 ? " after the warm-up" : "", d->experiment ? " first" : "");
    if (*d->scaling && report_device_counts(d, counts) > 1)
        report_paragraph(s, !strcmp(d->scaling, "weak")
                                ? "Weak scaling: the batch grows with the devices."
                                : "Strong scaling: the batch is the same on any number of devices.");
    return ERR_NONE;
}

/* ---- the same bits ---- */

static const char *result_bits_difference(struct report *r, const struct report_data *d, const struct report_pair *p) {
    const char *side = d->nsides > 2 ? report_say(r, "%s, ", report_versus(r, d, p)) : "";
    return report_say(r, "%s%s: %s", side, report_where(r, &d->cell[p->b]),
                      *p->difference ? p->difference : "the losses or the weights are not the same");
}

static bool result_same_digests(const struct run_result *a, const struct run_result *b) {
    return report_copies(a, b) && !strcmp(a->losses, b->losses);
}

/* How many runs from 'from' on have come to the same as that one. */
static int result_same_from(const struct report_cell *c, int from) {
    int n = 1;
    while (from + n < c->nruns && result_same_digests(&c->run[from], &c->run[from + n])) n++;
    return n;
}

static enum error result_digests(struct report *r, struct report_section *s, const struct report_data *d) {
    const char *const heads[] = {"where", report_short(d->axis), "weights, sha256", "losses, sha256", "runs"};
    int rows = 0, at = 1;
    struct table *t;
    for (int i = 0; i < d->ncells; i++)
        for (int k = 0; k < d->cell[i].nruns; k += result_same_from(&d->cell[i], k)) rows++;
    TRY(report_table(r, s, "The runs' hashes, which are equal if the bits are equal", 5, rows, heads, &t));
    t->words = 4;
    for (int i = 0; i < d->ncells; i++)
        for (int k = 0, n; k < d->cell[i].nruns; k += n, at++) {
            const char **row = table_row(t, at);
            n = result_same_from(&d->cell[i], k);
            row[0] = report_where(r, &d->cell[i]);
            row[1] = d->side[d->cell[i].side];
            row[2] = report_say(r, "%.16s", d->cell[i].run[k].weights);
            row[3] = report_say(r, "%.16s", d->cell[i].run[k].losses);
            row[4] = report_say(r, "%d", n);
        }
    return ERR_NONE;
}

/* The sentence on equal bits for an experiment whose runs do not all end in the same bits: how many pairs have them. */
static const char *result_bits_of_pairs(struct report *r, const struct report_data *d, int same, int runs) {
    int yes = 0, no = 0;
    for (int i = 0; i < d->npairs; i++) yes += d->pair[i].same == 1, no += d->pair[i].same == 0;
    if (yes && !no)
        return report_say(
            r,
            "The same bits in all %d comparisons: the losses of every step and the final weights are equal on both "
            "sides, so they differ only in time. Different places compute different things.",
            yes);
    if (yes + no) return report_say(r, "The same bits in %d of %d comparisons.", yes, yes + no);
    if (d->npairs) return "Bits are not compared: the sides compute different things, or do not report their weights.";
    return report_say(r, "The bits are not the same everywhere: %d of %d runs end in those of the first.", same, runs);
}

static int result_same_runs(const struct report_data *d, int *runs) {
    int same = 0;
    *runs = 0;
    for (int i = 0; i < d->ncells; i++)
        for (int k = 0; k < d->cell[i].nruns; k++, ++*runs)
            same += result_same_digests(&d->cell[i].run[k], &d->cell[0].run[0]);
    return same;
}

static const char *result_bits_sentence(struct report *r, const struct report_data *d) {
    int runs, same = result_same_runs(d, &runs);
    if (runs == 1)
        return "A single run cannot be compared. Another run of this configuration, in any mode and on any number of "
               "devices, must end in the same hashes.";
    if (same < runs) return result_bits_of_pairs(r, d, same, runs);
    return report_say(r,
                      "The same bits: the losses of every step and the final weights are equal bit for bit in all %d "
                      "runs, which differ only in time.",
                      runs);
}

enum error report_same_bits(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "bits", "The same bits");
    s->fold = FOLD_ASIDE;
    report_paragraph(s, result_bits_sentence(r, d));
    for (int i = 0; i < d->npairs; i++)
        if (d->pair[i].same == 0) report_paragraph(s, result_bits_difference(r, d, &d->pair[i]));
    return result_digests(r, s, d);
}
