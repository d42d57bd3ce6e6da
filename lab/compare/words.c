/* The results of a comparison in words for people. */
#include "lab/compare/compare.h"

#include "engine/base/text.h"

#include <math.h>
#include <string.h>

/* ---- words ---- */

static const char *verdict_word(const struct measure *m, enum verdict v) {
    bool better = v == VERDICT_FASTER;
    if (v != VERDICT_FASTER && v != VERDICT_SLOWER) return verdict_text(v);
    bool hidden = m->kind == MEASURE_PHASE && m->part == RESULT_COMM_HIDDEN; /* which is neither good nor bad */
    if (m->kind == MEASURE_BYTES || m->kind == MEASURE_MEMORY || hidden) return better ? "less" : "more";
    bool judged = m->kind == MEASURE_COMPUTING || (m->kind >= MEASURE_TRAIN_LOSS && m->kind <= MEASURE_VAL);
    if (judged) return better ? "better" : "worse";
    return verdict_text(v);
}

const char *compare_word(const struct compared *c, const struct compared_pair *p, int measure) {
    return verdict_word(&c->x->measure[measure], p->answer[measure].verdict);
}

bool compare_is_slight(const struct compared *c, const struct compared_answer *a) {
    return a->verdict == VERDICT_SAME && !a->equal && statistics_differs(&a->statistics, c->x->confidence);
}

const char *compare_practical(const struct compared *c, const struct measure *m) {
    return pool_say(c->pool, m->scale == SCALE_DIFFERENCE ? "%g pt" : "%g %%", 100 * m->practical);
}

const char *compare_verdict(const struct compared *c, const struct compared_pair *p, int measure) {
    const struct measure *m = &c->x->measure[measure];
    const struct compared_answer *a = &p->answer[measure];
    bool better = a->statistics.estimate > (m->scale == SCALE_RATIO ? 1 : 0);
    if (!compare_is_slight(c, a)) return compare_word(c, p, measure);
    return pool_say(c->pool, "%s by less than %s", verdict_word(m, better ? VERDICT_FASTER : VERDICT_SLOWER),
                    compare_practical(c, m));
}

const char *compare_doubt(const struct compared *c, const struct compared_pair *p, int measure) {
    const double much = 0.5;
    const struct compared_answer *a = &p->answer[measure];
    bool accuracy = measure_is_accuracy(&c->x->measure[measure]);
    bool told = a->verdict == VERDICT_FASTER || a->verdict == VERDICT_SLOWER;
    if (told && a->apart > much)
        return pool_say(c->pool, "half of the runs of a side lie %.0f %% apart", 100 * a->apart);
    if (told && a->statistics.error > 0 && !statistics_differs(&a->statistics, c->x->confidence))
        return pool_say(c->pool, "on these validation samples alone: others would change it by about ±%.2f pt",
                        196 * a->statistics.error);
    bool unknown = accuracy && (told || a->verdict == VERDICT_SAME) && !a->equal && !a->of_set;
    return unknown ? "the error of the validation set is not known" : "";
}

/* 1.033, +0.4: of a share in points. */
static const char *verdict_effect_number(enum scale scale, double v, char out[32]) {
    if (scale == SCALE_DIFFERENCE)
        snprintf(out, 32, isfinite(v) ? "%+.2f" : "%+.0f", 100 * v);
    else
        snprintf(out, 32, isfinite(v) ? "%.3f" : "∞", v);
    return out;
}

const char *compare_effect(const struct compared *c, const struct compared_pair *p, int measure) {
    const struct compared_answer *a = &p->answer[measure];
    const struct comparison *s = &a->statistics;
    const char *unit = s->scale == SCALE_DIFFERENCE ? " pt" : "×";
    char value[32], low[32], high[32];
    if (!a->judged) return "-";
    verdict_effect_number(s->scale, s->estimate, value);
    if (isnan(s->low) || a->equal) return pool_say(c->pool, "%s%s", value, unit);
    return pool_say(c->pool, "%s%s [%s, %s]", value, unit, verdict_effect_number(s->scale, s->low, low),
                    verdict_effect_number(s->scale, s->high, high));
}

const char *compare_bits(const struct compared *c, const struct compared_pair *p) {
    if (!p->held) return "-";
    if (p->same_losses && p->same_weights) return "yes";
    const char *tensor = p->tensor ? pool_say(c->pool, ", first tensor %s", p->tensor) : "";
    const char *end = p->same_weights ? ", but the same weights at the end" : tensor;
    const char *losses = c->cell[p->cell[0]].run[0].result.losses;
    return p->same_losses ? pool_say(c->pool, "no: the same losses, but other weights%s", tensor)
           : !*losses     ? pool_say(c->pool, "no: other weights%s", tensor)
           : p->step
               ? pool_say(c->pool, "no: step %lld, %.9g beside %.9g%s", (long long)p->step, p->loss[0], p->loss[1], end)
               : pool_say(c->pool, "no, but in all steps that both sides have%s", end);
}

/* ---- why there is no verdict ---- */

/* The pair without a verdict whose runs are copies (or are not), or that has no numbers; -1: none. */
static int verdict_pair_untested(const struct compared *c, bool judged, bool copies) {
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
    if (!run_result_training(&c->cell[p->cell[side]].run[0].result))
        return pool_say(c->pool,
                        "no verdict on %s: the command of '%s' reports neither losses nor weights, so its %d run%s "
                        "may be copies of one training; %s",
                        x->measure[0].name, x->cell[p->cell[side]].label, runs, runs == 1 ? "" : "s",
                        x->nseeds ? "all of them have the same validations: take the seed from ENGINE_SEED"
                                  : "repeats: {seeds: 8} gives each run a different seed (ENGINE_SEED)");
    return pool_say(c->pool,
                    "no verdict on %s: runs that end in the same weights are copies of one training and count "
                    "as one (here %d run%s as %d), too few to separate a difference from the chance of a seed; "
                    "repeats: {seeds: 8} trains each side with eight seeds",
                    x->measure[0].name, runs, runs == 1 ? "" : "s", n);
}

const char *compare_untested(const struct compared *c) {
    const struct experiment *x = c->x;
    int copies = verdict_pair_untested(c, true, true), few = verdict_pair_untested(c, true, false);
    if (copies >= 0) return words_of_copies(c, &c->pair[copies]);
    if (few >= 0)
        return pool_say(c->pool, "%d run%s a side: fewer than %d allow no verdict (%s)", c->repeats,
                        c->repeats == 1 ? "" : "s", EXPERIMENT_LEAST_RUNS,
                        !*c->folder                          ? "engine compare EXPERIMENT or --modes runs them"
                        : x->nseeds > c->repeats             ? "without --quick all seeds are run"
                        : c->repeats < EXPERIMENT_LEAST_RUNS ? "--repeats auto makes enough of them"
                                                             : "some are missing");
    if (verdict_pair_untested(c, false, false) < 0) return "";
    return pool_say(c->pool, "no verdict on %s, because runs are missing or lack this number", x->measure[0].name);
}

/* Whether the pair compares these two sides. */
static bool pair_is_of(const struct compared *c, const struct compared_pair *p, int first, int side) {
    return c->x->cell[p->cell[0]].at[0] == first && c->x->cell[p->cell[1]].at[0] == side;
}

/* "faster (1.033× [1.012, 1.054])": of the only pair that they have. */
static const char *verdict_with_effect(const struct compared *c, const struct compared_pair *p) {
    const char *verdict = compare_verdict(c, p, 0), *effect = compare_effect(c, p, 0), *doubt = compare_doubt(c, p, 0);
    if (!strcmp(effect, "-")) return verdict;
    return pool_say(c->pool, "%s (%s)%s%s", verdict, effect, *doubt ? ", but " : "", doubt);
}

/* The place of a pair's verdict in the sentence. */
static int verdict_place(const struct compared *c, const struct compared_answer *a) {
    static const int places[] = {[VERDICT_FASTER] = 0,
                                 [VERDICT_SLOWER] = 1,
                                 [VERDICT_INCONCLUSIVE] = 2,
                                 [VERDICT_SAME] = 5,
                                 [VERDICT_UNTESTED] = 6};
    bool worse = a->statistics.estimate < (a->statistics.scale == SCALE_RATIO ? 1 : 0);
    return compare_is_slight(c, a) ? 3 + worse : places[a->verdict];
}

static const char *sentence_of(const struct compared *c, int first, int side) {
    enum { PLACES = 7 };
    int total = 0, doubtful = 0;
    const char *text = "", *doubt = "";
    for (int i = 0; i < c->x->npairs; i++) total += pair_is_of(c, &c->pair[i], first, side);
    for (int place = 0; place < PLACES; place++) {
        const char *verdict = "";
        int count = 0;
        for (int i = 0; i < c->x->npairs; i++) {
            const struct compared_pair *p = &c->pair[i];
            if (!pair_is_of(c, p, first, side) || verdict_place(c, &p->answer[0]) != place) continue;
            if (total == 1) return verdict_with_effect(c, p);
            const char *mine = compare_doubt(c, p, 0);
            verdict = compare_verdict(c, p, 0);
            count++;
            if (*mine && doubtful++ == 0) doubt = mine;
        }
        if (count) text = pool_say(c->pool, "%s%s%s in %d", text, *text ? ", " : "", verdict, count);
    }
    if (!*text) return "not measured";
    return doubtful ? pool_say(c->pool, "%s of %d, %d of them in doubt: %s", text, total, doubtful, doubt)
                    : pool_say(c->pool, "%s of %d", text, total);
}

const char *compare_sentence(const struct compared *c) {
    const char *text = "";
    const struct experiment_axis *axis = &c->x->axis[0];
    for (int first = 0; first < (c->x->all_pairs ? axis->count : 1); first++)
        for (int side = first + 1; side < axis->count; side++)
            text = pool_say(c->pool, "%s%s%s against %s, %s: %s", text, *text ? "; " : "", axis->label[side],
                            axis->label[first], c->x->measure[0].name, sentence_of(c, first, side));
    return text;
}

/* ---- the model ---- */

/* "comm.compress and ddp.sync are not simulated; ...": each reason of the cells that nothing predicts, once. */
static const char *verdict_model_silence(const struct compared *c) {
    static const char end[] = " is not simulated";
    const char *keys = "", *others = "", *last = NULL;
    for (int i = 0; i < c->x->ncells; i++) {
        const struct compared_prediction *p = &c->cell[i].predicted;
        bool key = p->why && text_ends(p->why, end);
        const char *why = key ? pool_strndup(c->pool, p->why, strlen(p->why) + 1 - sizeof end) : p->why;
        if (!why || p->from == i || strstr(others, why) || strstr(keys, why) || (last && !strcmp(last, why))) continue;
        if (!key) others = pool_say(c->pool, "%s%s%s", others, *others ? "; " : "", why);
        if (key && last) keys = pool_say(c->pool, "%s%s%s", keys, *keys ? ", " : "", last);
        if (key) last = why;
    }
    if (!last) return others;
    return pool_say(c->pool, "%s%s%s %s not simulated%s%s", keys, *keys ? " and " : "", last, *keys ? "are" : "is",
                    *others ? "; " : "", others);
}

static const char *verdict_model_accuracy(const struct compared *c) {
    const struct compared_model *m = &c->model;
    int from = 0;
    while (c->cell[from].predicted.why) from++;
    const char *source = c->x->cell[c->cell[from].predicted.from].label;
    const char *of =
        m->sources == 1 ? pool_say(c->pool, "the step of '%s' alone", source) : "the cells of the fewest devices";
    return pool_say(c->pool,
                    "%d step time%s predicted from %s: off by %.1f %% in the median, %.1f %% too "
                    "%s at worst ('%s')",
                    m->cells, m->cells == 1 ? "" : "s", of, 100 * m->median, 100 * fabs(m->worst),
                    m->worst < 0 ? "short" : "long", c->x->cell[m->worst_cell].label);
}

const char *compare_model(const struct compared *c) {
    const struct compared_model *m = &c->model;
    if (!c->predicted || (!m->cells && !m->silent)) return "";
    if (!m->cells) return pool_say(c->pool, "no step time is predicted: %s", verdict_model_silence(c));
    const char *text = isfinite(m->median) ? verdict_model_accuracy(c) : "the predicted cells have not run yet";
    if (!m->silent) return text;
    return pool_say(c->pool, "%s; not predicted: %d (%s)", text, m->silent, verdict_model_silence(c));
}
