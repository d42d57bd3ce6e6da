/* Single ops on every kind of device against what PyTorch gives for the same numbers:
 * tests/reference/layers.txt, written by make_layers.py. */
#include "tests/harness/harness.h"
#include "tests/harness/shapes.h"

#include "engine/device/impl.h"
#include "engine/device/runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACT(...)                                                                                                       \
    { .kind = OP_ACTIVATION, .n = 2, .x = F(30), .y = F(30), .act = __VA_ARGS__ }

static const struct {
    const char *name;
    struct op_desc d;
} cases[] = {
    {"gelu", ACT(ACT_GELU)},
    {"gelu tanh", ACT(ACT_GELU_TANH)},
    {"silu", ACT(ACT_SILU)},
    {"sigmoid", ACT(ACT_SIGMOID)},
    {"tanh", ACT(ACT_TANH)},
    {"leaky relu", ACT(ACT_LEAKY_RELU, .act_alpha = 0.01f)},
    {"leaky relu of 0.1", ACT(ACT_LEAKY_RELU, .act_alpha = 0.1f)},
    {"layernorm", {OP_LAYERNORM, 3, ROWS(4, 20), ROWS(4, 20), .norm = {1e-5f, 0, true}}},
    {"layernorm no bias", {OP_LAYERNORM, 3, F(20), F(20), .norm = {1e-5f, 0, false}}},
    {"groupnorm", {OP_GROUPNORM, 3, CHW(6, 3, 4), CHW(6, 3, 4), .norm = {1e-5f, 0, true}, .own = {2}}},
    {"groupnorm blocks", {OP_GROUPNORM, 2, CHW(32, 3, 3), CHW(32, 3, 3), .norm = {1e-5f, 0, true}, .own = {8}}},
    {"groupnorm not affine", {OP_GROUPNORM, 3, F(12), F(12), .norm = {1e-3f, 0, false}, .own = {3}}},
    {"rmsnorm", {OP_RMSNORM, 3, ROWS(4, 20), ROWS(4, 20), .norm = {1e-6f, 0, false}}},
    {"position", {OP_POSITION, 3, ROWS(4, 6), ROWS(4, 6)}},
    {"prepend", {OP_PREPEND, 3, ROWS(4, 6), ROWS(5, 6)}},
    {"mean of image", {OP_MEAN, 2, CHW(5, 3, 4), F(5)}},
    {"tokens", {OP_TOKENS, 2, CHW(5, 3, 4), ROWS(12, 5)}},
    {"attention", {OP_ATTENTION, 2, ROWS(9, 24), ROWS(9, 8), .attention = {2, false}}},
    {"attention causal", {OP_ATTENTION, 2, ROWS(9, 24), ROWS(9, 8), .attention = {2, true}}},
    {"attention long", {OP_ATTENTION, 1, ROWS(40, 24), ROWS(40, 8), .attention = {2, true}}},
    {"embedding", {OP_EMBEDDING, 2, F(4), ROWS(4, 5), .first = true, .embedding = {7}}},
    {"cross-entropy", {OP_CROSS_ENTROPY, 3, ROWS(4, 9), ROWS(4, 9)}},
    {"cross-entropy smoothed", {OP_CROSS_ENTROPY, 5, F(9), F(9)}},
    {"cross-entropy weighted", {OP_CROSS_ENTROPY, 5, F(9), F(9)}},
    {"cross-entropy mixed", {OP_CROSS_ENTROPY, 5, F(9), F(9)}},
    {"cross-entropy of all", {OP_CROSS_ENTROPY, 6, F(9), F(9)}},
    {"mse mixed", {OP_MSE, 5, F(9), F(9)}},
    {"bce", {OP_BCE, 5, F(9), F(9)}},
    {"bce of classes", {OP_BCE, 5, F(9), F(9)}},
    {"bce mixed", {OP_BCE, 5, F(9), F(9)}},
};
enum { CASES = sizeof cases / sizeof *cases, TENSORS = 12 };

/* ---- the text ------------------------------------------------------------------------------- */
struct tensor {
    char name[16];
    int64_t count;
    float *v;
};
struct reference { /* a case's tensors */
    int count;
    struct tensor t[TENSORS];
};

static struct tensor tensor_read(FILE *f, const char *name) {
    struct tensor t = {0};
    long long count;
    snprintf(t.name, sizeof t.name, "%s", name);
    assert_int_equal(fscanf(f, "%lld", &count), 1);
    t.count = count;
    t.v = calloc((size_t)count, sizeof *t.v);
    assert_non_null(t.v);
    for (long long k = 0; k < count; k++) assert_int_equal(fscanf(f, "%f", &t.v[k]), 1);
    return t;
}

/* The case after the line "case NAME". */
static void reference_read(const char *name, struct reference *r) {
    char line[64], want[64], word[16];
    FILE *f = fopen(ENGINE_SOURCE_DIR "/tests/reference/layers.txt", "r");
    assert_non_null(f);
    snprintf(want, sizeof want, "case %s\n", name);
    while (fgets(line, sizeof line, f) && strcmp(line, want) != 0) {
    }
    if (feof(f)) fail_msg("no case '%s' in the reference", name);
    *r = (struct reference){0};
    while (fscanf(f, "%15s", word) == 1 && strcmp(word, "case") != 0) {
        assert_true(r->count < TENSORS);
        r->t[r->count++] = tensor_read(f, word);
    }
    fclose(f);
}

static void reference_free(struct reference *r) {
    for (int i = 0; i < r->count; i++) free(r->t[i].v);
}

static const struct tensor *tensor_of(const struct reference *r, const char *name) {
    for (int i = 0; i < r->count; i++)
        if (!strcmp(r->t[i].name, name)) return &r->t[i];
    return NULL;
}

static const float *values_of(const struct reference *r, const char *name) {
    const struct tensor *t = tensor_of(r, name);
    return t ? t->v : NULL;
}

/* ---- one case on one device ----------------------------------------------------------------- */
static void *memory(size_t bytes) {
    void *p = NULL;
    assert_ok(memory_alloc(bytes, &p));
    return p;
}

/* What is computed, of the size that the reference has; NULL where it has none. */
static float *result_for(const struct reference *r, const char *name) {
    const struct tensor *t = tensor_of(r, name);
    return t ? memory((size_t)t->count * sizeof(float)) : NULL;
}

static void compare(const struct reference *r, const char *name, const float *got, const char *what) {
    const struct tensor *t = tensor_of(r, name);
    float largest = 0, worst = 0;
    for (int64_t k = 0; t && k < t->count; k++) {
        float off = fabsf(got[k] - t->v[k]);
        if (fabsf(t->v[k]) > largest) largest = fabsf(t->v[k]);
        if (!(off <= worst)) worst = off; /* NaN too */
    }
    if (!(worst <= 1e-5f * largest) && t)
        fail_msg("%s: %s is off by %g at a size of %g", what, name, (double)worst, (double)largest);
}

static const int32_t *labels_of(const struct reference *r, const char *name, int32_t labels[16]) {
    const struct tensor *t = tensor_of(r, name);
    if (!t) return NULL;
    assert_true(t->count <= 16);
    for (int64_t k = 0; k < t->count; k++) labels[k] = (int32_t)t->v[k];
    return labels;
}

static void check_case(struct device *dev, const struct op_desc *d, const struct reference *r, const char *what) {
    static const char *const names[] = {"y", "dx", "dw0", "dw1"};
    struct op *op = NULL;
    float *got[4];
    int32_t labels[16], others[16];
    double sums[2] = {0};
    const float *smoothing = values_of(r, "smoothing");
    float *y = memory((size_t)(d->n * shape_count(&d->y)) * sizeof *y);
    assert_ok(op_create(dev, d, &op));
    for (int i = 0; i < 4; i++) got[i] = result_for(r, names[i]);
    struct op_args a = {.x = {values_of(r, "x")},
                        .y = got[0] ? got[0] : y,
                        .dy = values_of(r, "dy"),
                        .dx = {got[1]},
                        .w = {values_of(r, "w0"), values_of(r, "w1")},
                        .dw = {got[2], got[3]},
                        .saved = memory(op->saved_bytes),
                        .scratch = memory(op->scratch_bytes),
                        .training = true,
                        .scale = 1 / (float)d->n,
                        .labels = labels_of(r, "labels", labels),
                        .others = labels_of(r, "others", others),
                        .shares = values_of(r, "shares"),
                        .class_weights = values_of(r, "weights"),
                        .smoothing = smoothing ? *smoothing : 0,
                        .target = values_of(r, "target"),
                        .sums = sums};
    assert_ok(op_forward(op, &a));
    assert_ok(op_backward(op, &a));
    for (int i = 0; i < 4; i++) compare(r, names[i], got[i], what);
    float loss = (float)(sums[0] / (double)d->n);
    compare(r, "loss", &loss, what);
    for (int i = 0; i < 4; i++) memory_free(got[i]);
    memory_free(y);
    memory_free(a.saved);
    memory_free(a.scratch);
    op_free(op);
}

static void every_device_agrees_with_pytorch(void **state) {
    (void)state;
    int count;
    const struct device_ops *const *kinds = device_kinds(&count);
    for (int k = 0; k < count; k++) {
        struct device_params p = {.index = 0, .count = 1, .threads = 1};
        struct device *dev = NULL;
        if (kinds[k]->runtime->apart) continue; /* tests/gpu compares those with plain C */
        assert_ok(kinds[k]->open(&p, &dev));
        for (int i = 0; i < CASES; i++) {
            struct reference r;
            char what[64];
            snprintf(what, sizeof what, "%s on %s", cases[i].name, kinds[k]->name);
            reference_read(cases[i].name, &r);
            check_case(dev, &cases[i].d, &r, what);
            reference_free(&r);
        }
        dev->ops->close(dev);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_device_agrees_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
