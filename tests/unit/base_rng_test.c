/* Random numbers: Philox against its authors' vectors, streams that do not meet, moments, shuffles.
 */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"

#include <math.h>
#include <string.h>

/* kat_vectors of Random123, philox4x32 with 10 rounds. */
static void test_known_vectors(void **state) {
    (void)state;
    uint32_t w[4];
    rng_words((struct rng_key){{0, 0}}, 0, 0, w);
    assert_memory_equal(w, ((uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}), 16);
    rng_words((struct rng_key){{~0u, ~0u}}, ~0ull, ~0ull, w);
    assert_memory_equal(w, ((uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}), 16);
    rng_words((struct rng_key){{0xa4093822, 0x299f31d0}}, 0x85a308d3243f6a88, 0x0370734413198a2e, w);
    assert_memory_equal(w, ((uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}), 16);
}

static void test_streams_differ(void **state) {
    (void)state;
    uint64_t seen[64];
    int n = 0;
    for (uint64_t seed = 0; seed < 8; seed++)
        for (int purpose = RNG_INIT; purpose <= RNG_TEST; purpose++)
            seen[n++] = rng_u64(rng_key(seed, (enum rng_purpose)purpose), 0, 0);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) assert_true(seen[i] != seen[j]);
}

static void test_unit_range(void **state) {
    (void)state;
    assert_true(rng_unit(0) == 0.0f);
    assert_true(rng_unit(~0u) < 1.0f);
    double sum = 0;
    enum { N = 100000 };
    struct rng_key key = rng_key(1, RNG_TEST);
    for (uint64_t i = 0; i < N; i++) sum += rng_float(key, i, 0);
    assert_true(fabs(sum / N - 0.5) < 0.005);
}

static void test_below(void **state) {
    (void)state;
    struct rng_key key = rng_key(3, RNG_TEST);
    int counts[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t x = rng_below(key, i, 0, 7);
        assert_true(x < 7);
        counts[x]++;
    }
    for (int i = 0; i < 7; i++) assert_between(counts[i], 9600, 10400); /* 4 sigma */
    assert_int_equal(rng_below(key, 0, 0, 1), 0);
    assert_true(rng_below(key, 0, 0, ~0ull) < ~0ull);
}

static void test_normal_moments(void **state) {
    (void)state;
    enum { N = 100000 };
    double m[5] = {0};
    struct rng_key key = rng_key(2, RNG_TEST);
    for (uint64_t i = 0; i < N; i++) {
        double x = rng_normal(key, i, 5), p = 1;
        assert_true(isfinite(x));
        for (int k = 1; k < 5; k++) m[k] += (p *= x) / N;
    }
    assert_true(fabs(m[1]) < 0.015);
    assert_true(fabs(m[2] - 1) < 0.02);
    assert_true(fabs(m[3]) < 0.06);
    assert_true(fabs(m[4] - 3) < 0.15);
}

/* One by one or many at once, across a counter's half and at odd lengths: the same bits. */
static void test_many_normals(void **state) {
    (void)state;
    enum { N = 1 << 20, LENGTHS = 70 };
    static float many[N];
    struct rng_key key = rng_key(5, RNG_TEST);
    const uint64_t from = (UINT64_C(1) << 32) - N / 2;
    rng_normals(key, 9, from, N, many);
    for (uint64_t i = 0; i < N; i++) {
        float one = rng_normal(key, 9, from + i);
        if (memcmp(&one, &many[i], sizeof one) != 0) fail_msg("number %d is %a and %a", (int)i, one, many[i]);
    }
    for (int n = 0; n < LENGTHS; n++) {
        float few[LENGTHS + 1] = {[0] = 7};
        few[n] = 7;
        rng_normals(key, 9, from, n, few);
        assert_memory_equal(few, many, (size_t)n * sizeof *few);
        assert_true(few[n] == 7);
    }
}

static void test_permutation(void **state) {
    (void)state;
    enum { N = 1000 };
    int64_t a[N], b[N], other[N];
    uint8_t seen[N] = {0};
    struct rng_key key = rng_key(7, RNG_SHUFFLE);
    rng_permutation(key, 4, N, a);
    rng_permutation(key, 4, N, b);
    rng_permutation(key, 5, N, other);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, other, sizeof a);
    for (int i = 0; i < N; i++) {
        assert_between(a[i], 0, N - 1);
        assert_false(seen[a[i]]++);
    }
    rng_permutation(key, 0, 0, a);
    rng_permutation(key, 0, 1, a);
    assert_int_equal(a[0], 0);
}

/* Each of the 6 orders of 3 comes as often as the others. */
static void test_permutation_is_fair(void **state) {
    (void)state;
    int counts[27] = {0};
    struct rng_key key = rng_key(9, RNG_SHUFFLE);
    for (uint64_t epoch = 0; epoch < 6000; epoch++) {
        int64_t p[3];
        rng_permutation(key, epoch, 3, p);
        counts[p[0] * 9 + p[1] * 3 + p[2]]++;
    }
    int orders = 0;
    for (int i = 0; i < 27; i++)
        if (counts[i]) {
            orders++;
            assert_between(counts[i], 880, 1120);
        }
    assert_int_equal(orders, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_vectors),  cmocka_unit_test(test_streams_differ),
        cmocka_unit_test(test_unit_range),     cmocka_unit_test(test_below),
        cmocka_unit_test(test_normal_moments), cmocka_unit_test(test_many_normals),
        cmocka_unit_test(test_permutation),    cmocka_unit_test(test_permutation_is_fair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
