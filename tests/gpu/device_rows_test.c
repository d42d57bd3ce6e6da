/* Row-wise and element-wise ops of a GPU, what the cases of ops do not show: gradients in the place of others, losses
 * without y, labels outside their classes, and rows that do not feel their neighbours. */
#include "tests/gpu/gpu.h"
#include "tests/harness/shapes.h"

#include "engine/base/rng.h"

#include <math.h>
#include <string.h>

/* ---- memory of the GPU ---------------------------------------------------------------------- */
static void *there(struct device *dev, const void *from, size_t bytes) {
    void *p = NULL;
    assert_ok(device_alloc(dev, bytes, &p));
    if (from) assert_ok(device_write(dev, p, from, bytes));
    assert_ok(device_wait(dev));
    return p;
}

static void back(struct device *dev, void *to, void *from, size_t bytes) {
    assert_ok(device_read(dev, to, from, bytes));
    device_free(dev, from);
}

static void fill(float *v, int64_t n, uint64_t which) {
    struct rng_key key = rng_key(11, RNG_TEST);
    for (int64_t k = 0; k < n; k++) v[k] = rng_normal(key, which, (uint64_t)k);
}

static struct op *op_of(struct device *dev, struct op_desc d) {
    struct op *op = NULL;
    d.y = d.x;
    assert_ok(op_create(dev, &d, &op));
    return op;
}

/* ---- gradients in place --------------------------------------------------------------------- */
enum { SAMPLES = 3, EACH = 1003, ALL = SAMPLES * EACH };

/* dx[0] of the op, where dy lies or at a place of its own. */
static void gradient(struct device *dev, struct op *op, bool in_place, float out[ALL]) {
    static float x[ALL], y[ALL], dy[ALL];
    const uint64_t ids[SAMPLES] = {5, 6, 7};
    fill(x, ALL, 1), fill(y, ALL, 2), fill(dy, ALL, 3);
    float *dy_there = there(dev, dy, sizeof dy);
    float *dx = in_place ? dy_there : there(dev, NULL, sizeof dy);
    float *dx1 = op->desc.kind == OP_ADD ? there(dev, NULL, sizeof dy) : NULL;
    float *x_there = there(dev, x, sizeof x), *y_there = there(dev, y, sizeof y);
    uint64_t *ids_there = there(dev, ids, sizeof ids);
    struct op_args a = {.x = {x_there, x_there},
                        .y = y_there,
                        .dy = dy_there,
                        .dx = {dx, dx1},
                        .training = true,
                        .seed = 9,
                        .ids = ids_there};
    assert_ok(op_backward(op, &a));
    static float other[ALL];
    if (dx1) back(dev, other, dx1, sizeof other);
    back(dev, out, dx, sizeof other);
    if (dx1) assert_memory_equal(out, other, sizeof other);
    if (!in_place) device_free(dev, dy_there);
    device_free(dev, x_there);
    device_free(dev, y_there);
    device_free(dev, ids_there);
}

static void a_gradient_may_take_the_place_of_another(void **state) {
    static const struct op_desc descs[] = {
        {.kind = OP_ACTIVATION, .act = ACT_SILU},
        {.kind = OP_DROPOUT, .dropout = {0.3f, 1}},
        {.kind = OP_ADD},
        {.kind = OP_ADD, .act = ACT_RELU},
    };
    static float apart[ALL], in_place[ALL];
    struct device *dev = gpu_open(0);
    (void)state;
    for (size_t i = 0; i < sizeof descs / sizeof *descs; i++) {
        struct op_desc d = descs[i];
        d.n = SAMPLES, d.x = (struct shape)F(EACH);
        struct op *op = op_of(dev, d);
        gradient(dev, op, false, apart);
        gradient(dev, op, true, in_place);
        assert_memory_equal(apart, in_place, sizeof apart);
        op_free(op);
    }
    dev->ops->close(dev);
}

/* ---- gradients that are added to ------------------------------------------------------------ */
enum { LINES = 3, LONGEST = 1291 };

/* dx[0] of a layernorm of rows of 'width', which begins as what lies there: dy itself, 'base', or nothing (NULL). */
static void norm_gradient(struct device *dev, int64_t width, bool onto_dy, const float *base, float *out) {
    static float x[LINES * LONGEST], dy[LINES * LONGEST], ones[LONGEST];
    size_t bytes = (size_t)(LINES * width) * sizeof *x;
    fill(x, LINES * width, 1), fill(dy, LINES * width, 2);
    for (int k = 0; k < LONGEST; k++) ones[k] = 1;
    struct op *op = op_of(
        dev,
        (struct op_desc){.kind = OP_LAYERNORM, .n = LINES, .x = {1, {width}}, .norm = {.eps = 1e-5f, .bias = true}});
    assert_true(op->adds_dx);
    float *dy_there = there(dev, dy, bytes), *own = onto_dy ? NULL : there(dev, base, bytes);
    float *weights = there(dev, ones, sizeof ones), *dw = there(dev, NULL, 2 * sizeof ones);
    struct op_args a = {.x = {there(dev, x, bytes)},
                        .y = there(dev, NULL, bytes),
                        .dy = dy_there,
                        .dx = {onto_dy ? dy_there : own},
                        .w = {weights, weights},
                        .dw = {dw, dw + LONGEST},
                        .saved = there(dev, NULL, op->saved_bytes),
                        .scratch = there(dev, NULL, op->scratch_bytes),
                        .training = true,
                        .add_dx = onto_dy || base};
    void *const all[] = {(void *)(uintptr_t)a.x[0], a.y, weights, dw, a.saved, a.scratch};
    assert_ok(op_forward(op, &a));
    assert_ok(op_backward(op, &a));
    back(dev, out, a.dx[0], bytes);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device_free(dev, all[i]);
    if (!onto_dy) device_free(dev, dy_there);
    op_free(op);
}

/* Rows of a warp, whole packs or not, and those of a block. */
static void a_norm_adds_to_a_gradient(void **state) {
    static const int64_t widths[] = {96, 101, 1288, LONGEST};
    static float dy[LINES * LONGEST], alone[LINES * LONGEST], added[LINES * LONGEST], onto[LINES * LONGEST];
    struct device *dev = gpu_open(0);
    (void)state;
    for (int i = 0; i < 4; i++) {
        int64_t n = LINES * widths[i];
        fill(dy, n, 2);
        norm_gradient(dev, widths[i], false, NULL, alone);
        norm_gradient(dev, widths[i], false, dy, added);
        norm_gradient(dev, widths[i], true, NULL, onto);
        assert_memory_equal(added, onto, (size_t)n * sizeof *onto);
        for (int64_t k = 0; k < n; k++) assert_true(fabsf(added[k] - (alone[k] + dy[k])) <= 1e-6f * (1 + fabsf(dy[k])));
    }
    dev->ops->close(dev);
}

/* ---- losses --------------------------------------------------------------------------------- */
struct losing { /* a loss's run: what it reads, and what comes of it */
    struct op_desc d;
    const float *x;
    const int32_t *labels;
    float *dx, *y; /* y: NULL for none */
    double sums[3];
    enum error err; /* of the wait at its end */
};

static void lose(struct device *dev, struct losing *l) {
    struct op *op = op_of(dev, l->d);
    int64_t rows = l->d.n * shape_count(&l->d.x) / shape_last(&l->d.x);
    size_t bytes = (size_t)(l->d.n * shape_count(&l->d.x)) * sizeof(float);
    l->sums[0] = l->sums[1] = l->sums[2] = 0;
    float *x = there(dev, l->x, bytes), *dx = there(dev, NULL, bytes);
    float *y = l->y ? there(dev, NULL, bytes) : NULL;
    int32_t *labels = there(dev, l->labels, (size_t)rows * sizeof *labels);
    double *sums = there(dev, l->sums, sizeof l->sums);
    void *saved = there(dev, NULL, op->saved_bytes + 1);
    void *scratch = there(dev, NULL, op->scratch_bytes);
    struct op_args a = {.x = {x},
                        .y = y,
                        .labels = labels,
                        .sums = sums,
                        .top = sums + 2,
                        .saved = saved,
                        .scratch = scratch,
                        .training = true,
                        .scale = 0.5f};
    assert_ok(op_forward(op, &a));
    a.dx[0] = dx;
    assert_ok(op_backward(op, &a));
    l->err = device_wait(dev);
    back(dev, l->sums, sums, sizeof l->sums);
    back(dev, l->dx, dx, bytes);
    if (l->y) back(dev, l->y, y, bytes);
    device_free(dev, x);
    device_free(dev, labels);
    device_free(dev, saved);
    device_free(dev, scratch);
    op_free(op);
}

enum { CLASSES = 1301 };

static void cross_entropy_needs_no_y(void **state) {
    static float x[4 * CLASSES], with[4 * CLASSES], without[4 * CLASSES], y[4 * CLASSES];
    const int32_t labels[4] = {0, 7, CLASSES - 1, 600};
    struct device *dev = gpu_open(0);
    struct losing l = {
        .d = {.kind = OP_CROSS_ENTROPY, .n = 4, .x = F(CLASSES)}, .x = x, .labels = labels, .dx = with, .y = y};
    (void)state;
    fill(x, 4 * CLASSES, 4);
    lose(dev, &l);
    assert_ok(l.err);
    double loss = l.sums[0], sum = 0;
    for (int k = 0; k < CLASSES; k++) sum += (double)y[k];
    assert_true(fabs(sum - 1) < 1e-5);
    l.dx = without, l.y = NULL;
    lose(dev, &l);
    assert_ok(l.err);
    assert_true(loss == l.sums[0] && loss > 0);
    assert_memory_equal(with, without, sizeof with);
    dev->ops->close(dev);
}

/* Of several largest outputs the first is the answer. */
static void the_first_of_the_largest_is_the_answer(void **state) {
    static float x[3 * CLASSES], dx[3 * CLASSES];
    struct device *dev = gpu_open(0);
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (int64_t classes = 20; classes <= CLASSES; classes += CLASSES - 20) {
            int32_t labels[3] = {5, 9, 0}; /* right, wrong, wrong */
            memset(x, 0, sizeof x);
            for (int r = 0; r < 2; r++) x[r * classes + 5] = x[r * classes + 9] = 2;
            x[2 * classes + classes - 1] = 1;
            struct losing l = {.d = {.kind = kind ? OP_MSE : OP_CROSS_ENTROPY, .n = 3, .x = F(classes)},
                               .x = x,
                               .labels = labels,
                               .dx = dx};
            lose(dev, &l);
            assert_ok(l.err);
            assert_true(l.sums[1] == 1);
            assert_true(l.sums[2] == 3); /* second, and first of many that equal it */
            labels[2] = 4;               /* the one larger, and four that equal it, come before it */
            lose(dev, &l);
            assert_true(l.sums[2] == 2);
            labels[2] = 3;
            x[2 * classes + 3] = NAN;
            lose(dev, &l);
            assert_true(l.sums[2] == 2);
        }
    dev->ops->close(dev);
}

static void a_label_outside_its_classes_is_told_by_the_wait(void **state) {
    static float x[3 * CLASSES], dx[3 * CLASSES];
    static const int32_t wrong[] = {CLASSES, -1, INT32_MAX, INT32_MIN};
    struct device *dev = gpu_open(0);
    (void)state;
    fill(x, 3 * CLASSES, 5);
    for (int i = 0; i < 8; i++) {
        int32_t labels[3] = {1, wrong[i / 2], 2};
        struct losing l = {.d = {.kind = i % 2 ? OP_MSE : OP_CROSS_ENTROPY, .n = 3, .x = F(CLASSES)},
                           .x = x,
                           .labels = labels,
                           .dx = dx};
        lose(dev, &l);
        assert_int_equal(l.err, ERR_DATA);
        assert_true(isfinite(l.sums[0]));
        labels[1] = 0; /* and that is all: the device goes on */
        lose(dev, &l);
        assert_ok(l.err);
    }
    dev->ops->close(dev);
}

/* ---- neighbours ----------------------------------------------------------------------------- */
enum { ROW = 1029, MOST = 5 }; /* rows that begin at every alignment */

/* The last row's gradient in a batch of n, whose rows before it are others. */
static void last_row(struct device *dev, enum op_kind kind, int64_t n, float out[ROW]) {
    static float x[MOST * ROW], dx[MOST * ROW];
    int32_t labels[MOST] = {0};
    fill(x, n * ROW, (uint64_t)n);
    fill(x + (n - 1) * ROW, ROW, 99);
    labels[n - 1] = 3;
    struct losing l = {.d = {.kind = kind, .n = n, .x = F(ROW)}, .x = x, .labels = labels, .dx = dx};
    lose(dev, &l);
    assert_ok(l.err);
    memcpy(out, dx + (n - 1) * ROW, ROW * sizeof(float));
}

static void a_row_does_not_feel_its_neighbours(void **state) {
    struct device *dev = gpu_open(0);
    float alone[ROW], among[ROW];
    (void)state;
    last_row(dev, OP_CROSS_ENTROPY, 1, alone);
    for (int64_t n = 2; n <= MOST; n++) {
        last_row(dev, OP_CROSS_ENTROPY, n, among);
        assert_memory_equal(alone, among, sizeof alone);
    }
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_may_take_the_place_of_another),
        cmocka_unit_test(a_norm_adds_to_a_gradient),
        cmocka_unit_test(cross_entropy_needs_no_y),
        cmocka_unit_test(the_first_of_the_largest_is_the_answer),
        cmocka_unit_test(a_label_outside_its_classes_is_told_by_the_wait),
        cmocka_unit_test(a_row_does_not_feel_its_neighbours),
    };
    return gpu_run_tests(tests);
}
