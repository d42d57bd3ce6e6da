/* Ops on images, beyond what their comparison with plain C shows: layouts of every shape, sums over many places, values
 * far from zero, large windows, NaN, tensors that move between runs, and libraries that fail. */
#include "tests/gpu/gpu.h"

#include "engine/base/half.h"
#include "engine/base/rng.h"
#include "engine/device/impl.h"

#include <math.h>
#include <string.h>

static struct device *dev;

static int open_gpu(void **state) {
    (void)state;
    dev = gpu_open(0);
    return 0;
}
static int close_gpu(void **state) {
    (void)state;
    dev->ops->close(dev);
    return 0;
}

/* ---- memory --------------------------------------------------------------------------------- */
static float *random_floats(int64_t n, uint64_t stream) {
    struct rng_key key = rng_key(23, RNG_TEST);
    float *x = malloc((size_t)n * sizeof *x + 1);
    assert_non_null(x);
    for (int64_t k = 0; k < n; k++) x[k] = rng_normal(key, stream, (uint64_t)k);
    return x;
}

static void *there(size_t bytes) {
    void *p = NULL;
    assert_ok(device_alloc(dev, bytes + 1, &p));
    return p;
}

/* f32 of the host, in the type of activations. */
static void *there_low(const float *x, int64_t n, enum precision p) {
    void *full = there((size_t)n * 4), *low;
    assert_ok(device_write(dev, full, x, (size_t)n * 4));
    assert_ok(device_wait(dev));
    if (p != PRECISION_BF16 && p != PRECISION_FP16) return full;
    low = there((size_t)n * 2);
    assert_ok(device_runtime(dev)->lower(dev, LANE_COMPUTE, low, full, n, p));
    assert_ok(device_wait(dev));
    device_free(dev, full);
    return low;
}

static float *back(const void *from, int64_t n, enum precision p) {
    float *x = malloc((size_t)n * sizeof *x + 1);
    void *full = there((size_t)n * 4);
    assert_non_null(x);
    if (p == PRECISION_BF16 || p == PRECISION_FP16) {
        assert_ok(device_runtime(dev)->raise(dev, LANE_COMPUTE, full, from, n, p));
        assert_ok(device_read(dev, x, full, (size_t)n * 4));
    } else {
        assert_ok(device_read(dev, x, from, (size_t)n * 4));
    }
    device_free(dev, full);
    return x;
}

static float as(enum precision p, float v) {
    return p == PRECISION_BF16 ? widen_bf16(narrow_bf16(v)) : p == PRECISION_FP16 ? widen_f16(narrow_f16(v)) : v;
}

/* An op with what it saves and works in. */
struct planned {
    struct op *op;
    struct op_args a;
};

static struct planned plan(const struct op_desc *d) {
    struct planned p = {0};
    assert_ok(op_create(dev, d, &p.op));
    p.a = (struct op_args){.saved = there(p.op->saved_bytes),
                           .scratch = there(p.op->scratch_bytes),
                           .training = true,
                           .update_buffers = true};
    return p;
}
static void unplan(struct planned *p) {
    device_free(dev, p->a.saved);
    device_free(dev, p->a.scratch);
    op_free(p->op);
}

/* ---- layouts -------------------------------------------------------------------------------- */
static void check_reorder(const int64_t shape[3], enum precision p, bool first) {
    struct op_desc d = {.kind = OP_REORDER, .n = 3, .precision = p, .first = first, .y_layout = LAYOUT_LAST};
    d.x = d.y = (struct shape){3, {shape[0], shape[1], shape[2]}};
    int64_t n = op_xs(&d), area = shape[1] * shape[2], each = shape[0] * area;
    struct planned r = plan(&d);
    float *x = random_floats(n, 1), *y;
    void *xs = there_low(x, n, first ? PRECISION_F32 : p), *ys = there_low(x, n, p), *dx = there((size_t)n * 4);
    r.a.x[0] = xs, r.a.y = ys, r.a.dy = ys, r.a.dx[0] = first ? NULL : dx;
    assert_ok(op_forward(r.op, &r.a));
    assert_ok(op_backward(r.op, &r.a));
    y = back(ys, n, p);
    for (int64_t k = 0; k < n; k++) {
        float from = x[k / each * each + k % shape[0] * area + k % each / shape[0]];
        assert_true(y[k] == as(p, from));
    }
    if (!first) {
        float *again = back(dx, n, p);
        for (int64_t k = 0; k < n; k++) assert_true(again[k] == as(p, x[k]));
        free(again);
    }
    free(x), free(y);
    device_free(dev, xs), device_free(dev, ys), device_free(dev, dx);
    unplan(&r);
}

static void images_are_turned_whatever_their_shape(void **state) {
    static const int64_t shapes[][3] = {{3, 15, 17}, {1, 9, 9}, {40, 2, 3}, {9, 1, 1}, {33, 7, 41}, {64, 8, 8}};
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int p = PRECISION_F32; p <= PRECISION_FP16; p++) {
            check_reorder(shapes[i], (enum precision)p, false);
            check_reorder(shapes[i], (enum precision)p, true);
        }
}

/* ---- batchnorm ------------------------------------------------------------------------------ */
struct norm_check {
    int64_t n, c, area;
    const float *x, *dy, *y;
};

/* The largest difference of channel 'ch' from what double arithmetic gives for y and dx. */
static double norm_off(const struct norm_check *k, int64_t ch, const float *dx) {
    int64_t rows = k->n * k->area;
    double mean = 0, var = 0, db = 0, dw = 0, most = 0;
    for (int64_t r = 0; r < rows; r++) mean += (double)k->x[r * k->c + ch] / (double)rows;
    for (int64_t r = 0; r < rows; r++) var += pow((double)k->x[r * k->c + ch] - mean, 2) / (double)rows;
    double inverse = 1 / sqrt(var + 1e-5);
    for (int64_t r = 0; r < rows; r++) {
        double h = ((double)k->x[r * k->c + ch] - mean) * inverse,
               dz = k->y[r * k->c + ch] > 0 ? (double)k->dy[r * k->c + ch] : 0;
        db += dz, dw += dz * h;
        most = fmax(most, fabs(fmax(h, 0) - (double)k->y[r * k->c + ch]));
    }
    for (int64_t r = 0; r < rows; r++) {
        double h = ((double)k->x[r * k->c + ch] - mean) * inverse,
               dz = k->y[r * k->c + ch] > 0 ? (double)k->dy[r * k->c + ch] : 0;
        double expected = inverse * (dz - db / (double)rows - h * dw / (double)rows);
        most = fmax(most, fabs(expected - (double)dx[r * k->c + ch]));
    }
    return most;
}

/* Many parts of rows, and means of a thousand deviations. */
static void batchnorm_is_exact_over_many_places(void **state) {
    struct op_desc d = {.kind = OP_BATCHNORM,
                        .n = 7,
                        .act = ACT_RELU,
                        .x_layout = LAYOUT_LAST,
                        .y_layout = LAYOUT_LAST,
                        .norm = {.eps = 1e-5f, .momentum = 0.1f}};
    (void)state;
    for (int64_t c = 6; c <= 40; c += 34) {
        d.x = d.y = (struct shape){3, {c, 23, 31}};
        int64_t n = op_xs(&d);
        struct planned b = plan(&d);
        float *x = random_floats(n, 2), *dy = random_floats(n, 3), ones[40], zeros[40] = {0};
        for (int64_t k = 0; k < n; k++) x[k] += k % c == 1 ? 1000.0f : k % c == 2 ? -30.0f : 0;
        for (int i = 0; i < 40; i++) ones[i] = 1;
        void *all[] = {there_low(x, n, PRECISION_F32),
                       there((size_t)n * 4),
                       there_low(dy, n, PRECISION_F32),
                       there((size_t)n * 4),
                       there_low(ones, c, PRECISION_F32),
                       there_low(zeros, c, PRECISION_F32),
                       there(160),
                       there(160),
                       there_low(zeros, c, PRECISION_F32),
                       there_low(ones, c, PRECISION_F32)};
        b.a.x[0] = all[0], b.a.y = all[1], b.a.dy = all[2], b.a.dx[0] = all[3], b.a.w[0] = all[4];
        b.a.w[1] = all[5], b.a.dw[0] = all[6], b.a.dw[1] = all[7], b.a.buffer[0] = all[8], b.a.buffer[1] = all[9];
        assert_ok(op_forward(b.op, &b.a));
        assert_ok(op_backward(b.op, &b.a));
        float *y = back(all[1], n, PRECISION_F32), *dx = back(all[3], n, PRECISION_F32);
        float *mean = back(all[8], c, PRECISION_F32);
        struct norm_check k = {d.n, c, 23 * 31, x, dy, y};
        for (int64_t ch = 0; ch < c; ch++) assert_true(norm_off(&k, ch, dx) < (ch == 1 ? 1e-3 : 2e-5));
        assert_true(fabsf(mean[1] - 100) < 0.1f && fabsf(mean[0]) < 0.1f);
        for (int i = 0; i < 10; i++) device_free(dev, all[i]);
        free(x), free(dy), free(y), free(dx), free(mean);
        unplan(&b);
    }
}

/* ---- pools ---------------------------------------------------------------------------------- */
/* Windows of more than 256 places, over each other; x is data. */
static void large_windows_find_their_largest(void **state) {
    struct op_desc d = {
        .kind = OP_POOL2D, .n = 2, .precision = PRECISION_BF16, .pool = {POOL_MAX, {{17, 19}, {3, 2}, {2, 0}}}};
    (void)state;
    for (int v = 0; v < 2; v++) {
        d.x_layout = d.y_layout = v ? LAYOUT_LAST : LAYOUT_PLAIN;
        d.x = (struct shape){3, {16, 25, 30}}, d.y = (struct shape){3, {16, 5, 6}};
        int64_t xs = op_xs(&d), ys = op_ys(&d), place = v ? 16 : 1;
        struct planned p = plan(&d);
        float *x = random_floats(xs, 4), *dy = random_floats(ys, 5), *expected = calloc((size_t)xs, sizeof(float));
        for (int64_t k = 0; k < xs; k++) x[k] = as(PRECISION_BF16, x[k]);
        for (int64_t k = 0; k < ys; k++) dy[k] = (float)(k % 7 - 3);
        void *all[] = {there_low(x, xs, PRECISION_BF16), there((size_t)ys * 2), there_low(dy, ys, PRECISION_BF16),
                       there((size_t)xs * 2)};
        p.a.x[0] = all[0], p.a.y = all[1], p.a.dy = all[2], p.a.dx[0] = all[3];
        assert_ok(op_forward(p.op, &p.a));
        assert_ok(op_backward(p.op, &p.a));
        float *y = back(all[1], ys, PRECISION_BF16), *dx = back(all[3], xs, PRECISION_BF16);
        for (int64_t k = 0; k < ys; k++) {
            int64_t map = v ? k / (30 * 16) * 16 + k % 16 : k / 30, at = v ? k / 16 % 30 : k % 30, best = -1;
            for (int64_t f = 0; f < 17 * 19; f++) {
                int64_t iy = at / 6 * 3 - 2 + f / 19, ix = at % 6 * 2 + f % 19;
                int64_t from = (v ? map / 16 * 750 * 16 + map % 16 : map * 750) + (iy * 30 + ix) * place;
                if (iy >= 0 && iy < 25 && ix < 30 && (best < 0 || x[from] > x[best])) best = from;
            }
            assert_true(y[k] == x[best]);
            expected[best] += dy[k];
        }
        assert_memory_equal(dx, expected, (size_t)xs * 4);
        for (int i = 0; i < 4; i++) device_free(dev, all[i]);
        free(x), free(dy), free(expected), free(y), free(dx);
        unplan(&p);
    }
}

/* ---- convolutions --------------------------------------------------------------------------- */
static struct op_desc small_conv(enum precision p) {
    return (struct op_desc){.kind = OP_CONV2D,
                            .n = 2,
                            .precision = p,
                            .act = ACT_RELU,
                            .x = {3, {8, 6, 6}},
                            .y = {3, {16, 6, 6}},
                            .x_layout = LAYOUT_LAST,
                            .y_layout = LAYOUT_LAST,
                            .conv = {.window = {{3, 3}, {1, 1}, {1, 1}}, .groups = 1, .bias = true}};
}
enum { XS = 2 * 8 * 36, YS = 2 * 16 * 36, WS = 16 * 8 * 9, TENSORS = 11 };

struct conv_tensors { /* x y dy dx w0 w1 low0 low1 dw0 dw1, and a place that is no one's */
    void *at[TENSORS];
};

static struct conv_tensors tensors_of(struct op_args *a, enum precision p, float spoil) {
    float *x = random_floats(XS, 6), *dy = random_floats(YS, 7), *w = random_floats(WS, 8), *b = random_floats(16, 9);
    x[5] *= spoil;
    struct conv_tensors t = {{there_low(x, XS, p), there(YS * 4), there_low(dy, YS, p), there(XS * 4),
                              there_low(w, WS, PRECISION_F32), there_low(b, 16, PRECISION_F32), there_low(w, WS, p),
                              there_low(b, 16, p), there(WS * 4), there(64), there(3000)}};
    a->x[0] = t.at[0], a->y = t.at[1], a->dy = t.at[2], a->dx[0] = t.at[3], a->w[0] = t.at[4], a->w[1] = t.at[5];
    a->w_low[0] = p == PRECISION_F32 ? NULL : t.at[6], a->w_low[1] = p == PRECISION_F32 ? NULL : t.at[7];
    a->dw[0] = t.at[8], a->dw[1] = t.at[9];
    free(x), free(dy), free(w), free(b);
    return t;
}
static void tensors_free(struct conv_tensors *t) {
    for (int i = 0; i < TENSORS; i++) device_free(dev, t->at[i]);
}

/* Two ops of one shape, the second with its tensors elsewhere, both run in between each other; an evaluation between
 * forward and backward. */
static void convolutions_run_wherever_tensors_lie(void **state) {
    struct op_desc d = small_conv(PRECISION_BF16);
    struct planned one = plan(&d), two = plan(&d);
    struct conv_tensors first = tensors_of(&one.a, PRECISION_BF16, 1), second = tensors_of(&two.a, PRECISION_BF16, 1);
    struct op_args moved = two.a, eval = one.a;
    void *y = there(YS * 4);
    (void)state;
    moved.saved = one.a.saved, moved.scratch = one.a.scratch;
    eval.training = false, eval.saved = NULL, eval.y = y;
    assert_ok(op_forward(one.op, &one.a));
    assert_ok(op_forward(two.op, &two.a));
    assert_ok(op_forward(one.op, &eval));
    assert_ok(op_backward(two.op, &two.a));
    assert_ok(op_backward(one.op, &one.a));
    float *g[2] = {back(first.at[8], WS, PRECISION_F32), back(second.at[8], WS, PRECISION_F32)};
    assert_memory_equal(g[0], g[1], WS * 4);
    assert_ok(device_zero(dev, second.at[8], WS * 4));
    assert_ok(op_forward(one.op, &moved));
    assert_ok(op_backward(one.op, &moved));
    free(g[1]);
    g[1] = back(second.at[8], WS, PRECISION_F32);
    assert_memory_equal(g[0], g[1], WS * 4);
    float *trained = back(first.at[1], YS, PRECISION_BF16), *evaluated = back(y, YS, PRECISION_BF16);
    assert_memory_equal(trained, evaluated, YS * 4);
    free(g[0]), free(g[1]), free(trained), free(evaluated);
    device_free(dev, y);
    tensors_free(&first);
    tensors_free(&second);
    unplan(&one);
    unplan(&two);
}

static void a_nan_passes_through_relu(void **state) {
    (void)state;
    for (int p = PRECISION_F32; p <= PRECISION_FP16; p++) {
        struct op_desc d = small_conv((enum precision)p);
        struct planned c = plan(&d);
        struct conv_tensors t = tensors_of(&c.a, (enum precision)p, NAN);
        assert_ok(op_forward(c.op, &c.a));
        float *y = back(t.at[1], YS, (enum precision)p);
        int nans = 0;
        for (int k = 0; k < YS; k++) nans += isnan(y[k]) != 0;
        assert_int_equal(nans, 4 * 16); /* x[5] is in a corner: four places see it */
        free(y);
        tensors_free(&t);
        unplan(&c);
    }
}

#ifdef ENGINE_EMULATED
/* Each call of the library fails in turn: an error that says so, or another engine; nothing is left behind. */
static void failures_of_the_library_are_told(void **state) {
    static const char *const calls[] = {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                                        "cudnnBackendFinalize", "cudnnBackendGetAttribute"};
    struct op_desc d = small_conv(PRECISION_BF16);
    int failed = 0;
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int n = 1; n < 200; n += 3) {
            char text[64];
            struct op *op = NULL;
            snprintf(text, sizeof text, "%s:%d", calls[i], n);
            setenv("ENGINE_EMULATED_FAIL", text, 1);
            enum error err = op_create(dev, &d, &op);
            assert_true(err == ERR_NONE || ((err == ERR_DEVICE || err == ERR_MEMORY) && !op));
            failed += err != ERR_NONE;
            op_free(op);
        }
    unsetenv("ENGINE_EMULATED_FAIL");
    assert_true(failed > 20);
    struct planned c = plan(&d);
    struct conv_tensors t = tensors_of(&c.a, PRECISION_BF16, 1);
    setenv("ENGINE_EMULATED_FAIL", "cudnnBackendExecute:1", 1);
    assert_fails(ERR_DEVICE, op_forward(c.op, &c.a));
    assert_non_null(strstr(error_message(), "convolution"));
    unsetenv("ENGINE_EMULATED_FAIL");
    assert_ok(op_forward(c.op, &c.a));
    assert_ok(device_wait(dev));
    tensors_free(&t);
    unplan(&c);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_turned_whatever_their_shape),
        cmocka_unit_test(batchnorm_is_exact_over_many_places),
        cmocka_unit_test(large_windows_find_their_largest),
        cmocka_unit_test(convolutions_run_wherever_tensors_lie),
        cmocka_unit_test(a_nan_passes_through_relu),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(failures_of_the_library_are_told),
#endif
    };
    return gpu_count() ? cmocka_run_group_tests(tests, open_gpu, close_gpu)
                       : (printf("skipped: %s\n", error_message()), GPU_SKIPPED);
}
