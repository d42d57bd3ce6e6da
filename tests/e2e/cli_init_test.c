/* engine init: what it writes for each kind of data trains as it is, and says what the data are; a file that is there
 * stays. */
#include "tests/harness/program.h"
#include "tests/unit/data_pictures.h"

#include "engine/base/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct program p;
static struct pool *pool;

static int set_up(void **state) {
    (void)state;
    char path[64];
    if (chdir(scratch_folder()) != 0 || pool_create(&pool) != ERR_NONE) return -1;
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "my photos/%s", i % 2 ? "wide" : "tall #1");
        assert_ok(file_make_folders(path));
        snprintf(path, sizeof path, "my photos/%s/%02d.png", i % 2 ? "wide" : "tall #1", i);
        png_put(path, i, i % 2 ? 30 : 20, i % 2 ? 20 : 30, PNG_COLOR_TYPE_RGB, 8);
    }
    assert_ok(file_make_folders("large/a"));
    assert_ok(file_make_folders("large/b"));
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "large/%s/%02d.png", i % 2 ? "a" : "b", i);
        png_put(path, i, 80, 64, PNG_COLOR_TYPE_RGB, 8);
    }
    FILE *few = fopen("few.csv", "w");
    for (int i = 0; i < 100; i++)
        for (int k = 0; k < 21; k++) fprintf(few, "%g%c", sin(i * 21 + k), k < 20 ? ',' : '\n');
    if (fclose(few)) return -1;
    FILE *classes = fopen("classes.csv", "w"), *prices = fopen("prices.csv", "w"), *story = fopen("story.txt", "w");
    fputs("x,y,kind\n", classes);
    fputs("x,y,price\n", prices);
    for (int i = 0; i < 200; i++) {
        double x = (i * 37 % 101) / 50.0 - 1, y = (i * 61 % 103) / 50.0 - 1;
        fprintf(classes, "%g,%g,%d\n", x, y, x + y > 0);
        fprintf(prices, "%g,%g,%d\n", x, y, (int)(1000 + 100 * x + 10 * i));
        fputs("the cat sat on the mat. ", story);
    }
    return fclose(classes) || fclose(prices) || fclose(story) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static const char *file(const char *path) {
    char *text;
    size_t n;
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    return text;
}

/* Some steps, and a measurement. */
static void trains(const char *config, const char *metric) {
    program_run(&p, 120, "run", config, "--json", "--quiet", "--set", "train=2st", "--set", "devices=cpu:1", "--set",
                "threads=1", "--set", "log.dir=out", NULL);
    if (p.code) fail_msg("%s: code %d\n%s\n%s", config, p.code, p.err, file(config));
    assert_true(program_number(&p, metric) >= 0);
    assert_true(program_number(&p, "steps") == 2);
    assert_ok(file_remove_tree("out"));
}

static void each_kind_of_data(void **state) {
    (void)state;
    static const struct {
        const char *data, *file, *metric, *says[5];
    } cases[] = {
        {"my photos",
         "my-photos.yaml",
         "val.accuracy",
         {"model: resnet20", "set: images", "size: 32", "2 classes: tall #1, wide", "36 pictures"}},
        {"classes.csv",
         "classes.yaml",
         "val.accuracy",
         {"hidden: [64]}", "set: csv", "target: kind", "180 samples", "2 classes"}},
        {"prices.csv", "prices.yaml", "val.loss", {"loss: mse", "best: val.loss", "set: csv"}},
        {"few.csv", "few.yaml", "val.loss", {"hidden: []", "90 samples are few for 20 inputs", "weight_decay: 0.02"}},
        {"large",
         "large.yaml",
         "val.accuracy",
         {"{zoo: resnet20, stem: imagenet}", "size: 64", "the last is taken", "[{random"}},
        {"story.txt", "story.yaml", "val.perplexity", {"model: gpt-nano", "set: text", "context: 16", "adamw"}},
        {"spirals", "spirals.yaml", "val.accuracy", {"set: spirals", "3 classes", "hidden: [64]}"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_run(&p, 30, "init", cases[i].data, NULL);
        if (p.code) fail_msg("%s: code %d\n%s", cases[i].data, p.code, p.err);
        const char *text = file(cases[i].file);
        for (int k = 0; k < 5 && cases[i].says[k]; k++)
            if (!strstr(text, cases[i].says[k])) fail_msg("no '%s' in\n%s", cases[i].says[k], text);
        assert_non_null(strstr(p.out, cases[i].file));
        if (!strstr(p.out, "\ntime: ") || strstr(p.out, "not measured")) fail_msg("%s: %s", cases[i].data, p.out);
        trains(cases[i].file, cases[i].metric);
    }
}

/* A folder with files of one set is that set; the file names them. */
static void folders(void **state) {
    (void)state;
    assert_ok(file_make_folders("tables"));
    assert_int_equal(symlink("../classes.csv", "tables/train.csv"), 0);
    assert_int_equal(symlink("../classes.csv", "tables/test.csv"), 0);
    program_run(&p, 30, "init", "tables", NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_non_null(strstr(file("tables.yaml"), "  train: tables/train.csv "));
    assert_non_null(strstr(file("tables.yaml"), "  val: tables/test.csv "));
    trains("tables.yaml", "val.accuracy");
}

/* Targets of -1 and 1 are two classes. Numbers with a comma are named, where they would be text. */
static void targets(void **state) {
    (void)state;
    FILE *signs = fopen("signs.csv", "w"), *commas = fopen("commas.csv", "w");
    assert_true(signs && commas);
    fputs("a,label\n", signs);
    fputs("a;y\n", commas);
    for (int i = 0; i < 120; i++) {
        fprintf(signs, "%d.5,%d\n", i, i % 2 ? 1 : -1);
        fprintf(commas, "%d;%d,25\n", i, i);
    }
    assert_true(fclose(signs) == 0 && fclose(commas) == 0);
    program_run(&p, 30, "init", "signs.csv", NULL);
    assert_non_null(strstr(p.out, ", 2 classes\n"));
    assert_non_null(strstr(file("signs.yaml"), "  categorical: [label] "));
    trains("signs.yaml", "val.accuracy");
    program_run(&p, 30, "data", "stats", "signs.csv", NULL);
    assert_non_null(strstr(p.out, "\n  a           mean "));
    program_run(&p, 30, "init", "commas.csv", NULL);
    assert_int_equal(p.code, 65);
    assert_non_null(strstr(p.err, ",25' has a decimal comma\nhint: write numbers with a point"));
}

/* Pictures that cannot be read are found and told, and the file skips them. */
static void bad_pictures(void **state) {
    (void)state;
    char path[64];
    for (int i = 0; i < 24; i++) {
        snprintf(path, sizeof path, "bad/%d", i % 2);
        assert_ok(file_make_folders(path));
        snprintf(path, sizeof path, "bad/%d/%d.jpg", i % 2, i);
        jpeg_put(path, i, 32, 32, JPEG_FORM_COLOUR);
    }
    assert_int_equal(truncate("bad/1/5.jpg", 500), 0);
    program_run(&p, 30, "init", "bad", NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_non_null(strstr(p.err, "bad/1/5.jpg: the picture is cut off or damaged"));
    assert_non_null(strstr(file("bad.yaml"), "  on_error: skip "));
    trains("bad.yaml", "val.accuracy");
}

static void without_data(void **state) {
    (void)state;
    program_run(&p, 30, "init", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(file("digits.yaml"), "model: lenet"));
    assert_non_null(strstr(file("digits.yaml"), "best: val.accuracy")); /* 2,000 are held out */
    trains("digits.yaml", "val.accuracy");
}

/* A configuration in another folder finds its data from wherever it is run. */
static void in_another_folder(void **state) {
    (void)state;
    assert_ok(file_make_folders("configs"));
    program_run(&p, 30, "init", "classes.csv", "-o", "configs/c.yaml", NULL);
    assert_int_equal(p.code, 0);
    assert_int_equal(chdir("configs"), 0);
    trains("c.yaml", "val.accuracy");
    assert_int_equal(chdir(".."), 0);
    trains("configs/c.yaml", "val.accuracy");
    program_run(&p, 30, "init", "classes.csv", "-o", "-", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "train: classes.csv"));
}

static void what_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *words[3];
        int code;
        const char *text;
    } cases[] = {{{"nothing-here"}, 66, "no file or folder"},
                 {{"configs"}, 65, "holds nothing that a data set reads: 1 x .yaml"},
                 {{"broken.csv"}, 65, "broken.csv"},
                 {{"classes.csv", "-o", "taken.yaml"}, 73, "--force"}};
    save_text("taken.yaml", "mine\n");
    save_text("broken.csv", "a,b\n1,2,3\nx\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *w = cases[i].words;
        program_run(&p, 30, "init", w[0], w[1], w[2], NULL);
        if (p.code != cases[i].code) fail_msg("case %zu: code %d\n%s", i, p.code, p.err);
        if (!strstr(p.err, cases[i].text)) fail_msg("case %zu: %s", i, p.err);
    }
    assert_string_equal(file("taken.yaml"), "mine\n");
    assert_false(file_exists("broken.yaml"));
    program_run(&p, 30, "init", "classes.csv", "-o", "taken.yaml", "--force", NULL);
    assert_int_equal(p.code, 0);
    trains("taken.yaml", "val.accuracy");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_data), cmocka_unit_test(folders),      cmocka_unit_test(targets),
        cmocka_unit_test(bad_pictures),      cmocka_unit_test(without_data), cmocka_unit_test(in_another_folder),
        cmocka_unit_test(what_is_wrong),
    };
    return cmocka_run_group_tests_name("init", tests, set_up, tear_down);
}
