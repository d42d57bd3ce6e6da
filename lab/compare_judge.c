/* From the runs of an experiment to medians, verdicts, equal bits, doubts and gates. */
#include "lab/compare.h"

#include "engine/device/device.h"
#include "lab/gate.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum error compare_begin(const struct experiment *x, const char *folder, struct compared *out) {
    *out = (struct compared){.x = x, .pool = x->pool, .folder = folder};
    out->cell = pool_alloc(x->pool, sizeof *out->cell * (size_t)x->ncells);
    out->pair = pool_alloc(x->pool, sizeof *out->pair * (size_t)(x->npairs + 1));
    out->gate = pool_alloc(x->pool, sizeof *out->gate * (size_t)(x->ngates + 1));
    if (!out->cell || !out->pair || !out->gate) return ERR_MEMORY;
    for (int i = 0; i < x->ncells; i++) {
        out->cell[i].run = pool_alloc(x->pool, sizeof *out->cell->run * (size_t)x->repeats);
        if (!out->cell[i].run) return ERR_MEMORY;
    }
    for (int i = 0; i < x->npairs; i++) memcpy(out->pair[i].cell, x->pair[i].cell, sizeof x->pair->cell);
    return ERR_NONE;
}

__attribute__((format(printf, 2, 3))) static void warn(struct compared *c, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *kept = pool_printf(c->pool, "%s", text);
    if (kept && c->nwarnings < COMPARE_WARNINGS) c->warning[c->nwarnings++] = kept;
}

/* ---- cells ---- */

static double spread_of(const double *v, int n, double median) {
    double copy[STATISTICS_RUNS];
    if (n < 2 || !(median > 0)) return (double)NAN;
    for (int i = 0; i < n; i++) copy[i] = v[i];
    return (statistics_quantile(copy, n, 0.75) - statistics_quantile(copy, n, 0.25)) / median;
}

static void find_trainings(struct compared_cell *cell) {
    cell->ntrainings = 0;
    for (int i = 0; i < cell->nruns; i++) {
        int first = 0;
        while (strcmp(cell->run[first].result.weights, cell->run[i].result.weights) != 0) first++;
        cell->training[i] = first == i ? cell->ntrainings++ : cell->training[first];
    }
}

/* The runs' values, or one of each training: the median of its copies. Gives how many. */
static int samples_of(const struct compared_cell *cell, const double *v, bool trainings, double out[STATISTICS_RUNS]) {
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

static void measure_runs(const struct compared *c, const struct compared_cell *cell, const struct measure *m,
                         double out[STATISTICS_RUNS]) {
    for (int i = 0; i < cell->nruns; i++) out[i] = measure_of(m, &cell->run[i].result, c->x->warmup);
}

double compare_median(const struct compared *c, int cell, const struct measure *m) {
    double v[STATISTICS_RUNS], samples[STATISTICS_RUNS];
    measure_runs(c, &c->cell[cell], m, v);
    int n = samples_of(&c->cell[cell], v, m->about == ABOUT_TRAINING, samples);
    return statistics_median_of(samples, n);
}

static void measure_cell(const struct compared *c, struct compared_cell *cell) {
    const struct measure *first = &c->x->measure[0];
    double v[STATISTICS_RUNS];
    find_trainings(cell);
    for (int m = 0; m < c->x->nmeasures; m++) measure_runs(c, cell, &c->x->measure[m], cell->value[m]);
    for (int m = 0; m < c->x->nmeasures; m++)
        cell->median[m] = compare_median(c, (int)(cell - c->cell), &c->x->measure[m]);
    int n = samples_of(cell, cell->value[0], first->about == ABOUT_TRAINING, v);
    cell->spread = spread_of(v, n, cell->median[0]);
    cell->speedup = cell->efficiency = (double)NAN;
}

static int devices_of(const struct experiment *x, int cell) {
    return x->cell[cell].settings.config.devices.count;
}

/* One device sends nothing, so it stands for all links, and of 'any' side for all ways to share. */
static bool stands_for(const struct experiment *x, int axis, int i, int cell, bool any) {
    bool alone = devices_of(x, i) == 1, same = true;
    for (int a = 0; a < x->naxes; a++) {
        const char *key = x->axis[a].key;
        bool free = !strncmp(key, "comm.", 5) || (any && a == 0 && setting_shares(key));
        same &= a == axis || x->cell[i].at[a] == x->cell[cell].at[a] || (alone && free);
    }
    return same;
}

/* What a cell's speed is a multiple of: the fewest devices at the same place otherwise, or another side's one device
 * where its own side has none; itself when it is that. */
static int least_devices(const struct experiment *x, int axis, int cell) {
    int least = cell;
    for (int any = 0; any < 2 && devices_of(x, least) > 1; any++)
        for (int i = 0; i < x->ncells; i++)
            if (stands_for(x, axis, i, cell, any) && devices_of(x, i) < devices_of(x, least)) least = i;
    return least;
}

double compare_step_ms(const struct compared *c, int cell) {
    double v[STATISTICS_RUNS];
    const struct compared_cell *runs = &c->cell[cell];
    int64_t n;
    for (int i = 0; i < runs->nruns; i++) v[i] = run_result_step_ms(&runs->run[i].result, c->x->warmup, &n);
    return statistics_median_of(v, runs->nruns);
}

static void scale_cells(struct compared *c) {
    const struct experiment *x = c->x;
    int axis = -1;
    for (int a = 0; a < x->naxes; a++)
        if (!strcmp(x->axis[a].key, "devices") && x->axis[a].count > 1) axis = a;
    for (int i = 0; i < x->ncells && axis >= 0; i++) {
        int from = least_devices(x, axis, i);
        double more = (double)devices_of(x, i) / devices_of(x, from);
        double ratio = compare_step_ms(c, from) / compare_step_ms(c, i);
        c->cell[i].speedup = x->weak ? ratio * more : ratio;
        c->cell[i].efficiency = x->weak ? ratio : ratio / more;
    }
}

/* ---- the same bits ---- */

/* The first step whose loss is not equal, of those that both have. */
static void find_step(const struct run_result *a, const struct run_result *b, struct compared_pair *p) {
    int64_t i = 0, k = 0;
    while (i < a->nsteps && k < b->nsteps) {
        const struct result_step *s = &a->step[i], *t = &b->step[k];
        if (s->step < t->step) {
            i++;
        } else if (t->step < s->step) {
            k++;
        } else if (s->loss != t->loss && !(isnan(s->loss) && isnan(t->loss))) {
            p->step = s->step, p->loss[0] = s->loss, p->loss[1] = t->loss;
            return;
        } else {
            i++, k++;
        }
    }
}

static void warn_of_losses(struct compared *c, int cell, const struct run_result *first, const struct run_result *r) {
    warn(c, "%s: two runs of this one configuration do not have the same losses (%s, %s)", c->x->cell[cell].label,
         first->dir, r->dir);
}

/* All runs of both sides are held against A's first. */
static void compare_runs(struct compared *c, struct compared_pair *p) {
    const struct run_result *first = &c->cell[p->cell[0]].run[0].result;
    p->same_losses = p->same_weights = true;
    p->step = 0, p->tensor = NULL;
    for (int side = 0; side < 2; side++) {
        const struct compared_cell *cell = &c->cell[p->cell[side]];
        for (int i = 0; i < cell->nruns; i++) {
            const struct run_result *r = &cell->run[i].result;
            bool losses = !strcmp(first->losses, r->losses), weights = !strcmp(first->weights, r->weights);
            if (!p->tensor && !(losses && weights)) p->tensor = compare_tensors(first->dir, r->dir, c->pool);
            if (p->same_losses && !losses) {
                find_step(first, r, p);
                if (side == 0) warn_of_losses(c, p->cell[0], first, r);
            }
            p->same_losses &= losses, p->same_weights &= weights;
        }
    }
}

static enum error list_differences(struct compared *c, struct compared_pair *p) {
    const struct experiment_cell *a = &c->x->cell[p->cell[0]], *b = &c->x->cell[p->cell[1]];
    p->differs = pool_alloc(c->pool, COMPARE_DIFFERENCES * sizeof *p->differs);
    if (!p->differs) return ERR_MEMORY;
    p->ndiffers = settings_differ(a, b, NULL, p->differs, COMPARE_DIFFERENCES);
    p->comparable = true;
    for (int i = 0; i < p->ndiffers; i++) p->comparable &= !p->differs[i].computes;
    return ERR_NONE;
}

static bool computes_the_same(const struct experiment_cell *a, const struct experiment_cell *b) {
    struct setting_difference d[COMPARE_DIFFERENCES];
    int n = settings_differ(a, b, NULL, d, COMPARE_DIFFERENCES);
    for (int i = 0; i < n; i++)
        if (d[i].computes) return false;
    return true;
}

static void compare_all_bits(struct compared *c) {
    const struct run_result *first = NULL;
    c->alike = c->same_bits = true;
    for (int i = 0; i < c->x->ncells; i++) {
        c->alike &= computes_the_same(&c->x->cell[0], &c->x->cell[i]);
        for (int k = 0; k < c->cell[i].nruns; k++) {
            const struct run_result *mine = &c->cell[i].run[k].result;
            if (!first) first = mine;
            c->same_bits &= !strcmp(first->losses, mine->losses) && !strcmp(first->weights, mine->weights);
        }
    }
    c->same_bits &= c->alike && first;
}

/* ---- verdicts ---- */

static bool usable(const double *v, int n) {
    for (int i = 0; i < n; i++)
        if (!isfinite(v[i]) || v[i] <= 0) return false;
    return n > 0;
}

static bool one_training(const struct compared *c, const struct compared_pair *p) {
    const struct compared_cell *a = &c->cell[p->cell[0]], *b = &c->cell[p->cell[1]];
    return a->ntrainings == 1 && b->ntrainings == 1 && !strcmp(a->run[0].result.weights, b->run[0].result.weights);
}

/* Whether a sample of the first measure is a training, not a run. What a run takes until it reaches
 * a target depends on what it learns, and so is the machine's alone between equal trainings. */
static bool counts_trainings(const struct compared *c, const struct compared_pair *p) {
    const struct measure *m = &c->x->measure[0];
    bool until = c->x->cell[p->cell[0]].settings.config.train.until_metric ||
                 c->x->cell[p->cell[1]].settings.config.train.until_metric;
    bool both = m->about == ABOUT_BOTH || (until && (m->kind == MEASURE_TIME || m->kind == MEASURE_BYTES));
    return m->about == ABOUT_TRAINING || (both && !one_training(c, p));
}

/* Where more is better, the inverse is what takes less. */
static void judge_pair(struct compared *c, struct compared_pair *p) {
    double v[2][STATISTICS_RUNS];
    bool trainings = counts_trainings(c, p), more = c->x->measure[0].more_is_better;
    for (int side = 0; side < 2; side++) {
        const struct compared_cell *cell = &c->cell[p->cell[side]];
        p->samples[side] = samples_of(cell, cell->value[0], trainings, v[side]);
        for (int i = 0; i < p->samples[side] && more; i++) v[side][i] = 1 / v[side][i];
    }
    p->judged = usable(v[0], p->samples[0]) && usable(v[1], p->samples[1]);
    if (p->judged)
        p->statistics = statistics_compare(v[0], p->samples[0], v[1], p->samples[1], c->x->confidence, c->x->seed);
}

bool compare_has_interval(const struct compared_pair *p) {
    return p->judged && p->samples[0] > 1 && p->samples[1] > 1;
}

static bool is_tested(const struct compared_pair *p) {
    return p->judged && p->samples[0] >= EXPERIMENT_LEAST_RUNS && p->samples[1] >= EXPERIMENT_LEAST_RUNS;
}

static void judge_all(struct compared *c) {
    double p[EXPERIMENT_CELLS];
    int n = 0, at = 0;
    for (int i = 0; i < c->x->npairs; i++) {
        judge_pair(c, &c->pair[i]);
        if (is_tested(&c->pair[i])) p[n++] = c->pair[i].statistics.p;
    }
    if (n) statistics_holm(p, n);
    for (int i = 0; i < c->x->npairs; i++) {
        struct compared_pair *pair = &c->pair[i];
        pair->verdict = VERDICT_UNTESTED;
        if (!is_tested(pair)) continue;
        pair->statistics.p_all = p[at++];
        pair->verdict = statistics_verdict(&pair->statistics, c->x->confidence, c->x->practical);
    }
}

/* ---- doubts ---- */

static void doubt_spread(struct compared *c) {
    const double much = 0.05;
    int wide = 0, worst = 0;
    for (int i = 0; i < c->x->ncells; i++) {
        if (!(c->cell[i].spread > much)) continue;
        if (!wide++ || c->cell[i].spread > c->cell[worst].spread) worst = i;
    }
    if (wide)
        warn(c,
             "noise: in %d of %d cells half of the runs lie more than %.0f %% apart, most in '%s' "
             "(%.0f %%): more repeats or a quieter machine would tell more",
             wide, c->x->ncells, much * 100, c->x->cell[worst].label, c->cell[worst].spread * 100);
}

static void doubt_cores(struct compared *c) {
    int cores = device_host_cores(), worst = -1, most = cores;
    for (int i = 0; i < c->x->ncells; i++) {
        const struct run_config *r = &c->x->cell[i].settings.config;
        int threads = r->devices.count * (int)r->threads;
        if (threads > most) most = threads, worst = i;
    }
    if (worst >= 0)
        warn(c,
             "oversubscribed: '%s' runs %d threads on %d cores, so devices wait for each other's "
             "computing; only communication that is emulated keeps its time",
             c->x->cell[worst].label, most, cores);
}

static void doubt_machine(struct compared *c) {
    double foreign[EXPERIMENT_CELLS], load = 0;
    const struct result_environment *first = NULL;
    int n = 0;
    bool moved = false;
    for (int i = 0; i < c->x->ncells; i++)
        for (int k = 0; k < c->cell[i].nruns; k++) {
            const struct compared_run *r = &c->cell[i].run[k];
            const struct result_environment *here = &r->result.environment;
            if (k == 0 && isfinite(r->foreign)) foreign[n++] = r->foreign;
            if (!first || (*here->time && strcmp(here->time, first->time) < 0)) first = here, load = here->load;
            moved |= strcmp(here->host, first->host) || strcmp(here->engine, first->engine);
        }
    double others = n ? statistics_median(foreign, n) : 0;
    int cores = device_host_cores();
    if (others > 0.1)
        warn(c, "noise: other programs kept %.1f of %d cores busy while runs were measured", others, cores);
    if (load > cores / 2.0)
        warn(c, "noise: the load average was %.1f on %d cores when the first run began", load, cores);
    if (moved) warn(c, "the runs come from more than one machine or version of the engine");
    if (first && *first->governor && strcmp(first->governor, "performance") != 0)
        warn(c, "the processor's clock is governed by '%s', so that it changes meanwhile", first->governor);
}

enum error compare_judge(struct compared *c) {
    c->nwarnings = 0;
    c->complete = true;
    for (int i = 0; i < c->x->ncells; i++) {
        measure_cell(c, &c->cell[i]);
        c->complete &= c->cell[i].nruns == c->x->repeats;
    }
    scale_cells(c);
    judge_all(c);
    for (int i = 0; i < c->x->npairs; i++) {
        struct compared_pair *p = &c->pair[i];
        TRY(list_differences(c, p));
        p->held = p->comparable && c->cell[p->cell[0]].nruns > 0 && c->cell[p->cell[1]].nruns > 0;
        if (p->held) compare_runs(c, p);
    }
    compare_all_bits(c);
    doubt_spread(c);
    doubt_cores(c);
    doubt_machine(c);
    for (int i = 0; i < c->x->ngates; i++) gate_judge(c, i, &c->gate[i]);
    return ERR_NONE;
}

enum error compare_gates(const struct compared *c) {
    for (int i = 0; i < c->x->ngates; i++)
        if (!c->gate[i].passed || !c->gate[i].judged) return FAIL(ERR_RESULT, "gate failed: %s", c->gate[i].words);
    return ERR_NONE;
}
