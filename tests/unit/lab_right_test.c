/* validation.safetensors read back, and that nothing else is believed. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/save/checkpoint.h"
#include "lab/compare/right.h"

#include <stdio.h>
#include <unistd.h>

static const char *dir;
static char path[512];
static struct pool *pool;
static uint8_t right[6] = {1, 0, 1, 1, 0, 0};
static const struct st_tensor standard = {
    .name = "right", .dtype = "BOOL", .ndim = 1, .dim = {6}, .data = right, .bytes = sizeof right};

static int set_up(void **state) {
    (void)state;
    dir = scratch_folder();
    snprintf(path, sizeof path, "%s/validation.safetensors", dir);
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static enum error written(const struct st_tensor *t, const char *data, const char *step, struct right *out) {
    const char *const facts[][2] = {{"data", data}, {"step", step}, {NULL}};
    uint32_t crc;
    int64_t bytes;
    unlink(path);
    assert_ok(st_write(path, t, 1, facts, &crc, &bytes));
    return right_read(dir, pool, out);
}

static void is_read_back(void **state) {
    (void)state;
    struct right r;
    assert_fails(ERR_INPUT, right_read(dir, pool, &r));
    assert_ok(written(&standard, "00c0ffee", "9223372036854775807", &r));
    assert_true(r.samples == 6 && r.step == INT64_MAX && r.data == 0xc0ffee);
    assert_memory_equal(r.is, right, 6);
    assert_string_equal(r.dir, dir);
}

static void others_are_refused(void **state) {
    (void)state;
    struct right r;
    static uint8_t odd[6] = {1, 0, 2, 1, 0, 0};
    struct st_tensor t[6];
    for (int i = 0; i < 6; i++) t[i] = standard;
    t[0].name = "left";
    t[1].dtype = "U8";
    t[2].ndim = 2, t[2].dim[0] = 2, t[2].dim[1] = 3;
    t[3].dim[0] = 0, t[3].bytes = 0;
    t[4].data = odd;
    t[5].ndim = 0, t[5].bytes = 1;
    for (int i = 0; i < 6; i++) assert_fails(ERR_DATA, written(&t[i], "00c0ffee", "1", &r));
    static const char *const facts[][2] = {{"00c0ffe", "1"},  {"00c0ffeg", "1"},  {"", "1"},
                                           {"00c0ffee", ""},  {"00c0ffee", "-1"}, {"00c0ffee", "9223372036854775808"},
                                           {"00c0ffee", "1 "}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        assert_fails(ERR_DATA, written(&standard, facts[i][0], facts[i][1], &r));
}

/* Any byte that differs is noticed, and so is any that lacks. */
static void damage_is_noticed(void **state) {
    (void)state;
    struct right r;
    char *text;
    size_t n;
    assert_ok(written(&standard, "00c0ffee", "1", &r));
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    for (size_t i = 0; i < 6; i++) {
        text[n - 6 + i] ^= 1;
        assert_ok(file_replace(path, text, n));
        assert_fails(ERR_DATA, right_read(dir, pool, &r));
        text[n - 6 + i] ^= 1;
    }
    for (size_t cut = 0; cut < n; cut += cut < 16 ? 1 : 7) {
        assert_ok(file_replace(path, text, cut));
        assert_fails(ERR_DATA, right_read(dir, pool, &r));
    }
    assert_ok(file_replace(path, text, n));
    assert_ok(right_read(dir, pool, &r));
}

static void counts(void **state) {
    (void)state;
    static uint8_t other[6] = {1, 1, 0, 0, 1, 0};
    struct right a, b;
    struct right_counts c;
    struct st_tensor t = standard;
    assert_ok(written(&standard, "00c0ffee", "1", &a));
    t.data = other;
    assert_ok(written(&t, "00c0ffee", "2", &b));
    assert_ok(right_compare(&a, &b, &c));
    assert_true(c.samples == 6 && c.both == 1 && c.first == 2 && c.second == 2);
    assert_ok(written(&t, "00c0ffef", "2", &b));
    assert_fails(ERR_DATA, right_compare(&a, &b, &c));
    t.dim[0] = 5, t.bytes = 5;
    assert_ok(written(&t, "00c0ffee", "2", &b));
    assert_fails(ERR_DATA, right_compare(&a, &b, &c));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_read_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(others_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("right samples read back", tests, NULL, NULL);
}
