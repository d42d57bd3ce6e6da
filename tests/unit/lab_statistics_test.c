/* The statistics of comparisons, against hand-counted values, a second way of counting, and simulated experiments
 * whose truth is known. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "lab/numbers/fit.h"
#include "lab/numbers/statistics.h"

#include <math.h>

#define assert_near(got, expected, most) assert_true(fabs((got) - (expected)) <= (most))

static void quantiles_lie_between_neighbours(void **state) {
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, one[] = {7};
    assert_near(statistics_median(odd, 3), 2, 0);
    assert_near(statistics_median(even, 4), 2.5, 0);
    assert_near(statistics_median(one, 1), 7, 0);
    assert_near(quantile_of(even, 4, 0), 1, 0);
    assert_near(quantile_of(even, 4, 1), 4, 0);
    assert_near(quantile_of(even, 4, 0.25), 1.75, 1e-15);
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

static double unpaired_p(const double *a, int n, const double *b, int m) {
    return statistics_unpaired(a, n, b, m, 0.95).p;
}

static void mann_whitney_is_exact(void **state) {
    (void)state;
    const double low[] = {1, 2, 3, 4, 5}, high[] = {6, 7, 8, 9, 10};
    assert_near(unpaired_p(low, 3, high, 3), 0.1, 1e-15);
    assert_near(unpaired_p(low, 4, high, 4), 2.0 / 70, 1e-15);
    assert_near(unpaired_p(high, 5, low, 5), 2.0 / 252, 1e-15);
    assert_near(unpaired_p(low, 5, low, 5), 1, 1e-15);
    struct rng_key key = rng_key(3, RNG_TEST);
    for (uint64_t t = 0; t < 60; t++) {
        double a[7], b[7]; /* many equal values */
        int n = 1 + (int)rng_below(key, t, 0, 7), m = 1 + (int)rng_below(key, t, 1, 7);
        for (int i = 0; i < n; i++) a[i] = (double)rng_below(key, t, 2 + (uint64_t)i, 6);
        for (int i = 0; i < m; i++) b[i] = (double)rng_below(key, t, 20 + (uint64_t)i, 6);
        assert_near(unpaired_p(a, n, b, m), by_every_deal(a, n, b, m), 1e-12);
    }
}

/* The whole test by every way to give the differences signs. */
static double by_every_sign(const double *d, int n) {
    double rank[16], mine = 0, middle = 0, far = 0;
    for (int i = 0; i < n; i++) {
        rank[i] = 0.5;
        for (int k = 0; k < n; k++) rank[i] += fabs(d[k]) < fabs(d[i]) ? 1 : fabs(d[k]) == fabs(d[i]) ? 0.5 : 0;
        rank[i] = d[i] == 0 ? 0 : rank[i];
        mine += d[i] > 0 ? rank[i] : 0, middle += rank[i] / 2;
    }
    for (unsigned signs = 0; signs < 1u << n; signs++) {
        double sum = 0;
        for (int i = 0; i < n; i++) sum += signs >> i & 1 ? rank[i] : 0;
        far += fabs(sum - middle) >= fabs(mine - middle);
    }
    return far / (1u << n);
}

static void signed_ranks_are_exact(void **state) {
    (void)state;
    const double up[] = {1, 2, 3, 4, 5, 6}, even[] = {1, -1, 2, -2}, none[] = {0, 0, 0};
    assert_near(statistics_paired(up, 6, 0.95).p, 2.0 / 64, 1e-15);
    assert_near(statistics_paired(up, 5, 0.95).p, 2.0 / 32, 1e-15);
    assert_near(statistics_paired(even, 4, 0.95).p, 1, 1e-15);
    assert_near(statistics_paired(none, 3, 0.95).p, 1, 0);
    struct rng_key key = rng_key(4, RNG_TEST);
    for (uint64_t t = 0; t < 60; t++) {
        double d[10]; /* many equal, many 0 */
        int n = 1 + (int)rng_below(key, t, 0, 10);
        for (int i = 0; i < n; i++) d[i] = (double)rng_below(key, t, 1 + (uint64_t)i, 9) - 3;
        assert_near(statistics_paired(d, n, 0.95).p, by_every_sign(d, n), 1e-12);
    }
}

/* By definition: a shift is in the interval unless the test of the values less that shift refuses it. */
static void intervals_are_what_tests_do_not_refuse(void **state) {
    (void)state;
    struct rng_key key = rng_key(5, RNG_TEST);
    for (uint64_t t = 0; t < 40; t++) {
        double a[9], b[9], less[9];
        int n = 4 + (int)rng_below(key, t, 0, 6);
        bool paired = t % 2 && n >= 6;
        for (int i = 0; i < n; i++) a[i] = (double)rng_normal(key, t, 1 + (uint64_t)i);
        for (int i = 0; i < n; i++) b[i] = (double)rng_normal(key, t, 30 + (uint64_t)i);
        struct shift s = paired ? statistics_paired(a, n, 0.95) : statistics_unpaired(a, n, b, n, 0.95);
        assert_true(s.low < s.estimate && s.estimate < s.high);
        for (double shift = -3; shift < 3; shift += 0.0101) {
            for (int i = 0; i < n; i++) less[i] = a[i] - shift;
            double p = paired ? statistics_paired(less, n, 0.95).p : unpaired_p(less, n, b, n);
            assert_int_equal(p > 0.05, s.low < shift && shift < s.high);
        }
    }
    const double few[] = {1, 2, 3, 4, 5};
    assert_true(isnan(statistics_paired(few, 5, 0.95).low)); /* 2 / 32 is more than 5 % */
    assert_false(isnan(statistics_paired(few, 5, 0.9).low));
    assert_true(isnan(statistics_unpaired(few, 3, few, 3, 0.95).low));
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
    assert_int_equal(statistics_least_runs(1, false, 0.95), 4);
    assert_int_equal(statistics_least_runs(10, false, 0.95), 6);
    assert_int_equal(statistics_least_runs(1, false, 0.999), 7);
    assert_int_equal(statistics_least_runs(1000000000, false, 1), 0);
    for (int tests = 1; tests < 100; tests++) { /* 2 tests / 2^n */
        int n = statistics_least_runs(tests, true, 0.95);
        assert_true(2 * tests <= 0.05 * (1 << n) && 2 * tests > 0.05 * (1 << (n - 1)));
    }
    assert_true(statistics_can_tell(6, true, 1, 0.95) && !statistics_can_tell(5, true, 1, 0.95));
    assert_true(statistics_can_tell(8, true, 6, 0.95) && !statistics_can_tell(8, true, 7, 0.95));
}

static void spread_is_of_pairs_or_of_groups(void **state) {
    (void)state;
    /* the distances of two are 1, 2 and 3 on both sides: 2 in the mean, which is 2 / sqrt(pi) deviations of a normal */
    const double a[] = {1, 2, 4}, b[] = {0, 1, 3}, ea[] = {exp(1), exp(2), exp(4)}, eb[] = {1, exp(1), exp(3)};
    const double one = sqrt(acos(-1)), both = one * sqrt(2);
    assert_near(statistics_spread(a, 3, b, 3, SCALE_DIFFERENCE, false), both, 1e-12);
    assert_near(statistics_spread(a, 3, b, 3, SCALE_DIFFERENCE, true), 0, 1e-12); /* one more in each pair */
    assert_near(statistics_spread(ea, 3, eb, 3, SCALE_RATIO, false), both, 1e-12);
    assert_near(statistics_spread(ea, 3, eb, 3, SCALE_RATIO, true), 0, 1e-12);
    assert_true(isnan(statistics_spread(a, 1, b, 1, SCALE_DIFFERENCE, true)));
    assert_true(isnan(statistics_spread(a, 0, b, 0, SCALE_DIFFERENCE, true)));
}

/* ---- experiments whose truth is known ------------------------------------------------------- */

/* Times with the noise of a busy machine: some runs are a good deal slower, and a repeat's runs share half of it. */
static void draw_times(double *v, int n, double mean, uint64_t experiment, uint64_t side) {
    struct rng_key key = rng_key(11, RNG_TEST);
    for (int i = 0; i < n; i++) {
        double noise = 0.008 * (double)rng_normal(key, experiment, side * 100 + (uint64_t)i);
        double shared = 0.02 * (double)rng_normal(key, experiment, 900 + (uint64_t)i);
        bool slow = rng_float(key, experiment, side * 100 + 50 + (uint64_t)i) < 0.1f;
        v[i] = mean * (1 + noise + shared + (slow ? 0.05 : 0));
    }
}

static struct comparison one_experiment(double factor, int n, uint64_t experiment) {
    double a[STATISTICS_RUNS], b[STATISTICS_RUNS];
    draw_times(a, n, 10, experiment, 0);
    draw_times(b, n, 10 * factor, experiment, 1);
    return statistics_compare(a, n, b, n, SCALE_RATIO, statistics_can_tell(n, true, 1, 0.95), 0.95);
}

static bool claims(enum verdict v) {
    return v == VERDICT_FASTER || v == VERDICT_SLOWER;
}

enum { EXPERIMENTS = 2000 };

static void equal_ways_are_told_apart_at_the_nominal_share(void **state) {
    (void)state;
    for (int n = 4; n <= 12; n += 2) {
        int wrong = 0, missed = 0;
        for (uint64_t e = 0; e < EXPERIMENTS; e++) {
            struct comparison c = one_experiment(1, n, e);
            wrong += claims(statistics_verdict(&c, 0.95, 0)), missed += c.low > 1 || c.high < 1;
        }
        print_message("%d runs: %d of %d false verdicts, %d intervals without the truth\n", n, wrong, EXPERIMENTS,
                      missed);
        assert_true(wrong <= 0.05 * EXPERIMENTS + 3 * sqrt(EXPERIMENTS * 0.05 * 0.95));
        assert_true(missed == wrong); /* interval and p are one */
    }
}

static void five_percent_is_found(void **state) {
    (void)state;
    int found = 0, wrong = 0;
    for (uint64_t e = 0; e < 100; e++) {
        struct comparison c = one_experiment(1.05, 10, 1000 + e);
        enum verdict v = statistics_verdict(&c, 0.95, 0.02);
        found += v == VERDICT_SLOWER, wrong += v == VERDICT_FASTER || v == VERDICT_SAME;
    }
    assert_true(found >= 98); /* runs spread by 2 %, but those of a repeat together */
    assert_int_equal(wrong, 0);
}

/* Accuracies of a seed on both sides, one of which is so much better. */
static enum verdict one_training(double better, double spread, int n, uint64_t experiment) {
    struct rng_key key = rng_key(13, RNG_TEST);
    double a[STATISTICS_RUNS], b[STATISTICS_RUNS];
    for (int i = 0; i < n; i++) {
        double seed = 0.01 * (double)rng_normal(key, experiment, (uint64_t)i);
        a[i] = 0.9 + seed, b[i] = 0.9 + seed + better + spread * (double)rng_normal(key, experiment, 100 + (uint64_t)i);
        a[i] = -a[i], b[i] = -b[i]; /* less is better */
    }
    struct comparison c = statistics_compare(a, n, b, n, SCALE_DIFFERENCE, statistics_can_tell(n, true, 1, 0.95), 0.95);
    return statistics_verdict(&c, 0.95, 0.005);
}

static void what_is_foretold_is_found(void **state) {
    (void)state;
    for (int n = 6; n <= 20; n += 2)
        for (int half = 1; half <= 2; half++) {
            double better = 0.01, spread = 0.0075 * half;
            int found = 0;
            for (uint64_t e = 0; e < EXPERIMENTS; e++) found += one_training(better, spread, n, e) == VERDICT_FASTER;
            double told = statistics_power(better, spread, n, true, 1, 0.95), share = (double)found / EXPERIMENTS;
            print_message("1 point, spread %.2f, %d seeds: found %.3f, foretold %.3f\n", 100 * spread, n, share, told);
            assert_near(share, told, 0.06);
        }
    const struct questions one = {1, 0.95};
    int n = statistics_needed(0.01, &(struct noise){0.0075, 0.0075}, 0.8, &one);
    assert_true(statistics_power(0.01, 0.0075, n, true, 1, 0.95) >= 0.8);
    assert_true(statistics_power(0.01, 0.0075, n - 1, true, 1, 0.95) < 0.8);
    assert_int_equal(statistics_needed(0.01, &(struct noise){1, 1}, 0.8, &one), 0);
}

/* Seeds of which one is 2 points better than another and the sides much alike in each, as one question among several:
 * what too few of them for pairs cannot find, one more does. */
static bool is_found_among(const struct questions *q, double better, int n, uint64_t experiment) {
    struct rng_key key = rng_key(17, RNG_TEST);
    double a[STATISTICS_RUNS], b[STATISTICS_RUNS];
    for (int i = 0; i < n; i++) {
        a[i] = -0.9 + 0.02 * (double)rng_normal(key, experiment, (uint64_t)i);
        b[i] = a[i] - better + 0.002 * (double)rng_normal(key, experiment, 100 + (uint64_t)i);
    }
    bool paired = statistics_can_tell(n, true, q->asked, q->confidence);
    return q->asked * statistics_compare(a, n, b, n, SCALE_DIFFERENCE, paired, q->confidence).p <= 1 - q->confidence;
}

static void what_is_needed_counts_the_pairs(void **state) {
    (void)state;
    const struct questions q = {12, 0.95};
    const struct noise noise = {0.02 * sqrt(2), 0.002}, apart = {noise.groups, (double)NAN};
    int n = statistics_needed(0.01, &noise, 0.8, &q), found[2] = {0, 0};
    assert_int_equal(n, 9);
    for (uint64_t e = 0; e < EXPERIMENTS; e++)
        for (int more = 0; more < 2; more++) found[more] += is_found_among(&q, 0.01, n - 1 + more, e);
    print_message("1 point among 12 questions: 8 seeds find it in %d of %d, 9 in %d\n", found[0], EXPERIMENTS,
                  found[1]);
    assert_true(found[0] < 0.05 * EXPERIMENTS && found[1] > 0.8 * EXPERIMENTS);
    assert_int_equal(statistics_needed(0.01, &apart, 0.8, &q), 0); /* runs that have no partner stay two groups */
}

/* repeats: auto. Four runs a side say how many are made, at most 10; what the four have in common counts. */
static void a_number_of_runs_by_their_noise_keeps_the_share(void **state) {
    (void)state;
    const struct questions one = {1, 0.95};
    int wrong = 0, runs = 0;
    for (uint64_t e = 0; e < EXPERIMENTS; e++) {
        double a[STATISTICS_RUNS], b[STATISTICS_RUNS];
        draw_times(a, 10, 10, 20000 + e, 0);
        draw_times(b, 10, 10, 20000 + e, 1);
        const struct noise noise = {statistics_spread(a, 4, b, 4, SCALE_RATIO, false),
                                    statistics_spread(a, 4, b, 4, SCALE_RATIO, true)};
        int n = statistics_needed(log(1.02), &noise, 0.8, &one);
        n = n == 0 || n > 10 ? 10 : n < 4 ? 4 : n;
        struct comparison c = statistics_compare(a, n, b, n, SCALE_RATIO, statistics_can_tell(n, true, 1, 0.95), 0.95);
        wrong += claims(statistics_verdict(&c, 0.95, 0)), runs += n;
    }
    print_message("auto: %d of %d false verdicts, %.1f runs a side\n", wrong, EXPERIMENTS, (double)runs / EXPERIMENTS);
    assert_true(wrong <= 0.05 * EXPERIMENTS + 3 * sqrt(EXPERIMENTS * 0.05 * 0.95));
}

static void equal_trainings_are_told_apart_at_the_nominal_share(void **state) {
    (void)state;
    for (int n = 6; n <= 10; n += 2) {
        int wrong = 0;
        for (uint64_t e = 0; e < EXPERIMENTS; e++) wrong += claims(one_training(0, 0.01, n, 5000 + e));
        assert_true(wrong <= 0.05 * EXPERIMENTS + 3 * sqrt(EXPERIMENTS * 0.05 * 0.95));
    }
}

static void a_small_difference_is_the_same(void **state) {
    (void)state;
    double a[] = {10, 10.01, 10.02, 10.01, 10, 10.01}, b[] = {10.05, 10.06, 10.07, 10.06, 10.05, 10.06};
    for (int paired = 0; paired < 2; paired++) {
        struct comparison c = statistics_compare(a, 6, b, 6, SCALE_RATIO, paired, 0.95);
        assert_true(c.p < 0.05); /* sure, and yet nothing that matters */
        assert_near(c.estimate, 10.01 / 10.06, 1e-6);
        assert_int_equal(statistics_verdict(&c, 0.95, 0.02), VERDICT_SAME);
        assert_int_equal(statistics_verdict(&c, 0.95, 0.001), VERDICT_SLOWER);
    }
    assert_string_equal(verdict_text(VERDICT_SLOWER), "slower");
}

/* One device sends nothing; a run that never reaches its goal is worse than any that does. */
static void values_without_a_ratio_are_told_apart(void **state) {
    (void)state;
    double none[] = {0, 0, 0, 0}, some[] = {3, 4, 5, 6}, never[] = {2, INFINITY, INFINITY, INFINITY};
    struct comparison c = statistics_compare(none, 4, some, 4, SCALE_RATIO, false, 0.95);
    assert_true(c.estimate == 0 && c.low == 0 && c.high == 0);
    assert_int_equal(statistics_verdict(&c, 0.95, 0.02), VERDICT_SLOWER);
    c = statistics_compare(none, 4, none, 4, SCALE_RATIO, false, 0.95);
    assert_true(c.estimate == 1 && statistics_verdict(&c, 0.95, 0.02) == VERDICT_SAME);
    c = statistics_compare(never, 4, some, 4, SCALE_RATIO, false, 0.95);
    assert_true(isinf(c.estimate) && c.low < 1 && statistics_verdict(&c, 0.95, 0.02) == VERDICT_INCONCLUSIVE);
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
        cmocka_unit_test(signed_ranks_are_exact),
        cmocka_unit_test(intervals_are_what_tests_do_not_refuse),
        cmocka_unit_test(holm_orders_and_bounds),
        cmocka_unit_test(least_runs_can_tell),
        cmocka_unit_test(spread_is_of_pairs_or_of_groups),
        cmocka_unit_test(equal_ways_are_told_apart_at_the_nominal_share),
        cmocka_unit_test(five_percent_is_found),
        cmocka_unit_test(equal_trainings_are_told_apart_at_the_nominal_share),
        cmocka_unit_test(what_is_foretold_is_found),
        cmocka_unit_test(what_is_needed_counts_the_pairs),
        cmocka_unit_test(a_number_of_runs_by_their_noise_keeps_the_share),
        cmocka_unit_test(a_small_difference_is_the_same),
        cmocka_unit_test(values_without_a_ratio_are_told_apart),
        cmocka_unit_test(a_line_is_fitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
