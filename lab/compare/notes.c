/* Notes on the verdicts: what is not compared in pairs, how many more runs or seeds would decide, and why an interval
 * and p may seem to disagree. */
#include "lab/compare/compare.h"

#include <math.h>

static void note_add(struct compared *c, const char *text) {
    if (text && c->nnotes < COMPARE_WARNINGS) c->note[c->nnotes++] = text;
}

/* Whether a needs more runs than b to decide its question. Two groups have little power where pairs, of one run more, would have much. */
static bool note_needs_more(const struct compared_answer *a, const struct compared_answer *b) {
    int mine = a->needed ? a->needed : STATISTICS_RUNS + 1, other = b->needed ? b->needed : STATISTICS_RUNS + 1;
    return mine != other ? mine > other : a->power < b->power;
}

/* The pair that needs the most runs, of those that a measure leaves open; -1: none. */
static int note_most_open(const struct compared *c, int measure) {
    int most = -1;
    for (int i = 0; i < c->x->npairs; i++) {
        const struct compared_answer *a = &c->pair[i].answer[measure];
        if (a->verdict != VERDICT_INCONCLUSIVE || isnan(a->power)) continue;
        if (most < 0 || note_needs_more(a, &c->pair[most].answer[measure])) most = i;
    }
    return most;
}

static void note_power(struct compared *c, int measure) {
    const struct experiment *x = c->x;
    const struct measure *m = &x->measure[measure];
    int pair = note_most_open(c, measure);
    if (pair < 0) return;
    const struct compared_answer *a = &c->pair[pair].answer[measure];
    const char *what = x->nseeds ? "seeds" : "runs", *practical = compare_practical(c, m);
    note_add(c, pool_printf(c->pool,
                            "power: %d %s detect a difference of %s in %s ('%s') with a chance of %.0f %%; %s%d %s "
                            "would with %.0f %%",
                            a->samples[0], what, practical, m->name, x->cell[c->pair[pair].cell[1]].label,
                            100 * a->power, a->needed ? "" : "not even ", a->needed ? a->needed : STATISTICS_RUNS, what,
                            100 * COMPARE_CHANCE));
}

/* Intervals are of one question each, p is corrected for all of them. */
static void note_disagreement(struct compared *c) {
    const struct experiment *x = c->x;
    for (int i = 0; i < x->npairs; i++)
        for (int m = 0; m < x->nmeasures; m++) {
            const struct compared_answer *a = &c->pair[i].answer[m];
            double none = x->measure[m].scale == SCALE_RATIO ? 1 : 0;
            bool beside = a->statistics.low > none || a->statistics.high < none;
            if (a->verdict != VERDICT_INCONCLUSIVE || !beside) continue;
            note_add(
                c, pool_printf(c->pool,
                               "%s of '%s': the interval excludes 'no difference', and yet p is %.2g: the interval is "
                               "for this question alone, but p is corrected for all %d questions together",
                               x->measure[m].name, x->cell[c->pair[i].cell[1]].label, a->statistics.p_all,
                               experiment_questions(x)));
            return;
        }
}

/* Notes the pair whose verdict the choice of its tuned values leaves open. */
static void note_choice(struct compared *c) {
    const struct experiment *x = c->x;
    for (int i = 0; i < x->npairs && x->tuned; i++) {
        const struct compared_answer *a = &c->pair[i].answer[0];
        bool significant = compare_is_tested(a) && a->statistics.p_all <= 1 - x->confidence;
        if (a->verdict != VERDICT_INCONCLUSIVE || !significant || !(a->statistics.choice > 0)) continue;
        double more =
            x->measure[0].scale == SCALE_DIFFERENCE ? 100 * a->statistics.choice : 100 * expm1(a->statistics.choice);
        note_add(c,
                 pool_printf(
                     c->pool,
                     "tuning: '%s' and '%s' differ as they were chosen (p is %.2g), but with %d seed%s of each try "
                     "a better one may have been missed, which could change the difference by %.2g %s: more tune.seeds "
                     "would decide",
                     x->cell[c->pair[i].cell[0]].label, x->cell[c->pair[i].cell[1]].label, a->statistics.p_all,
                     x->tune.nseeds, x->tune.nseeds == 1 ? "" : "s", more,
                     x->measure[0].scale == SCALE_DIFFERENCE ? "pt" : "%"));
        return;
    }
}

static void note_goal(struct compared *c, int measure) {
    const struct measure *m = &c->x->measure[measure];
    const char *text = "";
    int reached = 0, runs = 0;
    if (m->kind != MEASURE_TIME_TO) return;
    for (int i = 0; i < c->x->ncells; i++) {
        int mine = 0, n = c->cell[i].nruns;
        for (int k = 0; k < n; k++) mine += isfinite(c->cell[i].value[measure][k]);
        if (mine < n)
            text = pool_say(c->pool, "%s%s'%s' in %d of %d", text, *text ? ", " : "", c->x->cell[i].label, mine, n);
        reached += mine, runs += n;
    }
    if (reached == runs) return;
    note_add(c, reached
                    ? pool_printf(c->pool,
                                  "%s was reached by %s runs, and by all runs of the others; a run that never reached "
                                  "it counts as the longest",
                                  m->name, text)
                    : pool_printf(c->pool, "%s was reached by no run", m->name));
}

/* Adds the note about the validation set's size, for the pair whose error from it is the largest. */
static void note_set(struct compared *c, int measure) {
    const char *words = NULL;
    double worst = 0;
    for (int i = 0; i < c->x->npairs; i++) {
        const char *mine = c->pair[i].answer[measure].of_set;
        double error = c->pair[i].answer[measure].statistics.error;
        if (mine && (!words || error > worst)) words = mine, worst = isfinite(error) ? error : 0;
    }
    note_add(c, words);
}

/* Notes that the engine cannot check what an external command trains. */
static void note_commands(struct compared *c) {
    for (int i = 0; i < c->x->ncells; i++) {
        const struct experiment_cell *cell = &c->x->cell[i];
        if (!settings_of_command(cell->setting, cell->nsettings)) continue;
        note_add(
            c, pool_printf(c->pool,
                           "'%s' is a command of yours: make sure that it trains the same as the others (model, data, "
                           "batch, optimizer, steps), because the engine cannot check this",
                           cell->label));
        return;
    }
}

static void note_groups(struct compared *c) {
    int most = 0;
    for (int i = 0; i < c->x->npairs; i++)
        for (int m = 0; m < c->x->nmeasures; m++) {
            const struct compared_answer *a = &c->pair[i].answer[m];
            if (compare_is_tested(a) && !a->statistics.paired && a->pairs > most) most = a->pairs;
        }
    note_add(c, experiment_too_few(c->x, most));
}

void compare_notes(struct compared *c) {
    c->nnotes = 0;
    note_commands(c);
    note_groups(c);
    for (int m = 0; m < c->x->nmeasures; m++) {
        note_goal(c, m);
        note_power(c, m);
        note_set(c, m);
    }
    note_choice(c);
    note_disagreement(c);
}
