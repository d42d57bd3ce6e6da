/* One run of a case of op_cases.h: what it reads and writes, in host memory and plain layout. */
#pragma once
#include "tests/harness/harness.h"
#include "tests/harness/op_cases.h"

#include "engine/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a run reads and writes; 'out' are what is compared. */
enum { X0, X1, W0, W1, DY, TARGET, INPUTS, Y = 0, DX0, DX1, DW0, DW1, MEAN, VAR, OUTPUTS };
static const char *const output_names[] = {"y", "dx[0]", "dx[1]", "dw[0]", "dw[1]", "mean", "var"};

struct run {
    const struct op_case *c;
    int64_t in_size[INPUTS], out_size[OUTPUTS];
    float *in[INPUTS], *out[OUTPUTS];
    int32_t *labels, *others;
    float *shares, *class_weights;
    uint64_t *ids;
    double sums[3]; /* loss, correct, and with labels top */
};

static void *memory(int64_t bytes) {
    void *p = NULL;
    assert_ok(memory_alloc((size_t)bytes, &p));
    return p;
}

static void sizes(struct run *r) {
    const struct op_desc *d = &r->c->d;
    bool loss = op_row(d->kind)->loss, by_feature = d->kind == OP_MSE || d->kind == OP_BCE, back = !r->c->eval;
    int64_t xs = op_xs(d), ys = op_ys(d), second = d->joins ? ys : d->kind == OP_ADD ? xs : 0;
    int64_t w[2];
    op_weights(d, w);
    const int64_t in[INPUTS] = {xs, second, w[0], w[1], loss ? 0 : ys, by_feature ? xs : 0};
    int64_t moments = d->kind == OP_BATCHNORM ? d->x.dim[0] : 0;
    const int64_t out[OUTPUTS] = {by_feature ? 0 : ys,
                                  back && !d->first ? xs : 0,
                                  back ? second : 0,
                                  back ? w[0] : 0,
                                  back ? w[1] : 0,
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
        for (int64_t k = 0; k < r->in_size[t]; k++) r->in[t][k] = rng_normal(key, (uint64_t)t, (uint64_t)k);
    }
    for (int t = 0; t < OUTPUTS; t++) r->out[t] = memory(r->out_size[t] * 4);
    for (int64_t k = 0; k < r->in_size[X0] && c->d.kind == OP_EMBEDDING; k++)
        r->in[X0][k] = (float)(k * k % c->d.embedding.vocabulary); /* some twice, some never */
    for (int64_t k = 0; k < r->in_size[TARGET] && c->d.kind == OP_BCE; k++)
        r->in[TARGET][k] = fabsf(r->in[TARGET][k]) < 1 ? fabsf(r->in[TARGET][k]) : k % 2 == 0;
    r->labels = memory(op_rows(&c->d) * 4);
    r->others = memory(op_rows(&c->d) * 4);
    r->shares = memory(c->d.n * 4);
    r->class_weights = memory(shape_last(&c->d.x) * 4);
    r->ids = memory(c->d.n * 8);
    for (int64_t i = 0; i < op_rows(&c->d); i++) r->labels[i] = (int32_t)(i * 7 % shape_last(&c->d.x));
    for (int64_t i = 0; i < op_rows(&c->d); i++) r->others[i] = (int32_t)((i * 5 + 2) % shape_last(&c->d.x));
    for (int64_t i = 0; i < c->d.n; i++) r->shares[i] = 0.5f + 0.5f * rng_float(key, INPUTS, (uint64_t)i);
    for (int64_t k = 0; k < shape_last(&c->d.x); k++) r->class_weights[k] = 2 * rng_float(key, INPUTS + 1, (uint64_t)k);
    for (int64_t i = 0; i < c->d.n; i++) r->ids[i] = 1000003u * (uint64_t)(i + 1);
}

static void run_fini(struct run *r) {
    for (int t = 0; t < INPUTS; t++) memory_free(r->in[t]);
    for (int t = 0; t < OUTPUTS; t++) memory_free(r->out[t]);
    memory_free(r->labels);
    memory_free(r->others);
    memory_free(r->shares);
    memory_free(r->class_weights);
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
                        .add_dw = c->add,
                        .training = !c->eval,
                        .update_buffers = !c->eval,
                        .seed = 5,
                        .ids = r->ids,
                        .labels = c->by_label ? r->labels : NULL,
                        .others = c->mixed ? r->others : NULL,
                        .shares = c->mixed ? r->shares : NULL,
                        .smoothing = c->smoothing,
                        .class_weights = c->weighted ? r->class_weights : NULL,
                        .target = c->by_label ? NULL : r->in[TARGET],
                        .scale = 0.25f,
                        .sums = r->sums,
                        .top = c->by_label ? r->sums + 2 : NULL};
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

/* What dw[0] holds before it is added to. */
static const float added = 0.5f;

static inline double error_of(const float *got, const float *expected, int64_t n) {
    double off = 0, all = 0;
    for (int64_t k = 0; k < n; k++) {
        off += pow((double)got[k] - (double)expected[k], 2);
        all += pow((double)expected[k], 2);
    }
    return all > 0 ? off / all : off;
}

static void compare_bits(const struct run *a, const struct run *b, const char *impl) {
    for (int t = 0; t < OUTPUTS; t++)
        if (memcmp(a->out[t], b->out[t], (size_t)a->out_size[t] * 4))
            fail_msg("%s by %s: two runs give different bits in %s", a->c->name, impl, output_names[t]);
    assert_memory_equal(a->sums, b->sums, sizeof a->sums);
}

static inline struct device *open_device(const char *name, int threads) {
    struct device_params p = {.index = 0, .count = 1, .threads = threads};
    const struct device_ops *ops = device_find(name);
    struct device *dev = NULL;
    assert_non_null(ops);
    assert_ok(ops->open(&p, &dev));
    return dev;
}
