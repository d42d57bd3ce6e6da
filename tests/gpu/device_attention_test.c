/* Attention on a GPU against plain C: shapes that fill its tiles and that do not, softmax of large scores, results
 * that neighbours in the batch have no bearing on, and memory that is not aligned. */
#include "tests/gpu/gpu.h"

#include "engine/base/half.h"
#include "engine/base/rng.h"
#include "engine/device/cuda/attention_launch.h"

#include <math.h>
#include <string.h>

static struct device *dev, *ref;
static int open_devices(void **state) {
    struct device_params p = {.index = 0, .count = 1, .threads = 1};
    (void)state;
    dev = gpu_open(0);
    assert_ok(device_find("ref")->open(&p, &ref));
    return 0;
}

static int close_devices(void **state) {
    (void)state;
    dev->ops->close(dev);
    ref->ops->close(ref);
    return 0;
}

/* ---- one case ------------------------------------------------------------------------------- */
static struct op_desc desc_of(int64_t n, int64_t positions, int heads, int64_t size, bool causal, enum precision p) {
    return (struct op_desc){.kind = OP_ATTENTION,
                            .n = n,
                            .x = {2, {positions, 3 * heads * size}},
                            .y = {2, {positions, heads * size}},
                            .precision = p,
                            .attention = {heads, causal}};
}

static bool is_half(enum precision p) {
    return p == PRECISION_BF16 || p == PRECISION_FP16;
}

static float rounded(enum precision p, float v) {
    if (p == PRECISION_BF16) return widen_bf16(narrow_bf16(v));
    return p == PRECISION_FP16 ? widen_f16(narrow_f16(v)) : v;
}

struct values { /* of one run, on the host */
    int64_t xs, ys;
    float *x, *dy, *y, *dx;
};

static float *floats(int64_t n) {
    void *p = NULL;
    assert_ok(memory_alloc((size_t)n * sizeof(float), &p));
    return p;
}

/* Normal numbers times 'grow', as the precision has them. */
static struct values values_of(const struct op_desc *d, float grow) {
    struct rng_key key = rng_key(3, RNG_TEST);
    struct values v = {.xs = d->n * shape_count(&d->x), .ys = d->n * shape_count(&d->y)};
    v.x = floats(v.xs), v.dx = floats(v.xs), v.y = floats(v.ys), v.dy = floats(v.ys);
    for (int64_t i = 0; i < v.xs; i++) v.x[i] = rounded(d->precision, grow * rng_normal(key, 1, (uint64_t)i));
    for (int64_t i = 0; i < v.ys; i++) v.dy[i] = rounded(d->precision, rng_normal(key, 2, (uint64_t)i));
    return v;
}

static void values_free(struct values *v) {
    memory_free(v->x);
    memory_free(v->dx);
    memory_free(v->y);
    memory_free(v->dy);
}

/* ---- a run on the GPU ----------------------------------------------------------------------- */
/* n values in the precision's type, 'off' elements behind an aligned place; NaN where from is NULL. */
static char *put(const float *from, int64_t n, enum precision p, int off) {
    size_t unit = device_unit(dev, p), bytes = (size_t)n * unit;
    void *there, *here = floats(n);
    memset(here, 0xff, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < n && from; i++) {
        uint16_t h = p == PRECISION_BF16 ? narrow_bf16(from[i]) : narrow_f16(from[i]);
        memcpy((char *)here + (size_t)i * unit, is_half(p) ? (void *)&h : (const void *)&from[i], unit);
    }
    assert_ok(device_alloc(dev, bytes + (size_t)off * unit, &there));
    assert_ok(device_write(dev, (char *)there + (size_t)off * unit, here, bytes));
    assert_ok(device_wait(dev));
    memory_free(here);
    return (char *)there + (size_t)off * unit;
}

static void take(float *to, char *from, int64_t n, enum precision p, int off) {
    size_t unit = device_unit(dev, p);
    void *here = floats(n);
    assert_ok(device_read(dev, here, from, (size_t)n * unit));
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, (char *)here + i * 2, 2);
        if (is_half(p))
            to[i] = p == PRECISION_BF16 ? widen_bf16(h) : widen_f16(h);
        else
            memcpy(to + i, (char *)here + i * 4, 4);
    }
    memory_free(here);
    device_free(dev, from - (size_t)off * unit);
}

/* Of the samples [begin, begin + d->n) of v. */
static void run_gpu(const struct op_desc *d, const struct values *v, int64_t begin, int off) {
    int64_t xs = d->n * shape_count(&d->x), ys = d->n * shape_count(&d->y);
    int64_t x_at = begin * shape_count(&d->x), y_at = begin * shape_count(&d->y);
    enum precision p = d->precision;
    struct op *op = NULL;
    assert_ok(op_create(dev, d, &op));
    char *x = put(v->x + x_at, xs, p, off), *dy = put(v->dy + y_at, ys, p, off);
    char *y = put(NULL, ys, p, off), *dx = put(NULL, xs, p, off);
    struct op_args a = {.x = {(float *)(void *)x},
                        .y = (float *)(void *)y,
                        .dy = (float *)(void *)dy,
                        .dx = {(float *)(void *)dx},
                        .training = true};
    assert_ok(device_alloc(dev, op->saved_bytes, &a.saved));
    assert_ok(device_alloc(dev, op->scratch_bytes, &a.scratch));
    assert_ok(op_forward(op, &a));
    assert_ok(op_backward(op, &a));
    take(v->y + y_at, y, ys, p, off);
    take(v->dx + x_at, dx, xs, p, off);
    assert_ok(device_wait(dev));
    device_free(dev, x - (size_t)off * device_unit(dev, p));
    device_free(dev, dy - (size_t)off * device_unit(dev, p));
    device_free(dev, a.saved);
    device_free(dev, a.scratch);
    op_free(op);
}

static void run_plain(const struct op_desc *like, const struct values *v) {
    struct op_desc d = *like;
    struct op *op = NULL;
    d.precision = PRECISION_F32;
    assert_ok(op_create(ref, &d, &op));
    float *scratch = floats((int64_t)op->scratch_bytes / 4 + 1);
    struct op_args a = {.x = {v->x}, .y = v->y, .dy = v->dy, .dx = {v->dx}, .scratch = scratch, .training = true};
    assert_ok(op_forward(op, &a));
    assert_ok(op_backward(op, &a));
    memory_free(scratch);
    op_free(op);
}

/* The mean squared error as a part of the mean square; not a number when something was not written. */
static double error_of(const float *got, const float *want, int64_t n) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        off += pow((double)got[i] - (double)want[i], 2);
        all += pow((double)want[i], 2);
    }
    return off / all;
}

static void check(int64_t n, int64_t positions, int heads, int64_t size, bool causal, enum precision p, float grow,
                  double y_most, double dx_most) {
    struct op_desc d = desc_of(n, positions, heads, size, causal, p);
    struct values got = values_of(&d, grow), want = values_of(&d, grow);
    run_gpu(&d, &got, 0, 0);
    run_plain(&d, &want);
    double y = error_of(got.y, want.y, got.ys), dx = error_of(got.dx, want.dx, got.xs);
    if (!(y <= y_most && dx <= dx_most))
        fail_msg("%lld x %lld positions, %d heads of %lld, %s, %s: y is off by %g, dx by %g", (long long)n,
                 (long long)positions, heads, (long long)size, causal ? "causal" : "all", precision_name(p), y, dx);
    values_free(&got);
    values_free(&want);
}

/* ---- tests ---------------------------------------------------------------------------------- */
static const double bounds[] = {
    [PRECISION_F32] = 2e-11, [PRECISION_BF16] = 4e-5, [PRECISION_FP16] = 1e-6, [PRECISION_TF32] = 2e-11};

static void shapes_agree_with_plain_c(void **state) {
    static const struct {
        int64_t n, positions, size;
        int heads;
    } shapes[] = {
        {1, 1, 16, 1},   {3, 2, 8, 2},    {2, 15, 16, 3},   {1, 16, 32, 2},  {2, 31, 5, 2},   {1, 32, 24, 1},
        {1, 33, 128, 1}, {1, 63, 48, 2},  {1, 64, 64, 1},   {2, 65, 32, 2},  {1, 96, 33, 1},  {1, 127, 96, 1},
        {1, 128, 1, 3},  {1, 129, 64, 2}, {1, 160, 100, 1}, {1, 192, 16, 2}, {1, 197, 64, 1}, {1, 200, 128, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int p = PRECISION_F32; p <= PRECISION_TF32; p++)
            for (int causal = 0; causal < 2; causal++)
                check(shapes[i].n, shapes[i].positions, shapes[i].heads, shapes[i].size, causal, (enum precision)p, 1,
                      bounds[p], bounds[p]);
}

/* Scores in the hundreds: e^score is nothing that f32 could hold, and softmax is nearly a choice. What rounding
 * leaves of the gradients of queries and keys is small beside dv, but larger than usual. */
static void large_scores_are_stable(void **state) {
    static const double y_most[] = {1e-6, 4e-5, 2e-6}, dx_most[] = {1e-6, 2e-3, 4e-5};
    (void)state;
    for (int p = PRECISION_F32; p <= PRECISION_FP16; p++) {
        check(1, 150, 1, 64, true, (enum precision)p, 10, y_most[p], dx_most[p]);
        check(1, 90, 2, 32, false, (enum precision)p, 10, y_most[p], dx_most[p]);
    }
}

static void assert_same(const char *what, const struct values *a, const struct values *b) {
    if (memcmp(a->y, b->y, (size_t)a->ys * 4)) fail_msg("%s: y has other bits", what);
    if (memcmp(a->dx, b->dx, (size_t)a->xs * 4)) fail_msg("%s: dx has other bits", what);
}

static void neighbours_have_no_bearing(void **state) {
    (void)state;
    for (int p = PRECISION_F32; p <= PRECISION_FP16; p++) {
        struct op_desc three = desc_of(3, 140, 2, 64, true, (enum precision)p), one = three;
        struct values together = values_of(&three, 1), alone = values_of(&three, 1);
        struct values again = values_of(&three, 1);
        one.n = 1;
        run_gpu(&three, &together, 0, 0);
        run_gpu(&three, &again, 0, 0);
        for (int64_t i = 0; i < three.n; i++) run_gpu(&one, &alone, i, 0);
        assert_same("a second run", &together, &again);
        assert_same("each sample alone", &together, &alone);
        values_free(&together);
        values_free(&alone);
        values_free(&again);
    }
}

static void memory_need_not_be_aligned(void **state) {
    (void)state;
    for (int p = PRECISION_F32; p <= PRECISION_FP16; p++) {
        struct op_desc d = desc_of(2, 70, 2, 40, true, (enum precision)p);
        struct values even = values_of(&d, 1), odd = values_of(&d, 1);
        run_gpu(&d, &even, 0, 0);
        run_gpu(&d, &odd, 0, 1);
        assert_same("an odd address", &even, &odd);
        values_free(&even);
        values_free(&odd);
    }
}

static void what_it_cannot_do_is_refused(void **state) {
    struct op_desc large = desc_of(1, 4, 1, 129, false, PRECISION_BF16);
    struct op_desc data = desc_of(1, 4, 1, 64, false, PRECISION_BF16); /* f32, not bf16 */
    struct op *op = NULL;
    (void)state;
    data.first = true;
    assert_fails(ERR_CONFIG, op_create(dev, &large, &op));
    assert_fails(ERR_CONFIG, op_create(dev, &data, &op));
    assert_null(op);
}

/* GPUs of 8.6 and 8.9 give a block 99 KiB of shared memory, those of 8.0 163, later ones 227. */
static void every_size_fits_every_gpu(void **state) {
    static const enum element types[] = {ELEMENT_F32, ELEMENT_BF16, ELEMENT_FP16};
    (void)state;
    for (int i = 0; i < 9; i++) {
        const int kib[] = {99, 163, 227}, shared = kib[i % 3] << 10;
        const enum element type = types[i / 3];
        for (int size = 1; size <= ATTENTION_SIZE_MOST; size++) {
            size_t most = attention_forward_bytes(type, size, shared),
                   queries = attention_queries_bytes(type, size, shared),
                   keys = attention_keys_bytes(type, size, shared);
            if (queries > most) most = queries;
            if (keys > most) most = keys;
            if (most > (size_t)shared)
                fail_msg("type %d, size %d: %zu bytes of shared memory, where a GPU gives %d KiB", (int)type, size,
                         most, kib[i % 3]);
        }
    }
}

#ifdef ENGINE_EMULATED
/* The smaller tiles give what plain C gives, and 8.6 launches no others. */
static void less_shared_memory_is_enough(void **state) {
    struct device *usual = dev;
    (void)state;
    setenv("ENGINE_EMULATED_CAPABILITY", "86", 1);
    dev = gpu_open(0);
    for (int size = 65; size <= 128; size += 21)
        for (int p = 0; p < 3; p++) {
            check(1, 150, 1, size, true, (enum precision)p, 1, bounds[p], bounds[p]);
            check(1, 67, 2, size, false, (enum precision)p, 1, bounds[p], bounds[p]);
        }
    dev->ops->close(dev);
    unsetenv("ENGINE_EMULATED_CAPABILITY");
    dev = usual;
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_agree_with_plain_c),    cmocka_unit_test(large_scores_are_stable),
        cmocka_unit_test(neighbours_have_no_bearing),   cmocka_unit_test(memory_need_not_be_aligned),
        cmocka_unit_test(what_it_cannot_do_is_refused), cmocka_unit_test(every_size_fits_every_gpu),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(less_shared_memory_is_enough),
#endif
    };
    if (!gpu_count()) return printf("skipped: %s\n", error_message()), GPU_SKIPPED;
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
