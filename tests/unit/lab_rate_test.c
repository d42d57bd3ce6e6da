/* The rate finder's arithmetic: on a curve whose fastest fall and lowest point are known, and on curves that say nothing. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "lab/numbers/rate.h"

#include <math.h>
#include <stdlib.h>

enum { N = 200, REACH = 10 };
static double rate[N], loss[N], smooth[N];

/* A loss that is flat, falls along half a cosine from step 80 to step 160, and then rises; fastest in the middle, at 120. */
static void make(double noise, double fall) {
    for (int i = 0; i < N; i++) {
        double done = i < 80 ? 0 : i < 160 ? (i - 80) / 80.0 : 1;
        rate[i] = 1e-7 * pow(10, i / 25.0);
        loss[i] = 2 - fall * (1 - cos(M_PI * done)) / 2 + (i > 160 ? (i - 160) / 20.0 : 0) +
                  noise * (double)rng_normal(rng_key(3, RNG_TEST), 0, (uint64_t)i);
    }
    rate_smooth(loss, N, REACH, smooth);
}

static void means_are_weighted_by_distance(void **state) {
    (void)state;
    const double v[5] = {1, 2, 4, 8, 16};
    double out[5];
    rate_smooth(v, 5, 1, out);
    const double want[5] = {(2 * 1 + 2) / 3.0, (1 + 2 * 2 + 4) / 4.0, (2 + 2 * 4 + 8) / 4.0, (4 + 2 * 8 + 16) / 4.0,
                            (8 + 2 * 16) / 3.0};
    for (int i = 0; i < 5; i++) assert_true(fabs(out[i] - want[i]) < 1e-12);
}

static void the_fall_is_found(void **state) {
    (void)state;
    for (int noisy = 0; noisy < 2; noisy++) {
        make(noisy ? 0.02 : 0, 1);
        struct rate_found f = rate_find(rate, loss, smooth, N, REACH);
        assert_true(f.falls && f.turns);
        assert_true(abs(f.steepest - 120) <= (noisy ? 8 : 0));
        assert_true(abs(f.lowest - 157) <= 5);
        assert_true(f.rate <= rate[f.steepest] * 1.05 && f.rate >= rate[f.steepest] / 1.05);
    }
}

/* Where the loss falls until shortly before it rises, a third of the lowest one's rate is the smaller. */
static void a_cliff_is_kept_away_from(void **state) {
    (void)state;
    for (int i = 0; i < N; i++)
        rate[i] = 1e-7 * pow(10, i / 25.0), loss[i] = i < 100 ? 2 : i < 110 ? 2 - (i - 99) / 10.0 : 5;
    rate_smooth(loss, N, 2, smooth);
    struct rate_found f = rate_find(rate, loss, smooth, N, 2);
    assert_true(f.falls && f.lowest >= 105 && f.lowest < 110);
    assert_true(f.rate < rate[f.steepest] && fabs(f.rate / (rate[f.lowest] / 3) - 1) < 0.05);
}

static void noise_is_no_fall(void **state) {
    (void)state;
    make(0.5, 0);
    assert_false(rate_find(rate, loss, smooth, N, REACH).falls);
    for (int i = 0; i < N; i++) loss[i] = 2 + i / 100.0;
    rate_smooth(loss, N, REACH, smooth);
    assert_false(rate_find(rate, loss, smooth, N, REACH).falls);
    for (int i = 0; i < N; i++) loss[i] = 2 - i / 100.0;
    rate_smooth(loss, N, REACH, smooth);
    assert_false(rate_find(rate, loss, smooth, N, REACH).turns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_weighted_by_distance),
        cmocka_unit_test(the_fall_is_found),
        cmocka_unit_test(a_cliff_is_kept_away_from),
        cmocka_unit_test(noise_is_no_fall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
