/* Groups of tensors with keys of their own, and frozen ones: patterns, what is refused, and that each tensor steps by
 * its group's numbers. */
#include "tests/harness/harness.h"

#include "engine/optim/groups.h"

#include <stdio.h>
#include <string.h>

static struct pool *pool;

static int setup(void **unused) {
    (void)unused;
    return pool_create(&pool) != ERR_NONE;
}

static int teardown(void **unused) {
    (void)unused;
    pool_free(pool);
    return 0;
}

static void patterns(void **unused) {
    (void)unused;
    static const struct {
        const char *pattern, *name;
        bool fits;
    } cases[] = {
        {"fc1.bias", "fc1.bias", true},
        {"fc1.bias", "fc1.bias2", false},
        {"fc1.bia", "fc1.bias", false},
        {"*.bias", "h.0.attn.bias", true},
        {"*.bias", "bias", false},
        {"*", "wte", true},
        {"*", "", true},
        {"", "", true},
        {"", "a", false},
        {"h.?.*", "h.0.mlp.weight", true},
        {"h.?.*", "h.10.mlp.weight", false},
        {"h.*.weight", "h.0.weight.weight", true}, /* the first '*' has to take more than it did at first */
        {"h.*.weight", "h.0.weight.bias", false},
        {"**a*b**", "xxaxxb", true},
        {"a*a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"[a-c]", "b", false}, /* no other characters mean anything */
        {"fc?", "fc", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (optim_pattern_matches(cases[i].pattern, cases[i].name) != cases[i].fits)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].name);
}

/* ---- reading ---- */

struct read {
    struct config_variant optimizer;
    struct optim_groups groups;
    struct config_errors *e;
};

static const struct optim_ops *ops_of(const struct read *r) {
    int n;
    return optim_kinds(&n)[r->optimizer.index];
}

/* yaml: the optimizer's own keys, with 'groups' and 'freeze' beside them. */
static void read_all(const char *name, const char *yaml, struct read *r) {
    struct node *root;
    int n, kept = 0;
    const struct optim_ops *const *kinds = optim_kinds(&n);
    *r = (struct read){0};
    while (strcmp(kinds[r->optimizer.index]->section.name, name) != 0) r->optimizer.index++;
    assert_ok(config_errors_create(&r->e));
    assert_ok(tree_parse(yaml, strlen(yaml), "test.yaml", pool, r->e, &root));
    struct node *groups = node_get(root, "groups"), *freeze = node_get(root, "freeze");
    for (int i = 0; i < root->count; i++)
        if (root->items[i] != groups && root->items[i] != freeze) root->items[kept++] = root->items[i];
    root->count = kept;
    const struct optim_ops *ops = ops_of(r);
    r->optimizer.node = root;
    r->optimizer.config = pool_alloc(pool, ops->section.size);
    assert_ok(config_read(&ops->section, root, pool, r->e, r->optimizer.config));
    assert_ok(optim_groups_read(&r->optimizer, groups, freeze, pool, r->e, &r->groups));
}

static const char *const names[] = {"conv1.weight", "conv1.bias", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
enum { NAMES = sizeof names / sizeof *names };

static void refused(const char *name, const char *yaml, const char *words) {
    struct read r;
    int group[NAMES], frozen[NAMES];
    read_all(name, yaml, &r);
    if (!config_errors_count(r.e)) optim_groups_match(&r.groups, names, NAMES, group, frozen, r.e);
    const char *text = config_errors_text(r.e, pool);
    if (!config_errors_count(r.e) || !strstr(text, words)) fail_msg("%s: '%s' is not in: %s", yaml, words, text);
    config_errors_free(r.e);
}

static void what_is_wrong_is_told(void **unused) {
    (void)unused;
    refused("sgd", "groups: 3", "must be a list of groups");
    refused("sgd", "groups: [{lr: 1}]", "must say which tensors it is of");
    refused("sgd", "groups: [fc1]", "must say which tensors it is of");
    refused("sgd", "groups: [{match: {a: b}}]", "must be names of tensors");
    refused("sgd", "groups: [{match: [a, [b]]}]", "must be names of tensors");
    refused("sgd", "groups: [{match: \"\"}]", "must be names of tensors");
    refused("sgd", "groups: [{match: fc1.bias, lr: -1}]", "'lr' must be");
    refused("sgd", "groups: [{match: fc1.bias, weigth_decay: 0}]", "did you mean 'weight_decay'");
    refused("sgd", "groups: [{match: fc1.bias, betas: [0, 0]}]", "unknown key 'betas'");
    refused("sgd", "groups: [{match: fc1.bias, clip: 1}]", "'clip' is of all weights");
    refused("sgd", "groups: [{match: fc1.bias, name: adam}]", "'name' is of all weights");
    refused("sgd", "groups: [{match: fc1.bias, momentum: 0.9}]", "all groups step by one formula");
    refused("sgd", "{momentum: 0.9, groups: [{match: fc1.bias, nesterov: true}]}", "all groups step by one formula");
    refused("adamw", "groups: [{match: fc1.bias, betas: [0.9]}]", "betas must be two numbers");
    refused("sgd", "groups: [{match: fc1.bais, lr: 1}]", "did you mean 'fc1.bias'");
    refused("sgd", "groups: [{match: \"cnv1.*\", lr: 1}]", "did you mean 'conv1.weight'");
    refused("sgd", "groups: [{match: [fc1.bias, \"decoder.*\"], lr: 1}]", "there are conv1.weight, conv1.bias");
    refused("sgd", "freeze: [\"layer9.*\"]", "no tensor of the model is named 'layer9.*'");
    refused("sgd", "freeze: \"*\"", "leaves nothing to train");
    refused("sgd", "freeze: {a: b}", "must be names of tensors");
}

static void the_first_group_takes_a_tensor(void **unused) {
    (void)unused;
    struct read r;
    int group[NAMES], frozen[NAMES];
    static const int groups[NAMES] = {0, 2, 1, 1, 0, 2}, stay[NAMES] = {1, 1, 0, 0, 0, 1};
    read_all("sgd",
             "{groups: [{match: \"fc1.*\", lr: 1}, {match: [\"*.bias\"], lr: 2}], freeze: [\"conv1.*\", fc2.bias]}",
             &r);
    optim_groups_match(&r.groups, names, NAMES, group, frozen, r.e);
    assert_int_equal(config_errors_count(r.e), 0);
    assert_memory_equal(group, groups, sizeof group);
    assert_memory_equal(frozen, stay, sizeof frozen);
    config_errors_free(r.e);
}

/* ---- the numbers ---- */

/* A step of a span of a group has the bits that an optimizer of these keys alone would give. */
static void check_numbers(const char *name, const char *own, const char *more) {
    char yaml[512], alone[512];
    struct read r, one;
    snprintf(yaml, sizeof yaml, "{%s, groups: [{match: x, %s}, {match: y}]}", own, more);
    snprintf(alone, sizeof alone, "{%s}", more);
    read_all(name, yaml, &r);
    read_all(name, alone, &one);
    assert_int_equal(config_errors_count(r.e) + config_errors_count(one.e), 0);
    assert_int_equal(r.groups.count, 3);
    struct rule many, single, base;
    const struct optim_step s = {.lr = 0.1f, .scale = 0.5f, .t = 3};
    optim_rule(ops_of(&r), r.groups.of[0].config, &s, &many);
    for (int k = 1; k < 3; k++) optim_rule_group(ops_of(&r), r.groups.of[k].config, &s, k, &many);
    optim_rule(ops_of(&r), one.optimizer.config, &s, &single);
    optim_rule(ops_of(&r), r.optimizer.config, &s, &base);
    for (int matrix = 0; matrix < 2; matrix++) {
        assert_memory_equal(many.number[optim_kind(0, matrix)], base.number[matrix], sizeof *base.number);
        assert_memory_equal(many.number[optim_kind(1, matrix)], single.number[matrix], sizeof *base.number);
        assert_memory_equal(many.number[optim_kind(2, matrix)], base.number[matrix], sizeof *base.number);
        assert_int_equal(many.adapts[optim_kind(1, matrix)], single.adapts[matrix]);
    }
    config_errors_free(r.e);
    config_errors_free(one.e);
}

static void a_group_has_its_own_numbers(void **unused) {
    (void)unused;
    check_numbers("sgd", "momentum: 0.9", "momentum: 0.5, weight_decay: 0.25");
    check_numbers("adam", "weight_decay: 0.5", "weight_decay: 0.25, betas: [0.5, 0.75], eps: 1e-3");
    check_numbers("adamw", "weight_decay: 0.5", "weight_decay: 0.25, betas: [0.5, 0.75], eps: 1e-3");
    check_numbers("lion", "weight_decay: 0.5", "weight_decay: 0.25, betas: [0.5, 0.75]");
    check_numbers("lars", "weight_decay: 0.5", "weight_decay: 0.25, adapt: all, decay: all, momentum: 0.5");
    check_numbers("lamb", "weight_decay: 0.5", "weight_decay: 0.25, adapt: all, decay: all");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(what_is_wrong_is_told),
        cmocka_unit_test(the_first_group_takes_a_tensor),
        cmocka_unit_test(a_group_has_its_own_numbers),
    };
    return cmocka_run_group_tests_name("optimizer groups", tests, setup, teardown);
}
