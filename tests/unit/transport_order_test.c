/* The order of additions: written out for small numbers of ranks, independent of how the range is
 * cut, and right where a result is one of the inputs. */
#include "tests/harness/harness.h"

#include "transport/algo/order.h"
#include "transport/link/link.h"

enum { RANKS = 8, N = 3001 };
static float in[RANKS][N];

static void fill(void) {
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < N; i++) in[r][i] = (float)((i * 7919 + r * 104729) % 2003 - 1001) * (r % 2 ? 1e-3f : 1.3f);
}

static void sum(enum order order, int ranks, int64_t lo, int64_t hi, float *const *to, int outs) {
    uint8_t adds[RANKS];
    struct sum s = {.order = order, .type = DTYPE_F32, .ranks = ranks, .count = N, .terms = ranks, .adds = adds};
    const char *from[RANKS];
    leaves_adds((int[RANKS]){0, 1, 2, 3, 4, 5, 6, 7}, ranks, adds);
    char *out[RANKS];
    for (int r = 0; r < ranks; r++) from[r] = (const char *)(in[r] + lo);
    for (int i = 0; i < outs; i++) out[i] = (char *)(to[i] + lo);
    order_sum(&s, lo, hi, from, out, outs);
}

static void tree_order(void **state) {
    static float got[N];
    (void)state;
    fill();
    sum(ORDER_TREE, 3, 0, N, (float *[]){got}, 1);
    for (int i = 0; i < N; i++) assert_true(got[i] == (in[0][i] + in[1][i]) + in[2][i]);
    sum(ORDER_TREE, 5, 0, N, (float *[]){got}, 1);
    for (int i = 0; i < N; i++) assert_true(got[i] == ((in[0][i] + in[1][i]) + (in[2][i] + in[3][i])) + in[4][i]);
    sum(ORDER_TREE, 8, 0, N, (float *[]){got}, 1);
    for (int i = 0; i < N; i++) {
        float a = (in[0][i] + in[1][i]) + (in[2][i] + in[3][i]);
        float b = (in[4][i] + in[5][i]) + (in[6][i] + in[7][i]);
        assert_true(got[i] == a + b);
    }
}

static void ring_order(void **state) {
    static float got[N];
    (void)state;
    fill();
    sum(ORDER_RING, 3, 0, N, (float *[]){got}, 1);
    for (int i = 0; i < N; i++) {
        int c = i < N / 3 ? 0 : i < 2 * N / 3 ? 1 : 2;
        assert_true(got[i] == (in[c][i] + in[(c + 1) % 3][i]) + in[(c + 2) % 3][i]);
    }
}

static void cuts_do_not_matter(void **state) {
    static float whole[N], parts[N];
    (void)state;
    fill();
    for (enum order o = ORDER_TREE; o <= ORDER_RING; o++) {
        sum(o, 7, 0, N, (float *[]){whole}, 1);
        for (int64_t lo = 0, hi, step = 1; lo < N; lo = hi, step = step * 3 % 1009) {
            hi = lo + step < N ? lo + step : N;
            sum(o, 7, lo, hi, (float *[]){parts}, 1);
        }
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

static void results_may_be_inputs(void **state) {
    static float want[N];
    (void)state;
    for (enum order o = ORDER_TREE; o <= ORDER_RING; o++)
        for (int ranks = 2; ranks <= RANKS; ranks++) {
            float *to[RANKS];
            fill();
            for (int r = 0; r < ranks; r++) to[r] = in[ranks - 1 - r];
            sum(o, ranks, 0, N, (float *[]){want}, 1);
            sum(o, ranks, 5, N, to, ranks);
            for (int r = 0; r < ranks; r++) assert_memory_equal(want + 5, in[r] + 5, sizeof want - 20);
        }
}

static void integers_wrap(void **state) {
    int32_t a[] = {INT32_MAX, INT32_MIN, -5}, b[] = {1, -1, 3}, out[3];
    uint8_t c[] = {200, 3}, d[] = {100, 100};
    (void)state;
    combine(DTYPE_I32, REDOP_SUM, 3, out, a, b);
    assert_int_equal(out[0], INT32_MIN);
    assert_int_equal(out[1], INT32_MAX);
    combine(DTYPE_I32, REDOP_MIN, 3, out, a, b);
    assert_int_equal(out[2], -5);
    combine(DTYPE_U8, REDOP_SUM, 2, c, c, d);
    assert_int_equal(c[0], 44);
    combine(DTYPE_U8, REDOP_PROD, 2, c, c, d);
    assert_int_equal(c[1], 103 * 100 % 256);
}

static void chunks_cover_everything(void **state) {
    (void)state;
    for (int64_t n = 0; n < 40; n++)
        for (int w = 1; w <= RANKS; w++) {
            assert_int_equal(order_chunk(n, w, 0), 0);
            assert_int_equal(order_chunk(n, w, w), n);
        }
    assert_int_equal(order_chunk(INT64_MAX / 8, 8, 8), INT64_MAX / 8); /* no overflow on the way */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_order),         cmocka_unit_test(ring_order),
        cmocka_unit_test(cuts_do_not_matter), cmocka_unit_test(results_may_be_inputs),
        cmocka_unit_test(integers_wrap),      cmocka_unit_test(chunks_cover_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
