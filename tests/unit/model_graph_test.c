/* Running graphs: fusions, shared outputs, ready order, batches of several sizes, and what must not
 * be touched. */
#include "engine/device/runtime.h"
#include "tests/harness/harness.h"

#include "tests/unit/model_fixture.h"

#include <math.h>

static const char lenet_like[] = "{layers: [{conv2d: {out: 4, pad: 1}}, relu, {maxpool: 2}, {conv2d: 6}, batchnorm, "
                                 "relu, flatten, {linear: {units: 8, name: fc1}}, relu, {linear: 3}]}";
static const char shared[] =
    "{layers: [{linear: {units: 6, name: a}}, {gelu: {name: b}}, {linear: {units: 6, name: c}}, "
    "relu, {add: {from: b}}, {add: {from: a, name: d}}, relu, {add: {from: d}}, "
    "{add: {from: b}}, {linear: 3}]}";
static const struct shape image = {3, {1, 8, 8}}, five = {1, {5}};

/* ---- devices that fuse nothing, and all: plain C either way
 * -------------------------------------- */

static bool takes_single(const struct op_desc *d) {
    return (d->act == ACT_NONE || d->kind == OP_ACTIVATION) && !(d->kind == OP_CONV2D && d->conv.maxpool);
}
static bool takes_all(const struct op_desc *d) {
    (void)d;
    return true;
}

static struct op_impl single_impls[OP_KINDS], fusing_impls[OP_KINDS];

/* Copies of ref's implementations are not known to be plain C, so the graph holds them for fast
 * ones. */
static const struct op_impl *const *impls_like(struct device *d, enum op_kind kind, struct op_impl *copy,
                                               bool (*takes)(const struct op_desc *d)) {
    static const struct op_impl *list[2];
    (void)d;
    copy[kind] = op_row(kind)->plain;
    copy[kind].takes = takes;
    list[0] = &copy[kind];
    return list;
}
static const struct op_impl *const *single_list(struct device *d, enum op_kind kind) {
    return impls_like(d, kind, single_impls, takes_single);
}
static const struct op_impl *const *fusing_list(struct device *d, enum op_kind kind) {
    return impls_like(d, kind, fusing_impls, takes_all);
}

static struct device_ops single, fusing;
static enum error open_as(const struct device_ops *ops, const struct device_params *p, struct device **out) {
    TRY(device_find("ref")->open(p, out));
    (*out)->ops = ops;
    return ERR_NONE;
}
static enum error single_open(const struct device_params *p, struct device **out) {
    return open_as(&single, p, out);
}
static enum error fusing_open(const struct device_params *p, struct device **out) {
    return open_as(&fusing, p, out);
}

static int setup(void **state) {
    (void)state;
    single = fusing = *device_find("ref");
    single.open = single_open, single.impls = single_list;
    fusing.open = fusing_open, fusing.impls = fusing_list;
    return 0;
}

static void test_fusions_change_no_bit(void **state) {
    (void)state;
    const struct device_ops *devices[] = {&single, device_find("ref"), &fusing};
    static const int fused[] = {0, 3, 4}; /* plain C does not take the pool into the convolution */
    struct rig r[3];
    for (int i = 0; i < 3; i++) {
        struct graph_info info;
        rig_open(&r[i], devices[i], lenet_like, image, LOSS_CROSS_ENTROPY, 4);
        r[i].batch.update_buffers = true;
        rig_step(&r[i]);
        graph_info(r[i].g, &info);
        assert_int_equal(info.fused, fused[i]);
        assert_int_equal(info.ops, 10 - fused[i]);
        assert_true(r[i].sums.loss == r[0].sums.loss);
        assert_memory_equal(r[i].grads, r[0].grads, (size_t)r[0].m->arena_floats * sizeof(float));
        assert_memory_equal(r[i].buffers, r[0].buffers, (size_t)r[0].m->buffer_floats * sizeof(float));
    }
    for (int i = 0; i < 3; i++) rig_close(&r[i]);
}

static void test_only_halving_pools_fuse(void **state) {
    (void)state;
    static const char *const pools[] = {"{maxpool: 2}", "{maxpool: {kernel: 2, stride: 1}}", "{maxpool: 3}",
                                        "{avgpool: 2}", "{maxpool: {kernel: 2, pad: 1}}"};
    for (int i = 0; i < 5; i++) {
        char model[200];
        struct graph_info info;
        struct rig r;
        snprintf(model, sizeof model, "{layers: [{conv2d: 2}, %s, flatten, {linear: 3}]}", pools[i]);
        rig_open(&r, &fusing, model, image, LOSS_MSE, 2);
        assert_ok(graph_prepare(r.g, 2, NULL));
        graph_info(r.g, &info);
        assert_int_equal(info.fused, i == 0);
        rig_close(&r);
    }
}

static void test_no_fusion_behind_a_shared_output(void **state) {
    (void)state;
    struct graph_info info;
    struct rig r;
    rig_open(&r, device_find("ref"), "{layers: [{linear: {units: 3, name: a}}, relu, {add: {from: a}}]}", five,
             LOSS_MSE, 2);
    assert_ok(graph_prepare(r.g, 2, NULL));
    graph_info(r.g, &info);
    assert_int_equal(info.fused, 0);
    rig_close(&r);
    rig_open(&r, device_find("ref"), "{layers: [{linear: 3}, relu]}", five, LOSS_MSE, 2);
    rig_step(&r);
    graph_info(r.g, &info);
    assert_int_equal(info.fused, 1);
    for (int k = 0; k < 6; k++) assert_true(output_of(r.g)[k] >= 0);
    rig_close(&r);
}

/* ---- shared outputs
 * ------------------------------------------------------------------------------ */

/* Slopes of the loss along all parameters at once, against central differences. */
static void check_slope(struct rig *r) {
    int64_t n = r->m->arena_floats;
    float *direction = floats(n), *kept = floats(n);
    double slope = 0, loss[2];
    const double step = 0x1p-9;
    memcpy(kept, r->values, (size_t)n * sizeof *kept);
    fill_normal(direction, n, 20);
    for (int side = 0; side < 2; side++) {
        for (int64_t k = HEADER_FLOATS; k < n; k++) {
            r->values[k] = (float)((double)kept[k] + (side ? step : -step) * (double)direction[k]);
            slope += (side ? 1 : -1) * (double)r->values[k] * (double)r->grads[k] / (2 * step);
        }
        loss[side] = rig_forward(r);
    }
    double expected = (loss[1] - loss[0]) / (2 * step);
    if (!(fabs(slope - expected) < 0.01 * fabs(expected) + 1e-3))
        fail_msg("the gradient gives %g, differences give %g", slope, expected);
    memcpy(r->values, kept, (size_t)n * sizeof *kept);
    memory_free(direction);
    memory_free(kept);
}

static void test_shared_outputs(void **state) {
    (void)state;
    static const char *const models[] = {
        shared,
        "{layers: [{linear: {units: 4, name: a}}, {add: {from: a}}, {linear: 3}]}",
        "{layers: [{linear: {units: 5, name: a}}, {add: {from: input}}, gelu, {add: {from: a}}]}",
        "{layers: [{relu: {name: r}}, {linear: {units: 5, name: a}}, {add: {from: r}}, {linear: "
        "2}]}",
        "{layers: [{linear: {units: 4, name: a}}, flatten, {gelu: {from: a, name: g}}, "
        "{linear: {units: 4, from: flatten1}}, {add: {from: g}}]}",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct rig r;
        rig_open(&r, device_find("ref"), models[i], five, LOSS_MSE, 3);
        rig_step(&r);
        check_slope(&r);
        rig_close(&r);
    }
}

/* add of a tensor to itself: its gradient is exactly twice. */
static void test_both_inputs_the_same(void **state) {
    (void)state;
    struct rig r, twice;
    rig_open(&r, device_find("ref"), "{layers: [{linear: {units: 4, name: a}}]}", five, LOSS_MSE, 3);
    rig_open(&twice, device_find("ref"), "{layers: [{linear: {units: 4, name: a}}, {add: {from: a}}]}", five, LOSS_MSE,
             3);
    rig_step(&r);
    for (int64_t k = 0; k < 12; k++) /* the same pull on the output as r has */
        twice.target[k] = 2 * output_of(r.g)[k] - (output_of(r.g)[k] - r.target[k]);
    rig_step(&twice);
    const struct tensor_info *t = &r.m->params[0];
    for (int64_t k = 0; k < t->count; k++)
        assert_true(fabsf(twice.grads[t->offset + k] - 2 * r.grads[t->offset + k]) < 1e-5f);
    rig_close(&r);
    rig_close(&twice);
}

/* What no parameter precedes has no gradient to compute, and the data's is never asked for. */
static void test_data_needs_no_gradient(void **state) {
    (void)state;
    struct rig r;
    bool backward;
    rig_open(&r, device_find("ref"), "{layers: [gelu, relu, {linear: 3}]}", five, LOSS_MSE, 3);
    rig_step(&r);
    assert_string_equal(graph_where(r.g, &backward), "linear1"); /* backward ended there */
    assert_true(backward);
    check_slope(&r);
    rig_close(&r);
}

/* ---- what backward writes and when
 * --------------------------------------------------------------- */

struct ready_log {
    const struct rig *r;
    int64_t upto[16];
    int count, fail_at;
};

/* Everything below 'upto' is final, everything above still bears the mark that the test left there.
 */
static enum error on_ready(void *user, int64_t upto) {
    struct ready_log *log = user;
    const struct model *m = log->r->m;
    for (int i = 0; i < m->nparams; i++) {
        const struct tensor_info *t = &m->params[i];
        for (int64_t k = 0; k < t->count; k++)
            assert_int_equal(isnan(log->r->grads[t->offset + k]) != 0, t->offset >= upto);
    }
    log->upto[log->count++] = upto;
    return log->count == log->fail_at ? FAIL(ERR_PEER, "a rank was lost") : ERR_NONE;
}

static void mark(struct rig *r) {
    for (int i = 0; i < r->m->nparams; i++)
        for (int64_t k = 0; k < r->m->params[i].count; k++) r->grads[r->m->params[i].offset + k] = NAN;
}

static void test_ready_order(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
    struct ready_log log = {.r = &r};
    rig_forward(&r);
    mark(&r);
    assert_ok(graph_backward(r.g, &r.batch, r.values, r.grads, on_ready, &log));
    assert_int_equal(log.count, 5); /* layers with parameters */
    for (int i = 1; i < log.count; i++) assert_true(log.upto[i] > log.upto[i - 1]);
    assert_int_equal(log.upto[0], r.m->params[2].offset);
    assert_int_equal(log.upto[4], r.m->arena_floats);
    rig_close(&r);
}

static void test_ready_may_fail(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
    struct ready_log log = {.r = &r, .fail_at = 2};
    rig_forward(&r);
    mark(&r);
    assert_fails(ERR_PEER, graph_backward(r.g, &r.batch, r.values, r.grads, on_ready, &log));
    assert_int_equal(log.count, 2);
    rig_close(&r);
}

static void test_header_and_gaps_are_left_alone(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
    const float untouched = 42;
    for (int64_t k = 0; k < r.m->arena_floats; k++) r.grads[k] = untouched;
    rig_step(&r);
    int64_t kept = 0, written = 0;
    for (int64_t k = 0; k < r.m->arena_floats; k++) kept += r.grads[k] == untouched;
    for (int i = 0; i < r.m->nparams; i++)
        for (int64_t k = 0; k < r.m->params[i].count; k++) written += r.grads[r.m->params[i].offset + k] != untouched;
    for (int i = 0; i < HEADER_FLOATS; i++) assert_true(r.grads[i] == untouched);
    assert_int_equal(written, r.m->parameters);
    assert_int_equal(kept, r.m->arena_floats - r.m->parameters);
    rig_close(&r);
}

/* ---- batches
 * ------------------------------------------------------------------------------------- */

/* Two sizes by turns give what each gives alone, and the second round allocates nothing. */
static void test_ragged_batches(void **state) {
    (void)state;
    struct rig both, alone[2];
    static const int64_t sizes[2] = {5, 3};
    rig_open(&both, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 5);
    for (int i = 0; i < 2; i++) {
        rig_open(&alone[i], device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 5);
        alone[i].batch.n = sizes[i];
        rig_step(&alone[i]);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 2; i++) {
            both.batch.n = sizes[i];
            if (round) count_allocations_begin();
            rig_step(&both);
            if (round) assert_int_equal(count_allocations_end(), 0);
            assert_true(both.sums.loss == alone[i].sums.loss);
            assert_memory_equal(both.grads, alone[i].grads, (size_t)both.m->arena_floats * sizeof(float));
        }
    rig_close(&both);
    for (int i = 0; i < 2; i++) rig_close(&alone[i]);
}

static void test_no_device_allocates_in_a_step(void **state) {
    (void)state;
    int count;
    const struct device_ops *const *devices = device_kinds(&count);
    for (int d = 0; d < count; d++) {
        struct rig r;
        if (devices[d]->runtime->apart) continue; /* tests/gpu */
        rig_open(&r, devices[d], lenet_like, image, LOSS_CROSS_ENTROPY, 4);
        assert_ok(graph_prepare(r.g, 4, NULL));
        rig_step(&r); /* a library may set itself up at its first call */
        count_allocations_begin();
        rig_step(&r);
        assert_int_equal(count_allocations_end(), 0);
        rig_close(&r);
    }
}

/* The gradients of segments [from, from + count) of r's batch, each computed by itself, added as a tree. */
static void add_parts(struct rig *r, const struct segments *s, int from, int count, float *sum) {
    int64_t n = r->m->arena_floats, rows = shape_count(&r->m->input), begin = s->begin[from];
    if (count == 1) {
        struct graph_batch part = r->batch;
        part.n = segment_size(s, from), part.x += begin * rows, part.labels += begin * rows;
        assert_ok(graph_forward(r->g, &part, r->values, r->buffers, &r->sums));
        assert_ok(graph_backward(r->g, &part, r->values, sum, NULL, NULL));
        return;
    }
    float *second = floats(n);
    add_parts(r, s, from, count / 2, sum);
    add_parts(r, s, from + count / 2, count / 2, second);
    for (int64_t k = 0; k < n; k++) sum[k] += second[k];
    memory_free(second);
}

/* An embedding and the last layer share weights: of more rows than the batch has tokens, and of fewer. */
static void check_tied(const char *device, int vocabulary) {
    static const struct segments s = {4, {0, 1, 3, 3, 5}};
    char model[200];
    struct rig r;
    snprintf(model, sizeof model,
             "{layers: [{embedding: {vocabulary: %d, units: 8, name: e}}, layernorm, "
             "{linear: {units: %d, tie: e, bias: false}}]}",
             vocabulary, vocabulary);
    rig_open(&r, device_find(device), model, (struct shape){1, {3}}, LOSS_CROSS_ENTROPY, 5);
    r.batch.segments = &s;
    for (int other = 1; other >= 0; other--) { /* tokens of an earlier step leave nothing behind */
        for (int64_t k = 0; k < 15; k++) r.x[k] = (float)((k * k + other) % 7);
        rig_step(&r);
    }
    float *expected = floats(r.m->arena_floats);
    r.batch.segments = NULL;
    add_parts(&r, &s, 0, 4, expected);
    assert_memory_equal(r.grads, expected, (size_t)r.m->arena_floats * sizeof(float));
    memory_free(expected);
    rig_close(&r);
}

static void test_segments_of_tied_weights(void **state) {
    (void)state;
    check_tied("ref", 40);
    check_tied("ref", 7);
    check_tied("cpu", 40);
    check_tied("cpu", 7);
}

static enum error count_ready(void *user, int64_t upto) {
    *(int64_t *)user += upto;
    return ERR_NONE;
}

static void test_empty_batch(void **state) {
    (void)state;
    struct rig r;
    int64_t upto = 0;
    rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
    rig_step(&r);
    r.batch.n = 0;
    r.grads[HEADER_LOSS] = 7;
    rig_forward(&r);
    assert_true(r.sums.loss == 0 && r.sums.correct == 0);
    assert_ok(graph_backward(r.g, &r.batch, r.values, r.grads, count_ready, &upto));
    assert_int_equal(upto, r.m->arena_floats);
    assert_true(r.grads[HEADER_LOSS] == 7);
    for (int64_t k = HEADER_FLOATS; k < r.m->arena_floats; k++) assert_true(r.grads[k] == 0);
    rig_close(&r);
}

static void test_outputs_without_labels(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
    float expected[12];
    r.batch.training = false;
    rig_forward(&r);
    memcpy(expected, output_of(r.g), sizeof expected);
    r.batch.labels = NULL;
    rig_forward(&r);
    assert_true(r.sums.loss == 0);
    assert_memory_equal(expected, output_of(r.g), sizeof expected);
    rig_close(&r);
}

static void test_bad_labels_are_errors(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
    r.labels[2] = 3;
    assert_fails(ERR_DATA, graph_forward(r.g, &r.batch, r.values, r.buffers, &r.sums));
    rig_close(&r);
}

static void test_too_large_a_batch_is_an_error(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
    assert_int_not_equal(graph_prepare(r.g, (int64_t)1 << 60, NULL), ERR_NONE);
    assert_int_not_equal(graph_prepare(r.g, (int64_t)1 << 51, NULL), ERR_NONE);
    rig_step(&r); /* and nothing is the worse for it */
    rig_close(&r);
}

/* ---- what is told
 * -------------------------------------------------------------------------------- */

static void test_info(void **state) {
    (void)state;
    struct rig r;
    struct graph_info info;
    rig_open(&r, device_find("ref"), "{layers: [{linear: 6}, relu, {linear: 3}]}", five, LOSS_MSE, 4);
    graph_info(r.g, &info);
    assert_int_equal(info.ops, 0);
    assert_ok(graph_prepare(r.g, 4, NULL));
    graph_info(r.g, &info);
    assert_int_equal(info.ops, 3);
    assert_int_equal(info.fused, 1);
    assert_true(info.flops == 2 * (5 * 6) * 2 + 2 * (6 * 3) * 3); /* no dx for the data */
    /* activations 24, 12 and 12 floats; gradients 24 and 12: each from a line of its own */
    assert_int_equal(info.activation_bytes, (32 + 16 + 16 + 32 + 16) * 4);
    rig_close(&r);
}

/* Gradients of a chain need two places however long it is. */
static void test_gradients_share_memory(void **state) {
    (void)state;
    struct rig r;
    struct graph_info info;
    rig_open(&r, device_find("ref"),
             "{layers: [{each: [32, 32, 32, 32, 32, 32, 32, 32], layers: [{linear: $item}, gelu]}]}",
             (struct shape){1, {32}}, LOSS_MSE, 4);
    assert_ok(graph_prepare(r.g, 4, NULL));
    graph_info(r.g, &info);
    assert_int_equal(info.activation_bytes, (9 + 2) * 4 * 32 * 4); /* gelu is part of linear */
    rig_close(&r);
}

/* ---- recomputation ------------------------------------------------------------------------ */

static const char *const recomputed[] = {
    lenet_like,
    shared,
    "{layers: [{linear: {units: 8, name: a}}, relu, {dropout: 0.5}, {linear: 8}, relu, {dropout: 0.3}, {linear: 8}, "
    "{add: {from: a}}, gelu, {linear: 3}]}",
    "{layers: [{conv2d: {out: 4, pad: 1}}, batchnorm, {relu: {name: a}}, {conv2d: {out: 4, pad: 1}}, batchnorm, relu, "
    "{conv2d: {out: 4, pad: 1}}, batchnorm, {add: {from: a}}, relu, flatten, {linear: 3}]}",
};

/* Two steps, so that what the first leaves in the memory that stretches share is there for the second. */
static void steps_with(const struct device_ops *ops, const char *model, int stretches, struct rig *r) {
    bool pictures = strstr(model, "conv2d") != NULL;
    rig_open(r, ops, model, pictures ? image : five, LOSS_CROSS_ENTROPY, 4);
    graph_stretches(r->g, stretches);
    r->batch.update_buffers = true;
    for (int step = 0; step < 2; step++) {
        rig_step(r);
        for (int64_t k = HEADER_FLOATS; k < r->m->arena_floats; k++) r->values[k] -= 0.1f * r->grads[k];
        graph_values_changed(r->g);
    }
}

static void test_recomputation_changes_no_bit(void **state) {
    (void)state;
    static const int counts[] = {2, 3, 5, 100, STRETCHES_AUTO};
    const struct device_ops *devices[] = {device_find("ref"), device_find("cpu")};
    for (size_t m = 0; m < sizeof recomputed / sizeof *recomputed; m++)
        for (int d = 0; d < 2; d++) {
            struct rig whole;
            steps_with(devices[d], recomputed[m], 1, &whole);
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                struct rig r;
                struct graph_info info;
                steps_with(devices[d], recomputed[m], counts[i], &r);
                graph_info(r.g, &info);
                assert_true(info.stretches > 1);
                assert_true(r.sums.loss == whole.sums.loss);
                assert_memory_equal(r.values, whole.values, (size_t)r.m->arena_floats * sizeof(float));
                assert_memory_equal(r.buffers, whole.buffers, (size_t)r.m->buffer_floats * sizeof(float));
                rig_close(&r);
            }
            rig_close(&whole);
        }
}

/* A chain of equal layers: of n layers about 2 sqrt(n) outputs live, and one layer's are computed again but for those
 * that are kept. */
static void test_recomputation_saves_memory(void **state) {
    (void)state;
    enum { LAYERS = 64, WIDTH = 64, SAMPLES = 16 };
    char model[64 * LAYERS] = "{layers: [";
    struct graph_info whole, best;
    struct rig r;
    for (int i = 0; i < LAYERS; i++) strcat(model, "{linear: 64}, tanh, ");
    strcat(model, "{linear: 3}]}");
    rig_open(&r, device_find("ref"), model, (struct shape){1, {WIDTH}}, LOSS_CROSS_ENTROPY, SAMPLES);
    assert_ok(graph_prepare(r.g, SAMPLES, NULL));
    graph_info(r.g, &whole);
    rig_close(&r);
    rig_open(&r, device_find("ref"), model, (struct shape){1, {WIDTH}}, LOSS_CROSS_ENTROPY, SAMPLES);
    graph_stretches(r.g, STRETCHES_AUTO);
    assert_ok(graph_prepare(r.g, SAMPLES, NULL));
    graph_info(r.g, &best);
    rig_close(&r);
    int64_t output = WIDTH * SAMPLES * (int64_t)sizeof(float);
    assert_true(whole.activation_bytes >= LAYERS * output);
    assert_true(best.activation_bytes <= (2 * 8 + 6) * output); /* 2 sqrt(64), and what lives beside it */
    assert_in_range(best.stretches, 6, 12);
}

/* ---- frozen parameters --------------------------------------------------------------------- */

struct frozen_log {
    const struct rig *r;
    int64_t upto;
};

/* What is ready is final: nothing below bears the test's mark. */
static enum error on_frozen_ready(void *user, int64_t upto) {
    struct frozen_log *log = user;
    const struct model *m = log->r->m;
    assert_true(upto > log->upto);
    log->upto = upto;
    for (int i = 0; i < m->nparams && m->params[i].offset < upto; i++)
        for (int64_t k = 0; k < m->params[i].count; k++) assert_false(isnan(log->r->grads[m->params[i].offset + k]));
    return ERR_NONE;
}

/* Which parameters (by the order in which their gradients become ready) stay as they are. */
static bool stays(int mask, int param, int nparams) {
    return mask == 0   ? param >= nparams - 2  /* the first layer's */
           : mask == 1 ? param >= 2            /* all but the last layer's */
           : mask == 2 ? param < 2             /* the last layer's */
           : mask == 3 ? param % 2 == 0        /* weights without their biases */
                       : param == nparams / 2; /* one in between */
}

static void check_frozen(const struct device_ops *ops, const char *model, int mask, bool stops) {
    bool pictures = strstr(model, "conv2d") != NULL;
    struct rig whole, r;
    int frozen[32] = {0};
    rig_open(&whole, ops, model, pictures ? image : five, LOSS_CROSS_ENTROPY, 4);
    rig_open(&r, ops, model, pictures ? image : five, LOSS_CROSS_ENTROPY, 4);
    assert_true(r.m->nparams <= 32);
    for (int i = 0; i < r.m->nparams; i++) frozen[i] = stays(mask, i, r.m->nparams);
    graph_freeze(r.g, frozen, stops);
    rig_step(&whole);
    rig_forward(&r);
    mark(&r);
    struct frozen_log log = {.r = &r};
    assert_ok(graph_backward(r.g, &r.batch, r.values, r.grads, on_frozen_ready, &log));
    assert_int_equal(log.upto, r.m->arena_floats);
    for (int i = 0; i < r.m->nparams; i++) {
        const struct tensor_info *p = &r.m->params[i];
        for (int64_t k = 0; k < p->count; k++)
            if (r.grads[p->offset + k] != (frozen[i] ? 0 : whole.grads[p->offset + k]))
                fail_msg("%s, mask %d: %s[%d] is %g, not %g", model, mask, p->name, (int)k, r.grads[p->offset + k],
                         frozen[i] ? 0 : whole.grads[p->offset + k]);
    }
    rig_close(&whole);
    rig_close(&r);
}

/* The others have the gradients that they have without. */
static void test_frozen_parameters_have_none(void **state) {
    (void)state;
    const char *const *models = recomputed;
    const struct device_ops *devices[] = {device_find("ref"), device_find("cpu")};
    for (size_t m = 0; m < sizeof recomputed / sizeof *recomputed; m++)
        for (int mask = 0; mask < 5; mask++)
            for (int way = 0; way < 4; way++) check_frozen(devices[way / 2], models[m], mask, way % 2);
}

/* Backward ends where nothing that is trained precedes. */
static void test_backward_stops_at_frozen_layers(void **state) {
    (void)state;
    static const int frozen[] = {0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int stops = 0; stops < 2; stops++) {
        struct rig r;
        bool backward;
        rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
        assert_int_equal(r.m->nparams, 10);
        graph_freeze(r.g, frozen, stops);
        rig_step(&r);
        assert_string_equal(graph_where(r.g, &backward), stops ? r.m->nodes[r.m->nnodes - 1].name : r.m->nodes[0].name);
        assert_true(backward);
        rig_close(&r);
    }
}

static void test_where(void **state) {
    (void)state;
    struct rig r;
    bool backward = true;
    rig_open(&r, device_find("ref"), lenet_like, image, LOSS_CROSS_ENTROPY, 4);
    assert_string_equal(graph_where(r.g, &backward), "");
    assert_false(backward);
    rig_forward(&r);
    assert_string_equal(graph_where(r.g, &backward), "loss");
    assert_false(backward);
    assert_ok(graph_backward(r.g, &r.batch, r.values, r.grads, NULL, NULL));
    assert_string_equal(graph_where(r.g, &backward), "conv2d1");
    assert_true(backward);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fusions_change_no_bit),
        cmocka_unit_test(test_only_halving_pools_fuse),
        cmocka_unit_test(test_no_fusion_behind_a_shared_output),
        cmocka_unit_test(test_shared_outputs),
        cmocka_unit_test(test_both_inputs_the_same),
        cmocka_unit_test(test_data_needs_no_gradient),
        cmocka_unit_test(test_ready_order),
        cmocka_unit_test(test_ready_may_fail),
        cmocka_unit_test(test_header_and_gaps_are_left_alone),
        cmocka_unit_test(test_ragged_batches),
        cmocka_unit_test(test_segments_of_tied_weights),
        cmocka_unit_test(test_no_device_allocates_in_a_step),
        cmocka_unit_test(test_empty_batch),
        cmocka_unit_test(test_outputs_without_labels),
        cmocka_unit_test(test_bad_labels_are_errors),
        cmocka_unit_test(test_too_large_a_batch_is_an_error),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_gradients_share_memory),
        cmocka_unit_test(test_recomputation_changes_no_bit),
        cmocka_unit_test(test_recomputation_saves_memory),
        cmocka_unit_test(test_frozen_parameters_have_none),
        cmocka_unit_test(test_backward_stops_at_frozen_layers),
        cmocka_unit_test(test_where),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
