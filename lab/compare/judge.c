/* From the runs of an experiment to medians, verdicts and gates. */
#include "lab/compare/compare.h"

#include <math.h>
#include <string.h>

enum error compare_begin(const struct experiment *x, const char *folder, struct compared *out) {
    *out = (struct compared){.x = x, .pool = x->pool, .folder = folder, .repeats = x->repeats};
    out->cell = pool_alloc(x->pool, sizeof *out->cell * (size_t)x->ncells);
    out->pair = pool_alloc(x->pool, sizeof *out->pair * (size_t)(x->npairs + 1));
    out->gate = pool_alloc(x->pool, sizeof *out->gate * (size_t)(x->ngates + 1));
    if (!out->cell || !out->pair || !out->gate) return ERR_MEMORY;
    for (int i = 0; i < x->ncells; i++) {
        TRY_MEMORY(out->cell[i].run = pool_alloc(x->pool, sizeof *out->cell->run * (size_t)x->most));
    }
    for (int i = 0; i < x->npairs; i++) {
        memcpy(out->pair[i].cell, x->pair[i].cell, sizeof x->pair->cell);
        TRY_MEMORY(out->pair[i].answer = pool_alloc(x->pool, sizeof *out->pair->answer * (size_t)x->nmeasures));
    }
    return ERR_NONE;
}

/* ---- cells ---- */

static double judge_spread_of(const double *v, int n, double median) {
    double copy[STATISTICS_RUNS];
    if (n < 2 || !(median > 0)) return (double)NAN;
    for (int i = 0; i < n; i++) {
        if (!isfinite(v[i])) return (double)NAN;
        copy[i] = v[i];
    }
    return (quantile_of(copy, n, 0.75) - quantile_of(copy, n, 0.25)) / median;
}

static bool judge_same_training(const struct run_result *a, const struct run_result *b) {
    const char *one = run_result_training(a), *two = run_result_training(b);
    return one && two && !strcmp(one, two);
}

/* A command may report neither weights nor losses. Then runs with seeds of their own are trainings of their own, unless
 * all of them have the same validations: such a command takes no notice of its seed. */
static bool judge_may_be_copies(const struct experiment *x, const struct compared_cell *cell) {
    bool unknown = false, same = true;
    for (int i = 0; i < cell->nruns; i++) {
        unknown |= !run_result_training(&cell->run[i].result);
        same &= run_result_same_vals(&cell->run[0].result, &cell->run[i].result);
    }
    return unknown && (same || !x->nseeds);
}

/* Runs that end in the same weights are one training. So are those that train for a time with one seed: they end at
 * different steps of it. */
static void judge_find_trainings(const struct experiment *x, int at, struct compared_cell *cell) {
    bool one = !x->nseeds && x->cell[at].settings.config.train.length.unit == SPAN_SECONDS;
    one |= judge_may_be_copies(x, cell);
    cell->ntrainings = 0;
    for (int i = 0; i < cell->nruns; i++) {
        int first = one ? 0 : i;
        for (int k = 0; k < first; k++)
            if (judge_same_training(&cell->run[k].result, &cell->run[i].result)) first = k;
        cell->training[i] = first == i ? cell->ntrainings++ : cell->training[first];
    }
}

/* The runs' values, or one of each training: the median of its copies. Gives how many. */
static int judge_samples(const struct compared_cell *cell, const double *v, bool trainings,
                         double out[STATISTICS_RUNS]) {
    if (!trainings) {
        memcpy(out, v, (size_t)cell->nruns * sizeof *v);
        return cell->nruns;
    }
    for (int t = 0; t < cell->ntrainings; t++) {
        double copies[STATISTICS_RUNS];
        int n = 0;
        for (int i = 0; i < cell->nruns; i++)
            if (cell->training[i] == t) copies[n++] = v[i];
        out[t] = statistics_median_of(copies, n);
    }
    return cell->ntrainings;
}

static void judge_measure_runs(const struct compared *c, const struct compared_cell *cell, const struct measure *m,
                               double out[STATISTICS_RUNS]) {
    for (int i = 0; i < cell->nruns; i++) out[i] = measure_of(m, &cell->run[i].result, c->x->warmup);
}

double compare_median(const struct compared *c, int cell, const struct measure *m) {
    double v[STATISTICS_RUNS], samples[STATISTICS_RUNS];
    judge_measure_runs(c, &c->cell[cell], m, v);
    int n = judge_samples(&c->cell[cell], v, m->about == ABOUT_TRAINING, samples);
    return statistics_median_of(samples, n);
}

static void judge_measure_cell(const struct compared *c, struct compared_cell *cell) {
    const struct measure *first = &c->x->measure[0];
    double v[STATISTICS_RUNS];
    judge_find_trainings(c->x, (int)(cell - c->cell), cell);
    for (int m = 0; m < c->x->nmeasures; m++) judge_measure_runs(c, cell, &c->x->measure[m], cell->value[m]);
    for (int m = 0; m < c->x->nmeasures; m++)
        cell->median[m] = compare_median(c, (int)(cell - c->cell), &c->x->measure[m]);
    int n = judge_samples(cell, cell->value[0], first->about == ABOUT_TRAINING, v);
    cell->spread = judge_spread_of(v, n, cell->median[0]);
    cell->speedup = cell->efficiency = (double)NAN;
}

static int judge_devices_of(const struct experiment *x, int cell) {
    return x->cell[cell].settings.config.devices.count;
}

/* Whether cell i is what 'cell' is on other devices. One device sends nothing, so it stands for all links, and, with 'any', for all ways to share. */
static bool judge_stands_for(const struct experiment *x, int axis, int i, int cell, bool any) {
    bool alone = judge_devices_of(x, i) == 1, same = true;
    for (int a = 0; a < x->naxes; a++) {
        const char *key = x->axis[a].key;
        bool free = !strncmp(key, "comm.", 5) || (any && a == 0 && setting_shares(key));
        same &= a == axis || x->cell[i].at[a] == x->cell[cell].at[a] || (alone && free);
    }
    return same;
}

/* The cell of which a cell's speed is a multiple: the one on the fewest devices at the same place, or another side's one device if its own side has none; the cell itself if it is that one. */
static int judge_least_devices(const struct experiment *x, int axis, int cell) {
    int least = cell;
    for (int any = 0; any < 2 && judge_devices_of(x, least) > 1; any++)
        for (int i = 0; i < x->ncells; i++)
            if (judge_stands_for(x, axis, i, cell, any) && judge_devices_of(x, i) < judge_devices_of(x, least))
                least = i;
    return least;
}

double compare_step_ms(const struct compared *c, int cell) {
    double v[STATISTICS_RUNS];
    const struct compared_cell *runs = &c->cell[cell];
    int64_t n;
    for (int i = 0; i < runs->nruns; i++) v[i] = run_result_step_ms(&runs->run[i].result, c->x->warmup, &n);
    return statistics_median_of(v, runs->nruns);
}

static void judge_scale_cells(struct compared *c) {
    const struct experiment *x = c->x;
    int axis = -1;
    for (int a = 0; a < x->naxes; a++)
        if (!strcmp(x->axis[a].key, "devices") && x->axis[a].count > 1) axis = a;
    for (int i = 0; i < x->ncells && axis >= 0; i++) {
        int from = judge_least_devices(x, axis, i);
        double more = (double)judge_devices_of(x, i) / judge_devices_of(x, from);
        double ratio = compare_step_ms(c, from) / compare_step_ms(c, i);
        c->cell[i].speedup = x->weak ? ratio * more : ratio;
        c->cell[i].efficiency = x->weak ? ratio : ratio / more;
    }
}

/* ---- verdicts ---- */

static bool judge_one_training(const struct compared *c, const struct compared_pair *p) {
    const struct compared_cell *a = &c->cell[p->cell[0]], *b = &c->cell[p->cell[1]];
    return (p->held && p->same_weights) ||
           (a->ntrainings == 1 && b->ntrainings == 1 && judge_same_training(&a->run[0].result, &b->run[0].result));
}

/* Whether a sample of the measure is a training, not a run. What a run takes until it reaches a target depends on what
 * it learns, and so is the machine's alone between equal trainings. */
static bool judge_counts_trainings(const struct compared *c, const struct compared_pair *p, const struct measure *m) {
    const struct train_config *one = &c->x->cell[p->cell[0]].settings.config.train,
                              *two = &c->x->cell[p->cell[1]].settings.config.train;
    bool until = one->until_metric || two->until_metric || one->patience_metric || two->patience_metric;
    bool both = m->about == ABOUT_BOTH || (until && (m->kind == MEASURE_TIME || m->kind == MEASURE_BYTES));
    return m->about == ABOUT_TRAINING || (both && !judge_one_training(c, p));
}

static bool judge_values_usable(const struct measure *m, const double *v, int n) {
    for (int i = 0; i < n; i++)
        if (isnan(v[i]) || (v[i] < 0 && m->scale == SCALE_RATIO)) return false;
    return n > 0;
}

int compare_together(const struct compared *c, const struct compared_pair *p, int run[STATISTICS_RUNS][2]) {
    const struct compared_cell *a = &c->cell[p->cell[0]], *b = &c->cell[p->cell[1]];
    int n = 0;
    for (int i = 0, k = 0; i < a->nruns && k < b->nruns;) {
        int mine = a->run[i].repeat, other = b->run[k].repeat;
        if (mine == other) run[n][0] = i, run[n++][1] = k;
        i += mine <= other, k += other <= mine;
    }
    return n;
}

/* The values of the repeats that both sides have, in their order; gives how many. */
static int judge_values_in_pairs(const struct compared *c, const struct compared_pair *p, int m,
                                 double out[2][STATISTICS_RUNS]) {
    int run[STATISTICS_RUNS][2], n = compare_together(c, p, run);
    for (int i = 0; i < n; i++)
        for (int side = 0; side < 2; side++) out[side][i] = c->cell[p->cell[side]].value[m][run[i][side]];
    return n;
}

/* The samples of both sides; gives whether they are compared in pairs, by their repeat or seed, which a few are too few
 * for. What is asked decides that, not what comes to be tested: no value has a say in how it is tested. */
static bool judge_take_samples(const struct compared *c, const struct compared_pair *p, int m,
                               struct compared_answer *a, double v[2][STATISTICS_RUNS]) {
    const struct compared_cell *cell[] = {&c->cell[p->cell[0]], &c->cell[p->cell[1]]};
    const enum scale scale = c->x->measure[m].scale;
    bool trainings = judge_counts_trainings(c, p, &c->x->measure[m]);
    if (trainings && c->x->nseeds)
        trainings = cell[0]->ntrainings < cell[0]->nruns || cell[1]->ntrainings < cell[1]->nruns;
    int n = a->pairs = a->samples[0] = a->samples[1] = trainings ? 0 : judge_values_in_pairs(c, p, m, v);
    bool paired = statistics_can_tell(n, true, experiment_questions(c->x), c->x->confidence);
    a->noise.pairs = statistics_spread(v[0], n, v[1], n, scale, true);
    for (int side = 0; side < 2 && !paired; side++)
        a->samples[side] = judge_samples(cell[side], cell[side]->value[m], trainings, v[side]);
    a->noise.groups = statistics_spread(v[0], a->samples[0], v[1], a->samples[1], scale, false);
    return paired;
}

/* Turns values of which more is better into values of which less is better: their inverse, or their negative. */
static void judge_measure_turn(const struct measure *m, double *v, int n) {
    for (int i = 0; i < n && m->more_is_better; i++) v[i] = m->scale == SCALE_RATIO ? 1 / v[i] : -v[i];
}

static void judge_answer_one(struct compared *c, struct compared_pair *p, int m) {
    double v[2][STATISTICS_RUNS];
    const struct measure *of = &c->x->measure[m];
    struct compared_answer *a = &p->answer[m];
    const double none = (double)NAN;
    *a = (struct compared_answer){.power = none, .apart = none, .statistics.error = none, .verdict = VERDICT_UNTESTED};
    bool paired = judge_take_samples(c, p, m, a, v), reached = false;
    a->judged = judge_values_usable(of, v[0], a->samples[0]) && judge_values_usable(of, v[1], a->samples[1]);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < a->samples[side]; i++) {
            a->unreached[side] += isinf(v[side][i]);
            reached |= isfinite(v[side][i]);
        }
    a->judged &= reached;
    if (!a->judged) return;
    a->equal = of->about == ABOUT_TRAINING && p->held && p->same_weights;
    for (int side = 0; side < 2; side++) {
        double middle = statistics_median_of(v[side], a->samples[side]);
        if (of->about != ABOUT_TRAINING) a->apart = fmax(a->apart, judge_spread_of(v[side], a->samples[side], middle));
        judge_measure_turn(of, v[side], a->samples[side]);
    }
    a->statistics = statistics_compare(v[0], a->samples[0], v[1], a->samples[1], of->scale, paired, c->x->confidence);
    if (!a->equal) return;
    a->statistics.estimate = a->statistics.low = a->statistics.high = of->scale == SCALE_RATIO ? 1 : 0;
    a->verdict = VERDICT_SAME;
}

bool compare_is_tested(const struct compared_answer *a) {
    return a->judged && !a->equal && a->samples[0] >= EXPERIMENT_LEAST_RUNS && a->samples[1] >= EXPERIMENT_LEAST_RUNS;
}

/* Foretells how much more samples would help. */
static void judge_answer_foretell(const struct compared *c, const struct measure *m, struct compared_answer *a) {
    const struct questions q = {experiment_questions(c->x), c->x->confidence};
    double shift = statistics_shift(m->scale, m->practical);
    int n = a->samples[0] < a->samples[1] ? a->samples[0] : a->samples[1];
    bool paired = a->statistics.paired;
    a->power = statistics_power(shift, paired ? a->noise.pairs : a->noise.groups, n, paired, q.asked, q.confidence);
    a->needed = statistics_needed(shift, &a->noise, COMPARE_CHANCE, &q);
}

/* All questions that were asked are corrected together. One that could not be tested counts with p = 1: otherwise a
 * verdict would depend on which of the others have no answer. */
static enum error judge_all(struct compared *c) {
    const struct experiment *x = c->x;
    const int questions = experiment_questions(x);
    double *p = pool_alloc(c->pool, sizeof *p * (size_t)(questions + 1));
    if (!p) return ERR_MEMORY;
    for (int k = 0; k < questions; k++) {
        struct compared_pair *pair = &c->pair[k / x->nmeasures];
        const struct compared_answer *a = &pair->answer[k % x->nmeasures];
        judge_answer_one(c, pair, k % x->nmeasures);
        compare_set(c, pair, k % x->nmeasures);
        if (k % x->nmeasures == 0) compare_choice(c, pair);
        p[k] = compare_is_tested(a) ? a->statistics.p : 1;
    }
    if (questions) statistics_holm(p, questions);
    for (int i = 0; i < x->npairs; i++)
        for (int m = 0; m < x->nmeasures; m++) {
            struct compared_answer *a = &c->pair[i].answer[m];
            if (!compare_is_tested(a)) continue;
            a->statistics.p_all = p[i * x->nmeasures + m];
            a->verdict = statistics_verdict(&a->statistics, x->confidence, x->measure[m].practical);
            judge_answer_foretell(c, &x->measure[m], a);
        }
    return ERR_NONE;
}

int compare_wanted_repeats(const struct compared *c) {
    int wanted = c->repeats;
    for (int i = 0; i < c->x->npairs; i++) {
        const struct compared_answer *a = &c->pair[i].answer[0];
        int n = a->needed ? a->needed : STATISTICS_RUNS;
        if (compare_is_tested(a) && n > wanted) wanted = n;
    }
    return wanted < c->x->most ? wanted : c->x->most;
}

enum error compare_judge(struct compared *c) {
    c->complete = true;
    for (int i = 0; i < c->x->ncells; i++) {
        judge_measure_cell(c, &c->cell[i]);
        c->complete &= c->cell[i].nruns == c->repeats;
    }
    judge_scale_cells(c);
    TRY(compare_all_bits(c));
    TRY(judge_all(c));
    compare_doubts(c);
    compare_notes(c);
    for (int i = 0; i < c->x->ngates; i++) gate_judge(c, i, &c->gate[i]);
    return ERR_NONE;
}

enum error compare_gates(const struct compared *c) {
    for (int i = 0; i < c->x->ngates; i++)
        if (!c->gate[i].passed || !c->gate[i].judged) return FAIL(ERR_RESULT, "gate failed: %s", c->gate[i].words);
    return ERR_NONE;
}
