/* conv_direct_kernels.c with the tiles of AMX, whose instructions are a model in plain C here, beside sums in doubles: windows
 * evenly apart and not, taps side by side and not, every number of blocks, and what is done with a sum at last. */
#define CPU_LEVEL modelled
#define AMX_MODEL "tests/harness/tiles_model.h"
#include "engine/device/cpu/names.h"

#include "engine/device/cpu/conv_direct_kernels.c"
#include "tests/harness/harness.h"

enum { RUNS = 6, ROW = 40 * B, PLANE = 50 * B, FLOATS = 8 * ROW };
enum { UNEVEN = 1, TURNED = 2, ADDED = 4, BIASED = 8, CUT = 16, WAYS = 32 };

static float a[FLOATS], b[DIRECT_PANEL * RUNS * TAP * B], before[DIRECT_PANEL * PLANE], c[DIRECT_PANEL * PLANE];
static float bias[DIRECT_PANEL * B];
static uint32_t seed = 1;

/* Of no pattern and of either sign. */
static float number(void) {
    seed = seed * 1664525u + 1013904223u;
    return ((float)(seed >> 8) / (1 << 23) - 1) / 3;
}

static void fill_pairs(float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = pairs_of(all(number()), all(number()))[0];
}

/* One of the two bf16 of a pair. */
static double half(float pair, int which) {
    uint32_t bits;
    float value;
    memcpy(&bits, &pair, sizeof bits);
    bits = which ? bits & 0xffff0000u : bits << 16;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* Windows of a row of pixels, or of two; runs are the taps of two rows of three, from the last to the first where the
 * convolution is turned. */
struct places {
    int64_t a_at[64], c_at[64];
    struct direct_run run[RUNS];
};
static struct direct_product product_of(struct places *s, int64_t rows, int64_t blocks, int way) {
    for (int64_t i = 0; i < rows; i++) {
        s->a_at[i] = way & UNEVEN ? i / 7 * ROW + i % 7 * 2 * TAP : i * TAP;
        s->c_at[i] = (way & UNEVEN ? i / 7 * 9 + i % 7 : i) * B;
    }
    for (int i = 0; i < RUNS; i++) {
        int tap = way & TURNED ? RUNS - 1 - i : i;
        s->run[i] = (struct direct_run){tap / 3 * ROW + tap % 3 * TAP, i * TAP * B};
    }
    return (struct direct_product){.rows = rows,
                                   .runs = RUNS,
                                   .depth = TAP,
                                   .a_next = 1,
                                   .a_at = s->a_at,
                                   .c_at = s->c_at,
                                   .run = s->run,
                                   .a = a,
                                   .b = b,
                                   .blocks = blocks,
                                   .b_block = RUNS * TAP * B,
                                   .c_block = PLANE,
                                   .c = c,
                                   .add = way & ADDED,
                                   .pairs = true,
                                   .bias = way & BIASED ? bias : NULL,
                                   .relu = way & CUT};
}

static double exact(const struct direct_product *p, int64_t row, int64_t column, double *size) {
    int64_t at = column / B * p->c_block + p->c_at[row] + column % B;
    double sum = (p->add ? (double)before[at] : 0) + (p->bias ? (double)bias[column] : 0);
    *size = fabs(sum) + 1e-30;
    for (int64_t s = 0; s < p->runs; s++)
        for (int64_t k = 0; k < 2 * p->depth; k++) {
            double x = half(p->a[p->a_at[row] + p->run[s].a + k / 2], k % 2);
            double w = half(p->b[column / B * p->b_block + p->run[s].b + k / 2 * B + column % B], k % 2);
            sum += x * w;
            *size += fabs(x * w);
        }
    return p->relu ? fmax(sum, 0) : sum;
}

static void check(const struct direct_product *p, int way) {
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->blocks * B; j++) {
            float *got = &c[j / B * p->c_block + p->c_at[i] + j % B];
            double size, off = fabs((double)*got - exact(p, i, j, &size));
            if (!(off <= 3e-7 * size))
                fail_msg("%lld windows, %lld blocks, way %d: off by %g of %g at %lld, %lld", (long long)p->rows,
                         (long long)p->blocks, way, off, size, (long long)i, (long long)j);
            *got = before[got - c];
        }
    assert_memory_equal(c, before, sizeof c); /* and nothing else was written */
}

static void products_are_right(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 2, 15, 16, 17, 32, 33};
    struct places s;
    fill_pairs(a, FLOATS);
    fill_pairs(b, (int64_t)(sizeof b / sizeof *b));
    for (size_t i = 0; i < sizeof bias / sizeof *bias; i++) bias[i] = number();
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) before[i] = c[i] = number();
    for (int way = 0; way < WAYS; way++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (int64_t blocks = 1; blocks <= DIRECT_PANEL; blocks++) {
                struct direct_product p = product_of(&s, rows[i], blocks, way);
                assert_true(amx_takes(&p));
                direct_multiply(&p);
                assert_int_equal(model_configured, 0);
                check(&p, way);
            }
}

/* A window's sums are the same whatever windows are beside it. */
static void windows_keep_their_bits(void **state) {
    (void)state;
    struct places s;
    struct direct_product p = product_of(&s, 40, DIRECT_PANEL, 0);
    direct_multiply(&p);
    for (int64_t i = 0; i < 40; i++) {
        float alone[DIRECT_PANEL * B];
        struct direct_product one = p;
        one.rows = 1, one.a_at += i, one.c_at = &(int64_t){0}, one.c = alone, one.c_block = B;
        direct_multiply(&one);
        for (int v = 0; v < DIRECT_PANEL; v++)
            assert_memory_equal(alone + v * B, c + v * PLANE + s.c_at[i], B * sizeof(float));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(windows_keep_their_bits),
    };
    return cmocka_run_group_tests_name("convolutions by tiles of AMX", tests, NULL, NULL);
}
