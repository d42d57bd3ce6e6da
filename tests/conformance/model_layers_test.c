/* Every registered layer: its gradients against finite differences on plain C, and each other
 * device against plain C.
 *
 * The cases are small models around the layer. A parameter in front of the layer makes its gradient
 * depend on the layer's dx, so that checking all parameters checks dx too. A new layer needs a case
 * here: the first test says so. */
#include "engine/device/runtime.h"
#include "tests/harness/harness.h"
#include "tests/harness/shapes.h"

#include "tests/unit/model_fixture.h"

#include <math.h>

static const struct layer_case {
    struct shape input;
    const char *model;
} cases[] = {
    {F(7), "{layers: [{linear: 5}, gelu, {linear: {units: 4, bias: false}}]}"},
    {F(33), "{layers: [{linear: 70}, relu, {linear: 17}, relu, {linear: 10}]}"},
    {CHW(2, 7, 6), "{layers: [{conv2d: {out: 4, pad: 1}}, gelu, {conv2d: {out: 6, kernel: [3, 2], "
                   "stride: 2, pad: [1, 0], groups: 2, bias: false}}, flatten, {linear: 3}]}"},
    {CHW(1, 12, 12), "{layers: [{conv2d: {out: 6, kernel: 5, pad: 2}}, relu, {maxpool: 2}, "
                     "{conv2d: {out: 16, kernel: 5}}, relu, {maxpool: 2}, flatten, {linear: 3}]}"},
    {CHW(3, 9, 7), "{layers: [{conv2d: {out: 8, stride: 2}}, relu, {conv2d: {out: 5, kernel: 1}}, "
                   "flatten, {linear: 3}]}"},
    {CHW(3, 8, 6), "{layers: [{conv2d: {out: 4, kernel: 1}}, {maxpool: 2}, flatten, {linear: 3}]}"},
    {CHW(2, 7, 8), "{layers: [{conv2d: {out: 4, kernel: 1}}, gelu, "
                   "{maxpool: {kernel: 3, stride: 2, pad: 1}}, flatten, {linear: 3}]}"},
    {CHW(2, 8, 8), "{layers: [{conv2d: 4}, {avgpool: 2}, flatten, {linear: 3}]}"},
    {CHW(2, 7, 5), "{layers: [{conv2d: {out: 4, kernel: 1}}, "
                   "{avgpool: {kernel: [3, 2], stride: 1, pad: 1}}, flatten, {linear: 3}]}"},
    {F(9), "{layers: [{linear: 8}, gelu, relu, gelu, {linear: 3}]}"},
    {F(9), "{layers: [{linear: 21}, {dropout: 0.3}, relu, dropout, {linear: 3}]}"},
    {F(6), "{layers: [{linear: 5}, batchnorm, {linear: 4}, batchnorm, relu, {linear: 3}]}"},
    {CHW(2, 5, 4), "{layers: [{conv2d: {out: 4, pad: 1}}, {batchnorm: {eps: 0.01}}, relu, "
                   "{conv2d: 3}, batchnorm, flatten, {linear: 3}]}"},
    {F(6), "{layers: [{linear: {units: 8, name: a}}, gelu, {linear: 8}, {add: {from: a}}, relu, "
           "{linear: 3}]}"},
    {CHW(2, 6, 6), "{layers: [{conv2d: {out: 4, pad: 1, name: a}}, batchnorm, relu, "
                   "{conv2d: {out: 4, pad: 1}}, {add: {from: a}}, flatten, {linear: 3}]}"},
    {F(9), "{layers: [{linear: 8}, {gelu: tanh}, {linear: 7}, silu, {linear: 6}, sigmoid, "
           "{linear: 5}, tanh, {linear: 3}]}"},
    {F(9), "{layers: [{linear: 8}, leaky_relu, {linear: 7}, {leaky_relu: {slope: 0.1}}, "
           "{linear: 6}, {leaky_relu: 0.3}, {linear: 3}]}"},
    {CHW(2, 6, 5), "{layers: [{conv2d: {out: 16, pad: 1}}, {groupnorm: 4}, relu, {conv2d: 6}, {groupnorm: {groups: 3, "
                   "affine: false}}, meanpool, {groupnorm: {groups: 2, eps: 1e-3}}, {linear: 3}]}"},
    {F(9), "{layers: [{linear: {units: 8, deviation: 0.5}}, layernorm, gelu, "
           "{linear: {units: 6, transposed: true}}, rmsnorm, {linear: 3}]}"},
    {F(7), /* tokens */
     "{layers: [{embedding: {vocabulary: 5, units: 24}}, position, layernorm, "
     "{attention: {heads: 2, causal: true}}, {layernorm: {bias: false}}, meanpool, {linear: 3}]}"},
    {CHW(2, 6, 5), "{layers: [{conv2d: {out: 18, init: kaiming}}, tokens, {class_token: "
                   "{deviation: 1}}, {position: {deviation: 1}}, {attention: 3}, rmsnorm, "
                   "{select: 0}, {linear: 3}]}"},
    {CHW(2, 5, 4), "{layers: [{conv2d: {out: 4, pad: 1}}, gelu, meanpool, {linear: 3}]}"},
    {ROWS(5, 6), "{layers: [{linear: 9}, gelu, {linear: {units: 12, transposed: true}}, "
                 "{attention: {heads: 1, causal: true}}, {select: 4}, {linear: 3}]}"},
    {F(6), /* tokens; the loss is row by row */
     "{layers: [{embedding: {vocabulary: 5, units: 4, name: e}}, {position: {name: p}}, "
     "layernorm, {linear: 12}, {attention: {heads: 2, causal: true}}, {linear: {units: 4, "
     "bias: false}}, {add: {from: p}}, rmsnorm, {linear: {units: 5, tie: e}}]}"},
    {CHW(1, 28, 28), "lenet"},
    {CHW(1, 28, 28), "{zoo: mlp, hidden: [40, 30], dropout: 0.2}"},
};
enum { CASES = sizeof cases / sizeof *cases, SAMPLES = 5 };

static void test_every_layer_has_a_case(void **state) {
    (void)state;
    int count;
    const struct layer_ops *const *kinds = layer_kinds(&count);
    bool *seen = calloc((size_t)count, sizeof *seen);
    assert_non_null(seen);
    for (int c = 0; c < CASES; c++) {
        struct model *m = model_make(cases[c].model, cases[c].input);
        for (int k = 0; k < m->nnodes; k++)
            for (int i = 0; i < count; i++) seen[i] = seen[i] || m->nodes[k].layer == kinds[i];
        model_free(m);
    }
    for (int i = 0; i < count; i++)
        if (!seen[i]) fail_msg("layer '%s' has no case in this file", kinds[i]->section.name);
    free(seen);
}

/* The change of the loss when t moves by -step and by +step along the direction, and what the
 * gradient says of it. The loss is summed in double from f32 outputs; weights are rounded, so the
 * gradient is asked for where they really are. */
static bool slopes_agree(struct rig *r, const struct tensor_info *t, const float *direction, double step,
                         double slope[2]) {
    float *w = r->values + t->offset, *grad = r->grads + t->offset, *kept = floats(t->count);
    double length = 0, loss[2];
    memcpy(kept, w, (size_t)t->count * sizeof *w);
    for (int64_t k = 0; k < t->count; k++) length += (double)direction[k] * (double)direction[k];
    slope[0] = 0;
    for (int side = 0; side < 2; side++) {
        double move = (side ? step : -step) / sqrt(length);
        for (int64_t k = 0; k < t->count; k++) {
            w[k] = (float)((double)kept[k] + move * (double)direction[k]);
            slope[0] += (side ? 1 : -1) * (double)grad[k] * (double)w[k] / (2 * step);
        }
        loss[side] = rig_forward(r);
    }
    slope[1] = (loss[1] - loss[0]) / (2 * step);
    memcpy(w, kept, (size_t)t->count * sizeof *w);
    memory_free(kept);
    return fabs(slope[0] - slope[1]) <= 0.01 * fabs(slope[1]) + 1e-3;
}

/* A relu or maximum that switches within a step spoils it: a shorter one is tried. Wrong gradients
 * fail at all. */
static void check_direction(struct rig *r, const struct tensor_info *t, uint64_t stream, const char *model) {
    float *direction = floats(t->count);
    double slope[2], step = 0x1p-8;
    fill_normal(direction, t->count, stream);
    while (step > 0x1p-13 && !slopes_agree(r, t, direction, step, slope)) step /= 4;
    if (step <= 0x1p-13)
        fail_msg("%s: %s: the gradient gives %g, differences give %g", model, t->name, slope[0], slope[1]);
    memory_free(direction);
}

static void check_gradients(const struct layer_case *c, enum loss loss) {
    struct rig r;
    rig_open(&r, device_find("ref"), c->model, c->input, loss, SAMPLES);
    rig_step(&r);
    for (int i = 0; i < r.m->nparams; i++)
        for (uint64_t d = 0; d < 3; d++) check_direction(&r, &r.m->params[i], 10 + d, c->model);
    rig_close(&r);
}

static void test_gradients_are_the_slopes(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++)
        if (strcmp(cases[c].model, "lenet") != 0) check_gradients(&cases[c], LOSS_MSE);
    check_gradients(&cases[0], LOSS_CROSS_ENTROPY);
    check_gradients(&cases[3], LOSS_CROSS_ENTROPY);
}

static void compare_outputs(const struct rig *a, const struct rig *b, const char *what) {
    int64_t n = SAMPLES * shape_count(&a->m->output);
    if (!a->batch.training || a->batch.target) /* else the loss may have put its gradient in their place */
        assert_near(what, output_of(a->g), output_of(b->g), n, 1e-5, 0);
    assert_true(fabs(a->sums.loss - b->sums.loss) <= 1e-5 * fabs(a->sums.loss));
    assert_true(a->sums.correct == b->sums.correct);
}

static void compare(const struct device_ops *device, const struct layer_case *c, enum loss loss) {
    struct rig a, b;
    char what[600];
    snprintf(what, sizeof what, "%s: %s", device->name, c->model);
    rig_open(&a, device_find("ref"), c->model, c->input, loss, SAMPLES);
    rig_open(&b, device, c->model, c->input, loss, SAMPLES);
    a.batch.update_buffers = b.batch.update_buffers = true;
    rig_step(&a);
    rig_step(&b);
    compare_outputs(&a, &b, what);
    assert_near(what, a.buffers, b.buffers, a.m->buffer_floats, 1e-5, 0);
    /* a gradient that is zero but for rounding (a bias in front of a batch norm) is judged by the
     * others' size */
    double least = 0.05 * largest_of(a.grads, a.m->arena_floats);
    for (int i = 0; i < a.m->nparams; i++) {
        const struct tensor_info *t = &a.m->params[i];
        snprintf(what, sizeof what, "%s: %s: %s", device->name, c->model, t->name);
        assert_near(what, a.grads + t->offset, b.grads + t->offset, t->count, 3e-5, least);
    }
    a.batch.training = b.batch.training = false; /* evaluation, with the buffers just made */
    rig_forward(&a);
    rig_forward(&b);
    snprintf(what, sizeof what, "%s: %s: evaluation", device->name, c->model);
    compare_outputs(&a, &b, what);
    rig_close(&a);
    rig_close(&b);
}

static void test_devices_agree_with_plain_c(void **state) {
    (void)state;
    int count;
    const struct device_ops *const *devices = device_kinds(&count);
    for (int d = 0; d < count; d++)
        for (int c = 0; c < CASES && !devices[d]->runtime->apart; c++) {
            compare(devices[d], &cases[c], LOSS_MSE);
            compare(devices[d], &cases[c], LOSS_CROSS_ENTROPY);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layer_has_a_case),
        cmocka_unit_test(test_gradients_are_the_slopes),
        cmocka_unit_test(test_devices_agree_with_plain_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
