/* engine data: list, stats, check, prepare, and their exit codes; runs on data of which a part cannot be read. */
#include "tests/harness/program.h"
#include "tests/unit/data_pictures.h"

#include "engine/base/file.h"

#include "engine/data/dataset.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
        snprintf(line, sizeof line, "\n  %-8s ", dataset_variants.at(i)->name);
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
    snprintf(folder, sizeof folder, "%s", scratch_path("it's \"prepared\", {all} #1"));
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
        {{"data", NULL}, 64, "list, stats, check or prepare"},
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

/* Two classes of ten pictures; bad: of three the end is missing, or they are none, else they are not there. */
static const char *pictures_put(const char *folder, bool bad) {
    char path[64];
    static uint8_t bytes[1 << 16];
    for (int i = 0; i < 20; i++) {
        bool hit = i == 3 || i == 11 || i == 12;
        snprintf(path, sizeof path, "%s/%s", folder, i % 2 ? "wide" : "tall");
        assert_ok(file_make_folders(scratch_path(path)));
        snprintf(path, sizeof path, "%s/%s/%02d.jpg", folder, i % 2 ? "wide" : "tall", i);
        if (bad || !hit) jpeg_put(path, i, i % 2 ? 30 : 20, i % 2 ? 20 : 30, JPEG_FORM_COLOUR);
        if (!bad || !hit) continue;
        size_t n = file_get(scratch_path(path), bytes, sizeof bytes);
        file_put(path, i == 12 ? (const uint8_t *)"this is a text, and no picture" : bytes, i == 12 ? 30 : n - n / 4);
    }
    return scratch_path(folder);
}

/* Every file that cannot be read is named, whatever it lacks; a sound set is counted. */
static void checks(void **state) {
    (void)state;
    char folder[512], whole[512], tokens[512];
    snprintf(folder, sizeof folder, "%s", pictures_put("holes", true));
    snprintf(whole, sizeof whole, "%s", pictures_put("whole", false));
    program_run(&p, 60, "data", "check", folder, "--set", "data.val=4", NULL);
    assert_int_equal(p.code, 65);
    static const char *const bad[] = {"holes/wide/03.jpg: the picture is cut off or damaged\n",
                                      "holes/wide/11.jpg: the", "holes/tall/12.jpg: neither JPEG nor PNG nor WebP",
                                      "13 samples can be read", "4 samples can be read"};
    for (int i = 0; i < 5; i++) says(p.out, bad[i]);
    says(p.err, "3 of the samples cannot be read");
    says(p.err, "data.on_error: skip");
    program_run(&p, 60, "data", "check", whole, "--set", "data.val=4", NULL);
    assert_int_equal(p.code, 0);
    says(p.out, "13 samples can be read");
    snprintf(tokens, sizeof tokens, "%s", file_put("odd.bin", "\1\0\2\0\1\0\2\0\1\0\2\0\1\0\2\0\377\0\2\0\1\0", 22));
    program_run(&p, 60, "data", "check", tokens, "--set", "data.type=u16", "--set", "data.vocabulary=3", "--set",
                "data.context=2", "--set", "data.val=1", NULL);
    assert_int_equal(p.code, 65);
    says(p.err, "odd.bin: token 255 at place 8");
}

static void train_on(const char *folder, const char *mode, const char *devices, const char *on_error) {
    char data[600], named[32], kind[32], error[64];
    snprintf(data, sizeof data, "data=%s", folder);
    snprintf(named, sizeof named, "mode=%s", mode);
    snprintf(kind, sizeof kind, "devices=cpu:%s", devices);
    snprintf(error, sizeof error, "data.on_error=%s", on_error);
    program_run(&p, 120, "run", "--json", "--quiet", "--set", data, "--set", "data.size=8", "--set", "data.val=4",
                "--set", error, "--set", "model={zoo: mlp, hidden: [4]}", "--set", "batch=8", "--set", "train=4st",
                "--set", named, "--set", kind, "--set", "threads=1", "--set", "data.augment=[random_resized_crop]",
                NULL);
}

/* A run that skips names what it skips, and has the weights of a run on a folder without these files, in every mode. */
static void skips_the_same_everywhere(void **state) {
    (void)state;
    char weights[80];
    assert_int_equal(chdir(scratch_folder()), 0);
    train_on("whole", "single", "1", "stop");
    assert_int_equal(p.code, 0);
    snprintf(weights, sizeof weights, "%s", program_string(&p, "weights_sha256"));
    assert_null(strstr(p.out, "skipped"));
    static const char *const modes[][2] = {{"single", "1"}, {"dp", "2"}, {"ddp", "2"}};
    for (int i = 0; i < 3; i++) {
        train_on("holes", modes[i][0], modes[i][1], "skip");
        if (p.code) fail_msg("%s: code %d: %s", modes[i][0], p.code, p.err);
        assert_string_equal(program_string(&p, "weights_sha256"), weights);
        assert_true(program_number(&p, "skipped.samples") == 3);
        says(p.out, "holes/tall/12.jpg: neither");
        says(p.err, "3 of 20 pictures cannot be read and are skipped");
    }
    char run[512];
    snprintf(run, sizeof run, "%s", program_string(&p, "run_dir"));
    program_run(&p, 60, "eval", run, "--json", NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_true(program_number(&p, "result.samples") == 4);
    says(p.err, "3 of 20 pictures cannot be read and are skipped");
    train_on("holes", "single", "1", "stop");
    assert_int_equal(p.code, 65);
    says(p.err, "data.on_error: skip");
}

/* A network that takes no time waits for large pictures: the share is the table's, and the threads follow from it. */
static void waiting_is_explained(void **state) {
    (void)state;
    char data[600], name[64];
    double load, total = 0, share, seconds, threads;
    folder_put("large"), folder_put("large/a"), folder_put("large/b");
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "large/%c/%d.png", i % 2 ? 'a' : 'b', i);
        png_put(name, i, 1500, 1000, PNG_COLOR_TYPE_RGB, 8);
    }
    snprintf(data, sizeof data, "data={set: images, train: %s, val: 2, size: 8, workers: 1}", scratch_path("large"));
    program_run(&p, 120, "run", "--set", data, "--set", "model={zoo: mlp, hidden: [4]}", "--set", "batch=2", "--set",
                "train=20st", "--set", "mode=single", "--set", "devices=cpu:1", "--set", "eval=end", "--set",
                "checkpoint=off", NULL);
    if (p.code) fail_msg("%s", p.err);
    const char *row = strstr(p.out, "load (waiting)"), *told = strstr(p.out, "samples     steps waited");
    assert_non_null(row);
    assert_non_null(told);
    assert_int_equal(sscanf(row, "load (waiting) %lf %lf", &load, &share), 2);
    assert_int_equal(
        sscanf(told, "samples steps waited for them %lf %% of the time. Reading took %lf", &total, &seconds), 2);
    assert_float_equal(total, share, 0.6);
    told = strstr(told, "processor time: ") + strlen("processor time: ");
    if (sscanf(told, "%lf thread", &threads) == 1)
        assert_true(threads >= 1 && seconds > load / 2 - 0.1);
    else
        says(told, "the disk or other programs");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_every_set),
        cmocka_unit_test(tells_what_is_in_a_set),
        cmocka_unit_test(names_classes),
        cmocka_unit_test(prepares_what_it_can_read),
        cmocka_unit_test(refuses),
        cmocka_unit_test(names_bad_files),
        cmocka_unit_test(checks),
        cmocka_unit_test(skips_the_same_everywhere),
        cmocka_unit_test(waiting_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
