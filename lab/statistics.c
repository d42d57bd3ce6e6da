#include "lab/statistics.h"

#include "engine/base/quantile.h"
#include "engine/base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 10000 };

double statistics_quantile(double *v, int n, double q) {
    return quantile_of(v, n, q);
}

double statistics_median(double *v, int n) {
    return statistics_quantile(v, n, 0.5);
}

double statistics_median_of(const double *v, int n) {
    double copy[STATISTICS_RUNS];
    assert(n <= STATISTICS_RUNS);
    for (int i = 0; i < n; i++) {
        if (!isfinite(v[i])) return (double)NAN;
        copy[i] = v[i];
    }
    return n > 0 ? statistics_median(copy, n) : (double)NAN;
}

/* ---- Mann and Whitney ----------------------------------------------------------------------- */

/* Twice the rank of each value among all, so that shared ranks are whole. */
static void double_ranks(const double *all, int count, int *rank) {
    for (int i = 0; i < count; i++) {
        int less = 0, equal = 0;
        for (int k = 0; k < count; k++) less += all[k] < all[i], equal += all[k] == all[i];
        rank[i] = 2 * less + equal + 1;
    }
}

/* ways[k][s]: how many choices of k of the values have doubled ranks that add up to s. Values are taken in one by
 * one, as coins are. */
static double *count_ways(const int *rank, int count, int n, int most) {
    double *ways = calloc((size_t)(n + 1) * (size_t)(most + 1), sizeof *ways);
    if (!ways) return NULL;
    ways[0] = 1;
    for (int i = 0; i < count; i++)
        for (int k = (i < n ? i + 1 : n); k > 0; k--)
            for (int s = most; s >= rank[i]; s--) ways[k * (most + 1) + s] += ways[(k - 1) * (most + 1) + s - rank[i]];
    return ways;
}

double statistics_mann_whitney(const double *a, int n, const double *b, int m) {
    double all[2 * STATISTICS_RUNS], as_far = 0, total = 0;
    int rank[2 * STATISTICS_RUNS], count = n + m, mine = 0, most = 0;
    assert(n > 0 && m > 0 && n <= STATISTICS_RUNS && m <= STATISTICS_RUNS);
    memcpy(all, a, (size_t)n * sizeof *a);
    memcpy(all + n, b, (size_t)m * sizeof *b);
    double_ranks(all, count, rank);
    for (int i = 0; i < n; i++) mine += rank[i];
    for (int i = 0; i < count; i++) most += rank[i];
    double *ways = count_ways(rank, count, n, most);
    if (!ways) return 1; /* no memory: nothing is claimed */
    double middle = (double)n * (count + 1), distance = fabs(mine - middle);
    for (int s = 0; s <= most; s++) {
        double here = ways[n * (most + 1) + s];
        total += here;
        if (fabs(s - middle) >= distance) as_far += here;
    }
    free(ways);
    return as_far / total;
}

/* ---- several tests together ----------------------------------------------------------------- */

void statistics_holm(double *p, int n) {
    double before = 0;
    bool *done = calloc((size_t)n, sizeof *done);
    for (int left = n; left > 0; left--) {
        int least = -1;
        for (int i = 0; i < n; i++)
            if (done && !done[i] && (least < 0 || p[i] < p[least])) least = i;
        if (least < 0) break;
        done[least] = true;
        before = fmax(before, fmin(1, p[least] * left));
        p[least] = before;
    }
    free(done);
}

int statistics_least_runs(int pairs, double confidence) {
    double choices = 1; /* of n among 2 n */
    for (int n = 1; n <= STATISTICS_RUNS; n++) {
        choices *= (2.0 * n) * (2.0 * n - 1) / ((double)n * n);
        if (pairs * 2 / choices <= (1 - confidence) * (1 + 1e-12)) return n;
    }
    return 0;
}

/* ---- the ratio ------------------------------------------------------------------------------ */

static double drawn_median(const double *v, int n, struct rng_key key, uint64_t draw) {
    double some[STATISTICS_RUNS];
    for (int i = 0; i < n; i++) some[i] = v[rng_below(key, draw, (uint64_t)i, (uint64_t)n)];
    return statistics_median(some, n);
}

struct interval statistics_ratio(const double *a, int n, const double *b, int m, double confidence, uint64_t seed) {
    struct rng_key keys[2] = {rng_key(seed, RNG_BOOTSTRAP), rng_key(seed + 1, RNG_BOOTSTRAP)};
    double *ratios = malloc(DRAWS * sizeof *ratios);
    if (!ratios) return (struct interval){0, INFINITY};
    for (int i = 0; i < DRAWS; i++)
        ratios[i] = drawn_median(a, n, keys[0], (uint64_t)i) / drawn_median(b, m, keys[1], (uint64_t)i);
    struct interval out = {statistics_quantile(ratios, DRAWS, (1 - confidence) / 2), 0};
    out.high = statistics_quantile(ratios, DRAWS, 1 - (1 - confidence) / 2);
    free(ratios);
    return out;
}

/* ---- the verdict ---------------------------------------------------------------------------- */

const char *verdict_text(enum verdict v) {
    static const char *const texts[] = {"same", "faster", "slower", "inconclusive", "untested"};
    return texts[v];
}

struct comparison statistics_compare(const double *a, int n, const double *b, int m, double confidence, uint64_t seed) {
    struct comparison c = {.median = {statistics_median_of(a, n), statistics_median_of(b, m)}};
    c.ratio = c.median[0] / c.median[1];
    c.interval = statistics_ratio(a, n, b, m, confidence, seed);
    c.p = c.p_all = statistics_mann_whitney(a, n, b, m);
    return c;
}

enum verdict statistics_verdict(const struct comparison *c, double confidence, double practical) {
    double low = 1 / (1 + practical), high = 1 + practical;
    bool differs = c->p_all <= (1 - confidence) * (1 + 1e-12);
    if (differs && c->ratio > high) return VERDICT_FASTER;
    if (differs && c->ratio < low) return VERDICT_SLOWER;
    return c->interval.low >= low && c->interval.high <= high ? VERDICT_SAME : VERDICT_INCONCLUSIVE;
}
