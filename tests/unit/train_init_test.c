/* First weights from a file: every float type, what is said of tensors that do not fit, and what
 * 'strict: false' takes. */
#include "tests/unit/model_fixture.h"

#include "engine/save/init.h"

#include <math.h>
#include <unistd.h>

static struct model *m;
static float values[512], buffers[64];
static const struct node place = {.kind = NODE_SCALAR, .text = "file", .source = "test"};

static int setup(void **state) {
    (void)state;
    m = model_make("{layers: [{linear: {units: 2, name: a}}, {batchnorm: {name: n}}, "
                   "{linear: {units: 3, name: b}}]}",
                   (struct shape){1, {2}});
    assert_true(m->arena_floats <= 512 && m->buffer_floats <= 64);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    model_free(m);
    return 0;
}

static struct st_tensor tensor(const char *name, const char *dtype, int64_t rows, int64_t cols, const void *data,
                               size_t size) {
    return (struct st_tensor){.name = name,
                              .dtype = dtype,
                              .ndim = cols ? 2 : 1,
                              .dim = {rows, cols},
                              .data = (void *)(uintptr_t)data,
                              .bytes = (size_t)(rows * (cols ? cols : 1)) * size};
}

static const float ones[6] = {1, 2, 3, 4, 5, 6};
static const double wide[4] = {0.5, -1.25, 3e38, 1e-3};
static const uint16_t half[3] = {0x3C00, 0xC100, 0x0001}; /* 1, -2.5, 2^-24 */
static const uint16_t brain[2] = {0x3F80, 0xC020};        /* 1, -2.5 */
static const int64_t counter[1] = {7};

/* All that the model needs, in four types, and a counter of PyTorch's. */
static int whole_file(struct st_tensor out[16]) {
    int n = 0;
    out[n++] = tensor("a.weight", "F64", 2, 2, wide, 8);
    out[n++] = tensor("a.bias", "BF16", 2, 0, brain, 2);
    out[n++] = tensor("n.weight", "F32", 2, 0, ones, 4);
    out[n++] = tensor("n.bias", "F32", 2, 0, ones + 2, 4);
    out[n++] = tensor("n.running_mean", "F32", 2, 0, ones + 3, 4);
    out[n++] = tensor("n.running_var", "F32", 2, 0, ones + 4, 4);
    out[n++] = tensor("n.num_batches_tracked", "I64", 1, 0, counter, 8);
    out[n++] = tensor("b.weight", "F32", 3, 2, ones, 4);
    out[n++] = tensor("b.bias", "F16", 3, 0, half, 2);
    return n;
}

static struct init_source source(const struct st_tensor *tensors, int count, bool strict) {
    const char *path = scratch_path("weights.safetensors");
    uint32_t crc;
    int64_t bytes;
    unlink(path);
    assert_ok(st_write(path, tensors, count, NULL, &crc, &bytes));
    return (struct init_source){path, strict, &place};
}

static const float *at(const char *name) {
    for (int i = 0; i < m->nparams; i++)
        if (!strcmp(m->params[i].name, name)) return values + m->params[i].offset;
    for (int i = 0; i < m->nbuffers; i++)
        if (!strcmp(m->buffers[i].name, name)) return buffers + m->buffers[i].offset;
    fail_msg("no tensor %s", name);
    return NULL;
}

static char report[8192];

static enum error check(const struct init_source *s) {
    struct pool *pool;
    struct config_errors *e;
    assert_ok(pool_create(&pool));
    assert_ok(config_errors_create(&e));
    enum error err = init_check(s, m, e);
    snprintf(report, sizeof report, "%s", config_errors_text(e, pool));
    assert_int_equal(config_errors_count(e) > 0, err == ERR_CONFIG);
    config_errors_free(e);
    pool_free(pool);
    return err;
}

static void assert_said(const char *text) {
    if (!strstr(report, text)) fail_msg("expected '%s' in: %s", text, report);
}

static void test_types_are_converted(void **state) {
    (void)state;
    struct st_tensor t[16];
    struct init_source s = source(t, whole_file(t), true);
    assert_ok(check(&s));
    model_init(m, NULL, 1, values, buffers);
    assert_ok(init_load(&s, m, values, buffers));
    const float *v = at("a.weight");
    assert_true(v[0] == 0.5f && v[1] == -1.25f && v[2] == 3e38f && v[3] == 1e-3f);
    v = at("a.bias");
    assert_true(v[0] == 1 && v[1] == -2.5f);
    v = at("b.bias");
    assert_true(v[0] == 1 && v[1] == -2.5f && v[2] == ldexpf(1, -24));
    assert_memory_equal(at("b.weight"), ones, sizeof ones);
    assert_true(at("n.running_mean")[1] == 5 && at("n.running_var")[1] == 6);
}

static void test_what_does_not_fit_is_listed(void **state) {
    (void)state;
    struct st_tensor t[16];
    int n = whole_file(t);
    t[0].name = "module.a.weight";
    t[2].name = "n.wieght";
    t[7].dim[0] = 2, t[7].bytes = 16;
    t[n++] = tensor("head.bias", "F32", 2, 0, ones, 4);
    struct init_source s = source(t, n, true);
    assert_fails(ERR_CONFIG, check(&s));
    assert_said("'a.weight' (2x2) is missing there");
    assert_said("the file has 'module.a.weight'");
    assert_said("the file has 'n.wieght'");
    assert_said("'b.weight' is F32 2x2 there, and 3x2 in this model");
    assert_said("the file has 'head.bias', but this model has no such tensor");
    assert_said("'strict: false' beside init");
    model_init(m, NULL, 1, values, buffers);
    assert_fails(ERR_CONFIG, init_load(&s, m, values, buffers));
    s.strict = false;
    assert_ok(check(&s));
    float first = at("a.weight")[0];
    assert_ok(init_load(&s, m, values, buffers));
    assert_true(at("a.weight")[0] == first);
    assert_true(at("n.bias")[0] == 3 && at("b.bias")[1] == -2.5f);
}

/* All names behind one prefix, whatever it is, with tensors beside them that are not. */
static void test_a_common_prefix_is_taken_off(void **state) {
    (void)state;
    static const char *const prefixes[] = {"transformer.", "module.", "module.model.", "_orig_mod."};
    for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++) {
        struct st_tensor t[16];
        char names[16][64];
        int n = whole_file(t);
        for (int i = 0; i < n; i++) {
            snprintf(names[i], sizeof names[i], "%s%s", prefixes[k], t[i].name);
            t[i].name = names[i];
        }
        struct init_source s = source(t, n, true);
        assert_ok(check(&s));
        model_init(m, NULL, 1, values, buffers);
        assert_ok(init_load(&s, m, values, buffers));
        assert_memory_equal(at("b.weight"), ones, sizeof ones);
        assert_true(at("n.running_mean")[1] == 5);
        t[n++] = tensor("lm_head.weight", "F32", 2, 0, ones, 4);
        s = source(t, n, true);
        assert_fails(ERR_CONFIG, check(&s));
        assert_said("the file has 'lm_head.weight', but this model has no such tensor");
        t[n - 1].name = "b.bias"; /* which of the two is meant? */
        s = source(t, n, true);
        assert_fails(ERR_CONFIG, check(&s));
        assert_said("b.bias', but this model has no such tensor");
    }
}

static void test_nothing_fits(void **state) {
    (void)state;
    struct st_tensor t[] = {tensor("other", "F32", 2, 0, ones, 4)};
    struct init_source s = source(t, 1, false);
    assert_fails(ERR_CONFIG, check(&s));
    assert_said("no tensor of");
    assert_fails(ERR_CONFIG, init_load(&s, m, values, buffers));
    t[0] = tensor("a.bias", "I32", 2, 0, ones, 4);
    s = source(t, 1, false);
    assert_fails(ERR_CONFIG, check(&s)); /* whole numbers are no weights */
}

static void test_bad_files(void **state) {
    (void)state;
    static const double huge[4] = {1e39};
    struct st_tensor t[16];
    int n = whole_file(t);
    t[0].data = (void *)(uintptr_t)huge;
    struct init_source s = source(t, n, true);
    assert_ok(check(&s));
    assert_fails(ERR_DATA, init_load(&s, m, values, buffers));
    s.path = "/no/such/file.safetensors";
    assert_fails(ERR_INPUT, check(&s));
    s.path = scratch_path("short.safetensors");
    FILE *f = fopen(s.path, "w");
    assert_non_null(f);
    fputs("no safetensors", f);
    fclose(f);
    assert_fails(ERR_DATA, check(&s));
    s.path = scratch_folder();
    assert_fails(ERR_INPUT, check(&s));
    s.path = NULL;
    assert_ok(check(&s));
    assert_ok(init_load(&s, m, values, buffers));
}

static void read_keys(const char *text, const char *path, const char *said) {
    struct pool *pool;
    struct config_errors *e;
    struct node *root;
    struct init_source s;
    assert_ok(pool_create(&pool));
    assert_ok(config_errors_create(&e));
    assert_ok(tree_parse(text, strlen(text), "folder/run.yaml", pool, e, &root));
    struct node *model = node_get(root, "model");
    assert_ok(init_read(model, pool, e, &s));
    if (path) assert_string_equal(s.path, path);
    const char *all = config_errors_text(e, pool);
    if (said && !strstr(all, said)) fail_msg("%s: expected '%s' in: %s", text, said, all);
    assert_int_equal(config_errors_count(e), said != NULL);
    const struct node *bare = init_strip(model, pool);
    assert_null(node_get(bare, "init"));
    assert_null(node_get(bare, "strict"));
    config_errors_free(e);
    pool_free(pool);
}

static void test_keys(void **state) {
    (void)state;
    char here[4096], there[4200];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(there, sizeof there, "%s/folder/w.safetensors", here);
    read_keys("model: {zoo: mlp, init: w.safetensors}", there, NULL);
    read_keys("model: {zoo: mlp, init: /a/w, strict: false}", "/a/w", NULL);
    read_keys("model: lenet", NULL, NULL);
    read_keys("model: {zoo: mlp, init: [a]}", NULL, "must be a path");
    read_keys("model: {zoo: mlp, init: w, strict: maybe}", NULL, "true or false");
    read_keys("model: {zoo: mlp, strict: true}", NULL, "is not given");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_are_converted),
        cmocka_unit_test(test_what_does_not_fit_is_listed),
        cmocka_unit_test(test_a_common_prefix_is_taken_off),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
