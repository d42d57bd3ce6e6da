/* gemm.c with the tiles of AMX, whose instructions are a model in plain C here, beside products in doubles: every size of
 * what sticks out of a tile, every way of packing, segments, and threads. */
#define CPU_LEVEL modelled
#define AMX_MODEL "tests/harness/tiles_model.h"
#include "engine/device/cpu/names.h"

#include "engine/device/bf16.h"
#include "engine/device/cpu/gemm.c"
#include "engine/device/cpu/gemm_pack.c"
#include "engine/device/cpu/layout.c"
#include "tests/harness/levels.h"

enum { A_TURNED = 1, B_TURNED = 2, ADDED = 4, WAYS = 8 };

struct factors {
    int64_t m, n, k;
    float *a, *b, *c;
    int way;
};

static float *floats_of(int64_t count) {
    void *p = NULL;
    assert_ok(memory_alloc((size_t)count * sizeof(float), &p));
    return p;
}

/* Numbers of no pattern, of either sign, with more digits than bf16 has. */
static void fill(float *to, int64_t count, uint32_t seed) {
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = ((float)(seed >> 8) / (1 << 23) - 1) / 3;
    }
}

static struct factors factors_of(int64_t m, int64_t n, int64_t k, int way) {
    struct factors f = {m, n, k, floats_of(m * k), floats_of(k * n), floats_of(m * n), way};
    fill(f.a, m * k, 1);
    fill(f.b, k * n, 2);
    fill(f.c, m * n, 3);
    return f;
}

static void factors_free(struct factors *f) {
    memory_free(f->a);
    memory_free(f->b);
    memory_free(f->c);
}

static void product_run(const struct device *dev, struct factors *f, const struct segments *segments, void *pack) {
    bool a_turned = f->way & A_TURNED, b_turned = f->way & B_TURNED;
    struct gemm g = {.m = f->m,
                     .n = f->n,
                     .k = f->k,
                     .a = f->a,
                     .lda = a_turned ? f->m : f->k,
                     .a_transposed = a_turned,
                     .b = f->b,
                     .ldb = b_turned ? f->k : f->n,
                     .b_transposed = b_turned,
                     .c = f->c,
                     .ldc = f->n,
                     .add = f->way & ADDED,
                     .segments = segments,
                     .each = 1,
                     .precision = PRECISION_BF16};
    gemm_run(dev, &g, pack);
    assert_int_equal(model_configured, 0);
}

/* Rounding of factors is exact here; what is left is that of sums. */
static void check(const struct factors *f, const float *before) {
    int64_t at = f->way & A_TURNED ? f->m : 1, ld = f->way & A_TURNED ? 1 : f->k;
    int64_t bt = f->way & B_TURNED ? 1 : f->n, bd = f->way & B_TURNED ? f->k : 1;
    for (int64_t i = 0; i < f->m; i++)
        for (int64_t j = 0; j < f->n; j++) {
            double sum = f->way & ADDED ? (double)before[i * f->n + j] : 0, size = fabs(sum) + 1e-30;
            for (int64_t k = 0; k < f->k; k++) {
                double a = (double)bf16_round(f->a[i * ld + k * at]), b = (double)bf16_round(f->b[j * bd + k * bt]);
                sum += a * b, size += fabs(a * b);
            }
            double off = fabs((double)f->c[i * f->n + j] - sum);
            if (!(off <= 3e-7 * size))
                fail_msg("%lld x %lld x %lld, way %d: off by %g of %g at %lld, %lld", (long long)f->m, (long long)f->n,
                         (long long)f->k, f->way, off, size, (long long)i, (long long)j);
        }
}

static struct device *devices[2];
static void *pack;

static void check_size(int64_t m, int64_t n, int64_t k, int way, const struct segments *segments) {
    struct factors f[2];
    float *before = floats_of(m * n);
    fill(before, m * n, 3);
    for (int d = 0; d < 2; d++) {
        f[d] = factors_of(m, n, k, way);
        product_run(devices[d], &f[d], segments, pack);
        check(&f[d], before);
    }
    assert_memory_equal(f[0].c, f[1].c, (size_t)(m * n) * sizeof *f[0].c); /* 1 and 3 threads */
    for (int d = 0; d < 2; d++) factors_free(&f[d]);
    memory_free(before);
}

static void products_of_every_size(void **state) {
    (void)state;
    static const int64_t ms[] = {1, 7, 16, 17, 32, 45, 64}, ns[] = {1, 15, 16, 31, 32, 33, 48, 100};
    static const int64_t ks[] = {1, 2, 31, 32, 33, 97};
    for (int way = 0; way < WAYS; way++)
        for (size_t m = 0; m < sizeof ms / sizeof *ms; m++)
            for (size_t n = 0; n < sizeof ns / sizeof *ns; n++)
                for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) check_size(ms[m], ns[n], ks[k], way, NULL);
}

/* More than a block of rows, of columns and of k. */
static void products_of_several_blocks(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        check_size(290, 33, 801, way, NULL);
        check_size(20, 801, 70, way, NULL);
    }
}

static void segments_are_added(void **state) {
    (void)state;
    const struct segments s = {.count = 4, .begin = {0, 40, 73, 73, 100}};
    for (int way = 0; way < ADDED; way++) check_size(70, 50, 100, way, &s);
}

/* A row of C is the same whatever rows are beside it. */
static void rows_keep_their_bits(void **state) {
    (void)state;
    struct factors all = factors_of(50, 40, 90, 0), some = factors_of(13, 40, 90, 0);
    product_run(devices[0], &all, NULL, pack);
    product_run(devices[0], &some, NULL, pack);
    assert_memory_equal(all.c, some.c, 13 * 40 * sizeof *all.c);
    factors_free(&all);
    factors_free(&some);
}

static int devices_open(void **state) {
    (void)state;
    int count;
    for (int d = 0; d < 2; d++) devices[d] = open_at(cpu_levels(&count)[0], d ? 3 : 1);
    return memory_alloc(gemm_pack_bytes(devices[1], 1 << 20), &pack);
}

static int devices_close(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) devices[d]->ops->close(devices[d]);
    memory_free(pack);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_every_size),
        cmocka_unit_test(products_of_several_blocks),
        cmocka_unit_test(segments_are_added),
        cmocka_unit_test(rows_keep_their_bits),
    };
    return cmocka_run_group_tests_name("tiles of AMX", tests, devices_open, devices_close);
}
