/* Layers of sequences in models: shapes, tied weights, first values, and what is said of mistakes.
 */
#include "tests/harness/harness.h"

#include "tests/unit/model_fixture.h"

#include <math.h>

static const struct shape tokens = {1, {12}}, image = {3, {3, 8, 8}};

static void assert_shapes(const char *yaml, struct shape input, const char *expected) {
    struct model *m = model_make(yaml, input);
    char text[1024] = "", y[96];
    for (int k = 0; k < m->nnodes; k++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s:%s", k ? " " : "", m->nodes[k].name,
                 shape_text(&m->nodes[k].plan.y, y));
    }
    assert_string_equal(text, expected);
    model_free(m);
}

static void shapes_follow_the_layers(void **state) {
    (void)state;
    assert_shapes("{layers: [{embedding: {vocabulary: 65, units: 8}}, position, layernorm, "
                  "{linear: 24}, {attention: {heads: 2, causal: true}}, rmsnorm, {linear: 65}]}",
                  tokens,
                  "embedding1:12x8 position1:12x8 layernorm1:12x8 linear1:12x24 attention1:12x8 "
                  "rmsnorm1:12x8 linear2:12x65");
    assert_shapes("{layers: [{conv2d: {out: 6, kernel: 4, stride: 4}}, tokens, class_token, "
                  "position, {attention: 2}, {select: 0}, silu, {linear: 3}]}",
                  image,
                  "conv2d1:6x2x2 tokens1:4x6 class_token1:5x6 position1:5x6 attention1:5x2 "
                  "select1:2 silu1:2 linear1:3");
    assert_shapes("{layers: [{conv2d: 6}, meanpool, tanh, {linear: 3}, sigmoid]}", image,
                  "conv2d1:6x6x6 meanpool1:6 tanh1:6 linear1:3 sigmoid1:3");
}

static void weights_lie_as_they_are_asked_for(void **state) {
    (void)state;
    struct model *m = model_make("{layers: [{embedding: {vocabulary: 7, units: 4, name: e}}, "
                                 "{linear: {units: 4, transposed: true, bias: false}}, "
                                 "{linear: {units: 7, tie: e, bias: false}}]}",
                                 tokens);
    assert_int_equal(m->parameters, 7 * 4 + 4 * 4);
    assert_int_equal(m->nparams, 2);
    assert_int_equal(m->nodes[2].tied, 0);
    assert_int_equal(m->nodes[2].param[0], m->nodes[0].param[0]);
    assert_true(m->nodes[1].plan.op.linear.transposed);
    model_free(m);
    m = model_make("{layers: [{linear: {units: 5, transposed: true}}, {linear: 3}]}", tokens);
    const struct shape *w = &m->nodes[0].plan.params[0].shape;
    assert_true(w->dim[0] == 12 && w->dim[1] == 5);
    model_free(m);
}

/* The root of the mean of squares of the named parameter's first values. */
static double deviation_of(const struct model *m, const float *values, const char *name) {
    for (int i = 0; i < m->nparams; i++) {
        const struct tensor_info *t = &m->params[i];
        double squares = 0;
        if (strcmp(t->name, name) != 0) continue;
        for (int64_t k = 0; k < t->count; k++) squares += (double)values[t->offset + k] * (double)values[t->offset + k];
        return sqrt(squares / (double)t->count);
    }
    fail_msg("no parameter '%s'", name);
    return 0;
}

static void assert_deviation(const char *yaml, struct shape input, const char *name, double expected) {
    struct model *m = model_make(yaml, input);
    float *values = floats(m->arena_floats), *buffers = floats(m->buffer_floats);
    model_init(m, NULL, 3, values, buffers);
    double got = deviation_of(m, values, name);
    if (!(fabs(got - expected) <= 0.05 * expected))
        fail_msg("%s of %s: the deviation is %g, not %g", name, yaml, got, expected);
    memory_free(values);
    memory_free(buffers);
    model_free(m);
}

static void first_values_are_pytorchs(void **state) {
    (void)state;
    const char *embedding = "{layers: [{embedding: {vocabulary: 90, units: 64}}, position, "
                            "meanpool, {linear: 3}]}";
    assert_deviation(embedding, (struct shape){1, {64}}, "embedding1.weight", 1);
    assert_deviation(embedding, (struct shape){1, {64}}, "position1.weight", 0.02);
    const char *linear = "{layers: [{linear: {units: 300, deviation: 0.02}}, {linear: 300}]}";
    assert_deviation(linear, (struct shape){1, {30}}, "linear1.weight", 0.02);
    assert_deviation(linear, (struct shape){1, {30}}, "linear1.bias", 0);
    assert_deviation(linear, (struct shape){1, {30}}, "linear2.weight", 1 / sqrt(3 * 300.));
    const char *conv = "{layers: [{conv2d: {out: 64, kernel: 5, init: kaiming}}, {conv2d: 32}, "
                       "meanpool, {linear: 3}]}";
    assert_deviation(conv, image, "conv2d1.weight", sqrt(2 / (64 * 25.)));
    assert_deviation(conv, image, "conv2d1.bias", 0);
    assert_deviation(conv, image, "conv2d2.weight", 1 / sqrt(3 * 64 * 9.));
}

static void assert_refused(const char *yaml, struct shape input, const char *said) {
    struct model *m = NULL;
    char *report;
    assert_fails(ERR_CONFIG, model_try(yaml, &input, RIG_CLASSES, &m, &report));
    if (!strstr(report, said)) fail_msg("%s: expected '%s' in: %s", yaml, said, report);
    free(report);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *layers, *said;
    } wrong[] = {
        {"[{embedding: {units: 4}}, {linear: 3}]", "embedding.vocabulary' is missing"},
        {"[{embedding: {vocabulary: 4}}, {linear: 3}]", "embedding.units' is missing"},
        {"[{linear: 4}, position]", "position takes a sequence"},
        {"[{linear: 4}, class_token]", "class_token takes a sequence"},
        {"[{linear: 4}, {attention: 2}]", "attention takes a sequence"},
        {"[{linear: 4}, tokens]", "tokens takes an image, not features"},
        {"[{linear: 4}, meanpool]", "meanpool takes a sequence or an image"},
        {"[{linear: 4}, {select: 0}]", "select takes a sequence"},
        {"[{embedding: {vocabulary: 4, units: 4}}, attention]", "attention.heads' is missing"},
        {"[{embedding: {vocabulary: 4, units: 4}}, {attention: 2}]",
         "4 features are not queries, keys and values of 2 heads"},
        {"[{embedding: {vocabulary: 4, units: 4}}, {select: 12}]", "rows are counted from 0 to 11"},
        {"[{embedding: {vocabulary: 4, units: 4}}, batchnorm]", "use layernorm or rmsnorm; engine help batchnorm"},
        {"[{embedding: {vocabulary: 4, units: 4}}, {embedding: {vocabulary: 4, units: 4}}]", "embedding takes tokens"},
        {"[{embedding: {vocabulary: 4, units: 4}}, {linear: {units: 4, tie: e}}]",
         "no layer 'e' before this one to tie to"},
        {"[{embedding: {vocabulary: 4, units: 4, name: e}}, {linear: {units: 5, tie: e}}]",
         "its weight is 5x4, but that of 'e' 4x4"},
        {"[{gelu: sometimes}, {linear: 4}]", "must be one of none, tanh"},
    };
    char yaml[256];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(yaml, sizeof yaml, "{layers: %s}", wrong[i].layers);
        assert_refused(yaml, tokens, wrong[i].said);
    }
    assert_refused("{layers: [layernorm, flatten, {linear: 3}]}", image, "flatten or meanpool before it makes");
    assert_refused("{layers: [rmsnorm, flatten, {linear: 3}]}", image, "tokens before it makes a sequence");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_follow_the_layers),
        cmocka_unit_test(weights_lie_as_they_are_asked_for),
        cmocka_unit_test(first_values_are_pytorchs),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
