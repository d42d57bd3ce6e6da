/* Every op on every kind of device, through every implementation that takes the case, against plain
 * C. A new case is one line of the table; a new implementation or device is found by itself.
 * Outputs and scratch are filled with NaN first, so that what is not written shows. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "engine/device/impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct op_case {
    const char *name;
    struct op_desc d;
    bool eval;     /* forward only, not training */
    bool smooth;   /* and small: gradients are checked against finite differences */
    bool by_label; /* losses */
};

#define F(n)                                                                                       \
    {                                                                                              \
        1, {                                                                                       \
            n                                                                                      \
        }                                                                                          \
    }
#define CHW(c, h, w)                                                                               \
    {                                                                                              \
        3, {                                                                                       \
            c, h, w                                                                                \
        }                                                                                          \
    }
#define SQUARE(k, s, p)                                                                            \
    {                                                                                              \
        {k, k}, {s, s}, {                                                                          \
            p, p                                                                                   \
        }                                                                                          \
    }
#define LINEAR(samples, in, out, ...)                                                              \
    .d = {.kind = OP_LINEAR, .n = samples, .x = F(in), .y = F(out), __VA_ARGS__}
#define CONV(samples, xs, ys, win, g, ...)                                                         \
    .d = {.kind = OP_CONV2D,                                                                       \
          .n = samples,                                                                            \
          .x = xs,                                                                                 \
          .y = ys,                                                                                 \
          .conv = {.window = win, .groups = g, .bias = true},                                      \
          __VA_ARGS__}
#define SAME(op, samples, s, ...) .d = {.kind = op, .n = samples, .x = s, .y = s, __VA_ARGS__}
#define RELU .act = ACT_RELU
#define FIRST .first = true
#define BIAS .linear = {true}
#define NORM .norm = {1e-5f, 0.1f}

static const struct op_case cases[] = {
    {"linear", LINEAR(7, 13, 5, BIAS), .smooth = true},
    {"linear of one", LINEAR(1, 1, 1, BIAS), .smooth = true},
    {"linear one sample", LINEAR(1, 33, 17, BIAS, RELU)},
    {"linear without bias", LINEAR(16, 48, 96, RELU)},
    {"linear first", LINEAR(64, 392, 256, BIAS, RELU, FIRST)},
    {"linear wide", LINEAR(40, 256, 272, BIAS, RELU)},
    {"linear head", LINEAR(128, 512, 10, BIAS)},
    {"linear deep", LINEAR(3, 2500, 19, BIAS)},
    {"linear tall", LINEAR(130, 31, 49, BIAS, RELU)},
    {"linear eval", LINEAR(9, 24, 10, BIAS, RELU), .eval = true},

    {"conv 3x3", CONV(2, CHW(3, 6, 7), CHW(4, 4, 5), SQUARE(3, 1, 0), 1, ), .smooth = true},
    {"conv padded", CONV(3, CHW(16, 9, 9), CHW(32, 9, 9), SQUARE(3, 1, 1), 1, RELU)},
    {"conv 64", CONV(4, CHW(64, 8, 8), CHW(64, 8, 8), SQUARE(3, 1, 1), 1, )},
    {"conv 4x4 maps", CONV(2, CHW(64, 4, 4), CHW(96, 4, 4), SQUARE(3, 1, 1), 1, RELU)},
    {"conv stride 2", CONV(2, CHW(16, 9, 11), CHW(24, 5, 6), SQUARE(3, 2, 1), 1, RELU)},
    {"conv 1x1 stride 2", CONV(3, CHW(32, 8, 8), CHW(48, 4, 4), SQUARE(1, 2, 0), 1, )},
    {"conv 5x5 lenet 1", CONV(5, CHW(1, 28, 28), CHW(6, 28, 28), SQUARE(5, 1, 2), 1, RELU, FIRST)},
    {"conv 5x5 lenet 2", CONV(5, CHW(6, 14, 14), CHW(16, 10, 10), SQUARE(5, 1, 0), 1, RELU)},
    {"conv stem", CONV(2, CHW(3, 32, 32), CHW(64, 32, 32), SQUARE(3, 1, 1), 1, FIRST)},
    {"conv 7x7 stride 3", CONV(1, CHW(3, 23, 20), CHW(5, 8, 7), SQUARE(7, 3, 3), 1, ),
     .smooth = true},
    {"conv groups", CONV(2, CHW(12, 7, 7), CHW(20, 7, 7), SQUARE(3, 1, 1), 4, RELU)},
    {"conv depthwise", CONV(2, CHW(8, 7, 6), CHW(8, 7, 6), SQUARE(3, 1, 1), 8, ), .smooth = true},
    {"conv oblong", .d = {.kind = OP_CONV2D,
                          .n = 2,
                          .x = CHW(5, 9, 8),
                          .y = CHW(7, 4, 9),
                          RELU,
                          .conv = {.window = {{3, 2}, {2, 1}, {0, 1}}, .groups = 1}}},
    {"conv eval", CONV(3, CHW(16, 5, 5), CHW(16, 5, 5), SQUARE(3, 1, 1), 1, RELU), .eval = true},
    {"conv pool lenet 1", .d = {.kind = OP_CONV2D,
                                .n = 5,
                                .x = CHW(1, 28, 28),
                                .y = CHW(6, 14, 14),
                                RELU,
                                FIRST,
                                .conv = {SQUARE(5, 1, 2), 1, true, true}}},
    {"conv pool lenet 2", .d = {.kind = OP_CONV2D,
                                .n = 5,
                                .x = CHW(6, 14, 14),
                                .y = CHW(16, 5, 5),
                                RELU,
                                .conv = {SQUARE(5, 1, 0), 1, true, true}}},
    {"conv pool odd, eval", .eval = true,
     .d = {.kind = OP_CONV2D,
           .n = 2,
           .x = CHW(4, 9, 11),
           .y = CHW(8, 4, 5),
           .conv = {SQUARE(3, 1, 1), 1, false, true}}},

    {"max 2x2", .d = {.kind = OP_POOL2D,
                      .n = 3,
                      .x = CHW(5, 8, 10),
                      .y = CHW(5, 4, 5),
                      .pool = {POOL_MAX, SQUARE(2, 2, 0)}}},
    {"max 2x2 odd", .d = {.kind = OP_POOL2D,
                          .n = 2,
                          .x = CHW(3, 7, 37),
                          .y = CHW(3, 3, 18),
                          .pool = {POOL_MAX, SQUARE(2, 2, 0)}}},
    {"max 3x3", .d = {.kind = OP_POOL2D,
                      .n = 2,
                      .x = CHW(4, 9, 8),
                      .y = CHW(4, 5, 4),
                      .pool = {POOL_MAX, SQUARE(3, 2, 1)}}},
    {"max overlapping", .d = {.kind = OP_POOL2D,
                              .n = 2,
                              .x = CHW(4, 9, 8),
                              .y = CHW(4, 7, 6),
                              .pool = {POOL_MAX, SQUARE(3, 1, 0)}}},
    {"max eval", .eval = true,
     .d = {.kind = OP_POOL2D,
           .n = 2,
           .x = CHW(4, 9, 8),
           .y = CHW(4, 3, 2),
           .pool = {POOL_MAX, SQUARE(3, 3, 0)}}},
    {"mean global", .smooth = true,
     .d = {.kind = OP_POOL2D,
           .n = 3,
           .x = CHW(16, 4, 4),
           .y = CHW(16, 1, 1),
           .pool = {POOL_AVG, SQUARE(4, 1, 0)}}},
    {"mean padded", .smooth = true,
     .d = {.kind = OP_POOL2D,
           .n = 2,
           .x = CHW(2, 7, 9),
           .y = CHW(2, 4, 5),
           .pool = {POOL_AVG, SQUARE(3, 2, 1)}}},

    {"relu", SAME(OP_RELU, 3, F(1001), )},
    {"relu planes", SAME(OP_RELU, 2, CHW(3, 5, 7), )},
    {"gelu", SAME(OP_GELU, 3, F(333), ), .smooth = true},
    {"gelu threads", SAME(OP_GELU, 40, F(333), )},
    {"add", SAME(OP_ADD, 5, CHW(3, 5, 7), ), .smooth = true},
    {"add relu", SAME(OP_ADD, 50, CHW(3, 15, 7), RELU)},
    {"dropout", SAME(OP_DROPOUT, 9, F(1003), .dropout = {0.3f, 2})},
    {"dropout of 1", SAME(OP_DROPOUT, 3, F(1), .dropout = {0.5f, 0})},
    {"dropout of none", SAME(OP_DROPOUT, 3, F(100), .dropout = {0, 1})},
    {"dropout eval", SAME(OP_DROPOUT, 3, F(100), .dropout = {0.5f, 1}), .eval = true},

    {"batchnorm", SAME(OP_BATCHNORM, 4, CHW(3, 5, 7), NORM), .smooth = true},
    {"batchnorm relu", SAME(OP_BATCHNORM, 8, CHW(17, 8, 8), NORM, RELU)},
    {"batchnorm features", SAME(OP_BATCHNORM, 33, F(50), NORM, RELU)},
    {"batchnorm of three", SAME(OP_BATCHNORM, 3, F(7), NORM)},
    {"batchnorm one sample", SAME(OP_BATCHNORM, 1, CHW(3, 5, 5), NORM)},
    {"batchnorm eval", SAME(OP_BATCHNORM, 1, F(9), NORM, RELU), .eval = true},
    {"batchnorm eval planes", SAME(OP_BATCHNORM, 3, CHW(4, 3, 3), NORM), .eval = true},

    {"cross-entropy", SAME(OP_CROSS_ENTROPY, 13, F(10), ), .by_label = true, .smooth = true},
    {"cross-entropy of many", SAME(OP_CROSS_ENTROPY, 5, F(1003), ), .by_label = true},
    {"cross-entropy of one", SAME(OP_CROSS_ENTROPY, 2, F(1), ), .by_label = true},
    {"mse", SAME(OP_MSE, 5, F(12), ), .smooth = true},
    {"mse by label", SAME(OP_MSE, 5, F(12), ), .by_label = true},
};
enum { CASES = sizeof cases / sizeof *cases };

/* ---- one run of a case ---------------------------------------------------------------------- */
/* What a run reads and writes; 'out' are what is compared. */
enum { X0, X1, W0, W1, DY, TARGET, INPUTS, Y = 0, DX0, DX1, DW0, DW1, MEAN, VAR, OUTPUTS };
static const char *const output_names[] = {"y", "dx[0]", "dx[1]", "dw[0]", "dw[1]", "mean", "var"};

struct run {
    const struct op_case *c;
    int64_t in_size[INPUTS], out_size[OUTPUTS];
    float *in[INPUTS], *out[OUTPUTS];
    int32_t *labels;
    uint64_t *ids;
    double sums[2];
};

static int64_t weight_count(const struct op_desc *d, int which) {
    const struct window *w = &d->conv.window;
    switch (d->kind) {
    case OP_LINEAR:
        if (which) return d->linear.bias ? shape_count(&d->y) : 0;
        return shape_count(&d->x) * shape_count(&d->y);
    case OP_CONV2D:
        if (which) return d->conv.bias ? d->y.dim[0] : 0;
        return d->y.dim[0] * d->x.dim[0] / d->conv.groups * w->kernel[0] * w->kernel[1];
    case OP_BATCHNORM:
        return d->x.dim[0];
    default:
        return 0;
    }
}

static void *memory(int64_t bytes) {
    void *p = NULL;
    assert_ok(memory_alloc((size_t)bytes, &p));
    return p;
}

static void sizes(struct run *r) {
    const struct op_desc *d = &r->c->d;
    bool loss = d->kind == OP_CROSS_ENTROPY || d->kind == OP_MSE, back = !r->c->eval;
    int64_t xs = op_xs(d), ys = op_ys(d), second = d->kind == OP_ADD ? xs : 0;
    int64_t w0 = weight_count(d, 0), w1 = weight_count(d, 1);
    const int64_t in[INPUTS] = {xs, second, w0, w1, loss ? 0 : ys, d->kind == OP_MSE ? xs : 0};
    int64_t moments = d->kind == OP_BATCHNORM ? d->x.dim[0] : 0;
    const int64_t out[OUTPUTS] = {d->kind == OP_MSE ? 0 : ys,
                                  back && !d->first ? xs : 0,
                                  back ? second : 0,
                                  back ? w0 : 0,
                                  back ? w1 : 0,
                                  moments,
                                  moments};
    memcpy(r->in_size, in, sizeof in);
    memcpy(r->out_size, out, sizeof out);
}

static void run_init(struct run *r, const struct op_case *c) {
    struct rng_key key = rng_key(7, RNG_TEST);
    *r = (struct run){.c = c};
    sizes(r);
    for (int t = 0; t < INPUTS; t++) {
        r->in[t] = memory(r->in_size[t] * 4);
        for (int64_t k = 0; k < r->in_size[t]; k++)
            r->in[t][k] = rng_normal(key, (uint64_t)t, (uint64_t)k);
    }
    for (int t = 0; t < OUTPUTS; t++) r->out[t] = memory(r->out_size[t] * 4);
    r->labels = memory(c->d.n * 4);
    r->ids = memory(c->d.n * 8);
    for (int64_t i = 0; i < c->d.n; i++) {
        r->labels[i] = (int32_t)(i * 7 % shape_count(&c->d.x));
        r->ids[i] = 1000003u * (uint64_t)(i + 1);
    }
}

static void run_fini(struct run *r) {
    for (int t = 0; t < INPUTS; t++) memory_free(r->in[t]);
    for (int t = 0; t < OUTPUTS; t++) memory_free(r->out[t]);
    memory_free(r->labels);
    memory_free(r->ids);
}

static float *or_null(float *p, int64_t size) {
    return size ? p : NULL;
}

static struct op_args args_of(struct run *r, void *saved, void *scratch) {
    const struct op_case *c = r->c;
    struct op_args a = {.y = or_null(r->out[Y], r->out_size[Y]),
                        .saved = c->eval ? NULL : saved,
                        .scratch = scratch,
                        .training = !c->eval,
                        .update_buffers = !c->eval,
                        .seed = 5,
                        .ids = r->ids,
                        .labels = c->by_label ? r->labels : NULL,
                        .target = c->by_label ? NULL : r->in[TARGET],
                        .scale = 0.25f,
                        .sums = r->sums};
    a.dy = or_null(r->in[DY], r->in_size[DY]);
    for (int i = 0; i < 2; i++) {
        a.x[i] = or_null(r->in[X0 + i], r->in_size[X0 + i]);
        a.w[i] = or_null(r->in[W0 + i], r->in_size[W0 + i]);
        a.dx[i] = or_null(r->out[DX0 + i], r->out_size[DX0 + i]);
        a.dw[i] = or_null(r->out[DW0 + i], r->out_size[DW0 + i]);
        a.buffer[i] = or_null(r->out[MEAN + i], r->out_size[MEAN + i]);
    }
    return a;
}

/* Gives how many allocations forward and backward made. */
static long run_op(struct run *r, struct op *op) {
    void *saved = memory((int64_t)op->saved_bytes), *scratch = memory((int64_t)op->scratch_bytes);
    memset(saved, 0xff, op->saved_bytes);
    memset(scratch, 0xff, op->scratch_bytes);
    for (int t = 0; t < MEAN; t++) memset(r->out[t], 0xff, (size_t)r->out_size[t] * 4);
    for (int64_t k = 0; k < r->out_size[MEAN]; k++) r->out[MEAN][k] = 0.5f, r->out[VAR][k] = 2;
    r->sums[0] = r->sums[1] = 1;
    struct op_args a = args_of(r, saved, scratch);
    count_allocations_begin();
    enum error forward = op_forward(op, &a);
    enum error backward = r->c->eval ? ERR_NONE : op_backward(op, &a);
    long allocations = count_allocations_end();
    assert_ok(forward);
    assert_ok(backward);
    memory_free(saved);
    memory_free(scratch);
    return allocations;
}

/* ---- implementations against plain C -------------------------------------------------------- */
static double error_of(const float *got, const float *expected, int64_t n) {
    double off = 0, all = 0;
    for (int64_t k = 0; k < n; k++) {
        off += pow((double)got[k] - (double)expected[k], 2);
        all += pow((double)expected[k], 2);
    }
    return all > 0 ? off / all : off;
}

/* The mean squared error, as a part of the mean square, that implementations may have. */
static double bound_of(enum op_kind kind) {
    switch (kind) {
    case OP_CONV2D:
        return 1e-11; /* Winograd's */
    case OP_DROPOUT:
    case OP_RELU:
    case OP_ADD:
        return 0;
    default:
        return 1e-12;
    }
}

static void compare(const struct run *got, const struct run *expected, const char *device,
                    const char *impl) {
    const struct op_case *c = got->c;
    for (int t = 0; t < OUTPUTS; t++) {
        double e = error_of(got->out[t], expected->out[t], got->out_size[t]);
        if (!(e <= bound_of(c->d.kind)))
            fail_msg("%s on %s by %s: %s is off by %g", c->name, device, impl, output_names[t], e);
    }
    assert_true(fabs(got->sums[0] - expected->sums[0]) <= 1e-6 * fabs(expected->sums[0]));
    assert_true(got->sums[1] == expected->sums[1]);
}

static void compare_bits(const struct run *a, const struct run *b, const char *impl) {
    for (int t = 0; t < OUTPUTS; t++)
        if (memcmp(a->out[t], b->out[t], (size_t)a->out_size[t] * 4))
            fail_msg("%s by %s: two runs give different bits in %s", a->c->name, impl,
                     output_names[t]);
    assert_memory_equal(a->sums, b->sums, sizeof a->sums);
}

static struct device *open_device(const char *name, int threads) {
    struct device_params p = {.index = 0, .count = 1, .threads = threads};
    const struct device_ops *ops = device_find(name);
    struct device *dev = NULL;
    assert_non_null(ops);
    assert_ok(ops->open(&p, &dev));
    return dev;
}

/* A library of its own may allocate a little in each call; our kernels may not. */
static bool may_allocate(const struct op_impl *impl) {
    return !strcmp(impl->name, "dnnl");
}

static void check_impl(struct device *dev, const struct op_impl *impl, const struct op_case *c,
                       const struct run *expected) {
    struct op *op = NULL;
    enum error err = impl->create(dev, &c->d, &op);
    if (err == ERR_DEVICE) return; /* it said that it cannot, after all */
    assert_ok(err);
    struct run first, again;
    run_init(&first, c);
    run_init(&again, c);
    run_op(&first, op);
    long allocations = run_op(&again, op);
    if (allocations && !may_allocate(impl))
        fail_msg("%s by %s: %ld allocations", c->name, impl->name, allocations);
    compare(&first, expected, dev->ops->name, impl->name);
    compare_bits(&first, &again, impl->name);
    run_fini(&first);
    run_fini(&again);
    op_free(op);
}

static void check_case(struct device *dev, struct device *ref, const struct op_case *c) {
    struct op *op = NULL;
    struct run expected;
    assert_ok(op_create(ref, &c->d, &op));
    run_init(&expected, c);
    run_op(&expected, op);
    int taken = 0;
    for (const struct op_impl *const *i = dev->ops->impls(dev, c->d.kind); *i; i++, taken++)
        if ((*i)->takes(&c->d)) check_impl(dev, *i, c, &expected);
    assert_true(taken > 0);
    run_fini(&expected);
    op_free(op);
}

static void every_implementation_agrees(void **state) {
    (void)state;
    int count;
    const struct device_ops *const *kinds = device_kinds(&count);
    struct device *ref = open_device("ref", 1);
    for (int k = 0; k < count; k++)
        for (int threads = 1; threads <= (kinds[k] == ref->ops ? 1 : 2); threads++) {
            struct device *dev = open_device(kinds[k]->name, threads);
            for (int i = 0; i < CASES; i++) check_case(dev, ref, &cases[i]);
            dev->ops->close(dev);
        }
    ref->ops->close(ref);
}

/* ---- plain C against finite differences ----------------------------------------------------- */
/* What backward is the gradient of: sum of y dy, or the losses times their scale. */
static double objective(struct run *r, struct op *op) {
    double sum = 0;
    run_op(r, op);
    for (int64_t k = 0; k < r->in_size[DY]; k++) sum += (double)r->out[Y][k] * (double)r->in[DY][k];
    return r->in_size[DY] ? sum : (r->sums[0] - 1) * 0.25;
}

static void check_slope(struct run *r, struct op *op, int in, int out, int64_t at) {
    const float step = 0x1p-8f;
    float old = r->in[in][at];
    run_op(r, op);
    double slope = (double)r->out[out][at];
    r->in[in][at] = old + step;
    double above = objective(r, op);
    r->in[in][at] = old - step;
    double below = objective(r, op);
    r->in[in][at] = old;
    double expected = (above - below) / (2 * (double)step);
    if (!(fabs(slope - expected) <= 2e-3 * (fabs(expected) + 1)))
        fail_msg("%s: %s[%d] is %g, the slope is %g", r->c->name, output_names[out], (int)at, slope,
                 expected);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    static const int pairs[][2] = {{X0, DX0}, {X1, DX1}, {W0, DW0}, {W1, DW1}};
    struct device *ref = open_device("ref", 1);
    for (int i = 0; i < CASES; i++) {
        struct op *op = NULL;
        struct run r;
        if (!cases[i].smooth) continue;
        assert_ok(op_create(ref, &cases[i].d, &op));
        run_init(&r, &cases[i]);
        for (int p = 0; p < 4; p++)
            for (int64_t k = 0; k < 5 && r.out_size[pairs[p][1]] > 0; k++)
                check_slope(&r, op, pairs[p][0], pairs[p][1], k * 31 % r.out_size[pairs[p][1]]);
        run_fini(&r);
        op_free(op);
    }
    ref->ops->close(ref);
}

/* ---- a sample's result does not depend on the others ---------------------------------------- */
static void a_sample_keeps_its_bits(void **state) {
    (void)state;
    struct device *dev = open_device("cpu", 1);
    for (int64_t n = 1; n <= 200; n += 33) {
        static const struct op_case one = {"linear", LINEAR(1, 100, 70, BIAS, RELU), .eval = true};
        struct op_case many = one;
        many.d.n = n;
        struct op *a = NULL, *b = NULL;
        struct run ra, rb;
        assert_ok(op_create(dev, &one.d, &a));
        assert_ok(op_create(dev, &many.d, &b));
        run_init(&ra, &one);
        run_init(&rb, &many);
        run_op(&ra, a);
        run_op(&rb, b);
        assert_memory_equal(ra.out[Y], rb.out[Y], (size_t)ra.out_size[Y] * 4);
        run_fini(&ra);
        run_fini(&rb);
        op_free(a);
        op_free(b);
    }
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(every_implementation_agrees),
        cmocka_unit_test(a_sample_keeps_its_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
