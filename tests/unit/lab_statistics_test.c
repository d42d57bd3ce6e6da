/* The statistics of comparisons, against hand-counted values, a second way of counting, and simulated experiments
 * whose truth is known. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "lab/fit.h"
#include "lab/statistics.h"

#include <math.h>

#define assert_near(got, expected, most) assert_true(fabs((got) - (expected)) <= (most))

static void quantiles_lie_between_neighbours(void **state) {
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, one[] = {7};
    assert_near(statistics_median(odd, 3), 2, 0);
    assert_near(statistics_median(even, 4), 2.5, 0);
    assert_near(statistics_median(one, 1), 7, 0);
    assert_near(statistics_quantile(even, 4, 0), 1, 0);
    assert_near(statistics_quantile(even, 4, 1), 4, 0);
    assert_near(statistics_quantile(even, 4, 0.25), 1.75, 1e-15);
    const double some[] = {5, 1, 3}, hole[] = {1, (double)NAN};
    assert_near(statistics_median_of(some, 3), 3, 0);
    assert_near(some[0], 5, 0);
    assert_true(isnan(statistics_median_of(hole, 2)) && isnan(statistics_median_of(some, 0)));
}

/* The whole test by counting every deal of the values: which have a rank sum as far from the middle. */
static double by_every_deal(const double *a, int n, const double *b, int m) {
    double all[16], rank[16], mine = 0, far = 0, deals = 0;
    int count = n + m;
    for (int i = 0; i < count; i++) all[i] = i < n ? a[i] : b[i - n];
    for (int i = 0; i < count; i++) {
        rank[i] = 0.5;
        for (int k = 0; k < count; k++) rank[i] += all[k] < all[i] ? 1 : all[k] == all[i] ? 0.5 : 0;
    }
    for (int i = 0; i < n; i++) mine += rank[i];
    for (unsigned deal = 0; deal < 1u << count; deal++) {
        if (__builtin_popcount(deal) != n) continue;
        double sum = 0, middle = n * (count + 1) / 2.0;
        for (int i = 0; i < count; i++) sum += deal >> i & 1 ? rank[i] : 0;
        deals++;
        far += fabs(sum - middle) >= fabs(mine - middle);
    }
    return far / deals;
}

static void mann_whitney_is_exact(void **state) {
    (void)state;
    const double low[] = {1, 2, 3, 4, 5}, high[] = {6, 7, 8, 9, 10};
    assert_near(statistics_mann_whitney(low, 3, high, 3), 0.1, 1e-15);
    assert_near(statistics_mann_whitney(low, 4, high, 4), 2.0 / 70, 1e-15);
    assert_near(statistics_mann_whitney(high, 5, low, 5), 2.0 / 252, 1e-15);
    assert_near(statistics_mann_whitney(low, 5, low, 5), 1, 1e-15);
    struct rng_key key = rng_key(3, RNG_TEST);
    for (uint64_t t = 0; t < 60; t++) {
        double a[7], b[7]; /* many equal values */
        int n = 1 + (int)rng_below(key, t, 0, 7), m = 1 + (int)rng_below(key, t, 1, 7);
        for (int i = 0; i < n; i++) a[i] = (double)rng_below(key, t, 2 + (uint64_t)i, 6);
        for (int i = 0; i < m; i++) b[i] = (double)rng_below(key, t, 20 + (uint64_t)i, 6);
        assert_near(statistics_mann_whitney(a, n, b, m), by_every_deal(a, n, b, m), 1e-12);
    }
}

static void holm_orders_and_bounds(void **state) {
    (void)state;
    double p[] = {0.01, 0.04, 0.03, 0.005};
    const double expected[] = {0.03, 0.06, 0.06, 0.02};
    statistics_holm(p, 4);
    for (int i = 0; i < 4; i++) assert_near(p[i], expected[i], 1e-15);
    double large[] = {0.9, 0.8};
    statistics_holm(large, 2);
    assert_near(large[0], 1, 0);
    assert_near(large[1], 1, 0);
}

static void least_runs_can_tell(void **state) {
    (void)state;
    assert_int_equal(statistics_least_runs(1, 0.95), 4);
    assert_int_equal(statistics_least_runs(10, 0.95), 6);
    assert_int_equal(statistics_least_runs(1, 0.999), 7);
    assert_int_equal(statistics_least_runs(1000000000, 1), 0);
}

/* ---- experiments whose truth is known ------------------------------------------------------- */

/* Times with the noise of a busy machine: some runs are a good deal slower. */
static void draw_times(double *v, int n, double mean, uint64_t experiment, uint64_t side) {
    struct rng_key key = rng_key(11, RNG_TEST);
    for (int i = 0; i < n; i++) {
        double noise = 0.008 * (double)rng_normal(key, experiment, side * 100 + (uint64_t)i);
        bool slow = rng_float(key, experiment, side * 100 + 50 + (uint64_t)i) < 0.1f;
        v[i] = mean * (1 + noise + (slow ? 0.05 : 0));
    }
}

static enum verdict one_verdict(double factor, int n, uint64_t experiment) {
    double a[STATISTICS_RUNS], b[STATISTICS_RUNS];
    draw_times(a, n, 10, experiment, 0);
    draw_times(b, n, 10 * factor, experiment, 1);
    struct comparison c = statistics_compare(a, n, b, n, 0.95, experiment);
    assert_true(c.interval.low <= c.ratio && c.ratio <= c.interval.high);
    return statistics_verdict(&c, 0.95, 0.02);
}

static void equal_ways_are_seldom_told_apart(void **state) {
    (void)state;
    int false_claims = 0;
    for (uint64_t e = 0; e < 200; e++) {
        enum verdict v = one_verdict(1, 8, e);
        false_claims += v == VERDICT_FASTER || v == VERDICT_SLOWER;
    }
    assert_true(false_claims <= 4); /* both p and the practical threshold must be crossed */
}

static void five_percent_is_found(void **state) {
    (void)state;
    int found = 0, wrong = 0;
    for (uint64_t e = 0; e < 100; e++) {
        enum verdict v = one_verdict(1.05, 10, 1000 + e);
        found += v == VERDICT_SLOWER, wrong += v == VERDICT_FASTER || v == VERDICT_SAME;
    }
    assert_true(found >= 90);
    assert_int_equal(wrong, 0);
}

static void a_small_difference_is_the_same(void **state) {
    (void)state;
    double a[] = {10, 10.01, 10.02, 10.01, 10, 10.01}, b[] = {10.05, 10.06, 10.07, 10.06, 10.05, 10.06};
    struct comparison c = statistics_compare(a, 6, b, 6, 0.95, 1);
    assert_true(c.p < 0.01); /* sure, and yet nothing that matters */
    assert_int_equal(statistics_verdict(&c, 0.95, 0.02), VERDICT_SAME);
    assert_int_equal(statistics_verdict(&c, 0.95, 0.001), VERDICT_SLOWER);
    assert_string_equal(verdict_text(VERDICT_SLOWER), "slower");
}

static void the_bootstrap_is_seeded(void **state) {
    (void)state;
    double a[] = {1, 2, 3, 4}, b[] = {2, 2, 2, 2};
    struct interval x = statistics_ratio(a, 4, b, 4, 0.95, 7), y = statistics_ratio(a, 4, b, 4, 0.95, 7);
    assert_true(x.low == y.low && x.high == y.high);
    assert_near(x.low, 0.5, 0.13);
    assert_near(x.high, 2, 0.13);
}

static void a_line_is_fitted(void **state) {
    (void)state;
    struct fit_point points[5];
    for (int i = 0; i < 5; i++) {
        double bytes = pow(16, i + 2);
        points[i] = (struct fit_point){bytes, 20e-6 + bytes / 1e9, 1};
    }
    struct fit f = fit_line(points, 5);
    assert_near(f.alpha, 20e-6, 1e-9);
    assert_near(f.beta, 1e-9, 1e-13);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_lie_between_neighbours),
        cmocka_unit_test(mann_whitney_is_exact),
        cmocka_unit_test(holm_orders_and_bounds),
        cmocka_unit_test(least_runs_can_tell),
        cmocka_unit_test(equal_ways_are_seldom_told_apart),
        cmocka_unit_test(five_percent_is_found),
        cmocka_unit_test(a_small_difference_is_the_same),
        cmocka_unit_test(the_bootstrap_is_seeded),
        cmocka_unit_test(a_line_is_fitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
