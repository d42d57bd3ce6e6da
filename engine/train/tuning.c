/* Tuning: ddp.bucket and comm.algorithm by the time of the run's own first steps, which train as any others: no choice
 * changes a bit (modes/tries.c). One is chosen after the other, each in the same way:
 *
 *   step     1   2   3   4   5   6   7   8   9  ...
 *   choice   A   B   C   D   A   B   C   D   A  ...    in turn, so that a slow second hits all alike
 *            a round that    ROUNDS that count
 *            does not count
 *
 * After the last round the ranks add up their times, so that all have the same numbers and choose alike. The choice whose
 * median is the least is taken if it is clearly faster than the default (the first): by CLEARLY in the median, and in
 * WINS of the ROUNDS. Else the default stays. A checkpoint has what was chosen, and where: a run that goes on elsewhere
 * (other ranks, devices or links) chooses again. Steps that are traced are not counted, and are not changed either. */
#include "engine/train/run.h"

#include "engine/base/quantile.h"
#include "engine/settings/run_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WARM = 1, ROUNDS = 5, WINS = 4, TEXT = sizeof((struct checkpoint_counters *)0)->tuned };
#define PLACE "place"
static const double CLEARLY = 0.97; /* of the default's time */

struct attempt { /* at one of the keys */
    const char *const *name;
    int n, chosen;
    enum tuned_by by;
    int64_t steps; /* made */
    double *ms;    /* (WARM + ROUNDS, n), of this rank; then the mean of all */
};
struct tuning {
    struct attempt of[TUNABLES];
    int now;    /* which is tried; TUNABLES: none any more */
    bool tries; /* this step does */
    struct pool *pool;
};

/* ---- the choice ---- */

/* Of one of n choices; rounds are odd. */
static double tuning_median(const double *ms, int rounds, int n, int choice) {
    double v[ROUNDS];
    for (int k = 0; k < rounds; k++) v[k] = ms[k * n + choice];
    return quantile_of(v, rounds, 0.5);
}

int tuning_choose(const double *ms, int rounds, int n) {
    int best = 0, wins = 0;
    double standard = tuning_median(ms, rounds, n, 0), least = standard;
    for (int i = 1; i < n; i++) {
        double median = tuning_median(ms, rounds, n, i);
        if (median < least) least = median, best = i;
    }
    for (int k = 0; k < rounds; k++) wins += ms[k * n + best] < ms[k * n];
    return wins >= WINS && least <= CLEARLY * standard ? best : 0;
}

/* ---- opening ---- */

static int64_t attempt_steps(const struct attempt *a) {
    return (int64_t)(WARM + ROUNDS) * a->n;
}

/* What the checkpoint says: "place=2 cpu devices ...\nddp.bucket.cap=1MB\n". */
static bool state_has(const struct trainer *t, const char *key, const char *value) {
    char line[TEXT];
    snprintf(line, sizeof line, "%s=%s\n", key, value);
    const char *at = strstr(t->at.tuned, line);
    return at && (at == t->at.tuned || at[-1] == '\n');
}

static void state_add(struct trainer *t, const char *key, const char *value) {
    size_t used = strlen(t->at.tuned);
    snprintf(t->at.tuned + used, sizeof t->at.tuned - used, "%s=%s\n", key, value);
}

/* What was chosen elsewhere is not kept. Only rank 0 knows what the checkpoint says. */
static void state_settle(struct run *r, const char *place) {
    struct trainer *t = r->t;
    const char *was = t->at.tuned + strlen(PLACE "=");
    if (state_has(t, PLACE, place)) return;
    if (t->rank == 0 && *t->at.tuned)
        progress_say(r->progress, "tuned again: the checkpoint is of %.*s, and this run has %s",
                     (int)strcspn(was, "\n"), was, place);
    *t->at.tuned = '\0';
    state_add(t, PLACE, place);
}

/* Of rank 0, 1 and the number of the choice, for the sum over all ranks; 0: nothing is kept. */
static double attempt_kept(const struct run *r, int what) {
    const struct attempt *a = &r->tuning->of[what];
    for (int i = 0; i < a->n && a->by == TUNED_OPEN && r->t->rank == 0; i++)
        if (state_has(r->t, tunable_keys[what], a->name[i])) return 1 + i;
    return 0;
}

/* Rank 0 says what is going to be tried. */
static void attempt_say(const struct run *r, int what, int64_t first) {
    const struct attempt *a = &r->tuning->of[what];
    int64_t last = first + attempt_steps(a) - 1;
    char names[512] = "";
    for (int i = 0, at = 0; i < a->n && at < (int)sizeof names; i++)
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%s", i ? ", " : "", a->name[i]);
    if (r->t->rank > 0) return;
    progress_say(r->progress, "%s: steps %lld to %lld try %s%s", tunable_keys[what], (long long)first, (long long)last,
                 names, last > r->t->steps ? "; the run ends before that" : "");
}

/* Goes on to the next key of which there is something to try. */
static void tuning_next(struct run *r) {
    struct tuning *g = r->tuning;
    while (++g->now < TUNABLES && g->of[g->now].by != TUNED_OPEN) continue;
    if (g->now < TUNABLES) attempt_say(r, g->now, r->t->at.step + 1);
}

static enum error attempt_open(struct run *r, int what, const struct trials *of) {
    struct attempt *a = &r->tuning->of[what];
    *a = (struct attempt){.name = of->name[what], .n = of->count[what], .by = TUNED_OPEN};
    if (!r->t->config->sharing.tunes[what]) a->by = TUNED_BY_NOTHING;
    if (a->by && a->n == 1) a->by = TUNED_ALONE;
    a->ms = pool_alloc(r->tuning->pool, (size_t)attempt_steps(a) * sizeof *a->ms);
    return a->ms ? ERR_NONE : ERR_MEMORY;
}

static void attempt_keep(struct run *r, int what, int choice) {
    struct attempt *a = &r->tuning->of[what];
    a->by = TUNED_KEPT, a->chosen = choice;
    r->step->take(r->t->mode, (enum tunable)what, choice);
    if (r->t->rank == 0)
        progress_say(r->progress, "%s: %s, as this run has chosen before", tunable_keys[what], a->name[choice]);
}

static enum error tuning_prepare(struct run *r) {
    struct trainer *t = r->t;
    struct trials of;
    double kept[TUNABLES];
    r->step->trials(t->mode, &of);
    state_settle(r, of.place);
    for (int i = 0; i < TUNABLES; i++) {
        TRY(attempt_open(r, i, &of));
        kept[i] = attempt_kept(r, i);
    }
    TRY(r->step->sum(t->mode, kept, TUNABLES));
    for (int i = 0; i < TUNABLES; i++)
        if (kept[i] > 0) attempt_keep(r, i, (int)kept[i] - 1);
    r->tuning->now = -1;
    tuning_next(r);
    return ERR_NONE;
}

enum error tuning_open(struct run *r) {
    struct pool *pool;
    const bool *tunes = r->t->config->sharing.tunes;
    if (!tunes[TUNABLE_BUCKET] && !tunes[TUNABLE_ALGORITHM]) return ERR_NONE;
    TRY(pool_create(&pool));
    if (!(r->tuning = pool_alloc(pool, sizeof *r->tuning))) {
        pool_free(pool);
        return ERR_MEMORY;
    }
    r->tuning->pool = pool;
    return tuning_prepare(r);
}

void tuning_close(struct tuning *t) {
    if (t) pool_free(t->pool);
}

/* ---- steps ---- */

void tuning_step_begin(struct run *r) {
    struct tuning *g = r->tuning;
    if (!g || g->now == TUNABLES) return;
    const struct attempt *a = &g->of[g->now];
    g->tries = !tracing_has(r->t, r->t->at.step + 1);
    r->step->take(r->t->mode, (enum tunable)g->now, g->tries ? (int)(a->steps % a->n) : 0);
}

static void attempt_say_choice(const struct run *r, int what) {
    const struct attempt *a = &r->tuning->of[what];
    const double *ms = a->ms + WARM * a->n;
    double standard = tuning_median(ms, ROUNDS, a->n, 0), chosen = tuning_median(ms, ROUNDS, a->n, a->chosen);
    if (r->t->rank > 0) return;
    if (a->chosen)
        progress_say(r->progress, "%s: %s, %.2f ms a step; %s, the default, took %.2f", tunable_keys[what],
                     a->name[a->chosen], chosen, a->name[0], standard);
    else
        progress_say(r->progress, "%s: %s, the default, %.2f ms a step: nothing is clearly faster", tunable_keys[what],
                     a->name[0], standard);
}

static enum error attempt_end(struct run *r, int what) {
    struct trainer *t = r->t;
    struct attempt *a = &r->tuning->of[what];
    int n = (int)attempt_steps(a);
    struct pause pause;
    TRY(run_pause(r, &pause));
    TRY(r->step->sum(t->mode, a->ms, n));
    TRY(run_pass_over(r, &pause, &(int64_t){0}));
    for (int i = 0; i < n; i++) a->ms[i] /= t->standing.ranks;
    a->chosen = tuning_choose(a->ms + WARM * a->n, ROUNDS, a->n);
    a->by = TUNED_MEASURED;
    r->step->take(t->mode, (enum tunable)what, a->chosen);
    state_add(t, tunable_keys[what], a->name[a->chosen]);
    attempt_say_choice(r, what);
    return ERR_NONE;
}

enum error tuning_step_end(struct run *r, int64_t ns) {
    struct tuning *g = r->tuning;
    if (!g || g->now == TUNABLES || !g->tries) return ERR_NONE;
    struct attempt *a = &g->of[g->now];
    a->ms[a->steps++] = (double)ns * 1e-6;
    if (a->steps < attempt_steps(a)) return ERR_NONE;
    TRY(attempt_end(r, g->now));
    tuning_next(r);
    return ERR_NONE;
}

/* ---- the end ---- */

enum error tuning_tell(const struct run *r, struct summary *s) {
    for (int i = 0; r->tuning && i < TUNABLES; i++) {
        const struct attempt *a = &r->tuning->of[i];
        double *ms = NULL;
        if (a->by == TUNED_MEASURED && !(ms = pool_alloc(r->tuning->pool, (size_t)a->n * sizeof *ms)))
            return ERR_MEMORY;
        for (int k = 0; ms && k < a->n; k++) ms[k] = tuning_median(a->ms + WARM * a->n, ROUNDS, a->n, k);
        s->tuned[i] = (struct tuned_told){a->by, a->name, ms, a->n, a->chosen, a->steps};
    }
    return ERR_NONE;
}
