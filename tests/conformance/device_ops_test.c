/* Every op on every kind of device whose memory is the host's (accelerators: tests/gpu), through every implementation that takes the case, against plain
 * C. A new case is one line of the table; a new implementation or device is found by itself.
 * Outputs and scratch are filled with NaN first, so that what is not written shows. Images of whole
 * blocks of channels are tried in the blocked layout too, by implementations that take it. */
#include "engine/device/ref/ref.h"
#include "engine/device/runtime.h"
#include "tests/harness/levels.h"
#include "tests/harness/op_run.h"

/* ---- one run of a case ---------------------------------------------------------------------- */
/* An image between plain (as it is kept here) and blocked, in place. */
static void image_relayout(int64_t n, const struct shape *s, float *image, bool to_blocked) {
    int64_t area = s->dim[1] * s->dim[2], channels = s->dim[0], each = channels * area;
    float *copy = memory(n * each * 4);
    memcpy(copy, image, (size_t)(n * each) * 4);
    for (int64_t k = 0; k < n * each; k++) {
        int64_t c = k / area % channels, place = k % area;
        int64_t blocked =
            k / each * each + c / LAYOUT_BLOCK * LAYOUT_BLOCK * area + place * LAYOUT_BLOCK + c % LAYOUT_BLOCK;
        image[to_blocked ? blocked : k] = copy[to_blocked ? k : blocked];
    }
    memory_free(copy);
}

/* Which tensors lie as x and as y. */
static const struct sides { int x[2], y; } inputs_at = {{X0, X1}, DY}, outputs_at = {{DX0, DX1}, Y};

static void relayout(struct run *r, float *const *tensors, struct sides at, enum layout x, enum layout y,
                     bool to_blocked) {
    const struct op_desc *d = &r->c->d;
    const int64_t *size = tensors == r->in ? r->in_size : r->out_size;
    for (int i = 0; i < 2; i++)
        if (x == LAYOUT_BLOCKED && size[at.x[i]]) image_relayout(d->n, &d->x, tensors[at.x[i]], to_blocked);
    if (y == LAYOUT_BLOCKED && size[at.y]) image_relayout(d->n, &d->y, tensors[at.y], to_blocked);
}

/* Gives how many allocations forward and backward made. */
static long run_op(struct run *r, struct op *op) {
    enum layout x = op->desc.x_layout, y = op->desc.y_layout;
    relayout(r, r->in, inputs_at, x, y, true);
    void *saved = memory((int64_t)op->saved_bytes), *scratch = memory((int64_t)op->scratch_bytes);
    memset(saved, 0xff, op->saved_bytes);
    memset(scratch, 0xff, op->scratch_bytes);
    for (int t = 0; t < MEAN; t++) memset(r->out[t], 0xff, (size_t)r->out_size[t] * 4);
    for (int64_t k = 0; k < r->out_size[MEAN]; k++) r->out[MEAN][k] = 0.5f, r->out[VAR][k] = 2;
    for (int64_t k = 0; k < r->out_size[DW0] && r->c->add; k++) r->out[DW0][k] = added;
    r->sums[0] = r->sums[1] = r->sums[2] = 1;
    struct op_args a = args_of(r, saved, scratch);
    count_allocations_begin();
    enum error forward = op_forward(op, &a);
    enum error backward = r->c->eval ? ERR_NONE : op_backward(op, &a);
    long allocations = count_allocations_end();
    assert_ok(forward);
    assert_ok(backward);
    memory_free(saved);
    memory_free(scratch);
    relayout(r, r->in, inputs_at, x, y, false);
    relayout(r, r->out, outputs_at, x, y, false);
    return allocations;
}

/* ---- implementations against plain C -------------------------------------------------------- */
/* The mean squared error, as a part of the mean square, that implementations may have. In bf16 too:
 * the factors are rounded alike, their products are whole in f32, and only sums differ. */
static double bound_of(enum op_kind kind) {
    switch (kind) {
    case OP_CONV2D:
        return 1e-11; /* Winograd's */
    case OP_DROPOUT:
    case OP_ADD:
    case OP_REORDER:
        return 0;
    default:
        return 1e-12;
    }
}

static void compare(const struct run *got, const struct run *expected, const char *device, const char *impl) {
    const struct op_case *c = got->c;
    for (int t = 0; t < OUTPUTS; t++) {
        double e = error_of(got->out[t], expected->out[t], got->out_size[t]);
        if (!(e <= bound_of(c->d.kind)))
            fail_msg("%s on %s by %s: %s is off by %g", c->name, device, impl, output_names[t], e);
    }
    assert_true(fabs(got->sums[0] - expected->sums[0]) <= 1e-6 * fabs(expected->sums[0]));
    assert_true(fabs(got->sums[1] - expected->sums[1]) <= 1e-12 * fabs(expected->sums[1]));
    assert_true(got->sums[2] == expected->sums[2]);
}

static void check_impl(struct device *dev, const struct op_impl *impl, const struct op_case *c, const struct op_desc *d,
                       const struct run *expected) {
    struct op *op = NULL;
    enum error err = op_make(impl, dev, d, &op);
    if (err == ERR_CONFIG) return; /* it said that it cannot, after all */
    assert_ok(err);
    struct run first, again;
    run_init(&first, c);
    run_init(&again, c);
    run_op(&first, op);
    long allocations = run_op(&again, op);
    if (allocations) fail_msg("%s by %s: %ld allocations", c->name, impl->name, allocations);
    compare(&first, expected, dev->ops->name, impl->name);
    compare_bits(&first, &again, impl->name);
    run_fini(&first);
    run_fini(&again);
    op_free(op);
}

static bool has_blocks(const struct shape *s) {
    return s->ndim == 3 && s->dim[0] % LAYOUT_BLOCK == 0;
}

/* Whether the case can be had with its images in these layouts. */
static bool layouts_fit(const struct op_desc *d, enum layout x, enum layout y) {
    if (x == LAYOUT_BLOCKED && !has_blocks(&d->x)) return false;
    if (y == LAYOUT_BLOCKED && !has_blocks(&d->y)) return false;
    return x == y || d->kind == OP_CONV2D || d->kind == OP_REORDER || d->y.ndim != 3;
}

/* Plain C, after the implementations of the device "cpu", is the same at every level, and the device "ref" has run it. */
static bool is_known(const struct device *dev, const struct op_impl *impl, enum op_kind kind) {
    return dev->isa && impl == &op_row(kind)->plain;
}

/* Gives how many implementations there are; those that take a layout are checked in it. */
static int check_impls(struct device *dev, const struct op_case *c, enum layout x, enum layout y,
                       const struct run *expected) {
    struct op_desc d = c->d;
    d.x_layout = x, d.y_layout = y;
    int count = 0;
    const struct op_impl *impl;
    for (; (impl = op_impl_at(dev, d.kind, count)); count++)
        if (op_impl_takes(impl, &d) && !is_known(dev, impl, d.kind)) check_impl(dev, impl, c, &d, expected);
    if (op_takes(dev, &d)) { /* one of those that say so must be right */
        struct op *op = NULL;
        if (op_create(dev, &d, &op) != ERR_NONE)
            fail_msg("%s in layouts %d, %d: %s", c->name, (int)x, (int)y, error_message());
        op_free(op);
    }
    return count;
}

/* What plain C gives for a case; it takes longer than all that is compared with it. */
static void expect(struct device *ref, const struct op_case *c, struct run *expected) {
    struct op *op = NULL;
    assert_ok(op_create(ref, &c->d, &op));
    run_init(expected, c);
    run_op(expected, op);
    op_free(op);
}

static void check_case(struct device *dev, const struct op_case *c, const struct run *expected) {
    for (enum layout x = LAYOUT_PLAIN; x <= LAYOUT_BLOCKED; x++)
        for (enum layout y = LAYOUT_PLAIN; y <= LAYOUT_BLOCKED; y++)
            if (layouts_fit(&c->d, x, y)) assert_true(check_impls(dev, c, x, y, expected) > 0);
}

static void check_device(struct device *dev, const struct run expected[CASES]) {
    for (int i = 0; i < CASES; i++) check_case(dev, &cases[i], &expected[i]);
    dev->ops->close(dev);
}

/* The device "cpu" at each level of instructions: a machine that has the best runs the others nowhere else. */
static void every_implementation_agrees(void **state) {
    (void)state;
    static struct run expected[CASES];
    int count, levels;
    const struct device_ops *const *kinds = device_kinds(&count);
    const struct cpu_level *const *level = cpu_levels(&levels);
    struct device *ref = open_device("ref", 1);
    for (int i = 0; i < CASES; i++) expect(ref, &cases[i], &expected[i]);
    for (int k = 0; k < count; k++)
        if (!kinds[k]->runtime->apart && strcmp(kinds[k]->name, "cpu") != 0)
            check_device(open_device(kinds[k]->name, 1), expected);
    for (int l = 0; l < levels; l++)
        for (int threads = 1; threads <= 2; threads++) check_device(open_at(level[l], threads), expected);
    for (int i = 0; i < CASES; i++) run_fini(&expected[i]);
    ref->ops->close(ref);
}

/* ---- levels of instructions give the same bits ---------------------------------------------- */
static void level_run(struct device *dev, const struct op_impl *impl, const struct op_desc *d, struct run *r) {
    struct op *op = NULL;
    assert_ok(op_make(impl, dev, d, &op));
    run_op(r, op);
    op_free(op);
}

/* Which NaN comes of an operation is the processor's and the compiler's choice, and all count as the same. */
static void one_nan(struct run *r) {
    for (int t = 0; t < OUTPUTS; t++)
        for (int64_t k = 0; k < r->out_size[t]; k++)
            if (isnan(r->out[t][k])) r->out[t][k] = NAN;
    for (int k = 0; k < 3; k++)
        if (isnan(r->sums[k])) r->sums[k] = (double)NAN;
}

/* Some inputs are no numbers, infinite, or zeros of either sign. */
static void salt(struct run *r) {
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
    for (int t = 0; t < INPUTS; t++)
        for (int64_t k = t * 5 + 3; k < r->in_size[t]; k += 37 + k % 11)
            r->in[t][k] = odd[(k / 3) % (int64_t)(sizeof odd / sizeof *odd)];
}

static void check_bits_of_impl(struct device *const dev[2], int which, const struct op_case *c, const struct op_desc *d,
                               bool salted) {
    struct run r[2];
    char by[64];
    for (int k = 0; k < 2; k++) {
        const struct op_impl *impl = op_impl_at(dev[k], d->kind, which);
        run_init(&r[k], c);
        if (salted) salt(&r[k]);
        level_run(dev[k], impl, d, &r[k]);
        if (salted) one_nan(&r[k]);
        snprintf(by, sizeof by, "%s at %s and %s%s", impl->name, dev[0]->isa, dev[1]->isa, salted ? ", salted" : "");
    }
    compare_bits(&r[0], &r[1], by);
    for (int k = 0; k < 2; k++) run_fini(&r[k]);
}

static void check_layouts(struct device *const dev[2], const struct op_case *c, enum layout x, enum layout y) {
    struct op_desc d = c->d;
    const struct op_impl *impl;
    d.x_layout = x, d.y_layout = y;
    for (int i = 0; (impl = op_impl_at(dev[0], d.kind, i)); i++)
        for (int salted = 0; salted <= (d.kind != OP_EMBEDDING); salted++) /* whose input are numbers of rows */
            if (op_impl_takes(impl, &d) && !is_known(dev[0], impl, d.kind)) check_bits_of_impl(dev, i, c, &d, salted);
}

static void check_levels(struct device *const dev[2], const struct op_case *c) {
    if (c->d.precision != PRECISION_F32) return; /* the same between machines of one kind alone */
    for (enum layout x = LAYOUT_PLAIN; x <= LAYOUT_BLOCKED; x++)
        for (enum layout y = LAYOUT_PLAIN; y <= LAYOUT_BLOCKED; y++)
            if (layouts_fit(&c->d, x, y)) check_layouts(dev, c, x, y);
}

static void levels_keep_the_bits(void **state) {
    (void)state;
    int all, fused = levels_fused();
    const struct cpu_level *const *levels = cpu_levels(&all);
    if (fused < 2) skip();
    for (int level = 1; level < fused; level++) {
        struct device *dev[] = {open_at(levels[0], 1), open_at(levels[level], 1)};
        for (int i = 0; i < CASES; i++) check_levels(dev, &cases[i]);
        for (int k = 0; k < 2; k++) dev[k]->ops->close(dev[k]);
    }
}

/* ---- sequences: neither threads nor other samples change a bit ------------------------------ */
static void sequence_run(struct device *dev, const struct op_case *c, struct run *r) {
    struct op *op = NULL;
    assert_ok(op_create(dev, &c->d, &op));
    run_init(r, c);
    run_op(r, op);
    op_free(op);
}

static void check_sequence(struct device *one, struct device *three, const struct op_case *c) {
    struct run a, b, first;
    struct op_case alone = *c;
    alone.d.n = 1;
    sequence_run(one, c, &a);
    sequence_run(three, c, &b);
    compare_bits(&a, &b, "1 and 3 threads");
    sequence_run(one, &alone, &first);
    for (int t = Y; t <= DX0; t++)
        if (memcmp(a.out[t], first.out[t], (size_t)first.out_size[t] * 4))
            fail_msg("%s: other samples change %s", c->name, output_names[t]);
    run_fini(&a);
    run_fini(&b);
    run_fini(&first);
}

static bool is_of_sequences(enum op_kind kind) {
    return kind == OP_ACTIVATION || kind == OP_MEAN || op_row(kind)->loss ||
           (kind >= OP_LAYERNORM && kind <= OP_ATTENTION && kind != OP_ADD);
}

static void a_sequence_keeps_its_bits(void **state) {
    (void)state;
    struct device *one = open_device("cpu", 1), *three = open_device("cpu", 3);
    for (int i = 0; i < CASES; i++)
        if (is_of_sequences(cases[i].d.kind)) check_sequence(one, three, &cases[i]);
    one->ops->close(one);
    three->ops->close(three);
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
    if (r->c->add && out == DW0) slope -= (double)added;
    r->in[in][at] = old + step;
    double above = objective(r, op);
    r->in[in][at] = old - step;
    double below = objective(r, op);
    r->in[in][at] = old;
    double expected = (above - below) / (2 * (double)step);
    if (!(fabs(slope - expected) <= 2e-3 * (fabs(expected) + 1)))
        fail_msg("%s: %s[%d] is %g, the slope is %g", r->c->name, output_names[out], (int)at, slope, expected);
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

/* ---- a loss that gives its gradient in forward, in the place of its input ---------------------- */
static void forward_gives_the_gradient(void **state) {
    (void)state;
    struct device *dev = open_device("cpu", 2);
    int found = 0;
    for (int i = 0; i < CASES; i++) {
        struct op *op = NULL;
        struct run back, once;
        if (!op_row(cases[i].d.kind)->loss || cases[i].eval) continue;
        assert_ok(op_create(dev, &cases[i].d, &op));
        run_init(&back, &cases[i]);
        run_init(&once, &cases[i]);
        run_op(&back, op);
        struct op_args a = args_of(&once, NULL, memory((int64_t)op->scratch_bytes));
        for (int k = 0; k < 3; k++) once.sums[k] = 1; /* as run_op */
        a.y = NULL, a.dx[0] = once.in[X0];
        if (op->slopes) {
            assert_ok(op_forward(op, &a));
            assert_memory_equal(once.in[X0], back.out[DX0], (size_t)back.out_size[DX0] * 4);
            assert_memory_equal(once.sums, back.sums, sizeof once.sums);
            found++;
        }
        memory_free(a.scratch);
        run_fini(&back);
        run_fini(&once);
        op_free(op);
    }
    assert_true(found > 0);
    dev->ops->close(dev);
}

/* ---- a sample's result does not depend on the others, nor a result on threads ---------------- */
#define BLOCKS .x_layout = LAYOUT_BLOCKED, .y_layout = LAYOUT_BLOCKED
static const struct op_case alone[] = {
    {"linear", LINEAR(1, 100, 70, BIAS, RELU)},
    {"linear of rows", LINEAR_ROWS(1, 3, 100, 70, BIAS, RELU)},
    {"linear transposed", LINEAR_ROWS(1, 3, 100, 70, BIAS_TRANSPOSED)},
    {"linear bf16", LINEAR_ROWS(1, 3, 101, 70, BIAS, BF16)},
    {"linear bf16 deep", LINEAR(1, 1001, 70, BIAS, BF16)},
    {"conv", CONV(1, CHW(32, 9, 9), CHW(48, 9, 9), SQUARE(3, 1, 1), 1, BLOCKS)},
    {"conv many", CONV(1, CHW(160, 7, 7), CHW(160, 7, 7), SQUARE(3, 1, 1), 1, BLOCKS)},
    {"conv stride", CONV(1, CHW(32, 8, 8), CHW(32, 4, 4), SQUARE(3, 2, 1), 1, BLOCKS)},
    {"conv bf16", CONV(1, CHW(32, 8, 8), CHW(32, 8, 8), SQUARE(3, 1, 1), 1, BLOCKS, BF16)},
    {"conv depthwise", CONV(1, CHW(32, 8, 8), CHW(32, 8, 8), SQUARE(3, 1, 1), 32, BLOCKS)},
};

/* The first sample of n is run alone too. */
static void check_bits(struct device *dev, const struct op_case *one, int64_t n) {
    struct op_case many = *one;
    struct op *a = NULL, *b = NULL;
    struct run ra, rb;
    many.d.n = n;
    assert_ok(op_create(dev, &one->d, &a));
    assert_ok(op_create(dev, &many.d, &b));
    run_init(&ra, one);
    run_init(&rb, &many);
    run_op(&ra, a);
    run_op(&rb, b);
    for (int t = Y; t <= DX0; t++)
        if (memcmp(ra.out[t], rb.out[t], (size_t)ra.out_size[t] * 4))
            fail_msg("%s: %s of a sample changes in a batch of %d", one->name, output_names[t], (int)n);
    run_fini(&ra);
    run_fini(&rb);
    op_free(a);
    op_free(b);
}

static void a_sample_keeps_its_bits(void **state) {
    (void)state;
    struct device *dev = open_device("cpu", 1);
    for (size_t k = 0; k < sizeof alone / sizeof *alone; k++)
        for (int64_t n = 1; n <= 200; n += 33) check_bits(dev, &alone[k], n);
    dev->ops->close(dev);
}

/* Own kernels of blocked images: sums over samples too. */
static const struct op_case threaded[] = {
    {"conv", CONV(8, CHW(48, 17, 16), CHW(32, 17, 16), SQUARE(3, 1, 1), 1, RELU, BLOCKS)},
    {"conv by panel", CONV(3, CHW(144, 8, 8), CHW(176, 8, 8), SQUARE(3, 1, 1), 1, BLOCKS)},
    {"conv of many", CONV(50, CHW(144, 8, 8), CHW(128, 8, 8), SQUARE(3, 1, 1), 1, BLOCKS)},
    {"conv stride", CONV(5, CHW(48, 17, 16), CHW(80, 9, 8), SQUARE(3, 2, 1), 1, RELU, BLOCKS)},
    {"conv 1x1 plain", CONV(7, CHW(20, 9, 8), CHW(33, 5, 4), SQUARE(1, 2, 0), 1, )},
    {"conv depthwise", CONV(3, CHW(64, 9, 9), CHW(64, 5, 5), SQUARE(3, 2, 1), 64, BLOCKS)},
    {"batchnorm", SAME(OP_BATCHNORM, 9, CHW(80, 5, 7), NORM, RELU, BLOCKS)},
};

static void check_threads(const struct op_case *c) {
    struct run r[2];
    for (int k = 0; k < 2; k++) {
        struct device *dev = open_device("cpu", k + 1);
        struct op *op = NULL;
        run_init(&r[k], c);
        if (op_takes(dev, &c->d)) {
            assert_ok(op_create(dev, &c->d, &op));
            run_op(&r[k], op);
            op_free(op);
        }
        dev->ops->close(dev);
    }
    compare_bits(&r[0], &r[1], "1 and 2 threads");
    for (int k = 0; k < 2; k++) run_fini(&r[k]);
}

static void threads_keep_the_bits(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof threaded / sizeof *threaded; k++) check_threads(&threaded[k]);
}

/* What is blocked between convolutions has to be taken everywhere. */
static void blocked_images_are_taken(void **state) {
    (void)state;
    static const enum op_kind kinds[] = {OP_POOL2D, OP_BATCHNORM, OP_ADD, OP_REORDER};
    struct device *dev = open_device("cpu", 1);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct op_desc d = {.kind = kinds[k], .n = 2, .x = CHW(16, 4, 4), .y = CHW(16, 4, 4)};
        d.x_layout = d.y_layout = LAYOUT_BLOCKED;
        assert_true(op_choice(dev, &d) >= 0);
        d.y_layout = LAYOUT_PLAIN;
        assert_true((op_choice(dev, &d) >= 0) == (kinds[k] == OP_REORDER));
    }
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),      cmocka_unit_test(every_implementation_agrees),
        cmocka_unit_test(levels_keep_the_bits),      cmocka_unit_test(a_sample_keeps_its_bits),
        cmocka_unit_test(a_sequence_keeps_its_bits), cmocka_unit_test(threads_keep_the_bits),
        cmocka_unit_test(blocked_images_are_taken),  cmocka_unit_test(forward_gives_the_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
