/* A model on a device with all that one step needs, for the tests of engine/model. */
#pragma once
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "engine/model/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RIG_CLASSES = 3, RIG_SEED = 7 };

/* YAML of the 'model' key: "{layers: [...]}" or "mlp". On failure *report is the errors' text, to
 * be freed with free. */
static inline enum error model_try(const char *yaml, const struct shape *input, int64_t classes, struct model **out,
                                   char **report) {
    struct pool *pool;
    struct config_errors *e;
    struct node *root;
    char text[8192];
    snprintf(text, sizeof text, "model: %s", yaml);
    assert_ok(pool_create(&pool));
    assert_ok(config_errors_create(&e));
    assert_ok(tree_parse(text, strlen(text), "test.yaml", pool, e, &root));
    enum error err = model_create(node_get(root, "model"), input, classes, e, out);
    assert_int_equal(config_errors_count(e) > 0, err == ERR_CONFIG);
    *report = strdup(config_errors_text(e, pool));
    config_errors_free(e);
    pool_free(pool); /* the model must not need it any more */
    return err;
}

static inline struct model *model_make(const char *yaml, struct shape input) {
    struct model *m;
    char *report;
    if (model_try(yaml, &input, RIG_CLASSES, &m, &report) != ERR_NONE)
        fail_msg("%s: %s %s", yaml, error_message(), report);
    free(report);
    return m;
}

struct rig {
    struct model *m;
    struct device *dev;
    struct graph *g;
    float *values, *buffers, *grads;
    float *x, *target;
    int32_t *labels;
    uint64_t *ids;
    struct graph_batch batch; /* of n samples, training, mse on target */
    struct graph_sums sums;
};

static inline float *floats(int64_t n) {
    void *p;
    assert_ok(memory_alloc((size_t)n * sizeof(float), &p));
    return p;
}

static inline void fill_normal(float *v, int64_t n, uint64_t stream) {
    for (int64_t k = 0; k < n; k++) v[k] = rng_normal(rng_key(RIG_SEED, RNG_TEST), stream, (uint64_t)k);
}

/* Tokens, where the model begins with an embedding. */
static inline void fill_input(const struct model *m, float *x, int64_t n) {
    fill_normal(x, n, 1);
    if (m->nodes[0].plan.op.kind != OP_EMBEDDING) return;
    for (int64_t k = 0; k < n; k++) x[k] = (float)(k * k % m->nodes[0].plan.op.embedding.vocabulary);
}

static inline void rig_open(struct rig *r, const struct device_ops *kind, const char *yaml, struct shape input,
                            enum loss loss, int64_t n) {
    memset(r, 0, sizeof *r);
    r->m = model_make(yaml, input);
    assert_ok(kind->open(&(struct device_params){.count = 1, .threads = 1}, &r->dev));
    assert_ok(graph_create(r->m, r->dev, loss, PRECISION_F32, &r->g));
    int64_t in = n * shape_count(&r->m->input), out = n * shape_count(&r->m->output);
    int64_t classes = shape_last(&r->m->output), rows = out / classes;
    r->values = floats(r->m->arena_floats);
    r->grads = floats(r->m->arena_floats);
    r->buffers = floats(r->m->buffer_floats);
    r->x = floats(in);
    r->target = floats(out);
    r->labels = calloc((size_t)rows, sizeof *r->labels);
    r->ids = calloc((size_t)n, sizeof *r->ids);
    assert_non_null(r->labels);
    assert_non_null(r->ids);
    model_init(r->m, NULL, RIG_SEED, r->values, r->buffers);
    fill_input(r->m, r->x, in);
    fill_normal(r->target, out, 2);
    for (int64_t i = 0; i < rows; i++) r->labels[i] = (int32_t)(i * 5 % classes);
    for (int64_t i = 0; i < n; i++) r->ids[i] = (uint64_t)(100 + i);
    r->batch = (struct graph_batch){
        .n = n, .x = r->x, .ids = r->ids, .seed = RIG_SEED, .scale = 1 / (float)n, .training = true};
    if (loss == LOSS_MSE)
        r->batch.target = r->target;
    else
        r->batch.labels = r->labels;
}

static inline void rig_close(struct rig *r) {
    graph_free(r->g);
    r->dev->ops->close(r->dev);
    model_free(r->m);
    memory_free(r->values);
    memory_free(r->grads);
    memory_free(r->buffers);
    memory_free(r->x);
    memory_free(r->target);
    free(r->labels);
    free(r->ids);
}

static inline const float *output_of(struct graph *g) {
    const float *y;
    assert_ok(graph_output(g, &y));
    return y;
}

/* The mean loss. */
static inline double rig_forward(struct rig *r) {
    assert_ok(graph_forward(r->g, &r->batch, r->values, r->buffers, &r->sums));
    return r->sums.loss * (double)r->batch.scale;
}

static inline void rig_step(struct rig *r) {
    rig_forward(r);
    assert_ok(graph_backward(r->g, &r->batch, r->values, r->grads, NULL, NULL));
}

static inline double largest_of(const float *v, int64_t n) {
    double largest = 0;
    for (int64_t k = 0; k < n; k++) {
        double size = v[k] < 0 ? -(double)v[k] : (double)v[k];
        if (size > largest) largest = size;
    }
    return largest;
}

/* Fails unless the vectors are equal within 'tolerance' of a's largest element, or of 'least' if
 * that is more. */
static inline void assert_near(const char *what, const float *a, const float *b, int64_t n, double tolerance,
                               double least) {
    double worst = 0, scale = largest_of(a, n);
    if (scale < least) scale = least;
    for (int64_t k = 0; k < n; k++) {
        double x = (double)a[k], y = (double)b[k], off = x > y ? x - y : y - x;
        if (!(off <= worst)) worst = off; /* NaN too */
    }
    if (!(worst <= tolerance * scale)) fail_msg("%s: off by %g at a size of %g", what, worst, scale);
}
