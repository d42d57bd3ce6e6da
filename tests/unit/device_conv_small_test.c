/* conv_small, at every level of instructions that this machine has, against the plain C reference. */
#include "tests/harness/levels.h"

#include "engine/device/cpu/conv_small.h"
#include "engine/device/ref/ref.h"
#include "engine/device/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct geometry {
    int c, h, w, oc, kh, kw, ph, pw, n;
};

/* ---- an op with its data --------------------------------------------------------------------- */
struct bench {
    struct op *op;
    struct op_args a;
    float *x, *y, *dy, *dx, *w[2], *dw[2];
    void *saved, *scratch;
    size_t xs, ys, ws;
};

static float noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (1 << 24) - 0.5f;
}

/* Inputs end where their memory ends, so that a sanitizer sees what reads beyond. */
static float *take_noise(size_t count, uint32_t seed) {
    float *p = malloc(count * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < count; i++) p[i] = noise(&seed);
    return p;
}

/* Outputs are NaN at first, so that what an op forgets to write shows, and bytes that it must not
 * touch follow. */
enum { GUARD = 64, NEVER = 0xff };
static void *take(size_t bytes) {
    void *p;
    assert_ok(memory_alloc(bytes + GUARD, &p));
    memset(p, NEVER, bytes + GUARD);
    return p;
}

static void give_back(void *p, size_t bytes) {
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(((unsigned char *)p)[bytes + i], NEVER);
    memory_free(p);
}

static struct op_desc describe(const struct geometry *g, bool relu, bool pool, bool bias, bool first) {
    int oh = g->h + 2 * g->ph - g->kh + 1, ow = g->w + 2 * g->pw - g->kw + 1;
    return (struct op_desc){
        .kind = OP_CONV2D,
        .n = g->n,
        .x = {3, {g->c, g->h, g->w}},
        .y = {3, {g->oc, pool ? oh / 2 : oh, pool ? ow / 2 : ow}},
        .act = relu ? ACT_RELU : ACT_NONE,
        .first = first,
        .conv = {.window = {{g->kh, g->kw}, {1, 1}, {g->ph, g->pw}}, .groups = 1, .bias = bias, .maxpool = pool}};
}

static void bench_open(struct bench *b, struct op *op) {
    const struct op_desc *d = &op->desc;
    *b = (struct bench){.op = op};
    b->xs = (size_t)shape_count(&d->x), b->ys = (size_t)shape_count(&d->y);
    b->ws = (size_t)(d->y.dim[0] * d->x.dim[0] * d->conv.window.kernel[0] * d->conv.window.kernel[1]);
    size_t n = (size_t)d->n, oc = (size_t)d->y.dim[0];
    b->x = take_noise(n * b->xs, 1), b->dy = take_noise(n * b->ys, 2);
    b->w[0] = take_noise(b->ws, 3), b->w[1] = take_noise(oc, 4);
    b->y = take(n * b->ys * sizeof(float)), b->dx = take(n * b->xs * sizeof(float));
    b->dw[0] = take(b->ws * sizeof(float)), b->dw[1] = take(oc * sizeof(float));
    b->saved = take(op->saved_bytes), b->scratch = take(op->scratch_bytes);
    b->a = (struct op_args){.x = {b->x},
                            .y = b->y,
                            .dy = b->dy,
                            .dx = {d->first ? NULL : b->dx},
                            .w = {b->w[0], d->conv.bias ? b->w[1] : NULL},
                            .dw = {b->dw[0], d->conv.bias ? b->dw[1] : NULL},
                            .saved = b->saved,
                            .scratch = b->scratch,
                            .training = true};
}

static void bench_close(struct bench *b) {
    size_t n = (size_t)b->op->desc.n, oc = (size_t)b->op->desc.y.dim[0];
    free(b->x), free(b->dy), free(b->w[0]), free(b->w[1]);
    give_back(b->y, n * b->ys * sizeof(float)), give_back(b->dx, n * b->xs * sizeof(float));
    give_back(b->dw[0], b->ws * sizeof(float)), give_back(b->dw[1], oc * sizeof(float));
    give_back(b->saved, b->op->saved_bytes), give_back(b->scratch, b->op->scratch_bytes);
    op_free(b->op);
}

static void bench_run(struct bench *b) {
    assert_ok(op_forward(b->op, &b->a));
    memset(b->scratch, NEVER, b->op->scratch_bytes); /* others use it between the passes */
    assert_ok(op_backward(b->op, &b->a));
}

static void assert_near(const char *what, const struct op_desc *d, const float *got, const float *want, size_t count) {
    char x[96], y[96];
    double scale = 0;
    for (size_t i = 0; i < count; i++) /* fmax here is more than gcc 12 bears on ARM64 */
        if (fabs((double)want[i]) > scale) scale = fabs((double)want[i]);
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 1e-5 * scale))
            fail_msg("%s[%zu] of %d samples, %s to %s, kernel %dx%d, pad %d %d, act %d, pool %d: "
                     "%.9g, not %.9g",
                     what, i, (int)d->n, shape_text(&d->x, x), shape_text(&d->y, y), d->conv.window.kernel[0],
                     d->conv.window.kernel[1], d->conv.window.pad[0], d->conv.window.pad[1], d->act, d->conv.maxpool,
                     (double)got[i], (double)want[i]);
}

static void compare(const struct bench *got, const struct bench *want) {
    const struct op_desc *d = &got->op->desc;
    size_t n = (size_t)d->n;
    assert_near("y", d, got->y, want->y, n * got->ys);
    assert_near("dw", d, got->dw[0], want->dw[0], got->ws);
    if (d->conv.bias) assert_near("db", d, got->dw[1], want->dw[1], (size_t)d->y.dim[0]);
    if (!d->first) assert_near("dx", d, got->dx, want->dx, n * got->xs);
}

/* ---- against the reference ------------------------------------------------------------------- */
static const struct geometry cases[] = {
    {1, 28, 28, 6, 5, 5, 2, 2, 3},   /* LeNet's first */
    {6, 14, 14, 16, 5, 5, 0, 0, 3},  /* and second */
    {3, 9, 11, 8, 3, 3, 1, 1, 2},    /* odd sizes: the pool leaves a row and a column out */
    {16, 8, 8, 16, 3, 3, 1, 1, 2},   /* channels in whole vectors */
    {1, 7, 5, 32, 3, 3, 0, 0, 1},    /* one narrow image, many channels */
    {16, 10, 9, 32, 5, 5, 2, 2, 1},  /* the most channels */
    {2, 6, 6, 17, 1, 1, 0, 0, 2},    /* a kernel with no border, one channel in a vector of its own */
    {3, 9, 9, 5, 7, 7, 3, 3, 2},     /* the largest kernel */
    {3, 9, 9, 5, 7, 7, 6, 6, 1},     /* the largest padding: dy has no border */
    {4, 8, 12, 3, 3, 5, 2, 1, 2},    /* neither square nor evenly padded */
    {2, 12, 8, 11, 1, 7, 0, 3, 1},   /* one row of taps */
    {2, 12, 8, 20, 7, 1, 3, 0, 1},   /* one column */
    {5, 2, 2, 4, 3, 3, 1, 1, 3},     /* an image smaller than the kernel */
    {1, 2, 2, 1, 1, 1, 0, 0, 1},     /* one pooled pixel */
    {1, 6, 33, 1, 3, 3, 1, 1, 2},    /* rows a little longer than vectors */
    {7, 5, 65, 13, 3, 3, 1, 1, 1},   /* and than blocks of them */
    {1, 224, 224, 2, 3, 3, 1, 1, 1}, /* several bands of rows, many positions for each tap */
    {2, 14, 130, 31, 3, 3, 1, 1, 1}, {11, 31, 47, 3, 5, 5, 2, 2, 1},
};

static const struct op_impl *small_at(const struct cpu_level *level) {
    return impl_at(level, OP_CONV2D, "small");
}

static const struct op_impl *small_at_best(void) {
    int count;
    return small_at(cpu_levels(&count)[0]);
}

static void open_small(struct bench *b, const struct cpu_level *level, struct device *dev, const struct op_desc *d) {
    struct op *op;
    assert_ok(op_make(small_at(level), dev, d, &op));
    bench_open(b, op);
}

static void assert_same(const struct bench *a, const struct bench *b) {
    const struct op_desc *d = &a->op->desc;
    size_t n = (size_t)d->n;
    assert_memory_equal(a->y, b->y, n * a->ys * sizeof *a->y);
    assert_memory_equal(a->dw[0], b->dw[0], a->ws * sizeof *a->y);
    if (d->conv.bias) assert_memory_equal(a->dw[1], b->dw[1], (size_t)d->y.dim[0] * sizeof *a->y);
    if (!d->first) assert_memory_equal(a->dx, b->dx, n * a->xs * sizeof *a->y);
}

static void check_case(struct device *dev, const struct op_desc *d) {
    int levels;
    const struct cpu_level *const *level = cpu_levels(&levels);
    struct bench want, first;
    struct op *op;
    assert_ok(op_make(&op_row(OP_CONV2D)->plain, dev, d, &op));
    bench_open(&want, op);
    bench_run(&want);
    for (int i = 0; i < levels; i++) {
        struct bench got;
        open_small(&got, level[i], dev, d);
        bench_run(&got);
        compare(&got, &want);
        if (i == 0) {
            first = got;
            continue;
        }
        if (level[i]->fused) assert_same(&got, &first);
        bench_close(&got);
    }
    bench_close(&first);
    bench_close(&want);
}

static void test_cases(void **state) {
    (void)state;
    struct device dev = {.params = {.count = 1, .threads = 1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int v = 0; v < 8; v++) { /* with the pool and without, in both precisions; what else there is, mixed */
            bool pool = v & 1, relu = (v + c) % 3 != 0, bias = v != 2, first = v & 2 && c % 2;
            struct op_desc d = describe(&cases[c], relu, pool, bias, first);
            if (v & 4) d.precision = PRECISION_BF16;
            if (d.y.dim[1] > 0 && d.y.dim[2] > 0) check_case(&dev, &d);
        }
}

/* Any geometry, small: so that each block size of the kernels has its turn. */
static void test_many(void **state) {
    (void)state;
    struct device dev = {.params = {.count = 1, .threads = 1}};
    uint32_t seed = 7;
    for (int i = 0; i < 200; i++) {
        int v[9], most[] = {CONV_IN_MAX, 14, 30, CONV_OUT_MAX, CONV_SIDE_MAX, CONV_SIDE_MAX};
        for (int j = 0; j < 6; j++) v[j] = 1 + (int)((noise(&seed) + 0.5f) * (float)most[j]);
        for (int j = 6; j < 9; j++) v[j] = (int)((noise(&seed) + 0.5f) * (float)(j < 8 ? v[j - 2] : 2));
        struct geometry g = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8] + 1};
        struct op_desc d = describe(&g, i % 2, i % 4, i % 3, i % 5 == 0);
        if (i % 7 < 2) d.precision = PRECISION_BF16;
        if (d.y.dim[1] > 0 && d.y.dim[2] > 0) check_case(&dev, &d);
    }
}

/* ---- what is no number ----------------------------------------------------------------------- */
/* A NaN goes through a pool and a ReLU as in plain C, whichever of a window's places it has, at every level. */
static void test_nan(void **state) {
    (void)state;
    const struct geometry g = {1, 16, 18, 20, 1, 1, 0, 0, 1}; /* a pixel of y is one of x */
    struct device dev = {.params = {.count = 1, .threads = 1}};
    int levels;
    const struct cpu_level *const *level = cpu_levels(&levels);
    for (int i = 0; i < levels; i++)
        for (int relu = 0; relu < 2; relu++) {
            struct op_desc d = describe(&g, relu, true, true, false);
            struct bench want, got;
            struct op *op;
            assert_ok(op_make(&op_row(OP_CONV2D)->plain, &dev, &d, &op));
            bench_open(&want, op);
            open_small(&got, level[i], &dev, &d);
            for (size_t k = 0; k < want.xs; k++) /* one, two, three or four of a window */
                if (k % 5 == 0 || k % 7 == 3) want.x[k] = got.x[k] = k % 2 ? NAN : -NAN;
            assert_ok(op_forward(want.op, &want.a));
            assert_ok(op_forward(got.op, &got.a));
            for (size_t k = 0; k < want.ys; k++)
                if (isnan(want.y[k]) != isnan(got.y[k]))
                    fail_msg("%s, relu %d: y[%zu] is %g, not %g", level[i]->name, relu, k, (double)got.y[k],
                             (double)want.y[k]);
            bench_close(&want), bench_close(&got);
        }
}

/* ---- bits ------------------------------------------------------------------------------------ */
static void begin_helper(const void *user) {
    (void)user;
}

/* The same bits from a run to the next and on any number of threads, and y and dx of a sample whatever its batch. */
static void test_bits(void **state) {
    (void)state;
    struct device one = {.params = {.count = 1, .threads = 1}};
    struct device three = {.params = {.count = 1, .threads = 3}};
    int levels;
    const struct cpu_level *const *level = cpu_levels(&levels);
    assert_ok(threads_create(3, begin_helper, NULL, &three.threads));
    for (int i = 0; i < levels; i++)
        for (int c = 0; c < 4; c++)
            for (int pool = 0; pool < 2; pool++) {
                struct geometry many = cases[c], few = cases[c];
                many.n = 7, few.n = 2;
                struct op_desc dm = describe(&many, true, pool, true, false);
                struct op_desc df = describe(&few, true, pool, true, false);
                struct bench a, b, t;
                open_small(&a, level[i], &one, &dm), open_small(&b, level[i], &one, &df);
                open_small(&t, level[i], &three, &dm);
                bench_run(&a), bench_run(&b), bench_run(&t);
                size_t n = (size_t)dm.n, ys = n * a.ys * sizeof(float), dw = a.ws * sizeof(float);
                assert_memory_equal(a.y, b.y, (size_t)df.n * a.ys * sizeof(float));
                assert_memory_equal(a.y, t.y, ys);
                assert_memory_equal(a.dx, b.dx, (size_t)df.n * a.xs * sizeof(float));
                assert_memory_equal(a.dx, t.dx, n * a.xs * sizeof(float));
                assert_memory_equal(a.dw[0], t.dw[0], dw);
                bench_run(&t);
                assert_memory_equal(a.dw[0], t.dw[0], dw);
                t.a.training = false, t.a.saved = NULL;
                memset(t.y, NEVER, ys);
                assert_ok(op_forward(t.op, &t.a));
                assert_memory_equal(a.y, t.y, ys);
                bench_close(&a), bench_close(&b), bench_close(&t);
            }
    threads_free(three.threads);
}

static void test_steps_allocate_nothing(void **state) {
    (void)state;
    struct device dev = {.params = {.count = 1, .threads = 1}};
    for (int c = 0; c < 2; c++) {
        struct op_desc d = describe(&cases[c], true, true, true, c == 0);
        struct bench b;
        struct op *op;
        assert_ok(op_make(small_at_best(), &dev, &d, &op));
        bench_open(&b, op);
        count_allocations_begin();
        bench_run(&b);
        assert_int_equal(count_allocations_end(), 0);
        bench_close(&b);
    }
}

/* ---- the pool's ties ------------------------------------------------------------------------- */

/* Of equal maxima the first has the gradient; what ReLU cut has none. */
static void test_ties(void **state) {
    (void)state;
    static const float x[16] = {1, 1, 2, 3, 1, 1, 3, 3, -1, 0, 0, 5, -2, 0, 5, 0};
    static const float want[16] = {10, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 0};
    struct geometry g = {1, 4, 4, 1, 1, 1, 0, 0, 1};
    struct op_desc d = describe(&g, true, true, false, false);
    struct device dev = {.params = {.count = 1, .threads = 1}};
    int levels;
    const struct cpu_level *const *level = cpu_levels(&levels);
    for (int i = 0; i < levels; i++) {
        struct bench b;
        open_small(&b, level[i], &dev, &d);
        memcpy(b.x, x, sizeof x);
        *b.w[0] = 1;
        for (int j = 0; j < 4; j++) b.dy[j] = 10.0f * (float)(j + 1);
        bench_run(&b);
        assert_memory_equal(b.dx, want, sizeof want);
        assert_true(*b.dw[0] == 10 + 60 + 200);
        bench_close(&b);
    }
}

static void test_takes(void **state) {
    (void)state;
    struct op_desc lenet = describe(&cases[0], true, true, true, true), d = lenet;
    assert_true(op_impl_takes(small_at_best(), &d));
    d.precision = PRECISION_BF16;
    assert_true(op_impl_takes(small_at_best(), &d));
    d.precision = PRECISION_FP16;
    assert_false(op_impl_takes(small_at_best(), &d));
    d = lenet, d.conv.groups = 2;
    assert_false(op_impl_takes(small_at_best(), &d));
    d = lenet, d.conv.window.stride[1] = 2;
    assert_false(op_impl_takes(small_at_best(), &d));
    d = lenet, d.conv.window.kernel[0] = 8;
    assert_false(op_impl_takes(small_at_best(), &d));
    d = lenet, d.conv.window.pad[0] = 5;
    assert_false(op_impl_takes(small_at_best(), &d));
    d = lenet, d.x.dim[0] = CONV_IN_MAX + 1;
    assert_false(op_impl_takes(small_at_best(), &d));
    d = lenet, d.y.dim[0] = CONV_OUT_MAX + 1;
    assert_false(op_impl_takes(small_at_best(), &d));
    d = lenet, d.x.dim[1] = 1 << 20;
    assert_false(op_impl_takes(small_at_best(), &d));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_nan),
                                       cmocka_unit_test(test_bits),
                                       cmocka_unit_test(test_steps_allocate_nothing),
                                       cmocka_unit_test(test_ties),
                                       cmocka_unit_test(test_takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
