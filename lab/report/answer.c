/* The answer: in one sentence for each metric, and every comparison with its interval. */
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

/* ---- numbers ---- */

/* Whether the differences of this quantity are percentage points. */
static bool answer_is_in_points(const struct report_metric *m) {
    return m->difference && m->unit == PLOT_SHARE;
}

static const char *answer_number_bare(struct report *r, const struct report_metric *m, double v) {
    if (!m->difference) return report_say(r, v < 0.1 ? "%.2g" : "%.2f", v);
    if (answer_is_in_points(m)) return report_say(r, "%+.2f", 100 * v);
    if (m->unit != PLOT_PLAIN) return report_say(r, "%s%s", v < 0 ? "-" : "+", report_amount(r, m, fabs(v)));
    return report_say(r, "%+.4g", v);
}

/* "1.90 times", "+0.40 points" */
static const char *estimate_text(struct report *r, const struct report_metric *m, double v) {
    return report_say(r, "%s%s", answer_number_bare(r, m, v),
                      !m->difference           ? " times"
                      : answer_is_in_points(m) ? " points"
                                               : "");
}

static double estimate_turn(const struct report_metric *m, double v) {
    return m->difference ? -v : 1 / v;
}

/* "[1.80, 2.00]", with the estimate's unit left out; "" when there is none. turned: as A against B. */
static const char *interval_text(struct report *r, const struct report_metric *m, const struct report_answer *a,
                                 bool turned) {
    if (!isfinite(a->low) || !isfinite(a->high)) return "";
    return report_say(r, "[%s, %s]", answer_number_bare(r, m, turned ? estimate_turn(m, a->high) : a->low),
                      answer_number_bare(r, m, turned ? estimate_turn(m, a->low) : a->high));
}

/* ---- a sentence ---- */

/* "better by less than 1 pt": the same for all that matters, and yet different. */
static bool answer_is_slight(const struct report_answer *a) {
    return a->won == PLOT_SAME && strchr(a->words, ' ');
}

/* How far from no difference. */
static double answer_size(const struct report_metric *m, const struct report_answer *a) {
    return m->difference ? fabs(a->estimate) : fabs(log(a->estimate));
}

struct answer_tally {                                      /* of one side's comparisons with another */
    int n, same, unsure, untested, first, won[2], most[2]; /* most: the pair that differs most; -1: none */
    int doubtful[2];                                       /* of those that a side has won */
};

static struct answer_tally tally_count(const struct report_data *d, int metric, int a, int b) {
    const struct report_metric *m = &d->metric[metric];
    struct answer_tally t = {.most = {-1, -1}};
    for (int i = d->npairs - 1; i >= 0; i--) {
        const struct report_answer *is = &d->pair[i].answer[metric];
        if (d->cell[d->pair[i].a].side != a || d->cell[d->pair[i].b].side != b) continue;
        t.n++, t.first = i;
        bool unsure = !strcmp(is->verdict, "inconclusive");
        t.same += is->won == PLOT_SAME, t.unsure += unsure, t.untested += is->won == PLOT_UNTOLD && !unsure;
        if (is->won != PLOT_FIRST && is->won != PLOT_SECOND) continue;
        int w = is->won == PLOT_SECOND;
        t.won[w]++, t.doubtful[w] += *is->doubt != '\0';
        if (t.most[w] < 0 || answer_size(m, is) >= answer_size(m, &d->pair[t.most[w]].answer[metric])) t.most[w] = i;
    }
    return t;
}

/* "1.90 times [1.80, 2.00] (8 devices)". */
static const char *answer_how_far(struct report *r, const struct report_data *d, int metric, int pair, bool turned,
                                  bool where) {
    const struct report_metric *m = &d->metric[metric];
    const struct report_answer *a = &d->pair[pair].answer[metric];
    const struct report_cell *b = &d->cell[d->pair[pair].b];
    double v = turned ? estimate_turn(m, a->estimate) : a->estimate;
    const char *interval = interval_text(r, m, a, turned);
    if (!isfinite(v) || (!m->difference && !(v > 0))) return "";
    return report_say(r, "%s%s%s%s", estimate_text(r, m, v), *interval ? " " : "", interval,
                      where ? report_say(r, " (%s)", report_where(r, b)) : "");
}

/* The text, and after it the doubt about a pair's answer. */
static const char *answer_with_doubt(struct report *r, const char *text, const struct report_answer *a) {
    return *a->doubt ? report_join(r, text, ", but ", a->doubt) : text;
}

/* The clause about the side that wins: "ddp is faster than dp in 5 of 7 comparisons, up to 6.42 times [2.95, 8.95] (8 devices)". */
static const char *tally_clause(struct report *r, const struct report_data *d, int metric, const struct answer_tally *t,
                                int w) {
    if (!t->won[w]) return "";
    const struct report_metric *m = &d->metric[metric];
    const struct report_pair *p = &d->pair[t->most[w]];
    const char *far = answer_how_far(r, d, metric, t->most[w], w == 0, t->n > 1);
    const char *a = d->side[d->cell[p->a].side], *b = d->side[d->cell[p->b].side];
    const char *text = report_say(r, "%s %s %s", w ? b : a, m->ahead, w ? a : b);
    if (t->n > 1) text = report_say(r, "%s in %d of %d comparisons", text, t->won[w], t->n);
    far += *far == '+'; /* "by 5 points" */
    if (*far)
        text = report_say(r, "%s%s%s", text,
                          t->n == 1       ? m->difference ? " by " : ": "
                          : m->difference ? ", by up to "
                                          : ", up to ",
                          far);
    text = answer_with_doubt(r, text, &p->answer[metric]);
    int others = t->doubtful[w] - (*p->answer[metric].doubt != '\0');
    return others ? report_say(r, "%s (%d more in doubt)", text, others) : text;
}

/* The answer for the only pair, where neither side wins. */
static const char *answer_no_winner(struct report *r, const struct report_data *d, int metric, int pair) {
    const struct report_answer *a = &d->pair[pair].answer[metric];
    const char *text = answer_how_far(r, d, metric, pair, false, false);
    if (a->won != PLOT_SAME) return text;
    text = answer_is_slight(a) ? report_join(r, text, ", ", a->words)
                               : report_join(r, text, "; ", "there is no difference that matters");
    return answer_with_doubt(r, text, a);
}

static const char *answer_sentence_add(struct report *r, const char *text, const char *more, int n, int of) {
    if (!n) return text;
    return report_join(r, text, "; ", of == 1 ? more : report_say(r, "in %d of %d %s", n, of, more));
}

static const char *answer_of_sides(struct report *r, const struct report_data *d, int metric, int a, int b) {
    struct answer_tally t = tally_count(d, metric, a, b);
    if (!t.n) return "";
    const char *faster = tally_clause(r, d, metric, &t, 1), *slower = tally_clause(r, d, metric, &t, 0);
    bool won = t.won[0] || t.won[1];
    const char *text = report_say(r, "%s%s%s", faster, *faster && *slower ? "; " : "", slower);
    if (!won && t.n == 1) text = answer_no_winner(r, d, metric, t.first);
    text = answer_sentence_add(r, text, "there is no difference that matters", t.n > 1 ? t.same : 0, t.n);
    text = answer_sentence_add(r, text, "more runs would be needed to decide", t.unsure, t.n);
    text = answer_sentence_add(r, text, "nothing was tested", t.untested, t.n);
    return won ? text : report_say(r, "%s against %s: %s", d->side[b], d->side[a], text);
}

/* Older results tell of the first metric alone. tested: and some pair could be tested. */
static bool answer_is_told(const struct report_data *d, int metric, bool tested) {
    for (int i = 0; i < d->npairs; i++) {
        const char *verdict = d->pair[i].answer[metric].verdict;
        if (*verdict && !(tested && !strcmp(verdict, "untested"))) return true;
    }
    return metric == 0;
}

const char *report_sentence(struct report *r, const struct report_data *d, int metric) {
    const char *text = "";
    if (!answer_is_told(d, metric, true)) return "";
    for (int i = 0; i < d->nsides * d->nsides; i++) {
        const char *more = answer_of_sides(r, d, metric, i / d->nsides, i % d->nsides);
        if (*more) text = report_join(r, text, ". ", more);
    }
    return *text ? report_say(r, "%s.", text) : "";
}

/* ---- the tables ---- */

static bool answer_all_against_one(const struct report_data *d) {
    for (int i = 1; i < d->npairs; i++)
        if (d->cell[d->pair[i].a].side != d->cell[d->pair[0].a].side) return false;
    return true;
}

const char *report_versus(struct report *r, const struct report_data *d, const struct report_pair *p) {
    const char *b = d->side[d->cell[p->b].side];
    return answer_all_against_one(d) ? b : report_say(r, "%s against %s", b, d->side[d->cell[p->a].side]);
}

/* "ddp faster", "inconclusive: 12 runs a side would tell". */
static const char *verdict_text_of(struct report *r, const struct report_data *d, const struct report_pair *p,
                                   const struct report_answer *a) {
    const char *word = *a->verdict ? a->verdict : "not tested", *b = d->side[d->cell[p->b].side];
    bool one = *a->words && !strchr(a->words, ' ');
    if (a->won == PLOT_FIRST || a->won == PLOT_SECOND) return report_say(r, "%s %s", b, one ? a->words : word);
    if (a->won == PLOT_SAME && *a->words) return answer_is_slight(a) ? report_say(r, "%s %s", b, a->words) : a->words;
    if (!strcmp(word, "inconclusive") && a->needed > 0)
        return report_say(r, "%s: about %lld runs a side would decide it with a chance of 80 %%", word,
                          (long long)a->needed);
    return word;
}

static const char *answer_value_text(struct report *r, const struct report_data *d, int cell,
                                     const struct report_metric *m, int64_t unreached) {
    const char *v = report_amount(r, m, report_median(d, &d->cell[cell], m));
    if (!unreached) return v;
    if (unreached == d->cell[cell].nruns) return "never";
    return report_say(r, "%s (%lld of %d never)", v, (long long)unreached, d->cell[cell].nruns);
}

enum { COLUMNS = 8 };

/* The columns but the first: the side (where there are several), verdict, both values, how far, how surely. */
static void answer_pair_row(struct report *r, const struct report_data *d, int pair, int metric, const char **row) {
    const struct report_pair *p = &d->pair[pair];
    const struct report_metric *m = &d->metric[metric];
    const struct report_answer *a = &p->answer[metric];
    const char *interval = interval_text(r, m, a, false);
    if (d->nsides > 2) *row++ = report_versus(r, d, p);
    row[0] = verdict_text_of(r, d, p, a);
    row[1] = answer_value_text(r, d, p->a, m, a->unreached[0]);
    row[2] = answer_value_text(r, d, p->b, m, a->unreached[1]);
    row[3] = isfinite(a->estimate) ? estimate_text(r, m, a->estimate) : "-";
    row[4] = *interval ? interval : "-";
    row[5] = isfinite(a->p) ? report_say(r, "%.3g", a->p) : "-";
}

/* Adds the table of all pairs for one metric; if there is one pair, its rows are all metrics. */
static enum error answer_pairs_table(struct report *r, struct report_section *s, const struct report_data *d,
                                     int metric) {
    const bool all = d->npairs == 1, many = d->nsides > 2;
    const struct report_pair *first = &d->pair[0];
    const char *a = answer_all_against_one(d) ? d->side[d->cell[first->a].side] : "the other",
               *b = many ? "the side" : d->side[d->cell[first->b].side];
    const char *const heads[COLUMNS] = {"side",     "verdict", a, b, report_say(r, "%s against %s", b, a),
                                        "interval", "p (Holm)"};
    const char *title =
        all ? report_say(r, "%s against %s, %s", b, a, report_where(r, &d->cell[first->b]))
            : report_say(r, "%s: %s against %s", report_title(r, d->metric[metric].words), many ? "each side" : b, a);
    struct table *t;
    TRY(report_table(r, s, title, COLUMNS - !many, all ? d->nmetrics : d->npairs, NULL, &t));
    table_row(t, 0)[0] = all ? "metric" : "where";
    for (int i = 1; i < t->columns; i++) table_row(t, 0)[i] = heads[many ? i - 1 : i];
    t->words = many ? 3 : 2;
    for (int i = 0; i < t->rows; i++) {
        table_row(t, i + 1)[0] = all ? d->metric[i].words : report_where(r, &d->cell[d->pair[i].b]);
        answer_pair_row(r, d, all ? 0 : i, all ? i : metric, table_row(t, i + 1) + 1);
    }
    return ERR_NONE;
}

/* Describes how the value of a ratio is computed. */
static const char *answer_meaning_of_ratio(const struct report_data *d) {
    bool as[2] = {false, false}; /* groups, pairs */
    for (int i = 0; i < d->npairs; i++)
        for (int m = 0; m < d->nmetrics; m++) {
            const struct report_answer *a = &d->pair[i].answer[m];
            if (!d->metric[m].difference && !isnan(a->estimate)) as[a->paired] = true;
        }
    if (!as[true]) return "median of the ratios of each run of one side to each run of the other";
    return as[false] ? "median of the ratios of the paired runs (or of all runs of both sides, where they are not "
                       "compared in pairs)"
                     : "median of the ratios of the paired runs";
}

static void answer_say_columns(struct report *r, struct report_section *s, const struct report_data *d) {
    bool ratio = false, difference = false, training = false;
    for (int m = 0; m < d->nmetrics; m++) {
        ratio |= !d->metric[m].difference, difference |= d->metric[m].difference;
        training |= d->metric[m].training;
    }
    const struct json_value *tested = json_member(d->root, "tests", JSON_NUMBER);
    const char *tests = tested ? tested->text : "";
    if (ratio)
        report_print(r, s,
                     "For times, the value is above 1 if the side is ahead of the other: the %s, which may differ a "
                     "little from the ratio of the two medians.",
                     answer_meaning_of_ratio(d));
    if (difference) report_paragraph(s, "In points of a percentage: above 0 the side is ahead.");
    report_print(r, s,
                 "The interval (%.0f %%) contains the differences that the test does not reject. p is the chance to "
                 "see such a clear difference if there is none; it is exact, and corrected for all %s%squestions "
                 "together (Holm). The interval is for its own question only, so the two may seem to disagree.%s",
                 d->confidence * 100, tests, *tests ? " " : "",
                 training ? " For losses and accuracy, runs that end in the same weights are copies of one training "
                            "and count as one."
                          : "");
    if (d->seeds > 1)
        report_print(r, s, "The runs of a cell are trainings with %d seeds, the same on all sides.", d->seeds);
}

enum error report_comparisons(struct report *r, struct report_section *s, const struct report_data *d) {
    if (!d->npairs) return ERR_NONE;
    for (int m = 0; m < (d->npairs == 1 ? 1 : d->nmetrics); m++) {
        if (!answer_is_told(d, m, false)) continue;
        TRY(answer_pairs_table(r, s, d, m));
        s->table[s->ntables - 1].fold = m > 0 ? FOLD_SHUT : FOLD_NOT;
    }
    answer_say_columns(r, s, d);
    return ERR_NONE;
}
