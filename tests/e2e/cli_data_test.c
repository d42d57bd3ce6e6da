/* engine data: list, stats, prepare, and their exit codes. */
#include "tests/harness/program.h"
#include "tests/unit/data_pictures.h"

#include "engine/base/file.h"

#include "engine/data/dataset.h"

#include <stdio.h>
#include <string.h>

static struct program p;

static void says(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no '%s' in:\n%s%s", part, p.out, p.err);
}

static void lists_every_set(void **state) {
    (void)state;
    program_run(&p, 30, "data", "list", NULL);
    assert_int_equal(p.code, 0);
    for (int i = 0; i < dataset_variants.count; i++) {
        char line[64];
        snprintf(line, sizeof line, "  %s: ", dataset_variants.at(i)->name);
        says(p.out, line);
    }
    program_run(&p, 30, "data", "--help", NULL);
    assert_int_equal(p.code, 0);
    says(p.out, "exit codes");
}

static void tells_what_is_in_a_set(void **state) {
    (void)state;
    program_run(&p, 60, "data", "stats", "digits", "--set", "data.train=300", NULL);
    assert_int_equal(p.code, 0);
    says(p.out, "300 of 1x28x28 bytes");
    says(p.out, "of the 300 read: 0:");
    says(p.out, "classes     10");
    says(p.out, "samples/s");
    program_run(&p, 60, "data", "stats", "grammar", NULL);
    assert_int_equal(p.code, 0);
    says(p.out, "8,000 of 128 tokens");
    says(p.out, "begins      \"");
}

static void names_classes(void **state) {
    (void)state;
    char path[64], folder[600];
    for (int i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "stats/%s", i % 2 ? "wide" : "größe");
        assert_ok(file_make_folders(scratch_path(path)));
        snprintf(path, sizeof path, "stats/%s/%02d.png", i % 2 ? "wide" : "größe", i);
        png_put(path, i, i % 2 ? 30 : 20, i % 2 ? 20 : 30, PNG_COLOR_TYPE_RGB, 8);
    }
    snprintf(folder, sizeof folder, "%s", scratch_path("stats"));
    program_run(&p, 60, "data", "stats", folder, "--set", "data.size=8", NULL);
    assert_int_equal(p.code, 0);
    says(p.out, "größe 9, wide 9");
    says(p.out, "first labels größe größe");
}

static void write_text(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 500; i++) fprintf(f, "line %d of a text\n", i);
    assert_int_equal(fclose(f), 0);
}

/* What it prints is a configuration that reads what it wrote. */
static void prepares_what_it_can_read(void **state) {
    (void)state;
    char source[512], folder[512], config[512], line[2048];
    snprintf(source, sizeof source, "%s", scratch_path("source.txt"));
    snprintf(folder, sizeof folder, "%s", scratch_path("prepared"));
    write_text(source);
    program_run(&p, 60, "data", "prepare", source, folder, "--set", "data.context=32", NULL);
    if (p.code) fail_msg("%s", p.err);
    snprintf(line, sizeof line, "%.2000s", p.out);
    assert_ptr_equal(strstr(line, "data: {set: tokens, "), line);
    FILE *f = fopen(scratch_path("again.yaml"), "w");
    assert_non_null(f);
    fputs(line, f);
    assert_int_equal(fclose(f), 0);
    snprintf(config, sizeof config, "%s", scratch_path("again.yaml"));
    program_run(&p, 60, "data", "stats", config, NULL);
    if (p.code) fail_msg("%s", p.err);
    says(p.out, "of 32 tokens");
    says(p.out, "begins      \"line 0 of a text");
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *words[5];
        int code;
        const char *says;
    } wrong[] = {
        {{"data", NULL}, 64, "list, stats or prepare"},
        {{"data", "lists", NULL}, 64, "lists"},
        {{"data", "list", "more", NULL}, 64, "usage"},
        {{"data", "stats", "digits", "more", NULL}, 64, "one word too many"},
        {{"data", "stats", "--what", NULL}, 64, "unknown option"},
        {{"data", "stats", "--set", NULL}, 64, "needs KEY=VALUE"},
        {{"data", "prepare", "digits", NULL}, 64, "SOURCE and FOLDER"},
        {{"data", "stats", "nonesuch", NULL}, 78, "nonesuch"},
        {{"data", "stats", "/nonesuch.txt", NULL}, 78, "/nonesuch.txt"},
        {{"data", "stats", "/nonesuch.yaml", NULL}, 66, "/nonesuch.yaml"},
        {{"data", "prepare", "spirals", "/proc/nonesuch", NULL}, 73, "/proc/nonesuch"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program_start(&p, wrong[i].words);
        assert_true(program_wait(&p, 30));
        if (p.code != wrong[i].code) fail_msg("%zu: exit code %d: %s", i, p.code, p.err);
        says(p.err, wrong[i].says);
        assert_string_equal(p.out, "");
    }
}

/* Files that are not what they should be: exit code 65, and what and where. */
static void names_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *name, *bytes, *says;
    } wrong[] = {
        {"latin.txt", "caf\xe9 au lait, caf\xe9 noir", "byte 4"},
        {"short.txt", "too short", "windows"},
        {"data_batch_1.bin", "no record", "not a multiple of records"},
        {"odd.bin", "\1\2\3", "not a multiple of tokens"},
        {"x.npy", "\x93NUMPZ and more", "not a .npy file"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *path = scratch_path(wrong[i].name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(wrong[i].bytes, f);
        assert_int_equal(fclose(f), 0);
        bool pair = strstr(wrong[i].name, ".npy") != NULL;
        char labels[600];
        snprintf(labels, sizeof labels, "data.labels=%s", path);
        program_run(&p, 30, "data", "stats", path, pair ? "--set" : NULL, labels, NULL);
        if (p.code != 65) fail_msg("%s: exit code %d: %s", wrong[i].name, p.code, p.err);
        says(p.err, wrong[i].says);
        says(p.err, wrong[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_every_set), cmocka_unit_test(tells_what_is_in_a_set),
        cmocka_unit_test(names_classes),   cmocka_unit_test(prepares_what_it_can_read),
        cmocka_unit_test(refuses),         cmocka_unit_test(names_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
