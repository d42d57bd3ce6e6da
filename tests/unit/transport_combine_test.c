/* The arithmetic of the types: against doubles rounded once, for every bit pattern and for those
 * that are hard to round; and alike wherever in a buffer an element stands. */
#include "tests/harness/harness.h"

#include "tests/conformance/sums.h"

static bool narrow_nan(enum dtype t, uint16_t h) {
    return isnan(narrow_read(t, h));
}

/* a against one b, for all a. */
static void all_against(enum dtype t, enum redop op, uint16_t b) {
    enum { ALL = 1 << 16 };
    static uint16_t left[ALL], right[ALL], got[ALL];
    for (int i = 0; i < ALL; i++) {
        left[i] = (uint16_t)i;
        right[i] = b;
    }
    combine(t, op, ALL, got, left, right);
    for (int i = 0; i < ALL; i++) {
        uint16_t want = left[i];
        pair(t, op, &want, &b);
        bool picks = op == REDOP_MIN || op == REDOP_MAX;
        if (picks && narrow_nan(t, b)) want = b;
        if (picks && narrow_nan(t, left[i])) want = left[i];
        if (got[i] != want)
            fail_msg("%s: %04x op %d %04x gave %04x and not %04x", dtype_name(t), i, (int)op, b, got[i], want);
    }
}

static void narrow_types_round_once(void **state) {
    static const uint16_t hard[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x0401, 0x3800,
                                    0x3c00, 0x3c01, 0x3bff, 0x4247, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
                                    0x7c01, 0x7e00, 0x1234, 0x2f80, 0x2001, 0x1fff, 0x007f, 0x0080,
                                    0x0081, 0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x0355};
    (void)state;
    for (int i = 0; i < (int)(sizeof hard / sizeof *hard); i++)
        for (enum redop op = REDOP_SUM; op <= REDOP_MAX; op++) {
            all_against(DTYPE_F16, op, hard[i]);
            all_against(DTYPE_BF16, op, hard[i]);
        }
}

static void averages_divide_once(void **state) {
    static uint16_t got[1 << 16];
    (void)state;
    for (enum dtype t = DTYPE_F16; t <= DTYPE_BF16; t++)
        for (int n = 1; n <= 64; n += 1 + n / 8) {
            struct sum s = {.type = t, .op = REDOP_AVERAGE, .ranks = n};
            for (int i = 0; i < 1 << 16; i++) got[i] = (uint16_t)i;
            sum_complete(&s, 1 << 16, got);
            for (int i = 0; i < 1 << 16; i++) {
                _Alignas(8) uint16_t want[4] = {(uint16_t)i}; /* room for any type */
                divide(t, want, n);
                if (got[i] != want[0])
                    fail_msg("%s: %04x / %d gave %04x and not %04x", dtype_name(t), i, n, got[i], want[0]);
            }
        }
}

static void integers_divide_toward_zero(void **state) {
    int32_t v[] = {7, -7, 8, -8, INT32_MIN};
    struct sum s = {.type = DTYPE_I32, .op = REDOP_AVERAGE, .ranks = 4};
    (void)state;
    sum_complete(&s, 5, v);
    assert_int_equal(v[0], 1);
    assert_int_equal(v[1], -1);
    assert_int_equal(v[2], 2);
    assert_int_equal(v[3], -2);
    assert_int_equal(v[4], INT32_MIN / 4);
}

static bool f32_nan(uint32_t u) {
    return (u & 0x7fffffff) > 0x7f800000;
}

/* Which of two NaNs becomes their sum or product is open. */
static bool either_nan(enum redop op, uint32_t a, uint32_t b, uint32_t got) {
    bool picks = op == REDOP_MIN || op == REDOP_MAX;
    uint32_t quiet = 1u << 22;
    return !picks && f32_nan(a) && f32_nan(b) && (got == (a | quiet) || got == (b | quiet));
}

/* -0 and NaN, of every payload and sign, come out the same in a vector and alone. */
static void alone_as_among_others(void **state) {
    static const uint32_t odd[] = {0x80000000, 0,          0x7fc00001, 0xffc00002, 0x7f800001,
                                   0x7f800000, 0xff800000, 0x3f800000, 1,          0x80000001};
    enum { ODD = sizeof odd / sizeof *odd, N = ODD * ODD };
    uint32_t a[N], b[N], all[N], one;
    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = odd[i / ODD];
        b[i] = odd[i % ODD];
    }
    for (enum redop op = REDOP_SUM; op <= REDOP_MAX; op++) {
        combine(DTYPE_F32, op, N, all, a, b);
        for (int i = 0; i < N; i++) {
            combine(DTYPE_F32, op, 1, &one, &a[i], &b[i]);
            bool open = either_nan(op, a[i], b[i], one) && either_nan(op, a[i], b[i], all[i]);
            if (one != all[i] && !open)
                fail_msg("%08x op %d %08x: %08x alone, %08x in a vector", a[i], (int)op, b[i], one, all[i]);
            if (f32_nan(one) != (f32_nan(a[i]) || f32_nan(b[i])) && op >= REDOP_MIN)
                fail_msg("%08x op %d %08x: %08x", a[i], (int)op, b[i], one); /* no NaN is lost */
        }
    }
}

static void bits_are_of_integers(void **state) {
    (void)state;
    for (enum redop op = 0; op < REDOPS; op++)
        for (enum dtype t = 0; t < DTYPES; t++) assert_true(redop_suits(op, t) == (op < REDOP_AND || t >= DTYPE_I32));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_types_round_once),     cmocka_unit_test(averages_divide_once),
        cmocka_unit_test(integers_divide_toward_zero), cmocka_unit_test(alone_as_among_others),
        cmocka_unit_test(bits_are_of_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
