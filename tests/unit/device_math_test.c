/* Fast exp and normal distribution against libm, and the kernels' behaviour at the edges of floats, at every level of
 * instructions. */
#include "tests/harness/levels.h"

#include "engine/device/cpu/fast_math.h"
#include "engine/device/cpu/kernels.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static void exp_is_near_libm(void **state) {
    (void)state;
    for (int i = -870000; i <= 880000; i += 7) {
        float x = (float)i / 10000;
        double expected = exp((double)x), off = fabs((double)fast_exp(x) - expected);
        if (!(off <= 3e-7 * expected)) fail_msg("exp(%g) is off by %g", (double)x, off / expected);
    }
    assert_true(fast_exp(0) == 1);
    assert_true(fast_exp(-INFINITY) < 2e-38f && fast_exp(-INFINITY) >= 0);
    assert_true(isfinite(fast_exp(INFINITY)) && fast_exp(INFINITY) > 1e38f);
    assert_true(isnan(fast_exp(NAN)));
}

/* The tail is e^(-x^2/2) times a fit: the square's rounding grows with it. */
static void normal_is_near_libm(void **state) {
    (void)state;
    for (int i = -130000; i <= 130000; i += 3) {
        float x = (float)i / 10000, bell;
        double expected = 0.5 * erfc(-(double)x * 0.70710678118654752);
        double slack = 8e-7 + 6e-8 * (double)x * (double)x;
        double off = fabs((double)fast_normal(x, &bell) - expected);
        if (!(off <= slack * expected)) fail_msg("P(%g) is off by %g", (double)x, off / expected);
        double density = exp(-0.5 * (double)x * (double)x);
        assert_true(fabs((double)bell - density) <= slack * density);
    }
}

static void at_each_level(void (*check)(const struct cpu_level *level)) {
    int count;
    const struct cpu_level *const *levels = cpu_levels(&count);
    for (int i = 0; i < count; i++) check(levels[i]);
}

static void check_gelu(const struct cpu_level *level) {
    float x[] = {0, -0.0f, 100, -100, FLT_MAX, -FLT_MAX, INFINITY, NAN}, y[8];
    level->activations[ACT_GELU].forward(8, x, 0, y);
    assert_true(y[0] == 0 && y[1] == 0);
    assert_true(y[2] == 100 && fabsf(y[3]) < 1e-30f);
    assert_true(y[4] == FLT_MAX && y[6] == INFINITY);
    assert_true(isnan(y[7]));
}

static void gelu_keeps_its_limits(void **state) {
    (void)state;
    at_each_level(check_gelu);
}

static void check_relu(const struct cpu_level *level) {
    float x[] = {NAN, -1, 0, 2, -INFINITY, INFINITY}, y[6];
    level->activations[ACT_RELU].forward(6, x, 0, y);
    assert_true(isnan(y[0]) && y[1] == 0 && y[2] == 0 && y[3] == 2 && y[4] == 0);
    assert_true(y[5] == INFINITY);
}

static void relu_keeps_nan(void **state) {
    (void)state;
    at_each_level(check_relu);
}

static void check_softmax(const struct cpu_level *level) {
    float x[] = {1000, -1000, 999, 0, -INFINITY, 1000}, y[6], top[SOFTMAX_TOPS(6)];
    int64_t best;
    double log_sum = level->softmax(6, x, y, top, &best);
    assert_true(best == 0);
    assert_true(fabs(log_sum - log(2 + exp(-1))) < 1e-6);
    assert_true(fabsf(y[0] + y[2] + y[5] - 1) < 1e-6f && y[1] < 1e-30f && y[4] < 1e-30f);
}

static void softmax_takes_any_range(void **state) {
    (void)state;
    at_each_level(check_softmax);
}

/* The largest so far grows from block to block. */
static void check_blocks(const struct cpu_level *level) {
    enum { N = 4 * SOFTMAX_BLOCK + 77, BEST = 3 * SOFTMAX_BLOCK + 5 };
    static float x[N], y[N], tops[SOFTMAX_TOPS(N)];
    double sum = 0;
    int64_t best;
    for (int k = 0; k < N; k++) x[k] = (float)(k / SOFTMAX_BLOCK) + (float)(k * 7 % 31) / 32;
    x[BEST] = x[BEST + 9] = 20;
    for (int k = 0; k < N; k++) sum += exp((double)x[k] - 20);
    assert_true(fabs(level->softmax(N, x, y, tops, &best) - log(sum)) < 1e-6);
    assert_true(best == BEST);
    for (int k = 0; k < N; k++) {
        double expected = exp((double)x[k] - 20) / sum;
        assert_true(fabs((double)y[k] - expected) <= 2e-6 * expected);
    }
    x[N - 1] = NAN;
    assert_true(isnan(level->softmax(N, x, y, tops, &best)));
}

static void softmax_of_blocks_is_near_libm(void **state) {
    (void)state;
    at_each_level(check_blocks);
}

/* Relative errors where the functions are far from 0 or 1, and near them. */
static void sigmoid_and_tanh_are_near_libm(void **state) {
    (void)state;
    for (int i = -870000; i <= 870000; i += 7) {
        double x = (double)((float)i / 10000);
        double s = 1 / (1 + exp(-x)), off = fabs((double)fast_sigmoid((float)x) - s);
        if (!(off <= 5e-7 * s)) fail_msg("sigmoid(%g) is off by %g", x, off / s);
        off = fabs((double)fast_tanh((float)x / 32) - tanh(x / 32));
        if (!(off <= 5e-7 * fabs(tanh(x / 32)))) fail_msg("tanh(%g) is off by %g", x / 32, off);
    }
    assert_true(fast_tanh(INFINITY) == 1 && fast_tanh(-INFINITY) == -1 && fast_tanh(1e-20f) > 0);
    assert_true(fast_sigmoid(INFINITY) == 1 && fast_sigmoid(-INFINITY) < 1e-37f);
    assert_true(isnan(fast_tanh(NAN)) && isnan(fast_sigmoid(NAN)));
}

static void check_dropout(const struct cpu_level *level) {
    enum { N = 100001 };
    static uint8_t mask[N];
    int stay = 0;
    level->dropout_mask(rng_key(3, RNG_DROPOUT), 77, (uint64_t)4 << 40, 0.3f, N, mask);
    for (int k = 0; k < N; k++) {
        assert_true(mask[k] <= 1);
        stay += mask[k];
    }
    assert_true(abs(stay - 70000) < 700); /* 5 standard deviations */
}

static void dropout_keeps_its_share(void **state) {
    (void)state;
    at_each_level(check_dropout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_near_libm),
        cmocka_unit_test(normal_is_near_libm),
        cmocka_unit_test(gelu_keeps_its_limits),
        cmocka_unit_test(relu_keeps_nan),
        cmocka_unit_test(softmax_takes_any_range),
        cmocka_unit_test(dropout_keeps_its_share),
        cmocka_unit_test(softmax_of_blocks_is_near_libm),
        cmocka_unit_test(sigmoid_and_tanh_are_near_libm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
