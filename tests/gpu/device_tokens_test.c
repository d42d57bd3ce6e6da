/* Embeddings on a GPU beyond single ops of op_cases.h: tokens that are none, and sums whose order nothing changes. */
#include "tests/gpu/gpu.h"

#include "engine/base/rng.h"
#include "engine/device/impl.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 7, POSITIONS = 90, ROWS = SAMPLES * POSITIONS, WIDTH = 24, VOCABULARY = 600 };

struct table { /* an embedding on a GPU, and all that it works on */
    struct device *dev;
    struct op *op;
    struct op_args a;
    void *piece[8];
    int count;
};

static void *put(struct table *t, const void *from, size_t bytes) {
    void *p = NULL;
    assert_ok(device_alloc(t->dev, bytes, &p));
    if (from) assert_ok(device_write(t->dev, p, from, bytes));
    assert_ok(device_wait(t->dev));
    return t->piece[t->count++] = p;
}

static void table_open(struct table *t, const float *token, const float *w, const float *dy, bool add) {
    struct op_desc d = {.kind = OP_EMBEDDING,
                        .n = SAMPLES,
                        .x = {1, {POSITIONS}},
                        .y = {2, {POSITIONS, WIDTH}},
                        .first = true,
                        .embedding = {VOCABULARY}};
    *t = (struct table){.dev = gpu_open(0)};
    assert_ok(op_create(t->dev, &d, &t->op));
    t->a.x[0] = put(t, token, ROWS * sizeof(float));
    t->a.w[0] = put(t, w, (size_t)VOCABULARY * WIDTH * sizeof(float));
    t->a.dy = put(t, dy, (size_t)ROWS * WIDTH * sizeof(float));
    t->a.y = put(t, NULL, (size_t)ROWS * WIDTH * sizeof(float));
    t->a.dw[0] = put(t, NULL, (size_t)VOCABULARY * WIDTH * sizeof(float));
    t->a.scratch = put(t, NULL, t->op->scratch_bytes);
    t->a.training = true;
    t->a.add_dw = add;
}

static void table_close(struct table *t) {
    for (int i = 0; i < t->count; i++) device_free(t->dev, t->piece[i]);
    op_free(t->op);
    t->dev->ops->close(t->dev);
}

static float tokens[ROWS], weights[VOCABULARY * WIDTH], dy[ROWS * WIDTH], y[ROWS * WIDTH], dw[VOCABULARY * WIDTH];

/* Token 5 in every third row, others here and there. */
static void fill(void) {
    struct rng_key key = rng_key(11, RNG_TEST);
    for (uint64_t k = 0; k < ROWS; k++) tokens[k] = k % 3 ? (float)(6 + k * 37 % 590) : 5;
    for (uint64_t k = 0; k < sizeof weights / sizeof *weights; k++) weights[k] = rng_normal(key, 0, k);
    for (uint64_t k = 0; k < sizeof dy / sizeof *dy; k++) dy[k] = rng_normal(key, 1, k);
}

static void a_token_outside_the_vocabulary_is_told(void **state) {
    static const float wrong[] = {VOCABULARY, -1, 2.5f, NAN, INFINITY, 1e30f};
    struct table t;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fill();
        tokens[ROWS - 1] = wrong[i];
        table_open(&t, tokens, weights, dy, false);
        assert_ok(op_forward(t.op, &t.a));
        assert_int_equal(device_wait(t.dev), ERR_DATA);
        assert_non_null(strstr(error_message(), "vocabulary"));
        assert_ok(op_backward(t.op, &t.a)); /* and nothing else came of it */
        assert_ok(device_wait(t.dev));
        table_close(&t);
    }
}

/* Every row of dw is the sum of its token's rows, whatever rows the other tokens have. */
static void a_token_s_sum_is_its_own(void **state) {
    static float alone[WIDTH];
    struct table t;
    (void)state;
    fill();
    table_open(&t, tokens, weights, dy, false);
    assert_ok(op_backward(t.op, &t.a));
    assert_ok(device_read(t.dev, dw, t.a.dw[0], sizeof dw));
    table_close(&t);
    memcpy(alone, dw + 5 * WIDTH, sizeof alone);
    for (int k = 0; k < ROWS; k++)
        if (k % 3) tokens[k] = (float)(6 + k % 100);
    table_open(&t, tokens, weights, dy, false);
    assert_ok(op_backward(t.op, &t.a));
    assert_ok(device_read(t.dev, dw, t.a.dw[0], sizeof dw));
    table_close(&t);
    assert_memory_equal(alone, dw + 5 * WIDTH, sizeof alone);
}

static void rows_of_y_are_rows_of_the_table(void **state) {
    struct table t;
    (void)state;
    fill();
    table_open(&t, tokens, weights, dy, false);
    assert_ok(op_forward(t.op, &t.a));
    assert_ok(device_read(t.dev, y, t.a.y, sizeof y));
    table_close(&t);
    for (int k = 0; k < ROWS; k++)
        assert_memory_equal(y + k * WIDTH, weights + (int)tokens[k] * WIDTH, WIDTH * sizeof(float));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_y_are_rows_of_the_table),
        cmocka_unit_test(a_token_outside_the_vocabulary_is_told),
        cmocka_unit_test(a_token_s_sum_is_its_own),
    };
    return gpu_run_tests(tests);
}
