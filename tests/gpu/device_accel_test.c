/* An accelerator's memory, lanes, marks, vectors and recordings: what the trainer and the group build on. */
#include "tests/gpu/gpu.h"

#include "engine/base/half.h"
#include "engine/base/rng.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

static struct device *dev;
static const struct device_runtime *accel;

static int open_device(void **state) {
    (void)state;
    dev = gpu_open(0);
    accel = device_runtime(dev);
    return 0;
}

static int close_device(void **state) {
    (void)state;
    dev->ops->close(dev);
    return 0;
}

static float *fill(int64_t n, uint64_t stream) {
    float *x = malloc((size_t)n * sizeof *x + 1);
    struct rng_key key = rng_key(11, RNG_TEST);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = rng_normal(key, stream, (uint64_t)i);
    return x;
}

static void *there(struct device *d, size_t bytes) {
    void *p;
    assert_ok(device_alloc(d, bytes, &p));
    return p;
}

static void *sent(const void *from, size_t bytes) {
    void *p = there(dev, bytes);
    assert_ok(device_write(dev, p, from, bytes));
    assert_ok(device_wait(dev));
    return p;
}

static void *received(const void *from, size_t bytes) {
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    assert_ok(device_read(dev, p, from, bytes));
    return p;
}

static void assert_same(const char *what, const float *got, const float *want, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: at %lld of %lld: %a, not %a", what, (long long)i, (long long)n, got[i], want[i]);
}

/* ---- memory --------------------------------------------------------------------------------- */
static void memory_is_zeroed_and_known(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 255, 256, 257, 100000, 3 << 20};
    enum { N = sizeof sizes / sizeof *sizes };
    unsigned char *p[N];
    char on_stack;
    for (int i = 0; i < N; i++) p[i] = there(dev, sizes[i]);
    for (int i = 0; i < N; i++) {
        assert_int_equal((uintptr_t)p[i] % DEVICE_ALIGNMENT, 0);
        assert_true(device_holds(dev, p[i]));
        if (sizes[i]) assert_true(device_holds(dev, p[i] + sizes[i] - 1));
        unsigned char *back = received(p[i], sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(back[k], 0);
        free(back);
    }
    assert_false(device_holds(dev, &on_stack));
    assert_false(device_holds(dev, NULL));
    for (int i = 0; i < N; i += 2) device_free(dev, p[i]);
    for (int i = 0; i < N; i++) assert_int_equal(device_holds(dev, p[i]), i % 2);
    for (int i = 1; i < N; i += 2) device_free(dev, p[i]);
    device_free(dev, NULL);
}

static void too_much_memory_is_told(void **state) {
    (void)state;
    void *p;
    assert_fails(ERR_MEMORY, device_alloc(dev, (size_t)1 << 50, &p));
    assert_non_null(strstr(error_message(), "GPU 0 ("));
    assert_non_null(strstr(error_message(), "free"));
    assert_non_null(strstr(error_hint(), "smaller batch"));
    device_free(dev, there(dev, 1000)); /* and no more than that has happened */
    assert_ok(device_wait(dev));
}

/* Each step of the chain reads what the one before wrote, and the host's buffers are free after the wait alone. */
static void a_lane_keeps_order(void **state) {
    (void)state;
    enum { N = 50000, TURNS = 20 };
    void *memory;
    int32_t *a = there(dev, N * 4), *b = there(dev, N * 4);
    assert_ok(accel->host_alloc(dev, 2 * N * 4, &memory));
    int32_t *host = memory;
    for (int i = 0; i < 2 * N; i++) assert_int_equal(host[i], 0);
    for (int i = 0; i < N; i++) host[i] = i + 1;
    for (int turn = 0; turn < TURNS; turn++) {
        assert_ok(accel->write(dev, LANE_COPY, a, host, N * 4));
        assert_ok(accel->copy(dev, LANE_COPY, b, dev, a, N * 4));
        assert_ok(accel->zero(dev, LANE_COPY, a, N * 4));
        assert_ok(accel->zero(dev, LANE_COPY, b, 4 * (size_t)turn));
        assert_ok(accel->read(dev, LANE_COPY, host + N, b, N * 4));
        assert_ok(accel->wait(dev, LANE_COPY));
        for (int i = 0; i < N; i++) assert_int_equal(host[N + i], i < turn ? 0 : i + 1);
    }
    accel->host_free(dev, memory);
    device_free(dev, a);
    device_free(dev, b);
}

/* ---- marks ---------------------------------------------------------------------------------- */
/* Lanes of one device, or of two (of one GPU where there is but one), hand a vector on; each adds one, and follows
 * the one before. A lane that did not wait would read what the last turn left. */
static void hand_on(struct device *of[2]) {
    enum { N = 1 << 18, TURNS = 6 };
    float *ones = malloc(N * sizeof *ones), *last;
    float *v[2], *one[2];
    struct device_mark *mark[2];
    for (int i = 0; i < N; i++) ones[i] = 1;
    for (int k = 0; k < 2; k++) {
        v[k] = there(of[k], N * 4), one[k] = there(of[k], N * 4);
        assert_ok(device_write(of[k], one[k], ones, N * 4));
        assert_ok(device_wait(of[k]));
        assert_ok(accel->mark_create(of[k], &mark[k]));
        assert_true(accel->passed(mark[k]));
    }
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        int me = turn % 2, other = !me;
        enum device_lane lane = me ? LANE_EXCHANGE : LANE_COMPUTE;
        if (turn) assert_ok(accel->follow(of[me], lane, mark[other]));
        if (turn) assert_ok(accel->copy(of[me], lane, v[me], of[other], v[other], N * 4));
        assert_ok(accel->sum(of[me], lane, v[me], (const float *const[]){v[me], one[me]}, 2, NULL, N));
        assert_ok(accel->mark(of[me], lane, mark[me]));
    }
    assert_ok(accel->wait(of[1], LANE_EXCHANGE));
    assert_true(accel->passed(mark[1]));
    last = malloc(N * sizeof *last);
    assert_ok(device_read(of[1], last, v[1], N * 4));
    for (int i = 0; i < N; i++) assert_float_equal(last[i], 2 * TURNS, 0);
    for (int k = 0; k < 2; k++) {
        accel->mark_free(mark[k]);
        device_free(of[k], v[k]);
        device_free(of[k], one[k]);
    }
    free(ones);
    free(last);
}

static void lanes_follow_marks(void **state) {
    (void)state;
    hand_on((struct device *[]){dev, dev});
    accel->mark_free(NULL);
}

static void devices_follow_marks(void **state) {
    (void)state;
    struct device *second = gpu_open(gpu_count() > 1 ? 1 : 0), *same = gpu_open(0);
    hand_on((struct device *[]){dev, second});
    hand_on((struct device *[]){second, dev});
    hand_on((struct device *[]){same, dev});
    same->ops->close(same);
    second->ops->close(second);
}

static void timers_tell_time(void **state) {
    (void)state;
    enum { BYTES = 8 << 20 };
    struct device_mark *from, *to;
    void *p = there(dev, BYTES);
    assert_ok(accel->timer_create(dev, &from));
    assert_ok(accel->timer_create(dev, &to));
    assert_ok(accel->mark(dev, LANE_COMPUTE, from));
    for (int i = 0; i < 20; i++) assert_ok(device_zero(dev, p, BYTES));
    assert_ok(accel->mark(dev, LANE_COMPUTE, to));
    assert_ok(device_wait(dev));
    int64_t took = accel->between(from, to);
    assert_true(took > 0 && took < INT64_C(10000000000));
    accel->mark_free(from);
    accel->mark_free(to);
    device_free(dev, p);
}

/* What is wrong, or NULL. */
static const char *work_on(struct device *d) {
    enum { N = 10000 };
    float *v, back[N];
    void *p;
    for (int i = 0; i < N; i++) back[i] = (float)i;
    if (device_alloc(d, N * 4, &p)) return error_message();
    v = p;
    if (device_write(d, v, back, N * 4)) return error_message();
    for (int turn = 0; turn < 3; turn++)
        if (device_add(d, v, v, N)) return error_message();
    if (device_read(d, back, v, N * 4)) return error_message();
    for (int i = 0; i < N; i++)
        if (back[i] != 8 * (float)i) return "wrong values";
    device_free(d, v);
    return NULL;
}

struct work {
    struct device *dev;
    char wrong[256];
};

static void *work_elsewhere(void *arg) {
    struct work *w = arg;
    const char *wrong = work_on(w->dev);
    snprintf(w->wrong, sizeof w->wrong, "%s", wrong ? wrong : "");
    return NULL;
}

/* A thread for each of two devices, neither of which it opened; then one that turns from one to the other. */
static void any_thread_may_ask(void **state) {
    (void)state;
    struct work of[2] = {{.dev = dev}, {.dev = gpu_open(gpu_count() - 1)}};
    pthread_t thread[2];
    for (int k = 0; k < 2; k++) assert_int_equal(pthread_create(&thread[k], NULL, work_elsewhere, &of[k]), 0);
    for (int k = 0; k < 2; k++) assert_int_equal(pthread_join(thread[k], NULL), 0);
    for (int k = 0; k < 2; k++) assert_string_equal(of[k].wrong, "");
    assert_null(work_on(of[1].dev));
    assert_null(work_on(dev));
    of[1].dev->ops->close(of[1].dev);
}

/* ---- vectors -------------------------------------------------------------------------------- */
enum sum_order {
    SUM_LINEAR,
    SUM_TREE,  /* of neighbours, again and again */
    SUM_RAGGED /* of leaves 0, 2, 3, 5, 6, 8, ...: (0 + (2 + 3)) + (5 + 6), then 8 likewise */
};

/* One element, by plain recursion over the leaves [lo, lo + size); NAN: there is none. */
static float ragged(const float *v, int count, int lo, int size) {
    if (size == 1) {
        int k = lo / 3 * 2 + (lo % 3 == 2);
        return lo % 3 == 1 || k >= count ? NAN : v[k];
    }
    float a = ragged(v, count, lo, size / 2), b = ragged(v, count, lo + size / 2, size / 2);
    return isnan(a) ? b : isnan(b) ? a : a + b;
}

static float sum_of(const float *v, int count, enum sum_order order) {
    float t[SUM_TERMS];
    memcpy(t, v, (size_t)count * sizeof *t);
    int leaves = 2; /* a power of two, and more than the last term's */
    while (leaves < 2 * count) leaves *= 2;
    if (order == SUM_RAGGED) return ragged(v, count, 0, leaves);
    if (order == SUM_LINEAR)
        for (int k = 1; k < count; k++) t[0] += t[k];
    else
        for (int apart = 1; apart < count; apart *= 2)
            for (int k = 0; k + apart < count; k += 2 * apart) t[k] += t[k + apart];
    return t[0];
}

/* 'shift' floats off the alignment; into the term 'into', or (-1) elsewhere. */
static void check_sum(int count, enum sum_order order, int64_t n, int shift, int into) {
    int leaf[SUM_TERMS];
    uint8_t adds[SUM_TERMS];
    for (int k = 0; k < count; k++) leaf[k] = order == SUM_RAGGED ? k / 2 * 3 + k % 2 * 2 : k;
    leaves_adds(leaf, count, adds);
    int64_t each = n + 64;
    float *terms = fill(each * count, (uint64_t)count), *want = malloc((size_t)n * sizeof *want);
    float *d = sent(terms, (size_t)(each * count) * 4), *elsewhere = there(dev, (size_t)(n + shift) * 4);
    const float *list[SUM_TERMS];
    for (int k = 0; k < count; k++) list[k] = d + k * (each / 4 * 4) + shift;
    for (int64_t i = 0; i < n; i++) {
        float v[SUM_TERMS];
        for (int k = 0; k < count; k++) v[k] = terms[list[k] - d + i];
        want[i] = sum_of(v, count, order);
    }
    float *to = into < 0 ? elsewhere + shift : d + (list[into] - d);
    assert_ok(accel->sum(dev, LANE_COMPUTE, to, list, count, order == SUM_LINEAR ? NULL : adds, n));
    float *got = received(to, (size_t)n * 4);
    char what[64];
    snprintf(what, sizeof what, "%d terms, order %d, shift %d, into %d", count, order, shift, into);
    assert_same(what, got, want, n);
    device_free(dev, d);
    device_free(dev, elsewhere);
    free(terms), free(want), free(got);
}

static void sums_keep_their_order(void **state) {
    (void)state;
    static const int counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int order = SUM_LINEAR; order <= SUM_RAGGED; order++) {
            check_sum(counts[c], order, 1003, 0, -1);
            check_sum(counts[c], order, 517, 1, counts[c] - 1);
            check_sum(counts[c], order, 3, 0, 0);
        }
    for (int order = SUM_LINEAR; order <= SUM_RAGGED; order++) {
        check_sum(256, order, 133, 0, -1);
        check_sum(257, order, 133, 0, 5);
        check_sum(1024, order, 67, 1, -1);
        check_sum(SUM_TERMS / 2, order, 21, 0, 0);
    }
    check_sum(4, SUM_TREE, 300000, 0, 0);
    check_sum(3, SUM_LINEAR, 300001, 3, 1);
}

static uint16_t narrow(enum precision p, float v) {
    return p == PRECISION_BF16 ? narrow_bf16(v) : narrow_f16(v);
}

static float widen(enum precision p, uint16_t v) {
    return p == PRECISION_BF16 ? widen_bf16(v) : widen_f16(v);
}

/* Large, small and odd values, among ordinary ones. */
static float *fill_wide(int64_t n, uint64_t stream) {
    static const float odd[] = {0,     -0.0f,  INFINITY,  -INFINITY, 65504,      65520,      1e-8f, 6e-8f,
                                1e38f, 1e-39f, 0x1.01p0f, 0x1.03p0f, 0x1.002p0f, 0x1.006p0f, 3e38f, -1e-30f};
    float *x = fill(n, stream);
    for (int64_t i = 0; i < n; i += 3) x[i] = odd[i / 3 % 16];
    return x;
}

static void check_casts(enum precision p, int64_t n, int shift) {
    float *x = fill_wide(n + shift, 5), *y = fill(n + shift, 6);
    uint16_t *low = malloc((size_t)(n + shift) * 2 + 1), *low_y = malloc((size_t)(n + shift) * 2 + 1);
    float *d = sent(x, (size_t)(n + shift) * 4), *wide = there(dev, (size_t)(n + shift) * 4);
    for (int64_t i = 0; i < n + shift; i++) low_y[i] = narrow(p, y[i]);
    uint16_t *to = there(dev, (size_t)(n + shift) * 2), *more = sent(low_y, (size_t)(n + shift) * 2);
    assert_ok(accel->lower(dev, LANE_COMPUTE, to + shift, d + shift, n, p));
    assert_ok(accel->raise(dev, LANE_COMPUTE, wide + shift, to + shift, n, p));
    assert_ok(device_read(dev, low + shift, to + shift, (size_t)n * 2));
    assert_ok(device_read(dev, y + shift, wide + shift, (size_t)n * 4));
    for (int64_t i = shift; i < n + shift; i++) {
        if (low[i] != narrow(p, x[i])) fail_msg("%a is %04x, not %04x", x[i], low[i], narrow(p, x[i]));
        if (y[i] != widen(p, low[i])) fail_msg("%04x is %a", low[i], y[i]);
    }
    assert_ok(accel->add(dev, more + shift, to + shift, n, p));
    assert_ok(device_read(dev, low + shift, more + shift, (size_t)n * 2));
    for (int64_t i = shift; i < n + shift; i++) {
        uint16_t want = narrow(p, widen(p, low_y[i]) + widen(p, narrow(p, x[i])));
        if (low[i] != want) fail_msg("%lld: a sum is %04x, not %04x", (long long)i, low[i], want);
    }
    device_free(dev, d), device_free(dev, wide), device_free(dev, to), device_free(dev, more);
    free(x), free(y), free(low), free(low_y);
}

static void activations_are_rounded_to_nearest(void **state) {
    (void)state;
    for (int half = 0; half < 2; half++) {
        enum precision p = half ? PRECISION_FP16 : PRECISION_BF16;
        check_casts(p, 4099, 0);
        check_casts(p, 1000, 3);
        check_casts(p, 5, 0);
        assert_int_equal(device_unit(dev, p), 2);
    }
    assert_int_equal(device_unit(dev, PRECISION_F32), 4);
    assert_int_equal(device_unit(dev, PRECISION_TF32), 4);
}

/* Of types that are f32 already: a copy, a sum. */
static void f32_stays_as_it_is(void **state) {
    (void)state;
    enum { N = 777 };
    float *x = fill(N, 3), *d = sent(x, N * 4), *low = there(dev, N * 4);
    assert_ok(accel->lower(dev, LANE_COMPUTE, low, d, N, PRECISION_TF32));
    assert_ok(accel->add(dev, low, d, N, PRECISION_F32));
    assert_ok(accel->raise(dev, LANE_COMPUTE, d, low, N, PRECISION_F32));
    float *got = received(d, N * 4);
    for (int i = 0; i < N; i++) x[i] += x[i];
    assert_same("twice", got, x, N);
    device_free(dev, d), device_free(dev, low);
    free(x), free(got);
}

static void heads_are_whole(void **state) {
    (void)state;
    float stale[ALIGN_FLOATS], want[ALIGN_FLOATS] = {(float)(123.456 * (double)0.25f), 17, 64};
    memset(stale, 0xff, sizeof stale);
    float *header = sent(stale, sizeof stale);
    double *sums = sent((double[]){123.456, 17}, 2 * sizeof *sums);
    for (int stop = 0; stop < 2; stop++) {
        want[3] = (float)stop;
        assert_ok(accel->head(dev, header, sums, 0.25f, 64, stop));
        float *got = received(header, sizeof stale);
        assert_same("head", got, want, ALIGN_FLOATS);
        free(got);
    }
    device_free(dev, header);
    device_free(dev, sums);
}

/* ---- recordings ----------------------------------------------------------------------------- */
static void recordings_run_again(void **state) {
    (void)state;
    enum { N = 5000, TIMES = 5 };
    float *x = fill(N, 8), *one = sent(x, N * 4), *v = there(dev, N * 4), *w = there(dev, N * 4);
    struct device_recording *r = NULL;
    assert_ok(accel->record(dev));
    assert_ok(device_add(dev, v, one, N));
    assert_ok(accel->copy(dev, LANE_COMPUTE, w, dev, v, N * 4));
    assert_ok(device_add(dev, w, v, N));
    assert_ok(accel->recorded(dev, &r));
    assert_non_null(r);
    float *got = received(v, N * 4), *sum = calloc(N, sizeof *sum);
    assert_same("nothing has run yet", got, sum, N);
    free(got);
    for (int turn = 0; turn < TIMES; turn++) assert_ok(accel->replay(dev, r));
    for (int turn = 0; turn < TIMES; turn++)
        for (int i = 0; i < N; i++) sum[i] += x[i];
    got = received(v, N * 4);
    assert_same("v", got, sum, N);
    free(got);
    for (int i = 0; i < N; i++) sum[i] += sum[i];
    got = received(w, N * 4);
    assert_same("w", got, sum, N);
    accel->recording_free(r);
    accel->recording_free(NULL);
    device_free(dev, one), device_free(dev, v), device_free(dev, w);
    free(x), free(got), free(sum);
}

/* What may not stand in a recording is refused there and then; an allocation also ends it, and the lane goes on. */
static void recordings_refuse_what_waits(void **state) {
    (void)state;
    enum { N = 100 };
    float *x = fill(N, 9), *v = sent(x, N * 4);
    struct device_recording *r;
    struct device_mark *m;
    void *p;
    assert_ok(accel->mark_create(dev, &m));
    assert_ok(accel->record(dev));
    assert_fails(ERR_BUG, accel->record(dev));
    assert_fails(ERR_BUG, device_wait(dev));
    assert_fails(ERR_BUG, accel->mark(dev, LANE_COMPUTE, m));
    assert_fails(ERR_BUG, accel->follow(dev, LANE_COMPUTE, m));
    assert_fails(ERR_BUG, device_alloc(dev, 1 << 20, &p));
    assert_fails(ERR_BUG, accel->host_alloc(dev, 1 << 20, &p));
    assert_ok(device_add(dev, v, v, N));
    assert_ok(accel->recorded(dev, &r));
    assert_non_null(r);
    accel->recording_free(r);
#ifdef ENGINE_EMULATED /* one that something spoils all the same; what does is the driver's affair */
    assert_ok(accel->record(dev));
    assert_ok(device_add(dev, v, v, N));
    assert_int_equal(cudaMalloc(&p, 1 << 20), cudaErrorStreamCaptureUnsupported);
    r = (struct device_recording *)m;
    assert_fails(ERR_DEVICE, accel->recorded(dev, &r));
    assert_null(r);
#endif
    assert_ok(device_add(dev, v, v, N));
    float *got = received(v, N * 4);
    for (int i = 0; i < N; i++) x[i] += x[i];
    assert_same("once", got, x, N);
    accel->mark_free(m);
    device_free(dev, v);
    free(x), free(got);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */
static void a_wrong_label_is_told(void **state) {
    (void)state;
    struct op_desc d = {.kind = OP_CROSS_ENTROPY, .n = 2, .x = {1, {4}}, .y = {1, {4}}};
    struct op *op;
    float x[8] = {1, 2, 3, 4, 4, 3, 2, 1};
    assert_ok(op_create(dev, &d, &op));
    int32_t *labels = sent((int32_t[]){3, 4}, 8);
    double *sums = there(dev, 16);
    struct op_args a = {.x = {sent(x, sizeof x)},
                        .y = there(dev, sizeof x),
                        .labels = labels,
                        .sums = sums,
                        .scale = 1,
                        .training = true,
                        .saved = there(dev, op->saved_bytes),
                        .scratch = there(dev, op->scratch_bytes)};
    assert_ok(op_forward(op, &a));
    assert_fails(ERR_DATA, device_wait(dev));
    assert_non_null(strstr(error_message(), "label"));
    assert_ok(device_write(dev, labels, (int32_t[]){3, 0}, 8));
    assert_ok(op_forward(op, &a)); /* told once: the next batch may be right */
    assert_ok(device_wait(dev));
    const void *all[] = {a.x[0], a.y, labels, sums, a.saved, a.scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device_free(dev, (void *)(uintptr_t)all[i]);
    op_free(op);
}

static void gpus_that_are_not_there(void **state) {
    (void)state;
    struct device_params p = {.count = 1, .unit = 99, .threads = 1};
    struct device *none = NULL;
    char want[64];
    snprintf(want, sizeof want, "there is no GPU 99: this machine has %d", gpu_count());
    assert_fails(ERR_DEVICE, dev->ops->open(&p, &none));
    assert_string_equal(error_message(), want);
    assert_null(none);
    p.unit = -1;
    assert_fails(ERR_DEVICE, dev->ops->open(&p, &none));
    assert_ok(device_wait(dev)); /* this one still works */
}

static void gpus_are_described(void **state) {
    (void)state;
    for (int i = 0; i < gpu_count(); i++) {
        struct device_unit u;
        assert_true(dev->ops->unit_about(i, &u));
        assert_true(strlen(u.name) > 0 && strlen(u.link) > 0);
        unsigned domain, bus, device, function; /* a domain may have more than four digits */
        assert_int_equal(sscanf(u.bus, "%x:%2x:%2x.%x", &domain, &bus, &device, &function), 4);
        assert_true(u.major >= 8 && u.processors > 0);
        assert_true(u.memory > 1 << 30 && u.memory_free > 0 && u.memory_free <= u.memory);
        assert_true(dev->ops->unit_reaches(i, i));
    }
    struct device_unit u;
    assert_false(dev->ops->unit_about(99, &u));
    assert_false(dev->ops->unit_reaches(0, 99));
    device_free(dev, there(dev, 100)); /* and this thread still works on the GPU that it did */
}

#ifdef ENGINE_EMULATED
static void links_are_told(void **state) {
    (void)state;
    struct device_unit u;
    setenv("ENGINE_EMULATED_NVLINKS", "18", 1);
    assert_true(dev->ops->unit_about(1, &u));
    assert_string_equal(u.link, "NVLink x18");
    unsetenv("ENGINE_EMULATED_NVLINKS");
    assert_true(dev->ops->unit_about(0, &u));
    assert_int_equal(strncmp(u.link, "PCIe", 4), 0);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_is_zeroed_and_known, open_device, close_device),
        cmocka_unit_test_setup_teardown(too_much_memory_is_told, open_device, close_device),
        cmocka_unit_test_setup_teardown(a_lane_keeps_order, open_device, close_device),
        cmocka_unit_test_setup_teardown(lanes_follow_marks, open_device, close_device),
        cmocka_unit_test_setup_teardown(devices_follow_marks, open_device, close_device),
        cmocka_unit_test_setup_teardown(timers_tell_time, open_device, close_device),
        cmocka_unit_test_setup_teardown(any_thread_may_ask, open_device, close_device),
        cmocka_unit_test_setup_teardown(sums_keep_their_order, open_device, close_device),
        cmocka_unit_test_setup_teardown(activations_are_rounded_to_nearest, open_device, close_device),
        cmocka_unit_test_setup_teardown(f32_stays_as_it_is, open_device, close_device),
        cmocka_unit_test_setup_teardown(heads_are_whole, open_device, close_device),
        cmocka_unit_test_setup_teardown(recordings_run_again, open_device, close_device),
        cmocka_unit_test_setup_teardown(recordings_refuse_what_waits, open_device, close_device),
        cmocka_unit_test_setup_teardown(a_wrong_label_is_told, open_device, close_device),
        cmocka_unit_test_setup_teardown(gpus_that_are_not_there, open_device, close_device),
        cmocka_unit_test_setup_teardown(gpus_are_described, open_device, close_device),
#ifdef ENGINE_EMULATED
        cmocka_unit_test_setup_teardown(links_are_told, open_device, close_device),
#endif
    };
    return gpu_run_tests(tests);
}
