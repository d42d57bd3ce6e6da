/* Each side at its best: what was tried, what was chosen, and the curves of the score over each key. */
#include "lab/report/data.h"

#include "engine/base/quantile.h"
#include "engine/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 64 };
struct tuning_read {
    const struct json_value *root, *tries, *cells; /* of results.json */
    const struct report_metric *metric;
};

static double tuning_score(const struct json_value *cell, int i) {
    const struct json_value *tries = json_member(cell, "tries", JSON_ARRAY);
    return tries && i < tries->count ? json_number(&tries->children[i], "score") : (double)NAN;
}

/* The numbers that were tried of a key, each once and ascending; 0: they are no numbers. */
static int tuning_numbers(const struct json_value *tries, const char *key, double out[TRIES]) {
    int n = 0;
    for (int i = 0; i < tries->count && i < TRIES; i++) {
        double v;
        int k = 0;
        if (!text_real(json_text(&tries->children[i], key), &v)) return 0;
        while (k < n && out[k] != v) k++;
        if (k == n) out[n++] = v;
    }
    qsort(out, (size_t)n, sizeof *out, numbers_ascend);
    return n;
}

/* The best score of the tries that have a value of a key. */
static double tuning_best_at(const struct tuning_read *t, const struct json_value *cell, const char *key, double at) {
    const bool rises = t->metric->difference; /* shares are better when they are more */
    double best = (double)NAN;
    for (int i = 0; i < t->tries->count; i++) {
        double v, score = tuning_score(cell, i) * t->metric->factor;
        if (!text_real(json_text(&t->tries->children[i], key), &v) || v != at || !isfinite(score)) continue;
        best = isnan(best) ? score : rises ? fmax(best, score) : fmin(best, score);
    }
    return best;
}

/* "lion devices=cpu:2" of the side lion is "devices=cpu:2". */
static const char *tuning_place(const struct json_value *cell) {
    const char *label = json_text(cell, "label"), *side = json_text(cell, "side");
    size_t n = strlen(side);
    return !strncmp(label, side, n) ? label + n + strspn(label + n, " ") : label;
}

static enum error tuning_plot(struct report *r, struct report_section *s, const struct tuning_read *t, const char *key,
                              const char *place) {
    double x[TRIES];
    struct plot *p;
    int n = tuning_numbers(t->tries, key, x);
    if (n < 2) return ERR_NONE;
    TRY(report_plot(r, s, PLOT_LINE, t->cells->count, &p));
    if (!p) return ERR_NONE;
    p->title = report_say(r, "%s over %s%s", report_title(r, t->metric->words), key, report_in(r, place));
    p->x = (struct plot_axis){.label = key, .log = x[0] > 0 && x[n - 1] >= 8 * x[0]};
    p->y = (struct plot_axis){.label = t->metric->words, .unit = t->metric->unit};
    p->about =
        "A point is the best of the tries that have this value; a value without a point diverged, or has no score.";
    for (int c = 0; c < t->cells->count && p->nseries < PLOT_COLOURS; c++) {
        const struct json_value *cell = &t->cells->children[c];
        double *v;
        if (strcmp(tuning_place(cell), place) != 0) continue;
        TRY(report_take(r, (size_t)(2 * n), sizeof *v, &v));
        for (int i = 0; i < n; i++) v[i] = x[i], v[n + i] = tuning_best_at(t, cell, key, x[i]);
        p->series[p->nseries] =
            (struct plot_series){.name = json_text(cell, "side"), .x = v, .y = v + n, .n = n, .colour = p->nseries};
        p->nseries++;
    }
    return ERR_NONE;
}

static const char *tuning_score_text(struct report *r, const struct tuning_read *t, const struct json_value *cell,
                                     int i) {
    const struct json_value *tries = json_member(cell, "tries", JSON_ARRAY);
    double score = tuning_score(cell, i);
    if (tries && i < tries->count && json_number(&tries->children[i], "diverged") > 0) return "diverged";
    if (!isfinite(score)) return "-";
    return report_say(r, "%s%s", report_amount(r, t->metric, score * t->metric->factor),
                      json_number(cell, "chosen") == i ? " (chosen)" : "");
}

static enum error tuning_table(struct report *r, struct report_section *s, const struct tuning_read *t) {
    const struct json_value *first = &t->tries->children[0];
    int keys = first->count;
    struct table *table;
    TRY(report_table(r, s, "All tries", keys + t->cells->count, t->tries->count, NULL, &table));
    table->words = 0;
    table->fold = t->tries->count * t->cells->count > 24 ? FOLD_SHUT : FOLD_NOT;
    for (int k = 0; k < keys; k++) table_row(table, 0)[k] = first->children[k].key;
    for (int c = 0; c < t->cells->count; c++)
        table_row(table, 0)[keys + c] = json_text(&t->cells->children[c], "label");
    for (int i = 0; i < t->tries->count; i++) {
        for (int k = 0; k < keys; k++)
            table_row(table, i + 1)[k] = json_text(&t->tries->children[i], first->children[k].key);
        for (int c = 0; c < t->cells->count; c++)
            table_row(table, i + 1)[keys + c] = tuning_score_text(r, t, &t->cells->children[c], i);
    }
    return ERR_NONE;
}

static enum error tuning_plots(struct report *r, struct report_section *s, const struct tuning_read *t) {
    for (int c = 0; c < t->cells->count; c++) {
        const char *place = tuning_place(&t->cells->children[c]);
        bool seen = false;
        for (int k = 0; k < c; k++) seen |= !strcmp(tuning_place(&t->cells->children[k]), place);
        for (int k = 0; k < t->tries->children[0].count && !seen; k++)
            TRY(tuning_plot(r, s, t, t->tries->children[0].children[k].key, place));
    }
    return ERR_NONE;
}

enum error report_tuning(struct report *r, const struct report_data *d) {
    struct tuning_read t = {.root = json_member(d->root, "tuning", JSON_OBJECT), .metric = &d->metric[0]};
    t.tries = json_member(t.root, "tries", JSON_ARRAY), t.cells = json_member(t.root, "cells", JSON_ARRAY);
    if (!t.tries || !t.cells || !t.tries->count || t.tries->children[0].kind != JSON_OBJECT) return ERR_NONE;
    struct report_section *s = report_section(r, "tuning", "Each side at its best");
    const struct json_value *seeds = json_member(t.root, "seeds", JSON_ARRAY);
    int each = seeds ? seeds->count : 1;
    report_print(
        r, s,
        "Before the comparison each side tried the same %d values, with %d seed%s each (search: %s), as long as %g "
        "whole runs of each side. No run of the comparison has one of these seeds. The best by %s was taken.",
        t.tries->count, each, each == 1 ? "" : "s", json_text(t.root, "search"), json_number(t.root, "runs_each"),
        t.metric->words);
    for (int c = 0; c < t.cells->count && c < REPORT_TEXTS - 2; c++)
        report_print(r, s, "%s.", json_text(&t.cells->children[c], "words"));
    TRY(tuning_plots(r, s, &t));
    return tuning_table(r, s, &t);
}
