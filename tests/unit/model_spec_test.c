/* The 'model' key: zoo files and their parameters, repeats, layers written in place, names, and
 * what is said of mistakes. */
#include "tests/harness/harness.h"

#include "tests/unit/model_fixture.h"

static const struct shape digits = {3, {1, 28, 28}};

static void assert_layers(const char *yaml, struct shape input, const char *expected) {
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

static void assert_refused(const char *yaml, struct shape input, const char *said) {
    struct model *m = NULL;
    char *report;
    assert_fails(ERR_CONFIG, model_try(yaml, &input, RIG_CLASSES, &m, &report));
    assert_null(m);
    if (!strstr(report, said)) fail_msg("%s: expected '%s' in: %s", yaml, said, report);
    free(report);
}

static void test_zoo(void **state) {
    (void)state;
    assert_layers("mlp", digits, "flatten1:784 fc1:512 relu1:512 dropout1:512 fc2:512 relu2:512 dropout2:512 fc3:3");
    assert_layers("{zoo: mlp, hidden: [10, 20, 30]}", digits,
                  "flatten1:784 fc1:10 relu1:10 dropout1:10 fc2:20 relu2:20 dropout2:20 fc3:30 "
                  "relu3:30 dropout3:30 fc4:3");
    assert_layers("{zoo: mlp, hidden: 7}", digits, "flatten1:784 fc1:7 relu1:7 dropout1:7 fc2:3");
    assert_layers("{zoo: mlp, hidden: []}", digits, "flatten1:784 fc1:3");
    assert_layers("lenet", digits,
                  "conv1:6x28x28 relu1:6x28x28 maxpool1:6x14x14 conv2:16x10x10 relu2:16x10x10 "
                  "maxpool2:16x5x5 flatten1:400 fc1:120 relu3:120 fc2:84 relu4:84 fc3:3");
}

static void test_every_zoo_file_builds_as_it_is(void **state) {
    (void)state;
    int count;
    const struct zoo_model *zoo = zoo_models(&count);
    assert_true(count >= 2);
    for (int i = 0; i < count; i++) {
        struct pool *pool;
        struct zoo_about about;
        assert_ok(pool_create(&pool));
        assert_ok(zoo_about(&zoo[i], pool, &about));
        assert_true(strlen(about.about) > 10);
        struct model *m;
        char *report;
        if (model_try(zoo[i].name, &about.input, about.classes, &m, &report) != ERR_NONE)
            fail_msg("%s: %s", zoo[i].name, report);
        assert_int_equal(shape_last(&m->output), about.classes);
        model_free(m);
        free(report);
        pool_free(pool);
    }
}

static void test_known_parameter_counts(void **state) {
    (void)state;
    struct shape input = digits;
    struct model *m;
    char *report;
    assert_ok(model_try("lenet", &input, 10, &m, &report));
    assert_int_equal(m->parameters, 61706);
    model_free(m);
    free(report);
    assert_ok(model_try("mlp", &input, 10, &m, &report));
    assert_int_equal(m->parameters, 669706);
    model_free(m);
    free(report);
    /* as torchvision and Hugging Face count them */
    static const struct {
        const char *model;
        struct shape input;
        int64_t classes, parameters;
    } known[] = {{"{zoo: vgg11}", {3, {3, 224, 224}}, 1000, 132863336},
                 {"{zoo: resnet18, stem: imagenet}", {3, {3, 224, 224}}, 1000, 11689512},
                 {"{zoo: resnet34, stem: imagenet}", {3, {3, 224, 224}}, 1000, 21797672},
                 {"resnet50", {3, {3, 224, 224}}, 1000, 25557032},
                 {"vit-b-16", {3, {3, 224, 224}}, 1000, 86567656},
                 {"gpt2", {1, {1024}}, 50257, 124439808}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (model_try(known[i].model, &known[i].input, known[i].classes, &m, &report) != ERR_NONE)
            fail_msg("%s", report);
        assert_int_equal(m->parameters, known[i].parameters);
        model_free(m);
        free(report);
    }
}

static void assert_tensor(const struct model *m, const char *name, const char *shape) {
    char text[96];
    for (int i = 0; i < m->nparams; i++) {
        if (strcmp(m->params[i].name, name) != 0) continue;
        assert_string_equal(shape_text(&m->params[i].shape, text), shape);
        return;
    }
    fail_msg("%s has no '%s'", m->name, name);
}

static void test_names_of_public_networks(void **state) {
    (void)state;
    struct model *m = model_make("vit-tiny", (struct shape){3, {3, 32, 32}});
    assert_tensor(m, "class_token", "1x1x192");
    assert_tensor(m, "encoder.pos_embedding", "1x65x192");
    assert_tensor(m, "encoder.layers.encoder_layer_11.self_attention.in_proj_weight", "576x192");
    assert_tensor(m, "encoder.layers.encoder_layer_0.self_attention.out_proj.bias", "192");
    assert_tensor(m, "encoder.layers.encoder_layer_0.mlp.3.weight", "192x768");
    assert_tensor(m, "heads.head.weight", "3x192");
    model_free(m);
    m = model_make("gpt-nano", (struct shape){1, {64}});
    assert_tensor(m, "wte.weight", "3x48");
    assert_tensor(m, "h.2.attn.c_attn.weight", "48x144");
    assert_tensor(m, "h.2.mlp.c_proj.weight", "192x48");
    assert_tensor(m, "ln_f.bias", "48");
    model_free(m);
    m = model_make("resnet50", (struct shape){3, {3, 64, 64}});
    assert_tensor(m, "layer1.0.downsample.0.weight", "256x64x1x1");
    assert_tensor(m, "layer4.2.bn3.weight", "2048");
    assert_tensor(m, "fc.weight", "3x2048");
    model_free(m);
    m = model_make("vgg11", (struct shape){3, {3, 32, 32}});
    assert_tensor(m, "features.18.weight", "512x512x3x3");
    assert_tensor(m, "classifier.6.weight", "3x4096");
    model_free(m);
}

static void test_dropout_parameter(void **state) {
    (void)state;
    struct model *m = model_make("{zoo: mlp, dropout: 0.25}", digits);
    assert_false(m->nodes[3].plan.view);
    assert_true(m->nodes[3].plan.op.dropout.p == 0.25f);
    assert_int_not_equal(m->nodes[3].plan.op.dropout.layer, m->nodes[6].plan.op.dropout.layer);
    model_free(m);
    m = model_make("mlp", digits);
    assert_true(m->nodes[3].plan.view); /* costs nothing */
    model_free(m);
}

static void test_layers_in_place(void **state) {
    (void)state;
    assert_layers("{layers: [flatten, {linear: 9}, relu, {linear: {units: $classes, name: out}}]}", digits,
                  "flatten1:784 linear1:9 relu1:9 out:3");
    assert_layers("{layers: [{conv2d: {out: 4, kernel: [5, 3], stride: [2, 1], pad: [0, 1]}}, "
                  "{avgpool: {kernel: 3, stride: 2, pad: 1}}, flatten, {linear: 2}]}",
                  digits, "conv2d1:4x12x28 avgpool1:4x6x14 flatten1:336 linear1:2");
    assert_layers("{layers: [flatten, {each: [4, 5], layers: [{linear: {units: $item, name: a$i-$item}}]}, "
                  "{linear: {units: 2, name: a$i}}]}",
                  digits, "flatten1:784 a1-4:4 a2-5:5 a3:2");
    assert_layers("{layers: [{linear: {units: 4, from: input}}, {linear: 4}, {add: {from: linear1}}, "
                  "{gelu: {name: g}}]}",
                  (struct shape){1, {5}}, "linear1:4 linear2:4 add1:4 g:4");
}

static void test_one_input_layers_take_from(void **state) {
    (void)state;
    struct model *m = model_make("{layers: [{linear: {units: 4, name: a}}, relu, {linear: {units: 5, name: b}}, "
                                 "{linear: {units: 5, name: c, from: a}}, {add: {from: b}}]}",
                                 (struct shape){1, {6}});
    assert_int_equal(m->nodes[3].input[0], 0);
    assert_int_equal(m->nodes[4].input[0], 3);
    assert_int_equal(m->nodes[4].input[1], 2);
    model_free(m);
}

static void test_names_of_parameters(void **state) {
    (void)state;
    struct model *m = model_make("{layers: [{linear: {units: 4, name: a, params: underscored}}, {linear: {units: "
                                 "4, name: b.c, params: bare, bias: false}}, {linear: {units: 2, name: d}}]}",
                                 (struct shape){1, {6}});
    static const char *const names[] = {"d.weight", "d.bias", "b.c", "a_weight", "a_bias"};
    assert_int_equal(m->nparams, 5);
    for (int i = 0; i < 5; i++) assert_string_equal(m->params[i].name, names[i]);
    model_free(m);
    assert_refused("{layers: [{linear: {units: 4, name: a, params: bare}}]}", digits,
                   "flatten or meanpool before it makes features of an image");
    assert_refused("{layers: [flatten, {linear: {units: 4, name: a, params: bare}}]}", digits,
                   "two parameters are named 'a' (of layers 'a' and 'a')");
    assert_refused("{layers: [flatten, {linear: {units: 4, name: a}}, {linear: {units: 3, name: "
                   "a.weight, params: bare, bias: false}}]}",
                   digits, "two parameters are named 'a.weight'");
    assert_refused("{layers: [flatten, {linear: {units: 4, params: doted}}]}", digits, "did you mean 'dotted'?");
}

static void test_repeats_count_and_nest(void **state) {
    (void)state;
    const struct shape five = {1, {5}};
    assert_layers("{layers: [{each: 3, layers: [{linear: {units: $i, name: a$item}}]}]}", five, "a0:1 a1:2 a2:3");
    assert_layers("{layers: [{each: [2, 1], as: s, layers: [{each: $s, as: b, layers: "
                  "[{linear: {units: $(10 * $s_i + $b), name: l$s_i.$item}}]}]}, "
                  "{linear: {units: 2, name: end$i}}]}",
                  five, "l1.0:10 l1.1:11 l2.0:20 end3:2");
    assert_layers("{layers: [{each: 0, layers: [relu]}, {linear: $(2 ^ 3 - 1)}]}", five, "linear1:7");
    assert_layers("{layers: [{each: $(6 / 3), layers: [{linear: $(7 % 4 + $item)}]}]}", five, "linear1:3 linear2:4");
}

static void test_choices_and_variables(void **state) {
    (void)state;
    const struct shape five = {1, {5}};
    assert_layers("{layers: [{each: [x, y], layers: [{if: $item == x, layers: [{linear: 3}], "
                  "else: [{linear: 4}]}]}]}",
                  five, "linear1:3 linear2:4");
    assert_layers("{layers: [{linear: 3}, {if: '$i > 1 or 2 < 1 and 1 > 0', layers: [relu]}]}", five, "linear1:3");
    assert_layers("{layers: [{linear: {units: 5, name: a}}, {set: {x: a}}, {each: 2, layers: "
                  "[{linear: {units: 5, name: b$i}}, {add: {from: $x}}, {set: {x: b$i}}]}]}",
                  five, "a:5 b1:5 add1:5 b2:5 add2:5");
    assert_layers("{layers: [{linear: $(-1 * (2 - 5) * sqrt(4))}, {dropout: $(1 / sqrt(4))}]}", five,
                  "linear1:6 dropout1:6");
}

static void test_mistakes_in_the_language(void **state) {
    (void)state;
    assert_refused("{layers: [{linear: $(2 +)}]}", digits, "a number was expected");
    assert_refused("{layers: [{linear: $(2 + x)}]}", digits, "'+' takes numbers");
    assert_refused("{layers: [{linear: $(1 / 0)}]}", digits, "is not a number");
    assert_refused("{layers: [{linear: $(7 / 2)}]}", digits, "3.5");
    assert_refused("{layers: [{linear: $((2)}]}", digits, "a ')' is missing");
    assert_refused("{layers: [{linear: $(2 3)}]}", digits, "'3)' was not expected");
    assert_refused("{layers: [{linear: $($clases + 1)}]}", digits, "did you mean 'classes'?");
    assert_refused("{layers: [{linear: $(sqrt(0 - 1))}]}", digits, "not below 0");
    assert_refused("{layers: [{if: relu, layers: []}]}", digits, "neither true nor false");
    assert_refused("{layers: [{if: $nothing, layers: []}]}", digits, "unknown parameter 'nothing'");
    assert_refused("{layers: [{if: 1}]}", digits, "a choice is");
    assert_refused("{layers: [{if: 1, layer: []}]}", digits, "unknown key 'layer'");
    assert_refused("{layers: [{set: 3}]}", digits, "variables are set by");
    assert_refused("{layers: [{each: -1, layers: []}]}", digits, "a repeat is");
    assert_refused("{layers: [{each: 1000000, layers: []}]}", digits, "more than 100000 parts");
    assert_refused("{layers: [{each: 2, as: a b, layers: []}]}", digits, "as: NAME");
    char deep[256] = "{layers: [{linear: $(", *end = deep + strlen(deep);
    memset(end, '(', 100);
    strcpy(end + 100, "1)}]}");
    assert_refused(deep, digits, "is missing");
    memset(end, '-', 100);
    strcpy(end + 100, "1)}]}");
    assert_refused(deep, digits, "too many brackets");
}

static void test_mistakes_in_the_spec(void **state) {
    (void)state;
    assert_refused("lent", digits, "did you mean 'lenet'?");
    assert_refused("nothing_like_it", digits, "unknown model 'nothing_like_it'");
    assert_refused("{zoo: mlp, hiden: [3]}", digits, "did you mean 'hidden'?");
    assert_refused("{zoo: lenet, hidden: [3]}", digits, "unknown parameter 'hidden'");
    assert_refused("{zoo: mlp, layers: 3}", digits, "unknown parameter 'layers'");
    assert_refused("{zoo: mlp, layers: [linear: 3]}", digits, "unknown parameter 'layers'");
    assert_refused("{zoo: mlp, hidden: [[3]]}", digits, "'hidden' must be a list of values");
    assert_refused("{zoo: mlp, hidden: {a: 3}}", digits, "'hidden' must be a list of values");
    assert_refused("{zoo: resnet18, block: basix}", digits, "must be one of basic, bottleneck");
    assert_refused("{zoo: resnet, stem: foo}", digits, "must be one of cifar, imagenet");
    assert_refused("{zoo: mlp, dropout: [0.1]}", digits, "'dropout' must be one value");
    assert_refused("{zoo: mlp, hidden: [3, x]}", digits, "test.yaml:1:");
    assert_refused("{zoo: [mlp]}", digits, "a model is a name of the zoo");
    assert_refused("{}", digits, "a model is a name of the zoo");
    assert_refused("[flatten]", digits, "a model is a name of the zoo");
    assert_refused("{layers: flatten}", digits, "layers must be a list");
    assert_refused("{layers: []}", digits, "1 to 4096 layers");
    assert_refused("{layers: [flatten, {linear: 3}], zo: x}", digits, "unknown key 'zo'");
    assert_refused("{layers: [{linear: $clases}]}", digits, "did you mean 'classes'?");
    assert_refused("{layers: [{linear: $}]}", digits, "must follow '$'");
    assert_refused("{layers: [{linear: $item}]}", digits, "unknown parameter 'item'");
    assert_refused("{layers: [{each: hidden, layers: []}]}", digits, "unknown parameter 'hidden'");
    assert_refused("{layers: [{each: [1], layer: []}]}", digits, "unknown key 'layer'");
    assert_refused("{layers: [{each: [1]}]}", digits, "a repeat is");
    assert_refused("{layers: [{each: {a: 1}, layers: []}]}", digits, "a repeat is");
    assert_refused("{layers: [{each: [[1, 2]], layers: [{linear: {units: 3, name: a$item}}]}]}", digits, "is a list");
}

static void test_mistakes_in_layers(void **state) {
    (void)state;
    assert_refused("{layers: [{lineer: 3}]}", digits, "did you mean 'linear'?");
    assert_refused("{layers: [{linear: {unts: 3}}]}", digits, "did you mean 'units'? (engine help linear)");
    assert_refused("{layers: [{linear: {unts: 3}}]}", digits,
                   "in 'layers[0].linear', which takes units, bias, transposed, deviation, tie, name, from, params\n");
    assert_refused("{layers: [{linear: {out_features: 3}}]}", digits, "did you mean 'units'? (engine help linear)");
    assert_refused("{layers: [{nn.Conv2d: 3}]}", digits, "did you mean 'conv2d'? (engine help layers)");
    assert_refused("{layers: [MultiheadAttention]}", digits, "did you mean 'attention'? (engine help layers)");
    assert_refused("{layers: [flatten, linear]}", digits, "'layers[1].linear.units' is missing: it must be an integer");
    assert_refused("{layers: [flatten, linear: ten]}", digits, "'layers[1].linear.units' must be an integer >= 1, got");
    assert_refused("{layers: [{conv2d: {out: 3, kernel: 0}}]}", digits,
                   "'layers[0].conv2d.kernel' must be an integer from 1 to 1024, or a list of them, got \"0\"\n");
    assert_refused("{layers: [{conv2d: {out: 3, kernel: 0}}]}", digits, "hint: engine help conv2d\n");
    assert_refused("{layers: [{linear: 3}]}", digits,
                   "linear takes features or a sequence, not an image (its input is 1x28x28)\n");
    assert_refused("{layers: [{linear: 3}]}", digits,
                   "tokens before it makes a sequence of an image; engine help linear\n");
    assert_refused("{layers: [{linear: 3}]}", digits, "linear1: ");
    assert_refused("{layers: [conv2d]}", digits, "conv2d.out' is missing");
    assert_refused("{layers: [maxpool]}", digits, "maxpool.kernel' is missing");
    assert_refused("{layers: [flatten, {conv2d: 3}]}", digits, "conv2d1: conv2d takes an image, not features");
    assert_refused("{layers: [flatten, {conv2d: 3}]}", (struct shape){4, {1, 2, 3, 4}}, "three dimensions at most");
    assert_refused("{layers: [{conv2d: {out: 3, kernel: []}}]}", digits, "kernel has 0 values");
    assert_refused("{layers: [{conv2d: {out: 3, kernel: 5}}]}", (struct shape){3, {6, 3, 3}},
                   "conv2d1: kernel 5x5 with pad 0x0 does not fit in 3x3 (its input is 6x3x3)");
    assert_refused("lenet", (struct shape){3, {3, 11, 11}}, "zoo:lenet:10:");
    assert_refused("{layers: [{conv2d: {out: 3, kernel: [1, 2, 3]}}]}", digits, "kernel has 3 values");
    assert_refused("{layers: [{conv2d: {out: 3, groups: 2}}]}", digits, "groups 2 does not divide");
    assert_refused("{layers: [{maxpool: {kernel: 2, pad: 2}}]}", digits, "more than half of kernel 2");
    assert_refused("{layers: [flatten, {dropout: 1}]}", digits, "'layers[1].dropout.p' must be at most 0.999");
    assert_refused("{layers: [flatten, relu]}", digits, "no parameters to train");
    assert_refused("{layers: [flatten, {linear: 16000000}, {linear: 16000000}]}", digits, "more than 2^31 numbers");
}

static void test_mistakes_in_names_and_inputs(void **state) {
    (void)state;
    const struct shape five = {1, {5}};
    assert_refused("{layers: [{linear: {units: 3, name: a}}, {linear: {units: 3, name: a}}]}", five,
                   "the name 'a' is taken");
    assert_refused("{layers: [{linear: {units: 3, name: linear2}}, {linear: 3}]}", five, "the name 'linear2' is taken");
    assert_refused("{layers: [{linear: {units: 3, name: input}}]}", five, "the name 'input' is taken");
    assert_refused("{layers: [{linear: {units: 3, name: 'a/b'}}]}", five, "is not a valid name for a layer");
    assert_refused("{layers: [{linear: {units: 3, name: ''}}]}", five, "is not a valid name for a layer");
    assert_refused("{layers: [{linear: 3}, add]}", five, "add needs 'from'");
    assert_refused("{layers: [{linear: 3}, add]}", five, "hint: engine help add\n");
    assert_refused("{layers: [{linear: {units: 5, name: first}}, {add: {from: frist}}]}", five,
                   "did you mean 'first'?");
    assert_refused("{layers: [{linear: 5}, {add: {from: add1}}]}", five, "no layer 'add1' before");
    assert_refused("{layers: [{linear: 3}, {add: {from: input}}]}", five, "its inputs differ: 3 and 5");
    assert_refused("{layers: [{linear: 3}, {linear: {units: 3, from: input}}]}", five,
                   "nothing reads the output of layer 'linear1'");
}

/* Repeats in repeats ask for more than any memory has: they must end soon. */
static void test_repeats_are_limited(void **state) {
    (void)state;
    char list[1200] = "[1", nested[6000] = "[]", next[6000];
    for (int i = 0; i < 500; i++) strcat(list, ",1");
    strcat(list, "]");
    for (int depth = 0; depth < 4; depth++) {
        snprintf(next, sizeof next, "[{each: %s, layers: %s}]", list, nested);
        strcpy(nested, next);
    }
    snprintf(next, sizeof next, "{layers: %s}", nested);
    assert_refused(next, digits, "more than 100000 parts");
    snprintf(next, sizeof next, "{layers: [{each: %s, layers: [{each: %s, layers: [relu]}]}]}", list, list);
    assert_refused(next, digits, "more than 100000 parts");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zoo),
        cmocka_unit_test(test_every_zoo_file_builds_as_it_is),
        cmocka_unit_test(test_known_parameter_counts),
        cmocka_unit_test(test_names_of_public_networks),
        cmocka_unit_test(test_dropout_parameter),
        cmocka_unit_test(test_layers_in_place),
        cmocka_unit_test(test_one_input_layers_take_from),
        cmocka_unit_test(test_names_of_parameters),
        cmocka_unit_test(test_repeats_count_and_nest),
        cmocka_unit_test(test_choices_and_variables),
        cmocka_unit_test(test_mistakes_in_the_language),
        cmocka_unit_test(test_mistakes_in_the_spec),
        cmocka_unit_test(test_mistakes_in_layers),
        cmocka_unit_test(test_mistakes_in_names_and_inputs),
        cmocka_unit_test(test_repeats_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
