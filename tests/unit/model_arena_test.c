/* Where parameters and buffers lie, and what they begin with. */
#include "tests/harness/harness.h"

#include "tests/unit/model_fixture.h"

#include <math.h>

static const char convnet[] = "{layers: [{conv2d: {out: 5, name: stem}}, batchnorm, relu, {conv2d: {out: 4, "
                              "bias: false}}, flatten, {linear: {units: 3, name: head}}]}";
static const struct shape image = {3, {2, 7, 7}};

static const struct tensor_info *find(const struct model *m, const char *name) {
    for (int i = 0; i < m->nparams; i++)
        if (!strcmp(m->params[i].name, name)) return &m->params[i];
    for (int i = 0; i < m->nbuffers; i++)
        if (!strcmp(m->buffers[i].name, name)) return &m->buffers[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void test_ready_order(void **state) {
    (void)state;
    struct model *m = model_make(convnet, image);
    static const char *const names[] = {"head.weight",     "head.bias",   "conv2d2.weight", "batchnorm1.weight",
                                        "batchnorm1.bias", "stem.weight", "stem.bias"};
    assert_int_equal(m->nparams, 7);
    int64_t at = HEADER_FLOATS, count = 0;
    for (int i = 0; i < m->nparams; i++) {
        assert_string_equal(m->params[i].name, names[i]);
        assert_int_equal(m->params[i].offset, at);
        assert_int_equal(m->params[i].offset % ALIGN_FLOATS, 0);
        at += align_floats(m->params[i].count);
        count += m->params[i].count;
        assert_int_equal(m->params[i].count, shape_count(&m->params[i].shape));
    }
    assert_int_equal(m->arena_floats, at);
    assert_int_equal(m->parameters, count);
    assert_int_equal(m->nbuffers, 2);
    assert_int_equal(m->buffer_floats, 2 * ALIGN_FLOATS);
    model_free(m);
}

static void test_layouts_are_pytorchs(void **state) {
    (void)state;
    struct model *m = model_make(convnet, image);
    char text[96];
    assert_string_equal(shape_text(&find(m, "stem.weight")->shape, text), "5x2x3x3");
    assert_string_equal(shape_text(&find(m, "head.weight")->shape, text), "3x36");
    assert_string_equal(shape_text(&find(m, "batchnorm1.running_var")->shape, text), "5");
    model_free(m);
}

static void assert_uniform(const struct tensor_info *t, const float *v) {
    double bound = 1 / sqrt((double)t->fan_in), sum = 0, largest = 0;
    for (int64_t k = 0; k < t->count; k++) {
        sum += (double)v[k];
        largest = fmax(largest, fabs((double)v[k]));
    }
    assert_true(largest <= bound * 1.000001 && largest > 0.9 * bound);
    assert_true(fabs(sum / (double)t->count) < 0.15 * bound);
}

static void test_first_values(void **state) {
    (void)state;
    struct model *m = model_make(convnet, image);
    float *values = floats(m->arena_floats), *again = floats(m->arena_floats);
    float *buffers = floats(m->buffer_floats);
    memset(values, 0x55, (size_t)m->arena_floats * sizeof *values);
    model_init(m, NULL, 3, values, buffers);
    assert_int_equal(find(m, "stem.weight")->fan_in, 18);
    assert_int_equal(find(m, "head.bias")->fan_in, 36);
    assert_uniform(find(m, "stem.weight"), values + find(m, "stem.weight")->offset);
    assert_uniform(find(m, "head.weight"), values + find(m, "head.weight")->offset);
    for (int i = 0; i < 5; i++) {
        assert_true(values[find(m, "batchnorm1.weight")->offset + i] == 1);
        assert_true(values[find(m, "batchnorm1.bias")->offset + i] == 0);
        assert_true(buffers[find(m, "batchnorm1.running_mean")->offset + i] == 0);
        assert_true(buffers[find(m, "batchnorm1.running_var")->offset + i] == 1);
    }
    double used = 0, all = 0; /* header and gaps are zero */
    for (int64_t k = 0; k < m->arena_floats; k++) all += fabs((double)values[k]);
    for (int i = 0; i < m->nparams; i++)
        for (int64_t k = 0; k < m->params[i].count; k++) used += fabs((double)values[m->params[i].offset + k]);
    assert_true(fabs(used - all) < 1e-9 * all);
    model_init(m, NULL, 3, again, buffers);
    assert_memory_equal(values, again, (size_t)m->arena_floats * sizeof *values);
    model_init(m, NULL, 4, again, buffers);
    assert_memory_not_equal(values, again, (size_t)m->arena_floats * sizeof *values);
    memory_free(values);
    memory_free(again);
    memory_free(buffers);
    model_free(m);
}

/* Element k of the t-th tensor in forward order is word k % 4 of the counter (t, k / 4): part of
 * the contract, since a seed must go on giving the same weights. */
static void test_first_values_are_counted(void **state) {
    (void)state;
    struct model *m = model_make("{layers: [{linear: 7}, relu, {linear: 3}]}", (struct shape){1, {5}});
    float *values = floats(m->arena_floats), *buffers = floats(m->buffer_floats);
    model_init(m, NULL, 9, values, buffers);
    uint32_t words[4];
    rng_words(rng_key(9, RNG_INIT), 2, 1, words); /* second layer's weight, elements 4 to 7 */
    for (int i = 0; i < 4; i++) {
        float expected = (2 * rng_unit(words[i]) - 1) * (1 / sqrtf(7));
        assert_true(values[find(m, "linear2.weight")->offset + 4 + i] == expected);
    }
    memory_free(values);
    memory_free(buffers);
    model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready_order),
        cmocka_unit_test(test_layouts_are_pytorchs),
        cmocka_unit_test(test_first_values),
        cmocka_unit_test(test_first_values_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
