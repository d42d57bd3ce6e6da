/* Every op over a batch of segments, at every level and in every layout that it takes, gives the bits of its segments
 * computed one by one, whose gradients are added as a tree: here by recursion over its halves. One segment is empty. */
#include "engine/device/runtime.h"
#include "tests/harness/levels.h"
#include "tests/harness/op_run.h"

enum { SEGMENTS = 8 };
struct result { /* of a run: its outputs, and what losses give */
    struct run r;
    double sums[SEGMENTS_MAX * LOSS_SUMS];
};

static void result_init(struct result *out, const struct op_case *c) {
    memset(out, 0, sizeof *out);
    run_init(&out->r, c);
    for (int t = 0; t < OUTPUTS; t++) memset(out->r.out[t], 0, (size_t)out->r.out_size[t] * 4);
}

static void run_args(struct op *op, struct op_args a) {
    a.saved = memory((int64_t)op->saved_bytes);
    a.scratch = memory((int64_t)op->scratch_bytes);
    memset(a.saved, 0xff, op->saved_bytes);
    memset(a.scratch, 0xff, op->scratch_bytes);
    assert_ok(op_forward(op, &a));
    assert_ok(op_backward(op, &a));
    memory_free(a.saved);
    memory_free(a.scratch);
}

static void run_together(struct device *dev, const struct op_desc *d, struct result *out) {
    struct op *op = NULL;
    assert_ok(op_create(dev, d, &op));
    struct op_args a = args_of(&out->r, NULL, NULL);
    a.sums = out->sums;
    if (a.top) a.top = out->sums + 2;
    run_args(op, a);
    op_free(op);
}

/* The arguments of samples from 'begin' on; dw of their own. */
static struct op_args args_from(struct result *out, const struct op_desc *d, int64_t begin, int segment,
                                float *const dw[2]) {
    struct op_args a = args_of(&out->r, NULL, NULL);
    int64_t x = begin * shape_count(&d->x), y = begin * shape_count(&d->y), rows = op_rows(d) / d->n;
    for (int k = 0; k < 2; k++) {
        int64_t at = k > 0 && d->joins ? y : x;
        a.x[k] = a.x[k] ? a.x[k] + at : NULL;
        a.dx[k] = a.dx[k] ? a.dx[k] + at : NULL;
        a.dw[k] = a.dw[k] ? dw[k] : NULL;
    }
    a.y = a.y ? a.y + y : NULL;
    a.dy = a.dy ? a.dy + y : NULL;
    a.labels = a.labels ? a.labels + begin * rows : NULL;
    a.others = a.others ? a.others + begin * rows : NULL;
    a.shares = a.shares ? a.shares + begin : NULL;
    a.target = a.target ? a.target + x : NULL;
    a.ids += begin;
    a.sums = out->sums + LOSS_SUMS * segment;
    if (a.top) a.top = a.sums + 2;
    a.update_buffers = segment == 0;
    return a;
}

static void tree(float *const *of, int count, int64_t n) {
    if (count == 1) return;
    tree(of, count / 2, n);
    tree(of + count / 2, count / 2, n);
    for (int64_t k = 0; k < n; k++) of[0][k] += of[count / 2][k];
}

static void run_one_by_one(struct device *dev, const struct op_desc *whole, struct result *out) {
    const struct segments *s = whole->segments;
    float *dw[2][SEGMENTS];
    const int64_t *size = out->r.out_size + DW0;
    for (int i = 0; i < s->count; i++) {
        struct op_desc d = *whole;
        struct op *op = NULL;
        d.segments = NULL, d.n = segment_size(s, i);
        for (int k = 0; k < 2; k++) memset(dw[k][i] = memory(size[k] * 4), 0, (size_t)size[k] * 4);
        if (d.n == 0) continue;
        assert_ok(op_create(dev, &d, &op));
        run_args(op, args_from(out, whole, s->begin[i], i, (float *[]){dw[0][i], dw[1][i]}));
        op_free(op);
    }
    for (int k = 0; k < 2; k++) {
        tree(dw[k], s->count, size[k]);
        memcpy(out->r.out[DW0 + k], dw[k][0], (size_t)size[k] * 4);
        for (int i = 0; i < s->count; i++) memory_free(dw[k][i]);
    }
}

static void check(struct device *dev, const struct op_case *c, const struct op_desc *d) {
    static struct result together, apart;
    result_init(&together, c);
    result_init(&apart, c);
    run_together(dev, d, &together);
    run_one_by_one(dev, d, &apart);
    compare_bits(&together.r, &apart.r, dev->isa ? dev->isa : dev->ops->name);
    assert_memory_equal(together.sums, apart.sums, sizeof apart.sums);
    run_fini(&together.r);
    run_fini(&apart.r);
}

/* Of different sizes, the third one empty. */
static struct segments segments_of(int64_t n) {
    struct segments s = {.count = SEGMENTS};
    for (int i = 1; i < SEGMENTS; i++) s.begin[i] = n * (i == 3 ? 2 : i) / SEGMENTS;
    s.begin[SEGMENTS] = n;
    return s;
}

static bool blocks_fit(const struct shape *s, enum layout layout) {
    return layout == LAYOUT_PLAIN || (s->ndim == 3 && s->dim[0] % LAYOUT_BLOCK == 0);
}

static void check_case(struct device *dev, const struct op_case *one, int64_t n) {
    for (enum layout layout = LAYOUT_PLAIN; layout <= LAYOUT_BLOCKED; layout++) {
        struct op_case c = *one;
        const struct segments s = segments_of(n);
        c.d.n = n;
        c.d.segments = &s;
        c.d.x_layout = layout;
        c.d.y_layout = c.d.y.ndim == 3 ? c.d.x_layout : LAYOUT_PLAIN;
        if (c.d.kind == OP_BATCHNORM && c.d.n < 2 * SEGMENTS) continue; /* one value has no variance */
        if (blocks_fit(&c.d.x, c.d.x_layout) && blocks_fit(&c.d.y, c.d.y_layout) && op_takes(dev, &c.d))
            check(dev, &c, &c.d);
    }
}

static void check_device(struct device *dev, int64_t n) {
    for (int i = 0; i < CASES; i++)
        if (!cases[i].eval && !cases[i].add) check_case(dev, &cases[i], n);
    dev->ops->close(dev);
}

/* More samples than a plan holds at a time on the best level, and few on the others. */
static void segments_are_apart(void **state) {
    (void)state;
    int count;
    const struct cpu_level *const *level = cpu_levels(&count);
    check_device(open_at(level[0], 1), 21);
    check_device(open_at(level[0], 3), 16);
    for (int l = 1; l < count; l++) check_device(open_at(level[l], 1), 5);
}

/* So many rows that a block of a product holds one segment, or a part of it; so many samples that threads begin amid
 * segments. */
static void large_segments_are_apart(void **state) {
    (void)state;
    static const struct op_case large[] = {
        {"linear of many", LINEAR(3000, 40, 70, BIAS)},
        {"linear of odd rows", LINEAR_ROWS(900, 3, 70, 48, BIAS, RELU)},
        {"linear of pieces", LINEAR_ROWS(80, 20, 300, 500, BIAS)},
        {"linear bf16 of many", LINEAR(6000, 40, 50, BIAS, BF16)},
        {"linear bf16 of even rows", LINEAR_ROWS(200, 2, 33, 50, BIAS, BF16)},
        {"conv pool of many",
         CONV(150, CHW(1, 10, 14), CHW(6, 4, 6), SQUARE(3, 1, 0), 1, RELU, FIRST, .conv.maxpool = true)},
        {"conv pool bf16 of many",
         CONV(150, CHW(6, 6, 8), CHW(16, 2, 3), SQUARE(3, 1, 0), 1, RELU, BF16, .conv.maxpool = true)},
        {"conv bf16 of few channels", CONV(150, CHW(4, 6, 14), CHW(7, 4, 12), SQUARE(3, 1, 0), 1, BF16)},
        {"conv by panel", CONV(90, CHW(144, 8, 8), CHW(176, 8, 8), SQUARE(3, 1, 1), 1, .first = true)},
    };
    for (int threads = 1; threads <= 2; threads++) {
        struct device *dev = open_device("cpu", threads);
        for (size_t i = 0; i < sizeof large / sizeof *large; i++) check_case(dev, &large[i], large[i].d.n);
        dev->ops->close(dev);
    }
}

/* Sums of segments that have to lie apart, since another op adds to them. */
static void tied_weights_stay_apart(void **state) {
    (void)state;
    const struct segments s = {4, {0, 2, 2, 5, 6}};
    const struct op_case c = {.name = "tied", LINEAR_ROWS(6, 3, 20, 9, BIAS)};
    struct device *dev = open_device("cpu", 1);
    struct op_desc d = c.d;
    float of[4 * 180];
    struct result together, alone;
    d.segments = &s, d.apart = true;
    for (int add = 0; add < 2; add++) {
        struct op *op = NULL;
        result_init(&together, &c);
        assert_ok(op_create(dev, &d, &op));
        struct op_args a = args_of(&together.r, NULL, NULL);
        for (int k = 0; k < 4 * 180; k++) of[k] = 3;
        a.dw[0] = of, a.add_dw = add;
        run_args(op, a);
        op_free(op);
        for (int i = 0; i < 4; i++) {
            float dw[180], bias[9];
            struct op_desc part = c.d;
            for (int k = 0; k < 180; k++) dw[k] = add ? 3 : 0;
            result_init(&alone, &c);
            part.n = segment_size(&s, i);
            if (part.n) {
                assert_ok(op_create(dev, &part, &op));
                struct op_args b = args_from(&alone, &c.d, s.begin[i], i, (float *[]){dw, bias});
                b.add_dw = add;
                run_args(op, b);
                op_free(op);
            }
            assert_memory_equal(of + i * 180, dw, sizeof dw);
            run_fini(&alone.r);
        }
        run_fini(&together.r);
    }
    dev->ops->close(dev);
}

static void slots_are_a_tree(void **state) {
    (void)state;
    for (int count = 1; count <= SEGMENTS_MAX; count *= 2) {
        double slots[SEGMENT_SLOTS] = {0}, leaf[SEGMENTS_MAX];
        for (int i = 0; i < count; i++) {
            leaf[i] = 1 / (3.0 + i);
            assert_in_range(segment_slot(i), 0, segment_slots(count) - 1);
            slots[segment_slot(i)] = leaf[i];
            for (int k = segment_slot(i); k > segment_bottom(i); k--) slots[k - 1] += slots[k];
        }
        for (int apart = 1; apart < count; apart *= 2)
            for (int i = 0; i < count; i += 2 * apart) leaf[i] += leaf[i + apart];
        assert_true(slots[0] == leaf[0]);
    }
    const struct segments s = {4, {0, 3, 3, 9, 10}};
    assert_int_equal(segments_within(&s, 1, 10), 4);
    assert_int_equal(segments_within(&s, 1, 9), 2);
    assert_int_equal(segments_within(&s, 1, 6), 1);
    assert_int_equal(segments_within(&s, 1, 5), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_a_tree),
        cmocka_unit_test(segments_are_apart),
        cmocka_unit_test(large_segments_are_apart),
        cmocka_unit_test(tied_weights_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
