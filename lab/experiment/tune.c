#include "lab/experiment/tune.h"

#include "engine/base/rng.h"
#include "engine/base/text.h"

#include <math.h>
#include <string.h>

const char *const tune_searches[] = {"grid", "random", "halving"};

/* ---- what is tried ---- */

static int tune_ranges(const struct tune *t) {
    int n = 0;
    for (int k = 0; k < t->nkeys; k++) n += t->key[k].range;
    return n;
}

/* The tries of a grid with that many points of each range; more than TUNE_TRIES count as one more. */
static int tune_grid_size(const struct tune *t, int points) {
    int n = 1;
    for (int k = 0; k < t->nkeys && n <= TUNE_TRIES; k++) n *= t->key[k].range ? points : t->key[k].count;
    return n <= TUNE_TRIES ? n : TUNE_TRIES + 1;
}

static bool tune_affords(const struct tune *t, int tries) {
    return tries <= TUNE_TRIES && (!t->budget || tune_cost(t, tries) <= t->budget);
}

int tune_points(const struct tune *t) {
    int points = tune_ranges(t) ? TUNE_TRIES : 2;
    while (points >= 2 && !tune_affords(t, tune_grid_size(t, points))) points--;
    return points >= 2 ? points : 0;
}

/* A number as short as it is told: three digits, or whole. */
static const char *tune_text(const struct tune_key *k, double v, struct pool *pool) {
    return k->whole ? pool_printf(pool, "%.0f", v) : pool_printf(pool, "%.3g", v);
}

/* The value at a share of the range's way. */
static const char *tune_at(const struct tune_key *k, double share, struct pool *pool) {
    double v = k->log ? k->low * pow(k->high / k->low, share) : k->low + (k->high - k->low) * share;
    return tune_text(k, v, pool);
}

static enum error tune_grid(const struct tune *t, struct pool *pool, struct tune_try *out, int *n) {
    int points = tune_points(t);
    *n = points ? tune_grid_size(t, points) : 0;
    for (int i = 0; i < *n; i++)
        for (int k = t->nkeys - 1, rest = i; k >= 0; k--) { /* the last key is the fastest */
            const struct tune_key *key = &t->key[k];
            int count = key->range ? points : key->count, at = rest % count;
            out[i].value[k] = key->range ? tune_at(key, (double)at / (count - 1), pool) : key->value[at];
            if (!out[i].value[k]) return ERR_MEMORY;
            rest /= count;
        }
    return ERR_NONE;
}

static enum error tune_draw(const struct tune *t, uint64_t seed, struct pool *pool, struct tune_try *out, int *n) {
    enum { DRAWN = 64 * TUNE_TRIES }; /* a few lists have few different tries */
    struct rng_key random = rng_key(seed, RNG_TUNE);
    int most = TUNE_TRIES;
    while (most > 0 && !tune_affords(t, most)) most--;
    *n = 0;
    for (uint64_t i = 0; i < DRAWN && *n < most; i++) {
        bool seen = false;
        for (int k = 0; k < t->nkeys; k++) {
            const struct tune_key *key = &t->key[k];
            double share = rng_float(random, i, (uint64_t)k);
            out[*n].value[k] = key->range ? tune_at(key, share, pool) : key->value[(int)(share * key->count)];
            if (!out[*n].value[k]) return ERR_MEMORY;
        }
        for (int k = 0; k < *n; k++) seen |= tune_same(t, &out[k], &out[*n]);
        *n += !seen;
    }
    return ERR_NONE;
}

enum error tune_first(const struct tune *t, uint64_t seed, struct pool *pool, struct tune_try *out, int *n) {
    struct tune_try room[TUNE_TRIES + 1];
    int made;
    TRY(t->search == TUNE_RANDOM ? tune_draw(t, seed, pool, room, &made) : tune_grid(t, pool, room, &made));
    *n = 0;
    for (int i = 0; i < made; i++) { /* a narrow range of whole numbers has each of them once */
        bool seen = false;
        for (int k = 0; k < *n; k++) seen |= tune_same(t, &out[k], &room[i]);
        if (!seen) out[(*n)++] = room[i];
    }
    return ERR_NONE;
}

bool tune_same(const struct tune *t, const struct tune_try *a, const struct tune_try *b) {
    for (int k = 0; k < t->nkeys; k++)
        if (strcmp(a->value[k], b->value[k]) != 0) return false;
    return true;
}

/* The lowest (end -1) or highest number that was tried of a key, and the one before it; false: a value is no number, or
 * there is only one. */
static bool tune_last(const struct tune_try *tries, int n, int key, int end, double *last, double *before) {
    double v;
    *last = *before = (double)NAN;
    for (int i = 0; i < n; i++) {
        if (!text_real(tries[i].value[key], &v)) return false;
        if (isnan(*last) || (v - *last) * end > 0) *last = v;
    }
    for (int i = 0; i < n; i++)
        if (text_real(tries[i].value[key], &v) && v != *last && (isnan(*before) || (v - *before) * end > 0))
            *before = v;
    return !isnan(*before);
}

int tune_edge(const struct tune_try *tries, int n, int of, int key) {
    double mine, last, before;
    for (int end = -1; end <= 1; end += 2)
        if (tune_last(tries, n, key, end, &last, &before) && text_real(tries[of].value[key], &mine) && mine == last)
            return end;
    return 0;
}

/* Positive values go on by the factor of the last two, unless their range is one of differences. */
enum error tune_beyond(const struct tune *t, const struct tune_try *tries, int n, int of, int key, int end,
                       struct pool *pool, struct tune_try *out) {
    const struct tune_key *k = &t->key[key];
    double last, before;
    *out = tries[of];
    if (!tune_last(tries, n, key, end, &last, &before)) return ERR_NONE;
    bool factors = k->range ? k->log : last > 0 && before > 0;
    out->value[key] = tune_text(k, factors ? last * (last / before) : last + (last - before), pool);
    return out->value[key] ? ERR_NONE : ERR_MEMORY;
}

/* ---- its parts ---- */

int tune_parts(enum tune_search search, int tries, struct tune_part out[TUNE_PARTS]) {
    int halvings = 0;
    while (search == TUNE_HALVING && halvings < TUNE_PARTS - 1 && tries >> (halvings + 1)) halvings++;
    for (int i = 0; i <= halvings; i++) {
        out[i] = (struct tune_part){ldexp(1, i - halvings), tries};
        tries = (tries + 1) / 2;
    }
    return halvings + 1;
}

double tune_cost(const struct tune *t, int tries) {
    struct tune_part part[TUNE_PARTS];
    int n = tune_parts((enum tune_search)t->search, tries, part);
    double runs = 0;
    for (int i = 0; i < n; i++) runs += part[i].tries * (part[i].until - (i ? part[i - 1].until : 0));
    return runs * t->nseeds;
}

int tune_best(const double *cost, const bool *in, int n) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (in[i] && isfinite(cost[i]) && (best < 0 || cost[i] < cost[best])) best = i;
    return best;
}

void tune_keep(const double *cost, bool *in, int n, int keep) {
    bool left[TUNE_TRIES] = {false}, stays[TUNE_TRIES] = {false};
    memcpy(left, in, (size_t)n * sizeof *in);
    for (int best; keep > 0 && (best = tune_best(cost, left, n)) >= 0; keep--) stays[best] = true, left[best] = false;
    memcpy(in, stays, (size_t)n * sizeof *in);
}
