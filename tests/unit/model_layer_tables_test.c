/* What the layers' tables say of themselves is what their plans do: which inputs fit, the shapes that go out, the
 * examples, the parameters that must be there. */
#include "engine/model/expression.h"
#include "engine/model/model.h"
#include "tests/harness/harness.h"
#include "tests/harness/shapes.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pool *pool;
static const struct layer_ops *layer; /* that is looked at */
static struct shape x;
static const struct node *given; /* the layer's parameters, with defaults */

static void open_layer(const struct layer_ops *of, const char *item, struct config_list *out) {
    struct config_errors *e;
    struct node *root;
    const char *yaml = pool_printf(pool, "layers:\n%s\n", item);
    layer = of;
    assert_ok(config_errors_create(&e));
    assert_ok(tree_parse(yaml, strlen(yaml), "test", pool, e, &root));
    enum error err = config_read(&layers_section, root, pool, e, out);
    if (err != ERR_NONE) fail_msg("%s: %s", item, config_errors_text(e, pool));
    given = node_get(root, "layers")->items[0]->items[0];
    config_errors_free(e);
}

/* ---- shapes ---- */

/* A letter of the input's shape, or a parameter. The stride of a pool is its kernel where it is not given. */
static const char *find_name(void *letters, const char *name, size_t n) {
    const char *dims = letters, *at = n == 1 ? strchr(dims, *name) : NULL;
    if (at) return pool_printf(pool, "%lld", (long long)x.dim[at - dims]);
    const struct node *value = node_get(given, pool_strndup(pool, name, n));
    if (!value && n == strlen("stride")) value = node_get(given, "kernel");
    return value ? value->text : NULL;
}

/* "H / 2" is told without the '$' that expressions have before names. */
static int64_t dimension(const char *text, char *letters) {
    char with[256], value[EXPRESSION_TEXT];
    size_t n = 0;
    for (const char *c = text; *c; with[n++] = *c++)
        if (isalpha((unsigned char)*c) && (c == text || !isalpha((unsigned char)c[-1]))) with[n++] = '$';
    with[n] = '\0';
    bool missing = false;
    const struct expression_names names = {find_name, letters};
    if (!expression_text(with, &names, value, &missing)) fail_msg("%s: '%s': %s", layer->section.name, text, value);
    return (int64_t)floor(strtod(value, NULL));
}

static void assert_shape(const struct shape *y, const char *out, enum layer_input input) {
    static char letters[INPUTS][4] = {"F", "T", "TF", "CHW"};
    char text[256], *rest = NULL, is[96];
    int n = 0;
    snprintf(text, sizeof text, "%s", out);
    for (char *dim = strtok_r(text, ",", &rest); dim; dim = strtok_r(NULL, ",", &rest), n++) {
        int64_t expected = dimension(dim + strspn(dim, " "), letters[input]);
        if (n >= y->ndim || y->dim[n] != expected)
            fail_msg("%s: '%s' is %lld, but the plan gives %s", layer->section.name, dim, (long long)expected,
                     shape_text(y, is));
    }
    assert_int_equal(n, y->ndim);
}

/* Every kind of input, with the example and with as few parameters as there may be. */
static void check_inputs(const struct layer_ops *of, const char *item) {
    static const struct shape inputs[INPUTS] = {F(48), F(16), ROWS(8, 576), CHW(6, 13, 9)};
    struct config_list list;
    open_layer(of, item, &list);
    const struct config_variant *variant = list.items;
    for (int i = 0; i < INPUTS; i++) {
        struct layer_plan p = {0};
        x = inputs[i];
        bool fits = of->out[i] || (i == INPUT_FEATURES && of->out[INPUT_TOKENS]) ||
                    (i == INPUT_TOKENS && of->out[INPUT_FEATURES]);
        if (!fits) {
            assert_fails(ERR_CONFIG, layer_takes(of, &x));
            assert_true(strlen(error_hint()) > 10);
        } else {
            assert_ok(layer_takes(of, &x));
            assert_ok(of->plan(variant->config, &x, &p));
            if (of->out[i]) assert_shape(&p.y, of->out[i], (enum layer_input)i);
        }
    }
}

static const struct layer_ops *const *kinds;
static int count;

static void shapes_are_those_of_the_plans(void **state) {
    (void)state;
    for (int k = 0; k < count; k++) check_inputs(kinds[k], kinds[k]->example);
    check_inputs(layer_find("conv2d"), "- conv2d: {out: 4, kernel: 5, stride: 3, pad: 2}");
    check_inputs(layer_find("maxpool"), "- maxpool: {kernel: 4, stride: 3, pad: 2}");
    check_inputs(layer_find("linear"), "- linear: {units: 7, bias: false, transposed: true}");
}

/* ---- the rest ---- */

static void nothing_is_left_untold(void **state) {
    (void)state;
    for (int k = 0; k < count; k++) {
        const struct layer_ops *l = kinds[k];
        struct layer_fact facts[LAYER_FACTS];
        const char *name = l->section.name;
        int n;
        assert_ok(layer_tell(l, pool, facts, &n));
        assert_true(n >= 5 && n < LAYER_FACTS);
        assert_string_equal(facts[0].name, "shape");
        assert_non_null(l->formula);
        assert_non_null(l->section.also);
        assert_non_null(strstr(l->example, name));
        if (strlen(l->section.help) < 15 || strchr(l->section.help, '|')) fail_msg("%s: '%s'", name, l->section.help);
        for (const struct config_field *f = l->section.fields; f->key; f++) {
            if (!f->help || strlen(f->help) < 5) fail_msg("%s.%s has no help", name, f->key);
            if (f->required && f->standard) fail_msg("%s.%s is required and has a default", name, f->key);
        }
    }
}

static const char *told(const char *name, const char *fact) {
    static struct layer_fact facts[LAYER_FACTS];
    int n;
    assert_ok(layer_tell(layer_find(name), pool, facts, &n));
    for (int i = 0; i < n; i++)
        if (!strcmp(facts[i].name, fact)) return facts[i].text;
    fail_msg("%s has no '%s'", name, fact);
    return NULL;
}

static void facts_are_computed(void **state) {
    struct layer_fact facts[LAYER_FACTS];
    int n;
    (void)state;
    assert_string_equal(told("linear", "shape"), "features (F) -> (units)");
    assert_string_equal(told("batchnorm", "PyTorch"), "torch.nn.BatchNorm2d, torch.nn.BatchNorm1d");
    assert_ok(layer_tell(layer_find("conv2d"), pool, facts, &n));
    assert_string_equal(facts[n - 1].text, "3x32x32 -> 16x32x32; learns weight 16x3x3x3, bias 16");
    assert_ok(layer_tell(layer_find("maxpool"), pool, facts, &n));
    assert_string_equal(facts[n - 1].text, "64x112x112 -> 64x56x56");
}

static void layers_are_found_by_pytorchs_names(void **state) {
    (void)state;
    static const struct {
        const char *name, *layer;
    } names[] = {{"conv2d", "conv2d"},
                 {"Conv2d", "conv2d"},
                 {"nn.Linear", "linear"},
                 {"torch.nn.ReLU", "relu"},
                 {"BatchNorm1d", "batchnorm"},
                 {"LeakyReLU", "leaky_relu"},
                 {"AdaptiveAvgPool2d", "meanpool"},
                 {"MultiheadAttention", "attention"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct layer_ops *found = layer_find(names[i].name);
        if (!found || strcmp(found->section.name, names[i].layer)) fail_msg("%s is not found", names[i].name);
    }
    assert_null(layer_find("conv"));
    assert_null(layer_find(""));
    assert_null(layer_find("nn."));
}

static int set_up(void **state) {
    (void)state;
    kinds = layer_kinds(&count);
    return pool_create(&pool) != ERR_NONE;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_those_of_the_plans),
        cmocka_unit_test(nothing_is_left_untold),
        cmocka_unit_test(facts_are_computed),
        cmocka_unit_test(layers_are_found_by_pytorchs_names),
    };
    return cmocka_run_group_tests_name("layer tables", tests, set_up, tear_down);
}
