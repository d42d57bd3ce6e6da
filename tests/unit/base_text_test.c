/* Numbers with units, nearest names, figures for people. */
#include "tests/harness/harness.h"

#include "engine/base/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void ints(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-0", 0},
                {"7", 7},
                {"-12", -12},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      "010",
                                      "00",
                                      "-01",
                                      "0x10",
                                      "1 ",
                                      " 1",
                                      "1.0",
                                      "1e3",
                                      "1_000",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "ten",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < COUNT(good); i++) {
        int64_t v = -99;
        assert_true(text_int(good[i].text, &v));
        assert_int_equal(v, good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t v = -99;
        if (text_int(bad[i], &v)) fail_msg("'%s' read as %lld", bad[i], (long long)v);
        assert_int_equal(v, -99);
    }
}

static void reals(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0.1", 0.1},  {"5e-4", 5e-4}, {"-2", -2},     {".5", 0.5},  {"3.", 3},
                {"1E+2", 100}, {"0", 0},       {"0.010", .01}, {"1e-400", 0}};
    static const char *const bad[] = {"",     ".",  "-",  "nan", "inf",  "-inf",  "0x1p3", "1e999", "1e", "1e+",
                                      "+1.0", " 1", "1 ", "1,5", "01.5", "1.2.3", "fast",  "--1",   "1f", "e5"};
    for (size_t i = 0; i < COUNT(good); i++) {
        double v = -99;
        assert_true(text_real(good[i].text, &v));
        assert_true(v == good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        double v = -99;
        if (text_real(bad[i], &v)) fail_msg("'%s' read as %g", bad[i], v);
        assert_true(v == -99);
    }
}

static void bytes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"512", 512},
                {"512B", 512},
                {"64KB", 64 << 10},
                {"64K", 64 << 10},
                {"64KiB", 64 << 10},
                {"25MB", 25 << 20},
                {"1GiB", 1 << 30},
                {"0", 0},
                {"8589934591G", 8589934591 << 30}};
    static const char *const bad[] = {"",
                                      "MB",
                                      "-1MB",
                                      "1.5MB",
                                      "25mb",
                                      "25 MB",
                                      "25MBs",
                                      "1T",
                                      "1i",
                                      "01K",
                                      "1Bi",
                                      "8589934592G",
                                      "9223372036854775808"};
    for (size_t i = 0; i < COUNT(good); i++) {
        int64_t v = -99;
        if (!text_bytes(good[i].text, &v)) fail_msg("'%s' refused", good[i].text);
        assert_int_equal(v, good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t v;
        if (text_bytes(bad[i], &v)) fail_msg("'%s' read as %lld", bad[i], (long long)v);
    }
}

static void seconds(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"10s", 10}, {"250ms", .25}, {"2m", 120},     {"1h", 3600},
                {"3", 3},    {"1.5h", 5400}, {"50us", 50e-6}, {"1e3ms", 1}};
    static const char *const bad[] = {"", "s", "-1s", "10sec", "10 s", "1d", "nan", "inf", "1e308h", "0x1s"};
    for (size_t i = 0; i < COUNT(good); i++) {
        double v = -99;
        if (!text_seconds(good[i].text, &v)) fail_msg("'%s' refused", good[i].text);
        assert_true(fabs(v - good[i].value) < 1e-12);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        double v;
        if (text_seconds(bad[i], &v)) fail_msg("'%s' read as %g", bad[i], v);
    }
}

static void rates(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1Gbit", 125e6},   {"100Mbit/s", 12.5e6}, {"250MB", 250e6}, {"0", 0},
                {"1.5GB/s", 1.5e9}, {"8bit", 1},           {"7", 7}};
    static const char *const bad[] = {"",       "Gbit",    "-1Gbit",  "1gbit", "1Gbits",
                                      "1 Gbit", "1Gbit/m", "1e308GB", "1G",    "infGbit"};
    for (size_t i = 0; i < COUNT(good); i++) {
        double v = -99;
        if (!text_rate(good[i].text, &v)) fail_msg("'%s' refused", good[i].text);
        assert_true(fabs(v - good[i].value) <= 1e-12 * good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        double v;
        if (text_rate(bad[i], &v)) fail_msg("'%s' read as %g", bad[i], v);
    }
}

static void nearest(void **state) {
    (void)state;
    static const char *const names[] = {"momentum", "lr", "nesterov", "sgd", "adam", "adamw"};
    static const struct {
        const char *name, *nearest;
    } cases[] = {{"momentun", "momentum"}, {"sdg", "sgd"},   {"SGD", "sgd"},     {"adaam", "adam"},   {"adaim", "adam"},
                 {"nestrov", "nesterov"},  {"x", NULL},      {"", NULL},         {"zebra", NULL},     {"lrr", "lr"},
                 {"mometnum", "momentum"}, {"adma", "adam"}, {"adawm", "adamw"}, {"Mom", "momentum"}, {"mo", NULL},
                 {"ada", "adam"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *got = text_nearest(cases[i].name, names, (int)COUNT(names));
        const char *want = cases[i].nearest;
        if ((got == NULL) != (want == NULL) || (got && strcmp(got, want) != 0))
            fail_msg("'%s': got %s, not %s", cases[i].name, got ? got : "none", want ? want : "none");
    }
    char longest[100000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(text_nearest(longest, names, (int)COUNT(names)));
    assert_null(text_nearest("sgd", names, 0));
}

static void figures(void **state) {
    (void)state;
    char out[32];
    assert_string_equal(text_of_bytes(0, out), "0 B");
    assert_string_equal(text_of_bytes(1023, out), "1023 B");
    assert_string_equal(text_of_bytes(1024, out), "1.0 KB");
    assert_string_equal(text_of_bytes(4.3 * 1048576, out), "4.3 MB");
    assert_string_equal(text_of_bytes(1048575, out), "1.0 MB");
    assert_string_equal(text_of_bytes(5e12, out), "4.5 TB");
    text_of_bytes(1.7e308, out);
    assert_string_equal(text_of_count(0, out), "0");
    assert_string_equal(text_of_count(999, out), "999");
    assert_string_equal(text_of_count(-1000, out), "-1,000");
    assert_string_equal(text_of_count(-100, out), "-100");
    assert_string_equal(text_of_count(672778, out), "672,778");
    assert_string_equal(text_of_count(INT64_MIN, out), "-9,223,372,036,854,775,808");
    assert_string_equal(text_of_seconds(12e-6, out), "12 us");
    assert_string_equal(text_of_seconds(.25, out), "250 ms");
    assert_string_equal(text_of_seconds(1.2, out), "1.2 s");
    assert_string_equal(text_of_seconds(59.99, out), "0:01:00");
    assert_string_equal(text_of_seconds(67, out), "0:01:07");
    assert_string_equal(text_of_seconds(36000, out), "10:00:00");
    assert_string_equal(text_of_seconds(NAN, out), "?");
    assert_string_equal(text_of_seconds(INFINITY, out), "?");
    assert_string_equal(text_of_rate(125e6, out), "1 Gbit/s");
    assert_string_equal(text_of_rate(1.25e9, out), "10 Gbit/s");
    assert_string_equal(text_of_rate(4e6, out), "32 Mbit/s");
}

static void nothing_steers_a_terminal(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"plain é 🙂 ☃", "", "plain é 🙂 ☃"},
        {"\x1b[31mred\x07\x7f", "", "?[31mred??"},
        {"a\tb\nc\r", "\n", "a?b\nc?"},
        {"a\nb", "", "a?b"},
        {"c1 \xc2\x9b 31m", "", "c1 ?? 31m"},
        {"raw \x9b\xff caf\xe9", "", "raw ?? caf?"},
        {"cut \xe2\x98", "", "cut ??"},
        {"", "", ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i][0]);
        assert_string_equal(text_defuse(text, cases[i][1]), cases[i][2]);
    }
    assert_fails(ERR_DATA, FAIL(ERR_DATA, "no '%s'\nhint \x1b\n.", "\x1b]0;é\x07"));
    assert_string_equal(error_message(), "no '?]0;é?'");
    assert_string_equal(error_hint(), "hint ??.");
    assert_fails(ERR_DATA, error_prefix(ERR_DATA, "%s: ", "\x1b"));
    assert_string_equal(error_message(), "?: no '?]0;é?'");
}

static void numbers_in_ranges(void **state) {
    static const int list[] = {3, 7, 8, 9, 10, 12, 13, 14, 1000, 1001};
    char out[80], small[48];
    (void)state;
    text_of_numbers(list, 0, out, sizeof out);
    assert_string_equal(out, "");
    text_of_numbers(list, 4, out, sizeof out);
    assert_string_equal(out, "3, 7, 8, 9");
    text_of_numbers(list, 10, out, sizeof out);
    assert_string_equal(out, "3, 7 to 10, 12, 13, 14, 1000, 1001");
    text_of_numbers(list, 10, small, sizeof small);
    assert_string_equal(small, "3, 7 to 10, 12, 13, ...");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_in_ranges),
        cmocka_unit_test(ints),
        cmocka_unit_test(reals),
        cmocka_unit_test(bytes),
        cmocka_unit_test(seconds),
        cmocka_unit_test(rates),
        cmocka_unit_test(nearest),
        cmocka_unit_test(figures),
        cmocka_unit_test(nothing_steers_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
