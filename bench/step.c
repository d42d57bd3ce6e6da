/* bench_step MODEL BATCH [STEPS]: forward, backward and a plain SGD update of a zoo model on one
 * CPU device of one thread, with no loader and no communication. Prints the median and the least
 * milliseconds of a step. */
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/model/graph.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLASSES = 10, WARM = 5, BATCH_MAX = 1 << 20, STEPS_MAX = 1 << 20 };

struct bench {
    struct pool *pool;
    struct config_errors *errors;
    struct model *m;
    struct device *dev;
    struct graph *g;
    float *values, *grads, *buffers, *x;
    int32_t *labels;
    uint64_t *ids;
};

static enum error take(struct bench *b, int64_t n, size_t size, void *out) {
    void *p;
    size_t bytes;
    TRY(memory_size((size_t)n, size, "the benchmark", &bytes));
    if (!(p = pool_alloc(b->pool, bytes + ALIGNMENT))) return ERR_MEMORY;
    *(void **)out = (void *)(((uintptr_t)p + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return ERR_NONE;
}

static enum error prepare(struct bench *b, const char *name, int64_t n) {
    const struct shape image = {3, {1, 28, 28}};
    struct node spec = {.kind = NODE_SCALAR, .text = name, .source = "MODEL"};
    TRY(pool_create(&b->pool));
    TRY(config_errors_create(&b->errors));
    enum error err = model_create(&spec, &image, CLASSES, b->errors, &b->m);
    char *report = err == ERR_CONFIG ? config_errors_text(b->errors, b->pool) : NULL;
    if (report) return FAIL(ERR_CONFIG, "%s", report);
    TRY(err);
    TRY(device_find("cpu")->open(&(struct device_params){.count = 1, .threads = 1}, &b->dev));
    TRY(graph_create(b->m, b->dev, LOSS_CROSS_ENTROPY, PRECISION_F32, &b->g));
    TRY(graph_prepare(b->g, n, NULL));
    TRY(take(b, b->m->arena_floats, sizeof(float), &b->values));
    TRY(take(b, b->m->arena_floats, sizeof(float), &b->grads));
    TRY(take(b, b->m->buffer_floats, sizeof(float), &b->buffers));
    TRY(take(b, n * shape_count(&image), sizeof(float), &b->x));
    TRY(take(b, n, sizeof(int32_t), &b->labels));
    TRY(take(b, n, sizeof(uint64_t), &b->ids));
    model_init(b->m, 1, b->values, b->buffers);
    struct rng_key key = rng_key(1, RNG_DATA);
    for (int64_t k = 0; k < n * shape_count(&image); k++) b->x[k] = rng_normal(key, 0, (uint64_t)k);
    for (int64_t i = 0; i < n; i++) {
        b->labels[i] = (int32_t)rng_below(key, 1, (uint64_t)i, CLASSES);
        b->ids[i] = (uint64_t)i;
    }
    return ERR_NONE;
}

static enum error step(struct bench *b, int64_t n, double *ms) {
    const float rate = 0.01f;
    struct graph_sums sums;
    const struct graph_batch batch = {.n = n,
                                      .x = b->x,
                                      .labels = b->labels,
                                      .ids = b->ids,
                                      .scale = 1 / (float)n,
                                      .training = true,
                                      .update_buffers = true};
    int64_t start = clock_ns();
    TRY(graph_forward(b->g, &batch, b->values, b->buffers, &sums));
    TRY(graph_backward(b->g, &batch, b->values, b->grads, NULL, NULL));
    for (int64_t k = HEADER_FLOATS; k < b->m->arena_floats; k++) b->values[k] -= rate * b->grads[k];
    *ms = clock_seconds(clock_ns() - start) * 1e3;
    return ERR_NONE;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum error run(struct bench *b, const char *name, int64_t n, int64_t steps) {
    double *ms, warm;
    struct graph_info info;
    TRY(prepare(b, name, n));
    TRY(take(b, steps, sizeof *ms, &ms));
    for (int i = 0; i < WARM; i++) TRY(step(b, n, &warm));
    for (int64_t i = 0; i < steps; i++) TRY(step(b, n, &ms[i]));
    qsort(ms, (size_t)steps, sizeof *ms, by_value);
    graph_info(b->g, &info);
    printf("%s batch %lld: median %.3f ms, least %.3f ms, %.1f GFLOP/s\n", name, (long long)n, ms[steps / 2], ms[0],
           info.flops * (double)n / ms[steps / 2] * 1e-6);
    return ERR_NONE;
}

static void bench_fini(struct bench *b) {
    graph_free(b->g);
    if (b->dev) b->dev->ops->close(b->dev);
    model_free(b->m);
    config_errors_free(b->errors);
    pool_free(b->pool);
}

int main(int argc, char **argv) {
    struct bench b = {0};
    int64_t n, steps = 100;
    bool good = argc >= 3 && argc <= 4 && text_int(argv[2], &n) && n > 0 && n <= BATCH_MAX;
    if (argc == 4) good = good && text_int(argv[3], &steps) && steps > 0 && steps <= STEPS_MAX;
    if (!good) {
        fprintf(stderr, "usage: bench_step MODEL BATCH [STEPS]\n");
        return error_exit_code(ERR_USAGE);
    }
    enum error err = run(&b, argv[1], n, steps);
    if (err != ERR_NONE) fprintf(stderr, "bench_step: %s\n", error_message());
    bench_fini(&b);
    return error_exit_code(err);
}
