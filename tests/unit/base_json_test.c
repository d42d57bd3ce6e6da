/* JSON: what is written is read back; what is not JSON, or beyond a limit, is refused with its
 * place. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct json_limits wide = {.depth = 8, .entries = 1000, .text = 200};
static struct pool *pool;

static int setup(void **state) {
    (void)state;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static enum error parse(const char *text, const struct json_value **out) {
    return json_parse(text, strlen(text), wide, pool, out);
}

static const struct json_value *parsed(const char *text) {
    const struct json_value *v = NULL;
    assert_ok(parse(text, &v));
    return v;
}

static void test_writer(void **state) {
    (void)state;
    struct json j = {0};
    assert_null(j.text);
    json_open(&j, NULL, '{');
    json_string(&j, "a", "x\"\\\n\t\x01/\xC3\xA9");
    json_string(&j, "none", NULL);
    json_open(&j, "list", '[');
    json_int(&j, NULL, INT64_MIN);
    json_real(&j, NULL, 0.1);
    json_real(&j, NULL, 1.0 / 0.0);
    json_bool(&j, NULL, true);
    json_open(&j, NULL, '{');
    json_close(&j, '}');
    json_close(&j, ']');
    json_string(&j, "bad utf8", "a\xFFz");
    json_object(&j, "of", JSON_TEXT("text", NULL), JSON_INT("whole", -3), JSON_REAL("real", 0.5),
                JSON_BOOL("truth", true));
    json_put(&j, JSON_INT("last", 1));
    json_close(&j, '}');
    assert_ok(json_done(&j));
    assert_string_equal(j.text, "{\"a\":\"x\\\"\\\\\\n\\t\\u0001/\xC3\xA9\",\"none\":null,"
                                "\"list\":[-9223372036854775808,0.1,null,true,{}],"
                                "\"bad utf8\":\"a\xEF\xBF\xBDz\",\"of\":{\"text\":null,\"whole\":-3,"
                                "\"real\":0.5,\"truth\":true},\"last\":1}");
    assert_int_equal(j.length, strlen(j.text));
    const struct json_value *v = parsed(j.text);
    assert_string_equal(json_get(v, "a")->text, "x\"\\\n\t\x01/\xC3\xA9");
    json_fini(&j);
}

static void test_reader(void **state) {
    (void)state;
    const struct json_value *v =
        parsed(" {\"i\" : -12, \"r\":1.5e3,\"big\":99999999999999999999,\"t\":true ,\"f\":false,"
               "\"n\":null,\"s\":\"\\u00e9\\ud83d\\ude00\\/\\b\",\"a\":[1,[2,3],{}], \"e\":[ ]}\r\n\t ");
    assert_int_equal(v->kind, JSON_OBJECT);
    assert_int_equal(v->count, 9);
    assert_true(json_get(v, "i")->is_integer);
    assert_int_equal(json_get(v, "i")->integer, -12);
    assert_false(json_get(v, "r")->is_integer);
    assert_true(json_get(v, "r")->number == 1500.0);
    assert_false(json_get(v, "big")->is_integer);
    assert_string_equal(json_get(v, "big")->text, "99999999999999999999");
    assert_true(json_get(v, "t")->truth);
    assert_false(json_get(v, "f")->truth);
    assert_int_equal(json_get(v, "n")->kind, JSON_NULL);
    assert_string_equal(json_get(v, "s")->text, "\xC3\xA9\xF0\x9F\x98\x80/\b");
    const struct json_value *a = json_get(v, "a");
    assert_int_equal(a->count, 3);
    assert_int_equal(a->children[1].children[1].integer, 3);
    assert_int_equal(json_get(v, "e")->count, 0);
    assert_null(json_get(v, "missing"));
    assert_null(json_get(a, "i"));
    assert_null(json_get(NULL, "i"));
}

static void test_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "[1 2]",
        "1 2",
        "{} x",
        "tru",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x10",
        "1e999",
        "-1e999",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u000\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\ud800x\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\x01\"",
        "\"\n\"",
        "\"\x80\"",
        "\"\xC0\x80\"",
        "\"\xED\xA0\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xF8\x88\x80\x80\x80\"",
        "\"\xC3\"",
        "\"\xE2\x82\"",
        "'a'",
        "[1}",
        "{\"a\":1]",
        "//x\n1",
        "\xEF\xBB\xBF{}",
        "{\"a\":1,\"b\":2,\"a\":3}",
        "{\"a\":1,\"\\u0061\":2}",
        "[[[[[[[[[1]]]]]]]]]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct json_value *v = NULL;
        if (parse(bad[i], &v) != ERR_DATA) fail_msg("'%s' was accepted", bad[i]);
        assert_null(v);
        assert_non_null(strstr(error_message(), "byte"));
    }
    const struct json_value *v;
    assert_fails(ERR_DATA, json_parse("1\0", 2, wide, pool, &v));
    assert_fails(ERR_DATA, json_parse("\"\0\"", 3, wide, pool, &v));
    assert_fails(ERR_DATA, json_parse("\"\\\0\"", 4, wide, pool, &v));
    assert_fails(ERR_DATA, json_parse("\"\\u0\0", 5, wide, pool, &v));
}

static void test_limits(void **state) {
    (void)state;
    const struct json_value *v;
    struct json_limits tight = {.depth = 1, .entries = 3, .text = 2};
    assert_ok(json_parse("[1,2]", 5, tight, pool, &v));
    assert_fails(ERR_DATA, json_parse("[1,2,3]", 7, tight, pool, &v));
    assert_fails(ERR_DATA, json_parse("[[]]", 4, tight, pool, &v));
    assert_ok(json_parse("\"ab\"", 4, tight, pool, &v));
    assert_fails(ERR_DATA, json_parse("\"abc\"", 5, tight, pool, &v));
    assert_fails(ERR_DATA, json_parse("123", 3, tight, pool, &v));
    size_t n = 1000000; /* far beyond what the C stack would bear */
    char *deep = malloc(n);
    assert_non_null(deep);
    memset(deep, '[', n);
    assert_fails(ERR_DATA, json_parse(deep, n, wide, pool, &v));
    free(deep);
}

/* 100,000 keys with the last one twice: found, and not in quadratic time. */
static void test_many_keys(void **state) {
    (void)state;
    struct json j = {0};
    json_open(&j, NULL, '{');
    char key[16];
    for (int i = 0; i < 100000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        json_int(&j, key, i);
    }
    struct json_limits limits = {.depth = 1, .entries = 200000, .text = 20};
    const struct json_value *v;
    json_int(&j, "other", 1);
    json_close(&j, '}');
    assert_ok(json_parse(j.text, j.length, limits, pool, &v));
    assert_int_equal(v->count, 100001);
    j.length--;
    json_int(&j, "k77777", 1);
    json_close(&j, '}');
    assert_fails(ERR_DATA, json_parse(j.text, j.length, limits, pool, &v));
    assert_non_null(strstr(error_message(), "k77777"));
    json_fini(&j);
}

/* Every cut and every change of one byte of a document: an answer, and no crash (the sanitizers
 * look on). */
static void test_damage(void **state) {
    (void)state;
    static const char text[] = "{\"a\\u00e9\":[1,-2.5e-3,true,null,\"x\\ud83d\\ude00\"],\"b\":{\"c\":{}}}";
    const struct json_value *v;
    char *copy = malloc(sizeof text);
    assert_non_null(copy);
    for (size_t n = 0; n + 1 < sizeof text; n++) {
        char *cut = malloc(n + 1); /* its own block: a read past the end is seen */
        assert_non_null(cut);
        memcpy(cut, text, n);
        assert_fails(ERR_DATA, json_parse(cut, n, wide, pool, &v));
        free(cut);
        for (int byte = 0; byte < 256; byte++) {
            memcpy(copy, text, sizeof text);
            copy[n] = (char)byte;
            enum error err = json_parse(copy, sizeof text - 1, wide, pool, &v);
            assert_true(err == ERR_NONE || err == ERR_DATA);
        }
    }
    free(copy);
}

static void test_files_and_lenient_members(void **state) {
    (void)state;
    const struct json_limits limits = {4, 100, 100};
    const struct json_value *root;
    struct json j = {0};
    char *folder;
    assert_ok(file_make_temporary("json", pool, &folder));
    const char *path = pool_printf(pool, "%s/a.json", folder);
    json_open(&j, NULL, '{');
    json_string(&j, "text", "a");
    json_real(&j, "number", 2.5);
    json_bool(&j, "truth", true);
    json_close(&j, '}');
    assert_ok(json_save(&j, ERR_NONE, path));
    assert_null(j.text); /* it was freed */
    assert_ok(json_read(path, 100, limits, pool, &root));
    assert_string_equal(json_text(root, "text"), "a");
    assert_string_equal(json_text(root, "number"), "");
    assert_string_equal(json_text(NULL, "text"), "");
    assert_true(json_number(root, "number") == 2.5);
    assert_true(isnan(json_number(root, "text")));
    assert_true(json_truth(root, "truth"));
    assert_false(json_truth(root, "text"));
    assert_null(json_member(root, "text", JSON_NUMBER));
    assert_fails(ERR_DATA, json_read(path, 4, limits, pool, &root));
    json_open(&j, NULL, '{');
    assert_int_equal(json_save(&j, ERR_RESULT, path), ERR_RESULT); /* what was there stays */
    assert_ok(json_read(path, 100, limits, pool, &root));
    assert_ok(file_replace(path, "{\"a\":}", 6));
    assert_fails(ERR_DATA, json_read(path, 100, limits, pool, &root));
    assert_non_null(strstr(error_message(), path));
    assert_ok(file_remove_tree(folder));
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_writer),
                                       T(test_reader),
                                       T(test_refused),
                                       T(test_limits),
                                       T(test_many_keys),
                                       T(test_damage),
                                       T(test_files_and_lenient_members)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
