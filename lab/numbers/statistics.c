#include "lab/numbers/statistics.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double statistics_median(double *v, int n) {
    return quantile_of(v, n, 0.5);
}

double statistics_median_of(const double *v, int n) {
    const double endless = 1e300;
    double copy[STATISTICS_RUNS];
    assert(n <= STATISTICS_RUNS);
    for (int i = 0; i < n; i++) {
        if (isnan(v[i])) return (double)NAN;
        copy[i] = fmin(v[i], endless);
    }
    double median = n > 0 ? statistics_median(copy, n) : (double)NAN;
    return median < endless / 4 ? median : n > 0 ? INFINITY : median;
}

/* ---- ranks ---- */

/* Twice the rank of each value among all, so that shared ranks are whole. */
static void statistics_double_ranks(const double *all, int count, int *rank) {
    for (int i = 0; i < count; i++) {
        int less = 0, equal = 0;
        for (int k = 0; k < count; k++) less += all[k] < all[i], equal += all[k] == all[i];
        rank[i] = 2 * less + equal + 1;
    }
}

/* How many choices of the ranks add up to each sum: 'of' of them, or any number (of < 0). ways[k][s], or ways[s]. Ranks
 * are taken in one by one, as coins are. */
static double *statistics_count_ways(const int *rank, int count, int of, int most) {
    int rows = of < 0 ? 0 : of;
    double *ways = calloc((size_t)(rows + 1) * (size_t)(most + 1), sizeof *ways);
    if (!ways) return NULL;
    ways[0] = 1;
    for (int i = 0; i < count; i++)
        for (int k = of < 0 ? 0 : i < of ? i + 1 : of; k >= (of < 0 ? 0 : 1); k--)
            for (int s = most; s >= rank[i]; s--)
                ways[k * (most + 1) + s] += ways[(of < 0 ? k : k - 1) * (most + 1) + s - rank[i]];
    return ways;
}

/* The share of all choices whose sum is as far from the middle as 'mine'. */
static double statistics_as_far(const int *rank, int count, int of, double middle, int mine) {
    double far = 0, total = 0;
    int most = 0;
    for (int i = 0; i < count; i++) most += rank[i];
    double *ways = statistics_count_ways(rank, count, of, most);
    if (!ways) return 1; /* no memory: nothing is claimed */
    const double *last = ways + (of < 0 ? 0 : of) * (most + 1);
    for (int s = 0; s <= most; s++) {
        total += last[s];
        if (fabs(s - middle) >= fabs(mine - middle)) far += last[s];
    }
    free(ways);
    return far / total;
}

struct outermost {
    int sums;
    double level; /* of both ends */
};

/* The smallest sums of ranks that together have at most half of the probability that confidence leaves; all ranks
 * differ. */
static struct outermost outermost_ranks(int count, int of, double confidence) {
    int rank[2 * STATISTICS_RUNS], most = 0, least = 0;
    double total = 0, sum = 0;
    struct outermost out = {0};
    for (int i = 0; i < count; i++) rank[i] = i + 1, most += i + 1, least += i < of ? i + 1 : 0;
    double *ways = statistics_count_ways(rank, count, of, most);
    if (!ways) return out;
    const double *last = ways + (of < 0 ? 0 : of) * (most + 1);
    for (int s = 0; s <= most; s++) total += last[s];
    for (int s = least; s <= most; s++) {
        sum += last[s];
        if (sum / total > (1 - confidence) / 2 * (1 + 1e-12)) break;
        out = (struct outermost){out.sums + 1, 2 * sum / total};
    }
    free(ways);
    return out;
}

/* ---- a shift ---- */

/* The middle of all candidates, and those that the test does not refuse. */
/* Sorts the candidates: out has their median, and as its bounds those between which all but "refused" at each end lie. */
static void statistics_take_middle(double *candidate, int n, int refused, struct shift *out) {
    out->estimate = statistics_median(candidate, n); /* which sorts them */
    if (refused < 1 || refused > n / 2) return;
    out->low = candidate[refused - 1], out->high = candidate[n - refused];
}

static const struct shift no_shift = {(double)NAN, (double)NAN, (double)NAN, 1};

struct shift statistics_paired(const double *d, int n, double confidence) {
    double size[STATISTICS_RUNS], average[STATISTICS_RUNS * (STATISTICS_RUNS + 1) / 2];
    int rank[STATISTICS_RUNS], signs = 0, mine = 0, all = 0, averages = 0;
    struct shift out = no_shift;
    assert(n <= STATISTICS_RUNS);
    if (n < 1) return out;
    for (int i = 0; i < n; i++) size[i] = fabs(d[i]);
    statistics_double_ranks(size, n, rank);
    for (int i = 0; i < n; i++) {
        if (d[i] != 0) mine += d[i] > 0 ? rank[i] : 0, all += rank[i], rank[signs++] = rank[i];
        for (int k = 0; k <= i; k++) average[averages++] = (d[i] + d[k]) / 2;
    }
    if (signs) out.p = statistics_as_far(rank, signs, -1, all / 2.0, mine);
    statistics_take_middle(average, averages, outermost_ranks(n, -1, confidence).sums, &out);
    return out;
}

static double mann_whitney(const double *a, int n, const double *b, int m) {
    double all[2 * STATISTICS_RUNS];
    int rank[2 * STATISTICS_RUNS], mine = 0;
    memcpy(all, a, (size_t)n * sizeof *a);
    memcpy(all + n, b, (size_t)m * sizeof *b);
    statistics_double_ranks(all, n + m, rank);
    for (int i = 0; i < n; i++) mine += rank[i];
    return statistics_as_far(rank, n + m, n, (double)n * (n + m + 1), mine);
}

struct shift statistics_unpaired(const double *a, int n, const double *b, int m, double confidence) {
    double difference[STATISTICS_RUNS * STATISTICS_RUNS];
    struct shift out = no_shift;
    int count = 0;
    assert(n <= STATISTICS_RUNS && m <= STATISTICS_RUNS);
    if (n < 1 || m < 1) return out;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++) difference[count++] = a[i] - b[k];
    out.p = mann_whitney(a, n, b, m);
    statistics_take_middle(difference, count, outermost_ranks(n + m, n, confidence).sums, &out);
    return out;
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

bool statistics_can_tell(int n, bool paired, int tests, double confidence) {
    double choices = 1; /* of signs, or of n among 2 n */
    for (int i = 1; i <= n; i++) choices *= paired ? 2 : (2.0 * i) * (2.0 * i - 1) / ((double)i * i);
    return 2 * tests / choices <= (1 - confidence) * (1 + 1e-12);
}

int statistics_least_runs(int tests, bool paired, double confidence) {
    for (int n = 1; n <= STATISTICS_RUNS; n++)
        if (statistics_can_tell(n, paired, tests, confidence)) return n;
    return 0;
}

/* ---- what could be decided ---- */

static double normal_below(double z) {
    return erfc(-z / sqrt(2)) / 2;
}

static double normal_quantile(double share) {
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        double z = (low + high) / 2;
        if (normal_below(z) < share)
            low = z;
        else
            high = z;
    }
    return (low + high) / 2;
}

/* Student's, by the first terms of Cornish and Fisher's expansion. */
static double student_quantile(double share, double freedom) {
    double z = normal_quantile(share), z3 = z * z * z, z5 = z3 * z * z;
    return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom);
}

/* The chance that Student's t is above 't' where the truth lies 'away' standard errors off: over what the deviation that
 * is seen may come to, as a multiple of the true one. */
static double statistics_above_t(double t, double away, double freedom) {
    enum { STEPS = 400 };
    const double most = 4;
    double sum = 0, all = 0;
    for (int i = 1; i <= STEPS; i++) {
        double seen = most * i / STEPS;
        double density = exp((freedom - 1) * log(seen) - freedom * (seen * seen - 1) / 2);
        sum += density * normal_below(away - t * seen), all += density;
    }
    return sum / all;
}

double statistics_power(double shift, double spread, int n, bool paired, int tests, double confidence) {
    struct outermost o = outermost_ranks(paired ? n : 2 * n, paired ? -1 : n, 1 - (1 - confidence) / tests);
    if (!o.sums) return 0;
    if (!(spread > 0)) return shift > 0;
    double freedom = paired ? n - 1 : 2 * n - 2, t = student_quantile(1 - o.level / 2, freedom);
    return statistics_above_t(t, shift / spread * sqrt(n * 3 / M_PI), freedom);
}

int statistics_needed(double shift, const struct noise *noise, double chance, const struct questions *q) {
    for (int n = 2; n <= STATISTICS_RUNS; n++) {
        bool paired = !isnan(noise->pairs) && statistics_can_tell(n, true, q->asked, q->confidence);
        double spread = paired ? noise->pairs : noise->groups;
        if (statistics_power(shift, spread, n, paired, q->asked, q->confidence) >= chance) return n;
    }
    return 0;
}

/* ---- the verdict ---- */

const char *verdict_text(enum verdict v) {
    static const char *const texts[] = {"same", "faster", "slower", "inconclusive", "untested"};
    return texts[v];
}

/* Shifts beyond this are of values that are zero or infinite. */
static const double SHIFT_MOST = 1e9;

static double statistics_scale_shift(enum scale scale, double v) {
    return fmax(-SHIFT_MOST, fmin(SHIFT_MOST, scale == SCALE_RATIO ? log(v) : v));
}

static double statistics_scale_unshift(enum scale scale, double shift) {
    if (fabs(shift) > SHIFT_MOST / 4) shift = shift > 0 ? INFINITY : -INFINITY;
    return scale == SCALE_RATIO ? exp(shift) : shift;
}

double statistics_shift(enum scale scale, double practical) {
    return scale == SCALE_RATIO ? log1p(practical) : practical;
}

/* The values of a side (n), as what is shifted. */
static void statistics_take_shifts(const double *v, int n, enum scale scale, double out[STATISTICS_RUNS]) {
    for (int i = 0; i < n; i++) out[i] = statistics_scale_shift(scale, v[i]);
}

/* The differences of pairs (n), in place of the first side. */
static void statistics_take_differences(double *a, const double *b, int n) {
    for (int i = 0; i < n; i++) a[i] -= b[i];
}

/* The deviation by the mean distance of two values, which a few outliers do not rule. */
static double robust_deviation(const double *v, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) sum += fabs(v[i] - v[k]);
    return n > 1 ? sum / (n * (n - 1) / 2.0) * sqrt(M_PI) / 2 : (double)NAN;
}

double statistics_spread(const double *a, int n, const double *b, int m, enum scale scale, bool paired) {
    double side[2][STATISTICS_RUNS];
    statistics_take_shifts(a, n, scale, side[0]);
    statistics_take_shifts(b, m, scale, side[1]);
    if (paired) statistics_take_differences(side[0], side[1], n);
    return paired ? robust_deviation(side[0], n) : hypot(robust_deviation(side[0], n), robust_deviation(side[1], m));
}

struct comparison statistics_compare(const double *a, int n, const double *b, int m, enum scale scale, bool paired,
                                     double confidence) {
    double side[2][STATISTICS_RUNS];
    statistics_take_shifts(a, n, scale, side[0]);
    statistics_take_shifts(b, m, scale, side[1]);
    if (paired) statistics_take_differences(side[0], side[1], n);
    struct shift s =
        paired ? statistics_paired(side[0], n, confidence) : statistics_unpaired(side[0], n, side[1], m, confidence);
    return (struct comparison){.scale = scale,
                               .paired = paired,
                               .estimate = statistics_scale_unshift(scale, s.estimate),
                               .low = statistics_scale_unshift(scale, s.low),
                               .high = statistics_scale_unshift(scale, s.high),
                               .p = s.p,
                               .p_all = s.p,
                               .error = (double)NAN,
                               .choice = (double)NAN};
}

static double statistics_no_difference(const struct comparison *c) {
    return c->scale == SCALE_RATIO ? 1 : 0;
}

/* The values' own noise and the error that they share are independent: as shifts, their squares add up. What a choice has
 * missed is no noise around the truth, but lies on the side of the one that chose badly, and is added as it is. */
static void interval_widen(const struct comparison *c, double confidence, bool error, double *low, double *high) {
    double z = normal_quantile((1 + confidence) / 2), middle = statistics_scale_shift(c->scale, c->estimate);
    double more = error && c->error > 0 ? z * c->error : 0, missed = c->choice > 0 ? z * c->choice : 0;
    *low = c->low, *high = c->high;
    if (!(more + missed > 0)) return;
    double below = hypot(middle - statistics_scale_shift(c->scale, c->low), more) + missed;
    double above = hypot(statistics_scale_shift(c->scale, c->high) - middle, more) + missed;
    *low = statistics_scale_unshift(c->scale, middle - below);
    *high = statistics_scale_unshift(c->scale, middle + above);
}

double statistics_missed(const double *shift, const double *noise, int n, int chosen) {
    double most = 0;
    for (int i = 0; i < n; i++) {
        if (i == chosen || !(noise[i] > 0) || !isfinite(shift[i])) continue;
        double d = fmax(0, (shift[i] - shift[chosen]) / noise[i]), density = exp(-d * d / 2) / sqrt(2 * M_PI);
        most = fmax(most, noise[i] * noise[i] * ((1 + d * d) * (1 - normal_below(d)) - d * density));
    }
    return most;
}

static bool statistics_is_significant(const struct comparison *c, double confidence) {
    return c->p_all <= (1 - confidence) * (1 + 1e-12);
}

enum verdict statistics_verdict(const struct comparison *c, double confidence, double practical) {
    double most = statistics_no_difference(c) + practical, least = c->scale == SCALE_RATIO ? 1 / most : -most, low,
           high;
    interval_widen(c, confidence, true, &low, &high);
    if (low >= least && high <= most) return VERDICT_SAME;
    interval_widen(c, confidence, false, &low, &high);
    bool beside = !(c->choice > 0) || low > statistics_no_difference(c) || high < statistics_no_difference(c);
    if (!statistics_is_significant(c, confidence) || !beside) return VERDICT_INCONCLUSIVE;
    return c->estimate > statistics_no_difference(c) ? VERDICT_FASTER : VERDICT_SLOWER;
}

bool statistics_differs(const struct comparison *c, double confidence) {
    double low, high;
    interval_widen(c, confidence, true, &low, &high);
    return statistics_is_significant(c, confidence) &&
           (low > statistics_no_difference(c) || high < statistics_no_difference(c));
}
