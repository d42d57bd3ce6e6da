/* An op and a layer that only this test registers: y = x w + a x^2, by its row and plain C alone. Whatever the program
 * does with a layer, it does with this one: training on any number of devices, cost, summary, help, decoding, ONNX. */
#include "tests/harness/harness.h"

#include "cli/line/cli.h"
#include "engine/base/file.h"
#include "engine/base/onnx_graph.h"
#include "engine/device/impl.h"
#include "engine/device/runtime.h"
#include "engine/model/decoder_model.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the op ---- */

static enum error toy_forward(struct op *op, const struct op_args *a) {
    int64_t n = shape_last(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc); k++)
        a->y[k] = a->x[0][k] * a->w[0][k % n] + op->desc.own.real * a->x[0][k] * a->x[0][k];
    return ERR_NONE;
}

static enum error toy_backward(struct op *op, const struct op_args *a) {
    int64_t n = shape_last(&op->desc.x);
    for (int64_t k = 0; k < n; k++) a->dw[0][k] = 0;
    for (int64_t k = 0; k < op_xs(&op->desc); k++) {
        a->dw[0][k % n] += a->dy[k] * a->x[0][k];
        if (a->dx[0]) a->dx[0][k] = a->dy[k] * (a->w[0][k % n] + 2 * op->desc.own.real * a->x[0][k]);
    }
    return ERR_NONE;
}

static void toy_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = shape_last(&d->x);
}

static double toy_products(const struct op_desc *d) {
    return 3 * (double)shape_count(&d->x);
}

static const char *toy_onnx(const struct onnx_form *f) {
    struct onnx_graph *g = f->g;
    const char *square = onnx_binary(g, "Mul", onnx_name(g, f->name, "square"), f->x[0], f->x[0]);
    const char *bent = onnx_binary(g, "Mul", onnx_name(g, f->name, "bent"), square, onnx_float(g, f->d->own.real));
    return onnx_binary(g, "Add", f->name, onnx_binary(g, "Mul", onnx_name(g, f->name, "scaled"), f->x[0], f->w[0]),
                       bent);
}

#define TOY                                                                                                            \
    .weights = toy_weights, .products = toy_products,                                                                  \
    .plain = {.name = "plain", .forward = toy_forward, .backward = toy_backward}
static const struct op_row toy_row = {.name = "toy", .sees = SEES_ROW, .onnx = toy_onnx, TOY};
static const struct op_row closed_row = {.name = "closed", TOY}; /* no form in ONNX, and rows may mix */
static enum op_kind toy, closed;

/* ---- its layers ---- */

struct toy_config {
    double bend;
};

static enum error plan_of(enum op_kind kind, const void *config, const struct shape *x, struct layer_plan *p) {
    layer_plan_same(p, x, kind);
    p->op.own.real = (float)((const struct toy_config *)config)->bend;
    layer_plan_param(p, (struct layer_tensor){"weight", {.ndim = 1, .dim = {shape_last(x)}}, INIT_ONE, 0});
    return ERR_NONE;
}

static enum error toy_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    return plan_of(toy, config, x, p);
}

static enum error closed_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    return plan_of(closed, config, x, p);
}

static const struct config_field fields[] = {
    {"bend", CONFIG_REAL, offsetof(struct toy_config, bend), "0.1", .help = "What x^2 is multiplied by", .max = 1},
    {0},
};
#define LAYER_OF(NAME)                                                                                                 \
    {                                                                                                                  \
        .section = {.name = #NAME,                                                                                     \
                    .fields = fields,                                                                                  \
                    .size = sizeof(struct toy_config),                                                                 \
                    .help = "A layer of a test",                                                                       \
                    .also = "toy.Bend"},                                                                               \
        .out = {[INPUT_FEATURES] = "F", [INPUT_SEQUENCE] = "T, F"}, .formula = "y = weight * x + bend * x^2",          \
        .example = "- " #NAME, .of = "64", .plan = NAME##_plan                                                         \
    }
static const struct layer_ops toy_layer = LAYER_OF(toy), closed_layer = LAYER_OF(closed);

/* ---- alone ---- */

enum { SAMPLES = 4, FEATURES = 5, FLOATS = SAMPLES * FEATURES };

static struct device *device_open(const char *name) {
    const struct device_params p = {.count = 1, .threads = 1};
    struct device *dev;
    assert_ok(device_find(name)->open(&p, &dev));
    return dev;
}

static struct op_desc toy_desc(void) {
    const struct shape shape = {.ndim = 1, .dim = {FEATURES}};
    return (struct op_desc){.kind = toy, .n = SAMPLES, .x = shape, .y = shape, .own = {.real = 0.25f}};
}

/* The gradient of the sum of y in x[at], and in w, against differences. */
static void check_gradients(const char *device, const struct segments *segments) {
    struct device *dev = device_open(device);
    struct op_desc d = toy_desc();
    struct op *op;
    float x[FLOATS], y[FLOATS], dy[FLOATS], dx[FLOATS], w[FEATURES], dw[FEATURES];
    d.segments = segments;
    assert_ok(op_create(dev, &d, &op));
    for (int k = 0; k < FLOATS; k++) x[k] = (float)(k - 7) / 4, dy[k] = 1;
    for (int k = 0; k < FEATURES; k++) w[k] = (float)k;
    void *scratch = NULL;
    assert_ok(memory_alloc(op->scratch_bytes + 1, &scratch));
    struct op_args a = {
        .x = {x}, .y = y, .dy = dy, .dx = {dx}, .w = {w}, .dw = {dw}, .training = true, .scratch = scratch};
    assert_ok(op_forward(op, &a));
    assert_ok(op_backward(op, &a));
    for (int k = 0; k < FLOATS; k++) {
        assert_float_equal(y[k], x[k] * w[k % FEATURES] + 0.25f * x[k] * x[k], 1e-6);
        float at = x[k], before = y[k];
        x[k] = at + 0.01f;
        assert_ok(op_forward(op, &a));
        assert_float_equal((y[k] - before) / 0.01f, dx[k], 0.01);
        x[k] = at;
    }
    for (int k = 0; k < FEATURES; k++) {
        float sum = 0;
        for (int i = 0; i < SAMPLES; i++) sum += x[i * FEATURES + k];
        assert_float_equal(dw[k], sum, 1e-5);
    }
    memory_free(scratch);
    op_free(op);
    dev->ops->close(dev);
}

static void forward_and_backward(void **state) {
    (void)state;
    static const struct segments two = {2, {0, 1, SAMPLES}};
    check_gradients("ref", NULL);
    check_gradients("cpu", NULL); /* which has nothing for it, and computes it by plain C */
    check_gradients("cpu", &two);
}

static void the_cost_is_the_rows(void **state) {
    (void)state;
    struct op_desc d = toy_desc();
    int64_t weights[2];
    op_weights(&d, weights);
    assert_int_equal(weights[0], FEATURES);
    assert_int_equal(weights[1], 0);
    assert_true(op_flops(&d, false) == 2 * 3 * FEATURES);
    assert_true(op_flops(&d, true) == 4 * 3 * FEATURES);
    d.first = true;
    assert_true(op_flops(&d, true) == 2 * 3 * FEATURES);
}

/* A device whose memory is its own cannot fall back to plain C. */
static void an_accelerator_refuses_it(void **state) {
    (void)state;
    struct device *dev = device_open("ref");
    const struct device_ops *ref = dev->ops;
    struct device_runtime apart = *ref->runtime;
    struct device_ops ops = *ref;
    struct op_desc d = toy_desc();
    struct op *op;
    apart.apart = true;
    ops.name = "far", ops.runtime = &apart;
    dev->ops = &ops;
    assert_false(op_takes(dev, &d));
    assert_fails(ERR_CONFIG, op_create(dev, &d, &op));
    assert_string_equal(error_message(), "device far has no implementation of this toy");
    assert_non_null(strstr(error_hint(), "cpu"));
    ref->close(dev);
}

/* ---- in a network ---- */

static bool causal(const char *layers) {
    static const struct shape tokens = {.ndim = 1, .dim = {8}};
    struct config_errors *e;
    struct pool *pool;
    struct node *spec;
    struct model *m;
    assert_ok(pool_create(&pool));
    assert_ok(config_errors_create(&e));
    assert_ok(tree_parse(layers, strlen(layers), "test", pool, e, &spec));
    if (model_create(spec, &tokens, 10, e, &m) != ERR_NONE) fail_msg("%s", config_errors_text(e, pool));
    bool is = model_is_causal(m);
    model_free(m);
    config_errors_free(e);
    pool_free(pool);
    return is;
}

static void the_row_says_whether_it_is_causal(void **state) {
    (void)state;
    assert_true(causal("{layers: [{embedding: {vocabulary: 9, units: 6}}, position, toy, {linear: 9}]}"));
    assert_false(causal("{layers: [{embedding: {vocabulary: 9, units: 6}}, position, closed, {linear: 9}]}"));
}

/* ---- in the program ---- */

static char said[1 << 16];

/* Runs a command, its words ending with NULL; what it prints is in 'said'. */
static int engine(const char *const *words) {
    int argc = 0, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    while (words[argc]) argc++;
    fflush(stdout), fflush(stderr);
    int to = open(scratch_path("said"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(to >= 0);
    dup2(to, STDOUT_FILENO), dup2(to, STDERR_FILENO);
    int code = command_call(command_find(words[0]), argc, words);
    fflush(stdout), fflush(stderr);
    dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
    ssize_t n = pread(to, said, sizeof said - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    close(to), close(out), close(err);
    return code;
}
#define ENGINE(...) engine((const char *const[]){__VA_ARGS__, NULL})
#define NETWORK(layer)                                                                                                 \
    "--set", "model={layers: [{linear: 12}, {" layer ": {bend: 0.2}}, {linear: 3}]}", "--set", "data=spirals",         \
        "--set", "optimizer={name: sgd, lr: 0.1}", "--set", "train=4st", "--set", "batch={size: 16, shards: 4}",       \
        "--set", "eval=end"

static void hash_of(const char *run, char out[65]) {
    const char *at = strstr(said, "\"weights_sha256\":\"");
    if (!at) fail_msg("%s: %s", run, said);
    snprintf(out, 65, "%s", at + strlen("\"weights_sha256\":\""));
}

static void train(const char *mode, const char *devices, char hash[65]) {
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s-%s", scratch_path(mode), strchr(devices, ':') + 1);
    int code = ENGINE("run", "--mode", mode, "--devices", devices, "--json", "--quiet", "--set", dir, NETWORK("toy"));
    if (code) fail_msg("%s on %s: %s", mode, devices, said);
    hash_of(mode, hash);
}

static void any_devices_train_it_to_the_same_bits(void **state) {
    (void)state;
    char alone[65], two[65], three[65];
    train("single", "cpu:1", alone);
    train("dp", "cpu:2", two);
    train("dp", "cpu:3", three);
    assert_string_equal(alone, two);
    assert_string_equal(alone, three);
}

static void it_is_summed_up_and_explained(void **state) {
    (void)state;
    static const char config[] = "model: {layers: [{linear: 12}, toy, {linear: 3}]}\ndata: spirals\ntrain: 4st\n";
    char path[600];
    snprintf(path, sizeof path, "%s", scratch_path("toy.yaml"));
    FILE *f = fopen(path, "w");
    assert_true(f && fputs(config, f) >= 0 && fclose(f) == 0);
    if (ENGINE("model", "summary", path)) fail_msg("%s", said);
    assert_non_null(strstr(said, "toy1"));
    assert_int_equal(ENGINE("help", "toy"), 0);
    assert_non_null(strstr(said, "bend"));
    assert_non_null(strstr(said, "y = weight * x + bend * x^2"));
}

static int export_of(const char *layer, const char *file, const char *dir) {
    char log[600];
    snprintf(log, sizeof log, "log.dir=%s", dir);
    int code = strcmp(layer, "toy")
                   ? ENGINE("run", "--mode", "single", "--devices", "cpu:1", "--quiet", "--set", log, NETWORK("closed"))
                   : ENGINE("run", "--mode", "single", "--devices", "cpu:1", "--quiet", "--set", log, NETWORK("toy"));
    if (code) fail_msg("%s: %s", layer, said);
    return ENGINE("model", "export", dir, "-o", file);
}

static void it_is_exported_or_refused_by_name(void **state) {
    (void)state;
    char file[600], dir[600];
    snprintf(file, sizeof file, "%s", scratch_path("toy.onnx"));
    snprintf(dir, sizeof dir, "%s", scratch_path("exported"));
    if (export_of("toy", file, dir)) fail_msg("%s", said);
    assert_int_equal(access(file, R_OK), 0);
    snprintf(file, sizeof file, "%s", scratch_path("closed.onnx"));
    snprintf(dir, sizeof dir, "%s", scratch_path("refused"));
    assert_int_equal(export_of("closed", file, dir), error_exit_code(ERR_CONFIG));
    assert_non_null(strstr(said, "the layer 'closed1' (closed) has no form in ONNX"));
    assert_int_not_equal(access(file, R_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_and_backward),
        cmocka_unit_test(the_cost_is_the_rows),
        cmocka_unit_test(an_accelerator_refuses_it),
        cmocka_unit_test(the_row_says_whether_it_is_causal),
        cmocka_unit_test(any_devices_train_it_to_the_same_bits),
        cmocka_unit_test(it_is_summed_up_and_explained),
        cmocka_unit_test(it_is_exported_or_refused_by_name),
    };
    toy = op_register(&toy_row);
    closed = op_register(&closed_row);
    layer_register(&toy_layer);
    layer_register(&closed_layer);
    return cmocka_run_group_tests_name("an op of a test's own", tests, NULL, NULL);
}
