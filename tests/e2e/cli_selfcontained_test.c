/* Trained networks without their training data: what they were trained on is in the checkpoint,
 * and data that are others now are refused by name, or make no difference. */
#include "tests/harness/program.h"
#include "tests/unit/data_pictures.h"

#include "engine/base/file.h"
#include "engine/save/checkpoint.h"

#include <unistd.h>

static struct program p;
static char first[PROGRAM_TEXT];

static const char *path(const char *name) {
    static char text[8][600];
    static int at;
    snprintf(text[++at % 8], sizeof text[0], "%s", scratch_path(name));
    return text[at % 8];
}

static const char *words(const char *format, const char *value) {
    static char text[8][1200];
    static int at;
    snprintf(text[++at % 8], sizeof text[0], format, value);
    return text[at % 8];
}

/* The last answer is the one that was kept. */
static void keep(void) {
    assert_int_equal(p.code, 0);
    strcpy(first, p.out);
}

static void check_kept(void) {
    if (p.code) fail_msg("code %d: %s", p.code, p.err);
    assert_string_equal(p.out, first);
}

static void check_refused(int code, const char *says) {
    if (p.code != code || !strstr(p.err, says)) fail_msg("code %d: %s", p.code, p.err);
}

static void move(const char *from, const char *to) {
    assert_int_equal(rename(path(from), path(to)), 0);
}

/* ---- pictures ---- */

/* A folder of three classes of twelve pictures; the seed decides how bright they are. */
static void put_pictures(const char *folder, const char *second, int seed) {
    const char *const classes[] = {"circle", second, "triangle"};
    char name[300];
    for (int i = 0; i < 36; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, classes[i % 3]);
        assert_ok(file_make_folders(scratch_path(name)));
        snprintf(name, sizeof name, "%s/%s/%02d.png", folder, classes[i % 3], i);
        png_put(name, seed + i % 3, 16, 16, PNG_COLOR_TYPE_RGB, 8);
    }
}

static void train_on_pictures(const char *folder, const char *name, const char *more) {
    program_run(&p, 60, "run", "--json", "--quiet", "--set",
                words("data={set: images, train: %s, val: 6, size: 16, resize: 16}", path(folder)), "--set",
                "model={layers: [flatten, {linear: 8}, relu, {linear: 3}]}", "--set", "batch={size: 10, shards: 2}",
                "--set", "mode=single", "--set", "devices=cpu:1", "--set", "train=6st", "--set",
                "optimizer={name: adam, lr: 0.01}", "--set", "checkpoint.every=3st", "--set",
                words("log.dir=%s", path(name)), "--set", more, NULL);
    if (p.code) fail_msg("%s", p.err);
}

/* What has changed in the folder, which classes there are now or that there is none, the answers to
 * a picture stay. */
static void pictures_need_no_folder(void **state) {
    (void)state;
    put_pictures("p", "square", 0);
    train_on_pictures("p", "named", "seed=0");
    const char *run = path("named"), *one = path("kept/circle/00.png");
    put_pictures("kept", "square", 0);
    program_run(&p, 30, "predict", run, one, "--json", NULL);
    keep();
    assert_non_null(strstr(p.out, "\"circle\""));
    move("p", "was");
    put_pictures("p", "sqare", 40); /* darker, and a class renamed */
    program_run(&p, 30, "predict", run, one, "--json", NULL);
    check_kept();
    program_run(&p, 30, "predict", run, "val:0", NULL);
    check_refused(78, "/sqare is not a class of the network, which was trained on 'circle', 'square'");
    program_run(&p, 30, "eval", run, NULL);
    check_refused(78, "/sqare is not a class of the network");
    assert_ok(file_remove_tree(path("p")));
    program_run(&p, 30, "predict", run, one, "--json", NULL);
    check_kept();
    program_run(&p, 30, "predict", run, one, "--set", "data.normalize=off", NULL);
    check_refused(78, "data.normalize gives mean 0, deviation 1, and the network was trained with");
}

/* On a folder of validation pictures that lacks a class, by one rank and by two. */
static void others_are_evaluated_without_the_folder(void **state) {
    (void)state;
    const char *run = path("named"), *val = words("data.val=%s", path("kept"));
    program_run(&p, 30, "eval", run, "--set", val, "--json", NULL);
    if (p.code) fail_msg("%s", p.err);
    double loss = program_number(&p, "result.loss");
    assert_true(program_number(&p, "result.samples") == 36);
    program_run(&p, 30, "eval", run, "--set", val, "--json", "--mode", "ddp", "--devices", "cpu:2", NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_true(program_number(&p, "result.loss") == loss);
    assert_int_equal(program_orphans(), 0);
    assert_ok(file_remove_tree(path("kept/circle")));
    program_run(&p, 30, "eval", run, "--set", val, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "    0        0 "));
    assert_non_null(strstr(p.out, "    1       12 "));
    program_run(&p, 30, "eval", run, "--set", val, "--set", "data.size=8", "--set", "data.resize=8", NULL);
    check_refused(78, "are 3x8x8 bytes, and the network was trained on 3x16x16 bytes");
}

/* Copies a model's file, with another text of preprocessing, or none. */
static const char *forge(const char *run, const char *name, const char *preprocessing) {
    struct st_file f;
    struct st_tensor tensors[16];
    uint32_t crc;
    int64_t bytes;
    const char *to = path(name);
    const char *const metadata[][2] = {
        {"format", "pt"}, {preprocessing ? "preprocessing" : NULL, preprocessing}, {NULL}};
    assert_ok(st_open(words("%s/ckpt/step-000000006/model.safetensors", run), &f));
    assert_true(f.count <= 16);
    for (int i = 0; i < f.count; i++) {
        tensors[i] = f.tensors[i];
        assert_ok(memory_alloc(tensors[i].bytes, &tensors[i].data));
        assert_ok(st_read(&f, &f.tensors[i], tensors[i].data));
    }
    assert_ok(st_write(to, tensors, f.count, metadata, &crc, &bytes));
    for (int i = 0; i < f.count; i++) memory_free(tensors[i].data);
    st_close(&f);
    return to;
}

static void old_files_need_the_data_and_lies_are_refused(void **state) {
    (void)state;
    const char *run = path("named"), *one = path("was/circle/00.png");
    const char *old = forge(run, "old.safetensors", NULL);
    program_run(&p, 30, "predict", run, one, "--checkpoint", old, NULL);
    check_refused(66, "no folder");
    move("was", "p");
    one = path("p/circle/00.png");
    program_run(&p, 30, "predict", run, one, "--checkpoint", old, "--json", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "\"circle\""));
    program_run(&p, 30, "predict", run, one, "--checkpoint", forge(run, "a.st", "{\"data\":1}"), NULL);
    check_refused(65, "'preprocessing' has no usable 'data'");
    program_run(&p, 30, "eval", run, "--checkpoint", forge(run, "b.st", "[[[[[[[["), NULL);
    check_refused(65, "'preprocessing': JSON: too deep");
}

/* ---- going on ---- */

static void set_number(const char *file, char *out) {
    size_t n = 0;
    char *text;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    assert_ok(file_read(file, 1 << 20, pool, &text, &n));
    const char *mean = strstr(text, "\"mean\":[");
    assert_non_null(mean);
    snprintf(out, 200, "%.*s", (int)strcspn(mean, "]"), mean);
    pool_free(pool);
}

static void remove_last(const char *run) {
    assert_ok(file_remove_tree(words("%s/ckpt/step-000000006", run)));
}

/* Darker pictures under the same names: the run keeps its mean, on all ranks alike. */
static void a_resumed_run_keeps_its_mean(void **state) {
    (void)state;
    char was[200], is[200], weights[100];
    put_pictures("q", "square", 0);
    train_on_pictures("q", "going", "seed=0");
    const char *run = path("going");
    set_number(words("%s/ckpt/step-000000003/manifest.json", run), was);
    remove_last(run);
    assert_ok(file_remove_tree(path("q")));
    put_pictures("q", "square", 40);
    program_run(&p, 60, "run", run, "--quiet", NULL);
    check_refused(78, "cannot resume from"); /* unless it is on purpose */
    program_run(&p, 60, "run", run, "--json", "--quiet", "--set", "checkpoint.data=any", NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_non_null(strstr(p.err, "normalised in another way"));
    assert_non_null(strstr(p.err, "This run keeps the checkpoint's: mean "));
    set_number(words("%s/ckpt/step-000000006/manifest.json", run), is);
    assert_string_equal(is, was);
    snprintf(weights, sizeof weights, "%s", program_string(&p, "weights_sha256"));
    static const char *const ways[][2] = {{"ddp", "dp.scatter=direct"}, {"dp", "dp.scatter=server"}};
    for (int i = 0; i < 2; i++) {
        remove_last(run);
        program_run(&p, 60, "run", run, "--json", "--quiet", "--mode", ways[i][0], "--devices", "cpu:2", "--set",
                    ways[i][1], "--set", "checkpoint.data=any", NULL);
        if (p.code) fail_msg("%s", p.err);
        assert_string_equal(program_string(&p, "weights_sha256"), weights);
    }
    remove_last(run);
    move("q/square", "q/sqare");
    program_run(&p, 60, "run", run, "--quiet", NULL);
    check_refused(78, "cannot resume from");
    assert_non_null(strstr(p.err, "is 'sqare', and the network knows it as 'square'"));
}

/* ---- text ---- */

static void put_text(const char *name, char swapped) {
    static char text[4001];
    for (int i = 0; i < 4000; i++) text[i] = "the quick brown fox\n"[i % 20];
    for (int i = 0; i < 4000; i++)
        if (text[i] == 'q') text[i] = swapped;
    save_text(path(name), text);
}

static void text_needs_no_corpus(void **state) {
    (void)state;
    put_text("corpus.txt", 'q');
    const char *run = path("writer");
    program_run(&p, 60, "run", "--json", "--quiet", "--set", "mode=single", "--set", "devices=cpu:1", "--set",
                "model={zoo: gpt, depth: 1, width: 16, heads: 2}", "--set",
                words("data={set: text, train: %s, context: 16}", path("corpus.txt")), "--set", "batch=16", "--set",
                "train=40st", "--set", "optimizer={name: adamw, lr: 0.01}", "--set", words("log.dir=%s", run), NULL);
    if (p.code) fail_msg("%s", p.err);
    program_run(&p, 30, "generate", run, "--prompt", "the", "--tokens", "60", NULL);
    keep();
    put_text("corpus.txt", '!');
    program_run(&p, 30, "generate", run, "--prompt", "the", "--tokens", "60", NULL);
    check_kept();
    program_run(&p, 30, "eval", run, NULL);
    check_refused(65, "the character U+0021");
    assert_int_equal(unlink(path("corpus.txt")), 0);
    program_run(&p, 30, "generate", run, "--prompt", "the", "--tokens", "60", NULL);
    check_kept();
    program_run(&p, 30, "generate", run, "--prompt", "the!", NULL);
    check_refused(65, "--prompt: the character U+0021");
    put_text("other.txt", 'u'); /* without one of the characters */
    program_run(&p, 30, "eval", run, "--set", words("data.val=%s", path("other.txt")), NULL);
    assert_int_equal(p.code, 0);
}

/* ---- what a checkpoint shows ---- */

static void inspect_tells_what_is_known(void **state) {
    (void)state;
    struct pool *pool;
    const char *step = words("%s/ckpt/step-000000006", path("named"));
    program_run(&p, 30, "inspect", step, NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_non_null(strstr(p.out, "samples of 3x16x16 bytes"));
    assert_non_null(strstr(p.out, "  class names circle, square, triangle\n"));
    assert_non_null(strstr(p.out, "  mean        0."));
    program_run(&p, 30, "inspect", step, "--json", NULL);
    assert_ok(pool_create(&pool));
    const struct json_value *all = program_json(&p, pool), *files = json_get(all, "files"),
                            *known = json_get(&files->children[0], "preprocessing"),
                            *again = json_get(json_get(all, "manifest"), "preprocessing");
    assert_int_equal(files->count, 3);
    assert_int_equal(json_get(&files->children[0], "tensors")->count, 4);
    assert_string_equal(json_get(known, "class_names")->children[2].text, "triangle");
    assert_int_equal(json_get(known, "mean")->count, 3);
    assert_string_equal(json_get(again, "std")->children[1].text, json_get(known, "std")->children[1].text);
    pool_free(pool);
    program_run(&p, 30, "inspect", words("%s/ckpt/step-000000040", path("writer")), NULL);
    assert_non_null(strstr(p.out, "  vocabulary  17 characters: \"\\n bcefhiknoqrtuwx\"\n"));
    program_run(&p, 30, "inspect", path("named"), "--json", NULL);
    assert_non_null(strstr(program_string(&p, "newest_checkpoint"), "step-000000006"));
    program_run(&p, 30, "inspect", path("table"), "--trace", "--json", NULL);
    assert_int_equal(p.code, 64);
}

/* ---- columns ---- */

static void columns_need_no_file(void **state) {
    (void)state;
    char text[4000] = "height,weight,city,kind\n", other[4000] = "kind,weight,city,height\n";
    static const char *const kinds[] = {"low", "high", "mid"}, *const cities[] = {"Rome", "Oslo"};
    for (int i = 0; i < 60; i++) {
        snprintf(text + strlen(text), 32, "%d,%d,%s,%s\n", i % 7, i % 5, cities[i % 2], kinds[i % 3]);
        snprintf(other + strlen(other), 32, "%s,%d,%s,%d\n", kinds[i % 3], i % 5, cities[i % 2], i % 7);
    }
    save_text(path("t.csv"), text);
    save_text(path("same.csv"), text);
    save_text(path("other.csv"), other);
    char run[600];
    snprintf(run, sizeof run, "%s", path("table"));
    program_run(&p, 60, "run", "--json", "--quiet", "--set", "mode=single", "--set", "devices=cpu:1", "--set",
                "model={layers: [{linear: 3}]}", "--set", words("data={set: csv, train: %s}", path("t.csv")), "--set",
                "batch=10", "--set", "train=2ep", "--set", words("log.dir=%s", run), NULL);
    if (p.code) fail_msg("%s", p.err);
    program_run(&p, 30, "eval", run, "--set", words("data.val=%s", path("same.csv")), "--json", NULL);
    assert_int_equal(p.code, 0);
    double loss = program_number(&p, "result.loss");
    assert_int_equal(unlink(path("t.csv")), 0);
    program_run(&p, 30, "eval", run, "--set", words("data.val=%s", path("same.csv")), "--json", NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_true(program_number(&p, "result.loss") == loss);
    program_run(&p, 30, "eval", run, "--set", words("data.val=%s", path("other.csv")), "--json", NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_true(program_number(&p, "result.loss") == loss); /* columns go by their names */
    program_run(&p, 30, "predict", run, path("other.csv"), NULL);
    assert_int_equal(p.code, 0);
    assert_true(strstr(p.out, "'low'") || strstr(p.out, "'mid'") || strstr(p.out, "'high'"));
    save_text(path("other.csv"), "size,weight,city,kind\n1,2,Rome,low\n");
    program_run(&p, 30, "eval", run, "--set", words("data.val=%s", path("other.csv")), NULL);
    check_refused(78, "has no column 'height', which the network was trained on");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_need_no_folder),
        cmocka_unit_test(others_are_evaluated_without_the_folder),
        cmocka_unit_test(old_files_need_the_data_and_lies_are_refused),
        cmocka_unit_test(a_resumed_run_keeps_its_mean),
        cmocka_unit_test(text_needs_no_corpus),
        cmocka_unit_test(inspect_tells_what_is_known),
        cmocka_unit_test(columns_need_no_file),
    };
    return cmocka_run_group_tests_name("self-contained networks", tests, NULL, NULL);
}
