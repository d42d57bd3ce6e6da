/* Products on a GPU beyond single ops of op_cases.h: rows that know nothing of each other, and calls that fail. */
#include "tests/gpu/gpu.h"

#include "engine/base/rng.h"
#include "engine/device/impl.h"

#include <string.h>

enum { N = 24, IN = 72, OUT = 40 };

static const struct op_desc linear = {
    .kind = OP_LINEAR, .n = N, .x = {1, {IN}}, .y = {1, {OUT}}, .act = ACT_GELU_TANH, .linear = {.bias = true}};

struct product { /* a linear op in f32, and all that it works on */
    struct op *op;
    struct op_args a;
    void *piece[12];
    int count;
};

static void *put(struct product *p, const void *from, size_t bytes) {
    struct device *dev = p->op->dev;
    void *to = NULL;
    assert_ok(device_alloc(dev, bytes, &to));
    if (from) assert_ok(device_write(dev, to, from, bytes));
    assert_ok(device_wait(dev));
    return p->piece[p->count++] = to;
}

static void product_init(struct product *p, struct op *op, const float *x, const float *w, const float *dy) {
    *p = (struct product){.op = op};
    p->a.x[0] = put(p, x, N * IN * sizeof(float));
    p->a.w[0] = put(p, w, IN * OUT * sizeof(float));
    p->a.w[1] = put(p, w, OUT * sizeof(float));
    p->a.dy = put(p, dy, N * OUT * sizeof(float));
    p->a.y = put(p, NULL, N * OUT * sizeof(float));
    p->a.dx[0] = put(p, NULL, N * IN * sizeof(float));
    p->a.dw[0] = put(p, NULL, IN * OUT * sizeof(float));
    p->a.dw[1] = put(p, NULL, OUT * sizeof(float));
    p->a.saved = put(p, NULL, op->saved_bytes);
    p->a.scratch = put(p, NULL, op->scratch_bytes);
    p->a.training = true;
}

static void product_fini(struct product *p) {
    for (int i = 0; i < p->count; i++) device_free(p->op->dev, p->piece[i]);
}

static float x[N * IN], w[IN * OUT], dy[N * OUT], y[2][N * OUT], dx[2][N * IN];

static void fill(float *v, int n, uint64_t stream) {
    for (int k = 0; k < n; k++) v[k] = rng_normal(rng_key(3, RNG_TEST), stream, (uint64_t)k);
}

static void a_row_knows_nothing_of_the_others(void **state) {
    struct device *dev = gpu_open(0);
    struct product p;
    struct op *op = NULL;
    (void)state;
    fill(x, N * IN, 1), fill(w, IN * OUT, 2), fill(dy, N * OUT, 3);
    assert_ok(op_create(dev, &linear, &op));
    for (int i = 0; i < 2; i++) {
        product_init(&p, op, x, w, dy);
        assert_ok(op_forward(op, &p.a));
        assert_ok(op_backward(op, &p.a));
        assert_ok(device_read(dev, y[i], p.a.y, sizeof y[i]));
        assert_ok(device_read(dev, dx[i], p.a.dx[0], sizeof dx[i]));
        product_fini(&p);
        fill(x + IN, (N - 1) * IN, 4), fill(dy + OUT, (N - 1) * OUT, 5);
    }
    assert_memory_equal(y[0], y[1], OUT * sizeof(float));
    assert_memory_equal(dx[0], dx[1], IN * sizeof(float));
    assert_memory_not_equal(y[0] + OUT, y[1] + OUT, OUT * sizeof(float));
    op_free(op);
    dev->ops->close(dev);
}

#ifdef ENGINE_EMULATED
static enum error train_once(struct device *dev, const struct op_desc *d) {
    struct product p;
    struct op *op = NULL;
    TRY(op_create(dev, d, &op));
    char *spec = getenv("ENGINE_EMULATED_FAIL"), kept[64];
    snprintf(kept, sizeof kept, "%s", spec ? spec : "");
    unsetenv("ENGINE_EMULATED_FAIL");
    product_init(&p, op, x, w, dy);
    if (kept[0]) setenv("ENGINE_EMULATED_FAIL", kept, 1);
    enum error err = op_forward(op, &p.a);
    if (err == ERR_NONE) err = op_backward(op, &p.a);
    unsetenv("ENGINE_EMULATED_FAIL");
    assert_ok(device_wait(dev));
    product_fini(&p);
    op_free(op);
    return err;
}

/* Where any one call fails, so does the op, with words for it, or it has found another way. */
static void calls_that_fail_are_told(void **state) {
    struct device *dev = gpu_open(0);
    struct op_desc d = linear;
    int failed = 0;
    (void)state;
    for (int n = 1, calm = 0; calm < 8; n++) {
        char spec[64];
        d.linear.transposed = n % 2;
        snprintf(spec, sizeof spec, "*:%d", n);
        setenv("ENGINE_EMULATED_FAIL", spec, 1);
        enum error err = train_once(dev, &d);
        unsetenv("ENGINE_EMULATED_FAIL");
        if (err != ERR_NONE) assert_true(strlen(error_message()) > 10);
        failed += err != ERR_NONE;
        calm = err == ERR_NONE ? calm + 1 : 0;
        assert_true(n < 1000);
    }
    assert_true(failed > 10);
    dev->ops->close(dev);
}

static void without_advice_the_shape_is_named(void **state) {
    struct device *dev = gpu_open(0);
    struct op_desc d = linear;
    struct op *op = NULL;
    (void)state;
    d.act = ACT_NONE, d.linear.bias = false, d.n = 1777;
    setenv("ENGINE_EMULATED_FAIL", "cublasLtMatmulAlgoGetHeuristic:1", 1);
    assert_fails(ERR_CONFIG, op_create(dev, &d, &op));
    unsetenv("ENGINE_EMULATED_FAIL");
    assert_non_null(strstr(error_message(), "linear: cuBLASLt knows no way to multiply (40, 72) by (72, 1777) in f32"));
    dev->ops->close(dev);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_knows_nothing_of_the_others),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(calls_that_fail_are_told),
        cmocka_unit_test(without_advice_the_shape_is_named),
#endif
    };
    return gpu_run_tests(tests);
}
