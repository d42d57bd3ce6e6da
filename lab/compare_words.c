/* The results of a comparison in words for people. */
#include "lab/compare.h"

#include "engine/base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

const char *compare_verdict(const struct compared *c, const struct compared_pair *p, int measure) {
    const struct measure *m = &c->x->measure[measure];
    enum verdict v = p->answer[measure].verdict;
    bool better = v == VERDICT_FASTER;
    if (v != VERDICT_FASTER && v != VERDICT_SLOWER) return verdict_text(v);
    bool hidden = m->kind == MEASURE_PHASE && m->part == RESULT_COMM_HIDDEN; /* which is neither good nor bad */
    if (m->kind == MEASURE_BYTES || m->kind == MEASURE_MEMORY || hidden) return better ? "less" : "more";
    if (m->kind >= MEASURE_TRAIN_LOSS && m->kind <= MEASURE_VAL) return better ? "better" : "worse";
    return verdict_text(v);
}

/* 1.033, +0.4: of a share in points. */
static const char *effect_number(enum scale scale, double v, char out[32]) {
    if (scale == SCALE_DIFFERENCE)
        snprintf(out, 32, isfinite(v) ? "%+.2f" : "%+.0f", 100 * v);
    else
        snprintf(out, 32, isfinite(v) ? "%.3f" : "∞", v);
    return out;
}

const char *compare_effect(const struct compared *c, const struct compared_pair *p, int measure) {
    const struct compared_answer *a = &p->answer[measure];
    const struct comparison *s = &a->statistics;
    const char *unit = s->scale == SCALE_DIFFERENCE ? " pt" : "×", *text;
    char value[32], low[32], high[32];
    if (!a->judged) return "-";
    effect_number(s->scale, s->estimate, value);
    if (isnan(s->low) || a->equal)
        text = pool_printf(c->pool, "%s%s", value, unit);
    else
        text = pool_printf(c->pool, "%s%s [%s, %s]", value, unit, effect_number(s->scale, s->low, low),
                           effect_number(s->scale, s->high, high));
    return text ? text : "";
}

const char *compare_bits(const struct compared *c, const struct compared_pair *p) {
    if (!p->held) return "-";
    if (p->same_losses && p->same_weights) return "yes";
    const char *tensor = p->tensor ? pool_printf(c->pool, ", first tensor %s", p->tensor) : "";
    const char *end = p->same_weights ? ", but the same weights at the end" : tensor;
    const char *words = p->same_losses ? pool_printf(c->pool, "no: the same losses, but other weights%s", tensor)
                        : p->step      ? pool_printf(c->pool, "no: step %lld, %.9g beside %.9g%s", (long long)p->step,
                                                     p->loss[0], p->loss[1], end)
                                       : pool_printf(c->pool, "no, but in all steps that both sides have%s", end);
    return words ? words : "no";
}

/* ---- why there is no verdict ---- */

/* The pair without a verdict whose runs are copies (or are not), or that has no numbers; -1: none. */
static int untested(const struct compared *c, bool judged, bool copies) {
    for (int i = 0; i < c->x->npairs; i++) {
        const struct compared_pair *p = &c->pair[i];
        const struct compared_answer *a = &p->answer[0];
        bool fewer = a->samples[0] < c->cell[p->cell[0]].nruns || a->samples[1] < c->cell[p->cell[1]].nruns;
        if (a->verdict == VERDICT_UNTESTED && a->judged == judged && (!judged || fewer == copies)) return i;
    }
    return -1;
}

static const char *words_of_copies(const struct compared *c, const struct compared_pair *p) {
    const struct experiment *x = c->x;
    const int *samples = p->answer[0].samples;
    int side = samples[1] < samples[0], n = samples[side], runs = c->cell[p->cell[side]].nruns;
    return pool_printf(c->pool,
                       "no verdict on %s: runs that end in the same weights are copies of one training and count "
                       "as one (here %d run%s as %d), too few to separate a difference from the chance of a seed; "
                       "repeats: {seeds: 8} trains each side with eight seeds",
                       x->measure[0].name, runs, runs == 1 ? "" : "s", n);
}

const char *compare_untested(const struct compared *c) {
    const struct experiment *x = c->x;
    int copies = untested(c, true, true), few = untested(c, true, false);
    const char *text = "";
    if (copies >= 0)
        text = words_of_copies(c, &c->pair[copies]);
    else if (few >= 0)
        text = pool_printf(c->pool, "%d run%s a side: fewer than %d allow no verdict (%s)", c->repeats,
                           c->repeats == 1 ? "" : "s", EXPERIMENT_LEAST_RUNS,
                           !*c->folder                          ? "engine compare EXPERIMENT or --modes runs them"
                           : x->nseeds > c->repeats             ? "without --quick all seeds are run"
                           : c->repeats < EXPERIMENT_LEAST_RUNS ? "--repeats auto makes enough of them"
                                                                : "some are missing");
    else if (untested(c, false, false) >= 0)
        text =
            pool_printf(c->pool, "no verdict on %s, because runs are missing or lack this number", x->measure[0].name);
    return text ? text : "";
}

/* Of one side against another. */
static bool is_of(const struct compared *c, const struct compared_pair *p, int first, int side) {
    return c->x->cell[p->cell[0]].at[0] == first && c->x->cell[p->cell[1]].at[0] == side;
}

/* "faster (1.033× [1.012, 1.054])": of the only pair that they have. */
static const char *with_effect(const struct compared *c, int first, int side, const char *verdict) {
    int i = 0;
    while (!is_of(c, &c->pair[i], first, side)) i++;
    const char *effect = compare_effect(c, &c->pair[i], 0);
    return strcmp(effect, "-") != 0 ? pool_printf(c->pool, "%s (%s)", verdict, effect) : verdict;
}

static const char *sentence_of(const struct compared *c, int first, int side) {
    static const char *const order[] = {"faster", "less",         "better", "slower",  "more",
                                        "worse",  "inconclusive", "same",   "untested"};
    const struct experiment *x = c->x;
    int total = 0;
    const char *text = "";
    for (int i = 0; i < x->npairs; i++) total += is_of(c, &c->pair[i], first, side);
    for (size_t w = 0; w < sizeof order / sizeof *order && text; w++) {
        int count = 0;
        for (int i = 0; i < x->npairs; i++)
            count += is_of(c, &c->pair[i], first, side) && !strcmp(compare_verdict(c, &c->pair[i], 0), order[w]);
        if (count && total == 1) return with_effect(c, first, side, order[w]);
        if (count) text = pool_printf(c->pool, "%s%s%s in %d", text, *text ? ", " : "", order[w], count);
    }
    return text && *text ? pool_printf(c->pool, "%s of %d", text, total) : "not measured";
}

const char *compare_sentence(const struct compared *c) {
    const char *text = "";
    const struct experiment_axis *axis = &c->x->axis[0];
    for (int first = 0; first < (c->x->all_pairs ? axis->count : 1); first++)
        for (int side = first + 1; side < axis->count && text; side++)
            text = pool_printf(c->pool, "%s%s%s against %s, %s: %s", text, *text ? "; " : "", axis->label[side],
                               axis->label[first], c->x->measure[0].name, sentence_of(c, first, side));
    return text ? text : "";
}

/* ---- the model ---- */

/* The reasons of the cells that nothing predicts: of one of them, where they are several. */
static const char *silence(const struct compared *c) {
    const char *why = NULL;
    bool several = false;
    for (int i = 0; i < c->x->ncells; i++) {
        const struct compared_prediction *p = &c->cell[i].predicted;
        if (!p->why || p->from == i) continue;
        several |= why && strcmp(why, p->why) != 0;
        if (!why) why = p->why;
    }
    return why ? pool_printf(c->pool, "%s%s", why, several ? ", and such" : "") : "";
}

static const char *accuracy(const struct compared *c) {
    const struct compared_model *m = &c->model;
    int from = 0;
    while (c->cell[from].predicted.why) from++;
    const char *source = c->x->cell[c->cell[from].predicted.from].label;
    const char *of =
        m->sources == 1 ? pool_printf(c->pool, "the step of '%s' alone", source) : "the cells of the fewest devices";
    return pool_printf(c->pool,
                       "%d step time%s predicted from %s: off by %.1f %% in the median, %.1f %% too "
                       "%s at worst ('%s')",
                       m->cells, m->cells == 1 ? "" : "s", of ? of : "", 100 * m->median, 100 * fabs(m->worst),
                       m->worst < 0 ? "short" : "long", c->x->cell[m->worst_cell].label);
}

const char *compare_model(const struct compared *c) {
    const struct compared_model *m = &c->model;
    if (!c->predicted || (!m->cells && !m->silent)) return "";
    if (!m->cells) {
        const char *none = pool_printf(c->pool, "no step time is predicted: %s", silence(c));
        return none ? none : "";
    }
    const char *text = isfinite(m->median) ? accuracy(c) : "the predicted cells have not run yet";
    if (text && m->silent) text = pool_printf(c->pool, "%s; not predicted: %d (%s)", text, m->silent, silence(c));
    return text ? text : "";
}
