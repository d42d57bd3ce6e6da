/* engine predict and engine generate: answers that agree with evaluation, files as good as the same
 * samples of the set, and text that is a function of its seed. */
#include "tests/harness/program.h"
#include "tests/unit/data_pictures.h"

#include "engine/base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct program p;

static const char *log_dir(const char *name) {
    static char text[640];
    snprintf(text, sizeof text, "log.dir=%s", scratch_path(name));
    return text;
}

/* ---- predict ---- */

/* Two classes, above and below a line, as a pair of .npy files. */
enum { SAMPLES = 120 };
static void write_npy(const char *path, const char *descr, const char *shape, const void *data, size_t bytes) {
    char header[119];
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memset(header + n, ' ', sizeof header - (size_t)n);
    header[117] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
    fwrite(header, 1, 118, f);
    fwrite(data, 1, bytes, f);
    fclose(f);
}

static char samples_path[600], run_dir[600];

static int train_on_files(void **state) {
    (void)state;
    static float x[SAMPLES][2];
    static int32_t y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        x[i][0] = (float)(i * 37 % 101) / 50 - 1;
        x[i][1] = (float)(i * 61 % 103) / 50 - 1;
        y[i] = x[i][0] + x[i][1] > 0;
    }
    snprintf(samples_path, sizeof samples_path, "%s", scratch_path("x.npy"));
    snprintf(run_dir, sizeof run_dir, "%s", scratch_path("lines"));
    write_npy(samples_path, "<f4", "(120, 2)", x, sizeof x);
    write_npy(scratch_path("y.npy"), "<i4", "(120,)", y, sizeof y);
    char data[700];
    snprintf(data, sizeof data, "data={set: npy, train: %s, val: 20, split: end}", samples_path);
    program_run(&p, 60, "run", "--json", "--quiet", "--set", data, "--set", "mode=dp", "--set", "devices=cpu:2",
                "--set", "model={layers: [{linear: 8}, relu, {linear: 2}]}", "--set", "batch={size: 20, shards: 2}",
                "--set", "train=60ep", "--set", "optimizer={name: adam, lr: 0.05}", "--set", log_dir("lines"), NULL);
    return p.code;
}

/* The JSON array on standard output. */
static const struct json_value *answers(struct pool *pool) {
    const struct json_value *v;
    assert_int_equal(p.code, 0);
    assert_ok(
        json_parse(p.out, strlen(p.out), (struct json_limits){.depth = 8, .entries = 10000, .text = 4096}, pool, &v));
    return v;
}

static double number(const struct json_value *v, const char *key) {
    return json_get(v, key)->number;
}

static const struct json_value *top(const struct json_value *answer, int i) {
    return &json_get(answer, "top")->children[i];
}

static void answers_agree_with_evaluation(void **state) {
    (void)state;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    program_run(&p, 30, "eval", run_dir, "--json", NULL);
    assert_int_equal(p.code, 0);
    double accuracy = program_number(&p, "result.accuracy");
    assert_true(accuracy > 0.7);
    program_run(&p, 30, "predict", run_dir, "val:0-19", "--json", NULL);
    const struct json_value *all = answers(pool);
    int right = 0;
    assert_int_equal(all->count, 20);
    for (int i = 0; i < 20; i++) {
        const struct json_value *one = &all->children[i];
        double first = number(top(one, 0), "probability"), second = number(top(one, 1), "probability");
        assert_int_equal((int)number(one, "sample"), i);
        assert_true(first >= second && fabs(first + second - 1) < 1e-5);
        right += number(top(one, 0), "label") == number(one, "truth");
    }
    assert_true(fabs(accuracy - right / 20.0) < 1e-9);
    pool_free(pool);
}

static void a_file_is_as_good_as_the_set(void **state) {
    (void)state;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    program_run(&p, 30, "predict", run_dir, "train:0-69", "--json", "--top", "1", NULL);
    const struct json_value *set = answers(pool);
    program_run(&p, 30, "predict", run_dir, samples_path, "--json", "--top", "1", NULL);
    const struct json_value *file = answers(pool);
    assert_int_equal(set->count, 70);
    assert_int_equal(file->count, SAMPLES);
    assert_null(json_get(&file->children[0], "truth"));
    for (int i = 0; i < 70; i++) { /* more than a batch */
        const struct json_value *a = top(&set->children[i], 0), *b = top(&file->children[i], 0);
        assert_true(number(a, "label") == number(b, "label"));
        assert_true(number(a, "probability") == number(b, "probability"));
    }
    program_run(&p, 30, "predict", run_dir, "val:3", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "val:3 "));
    assert_non_null(strstr(p.out, "(is "));
    pool_free(pool);
}

static void numbers_are_told_as_they_are(void **state) {
    (void)state;
    program_run(&p, 60, "run", "--json", "--quiet", "--set", "mode=single", "--set",
                "data={set: digits, train: 100, val: 50}", "--set", "train=2st", "--set", "loss=mse", "--set",
                log_dir("mse"), NULL);
    assert_int_equal(p.code, 0);
    program_run(&p, 30, "predict", scratch_path("mse"), "val:0", "--json", NULL);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *all = json_get(&answers(pool)->children[0], "top");
    assert_int_equal(all->count, 3);
    assert_true(isfinite(json_get(&all->children[0], "output")->number));
    assert_null(json_get(&all->children[0], "probability"));
    pool_free(pool);
    program_run(&p, 30, "predict", scratch_path("mse"), "val:0", NULL);
    assert_null(strchr(p.out, '%'));
}

/* A picture file is what the same file is in the folder that was trained on, with its class's name.
 */
static void pictures_are_named(void **state) {
    (void)state;
    struct pool *pool;
    char data[700], folder[600], one[700];
    assert_ok(pool_create(&pool));
    snprintf(folder, sizeof folder, "%s", scratch_path("pictures"));
    for (int i = 0; i < 12; i++) {
        snprintf(one, sizeof one, "pictures/%s", i % 2 ? "wide" : "tall");
        assert_ok(file_make_folders(scratch_path(one)));
        snprintf(one, sizeof one, "pictures/%s/%02d.png", i % 2 ? "wide" : "tall", i);
        png_put(one, i, i % 2 ? 30 : 20, i % 2 ? 20 : 30, PNG_COLOR_TYPE_RGB, 8);
    }
    snprintf(data, sizeof data, "data={set: images, train: %s, val: 4, size: 12}", folder);
    program_run(&p, 60, "run", "--json", "--quiet", "--set", data, "--set", "mode=single", "--set", "devices=cpu:1",
                "--set", "model={layers: [flatten, {linear: 2}]}", "--set", "batch=4", "--set", "train=2ep", "--set",
                log_dir("named"), NULL);
    assert_int_equal(p.code, 0);
    char dir[600];
    snprintf(dir, sizeof dir, "%s", scratch_path("named"));
    program_run(&p, 30, "predict", dir, "train:0", "--json", NULL);
    const struct json_value *set = answers(pool);
    snprintf(one, sizeof one, "%s/tall/00.png", folder);
    program_run(&p, 30, "predict", dir, one, "--json", NULL);
    const struct json_value *file = answers(pool);
    for (int i = 0; i < 2; i++) {
        const struct json_value *a = top(&set->children[0], i), *b = top(&file->children[0], i);
        assert_true(number(a, "probability") == number(b, "probability"));
        assert_string_equal(json_get(b, "text")->text, number(b, "label") == 0 ? "tall" : "wide");
    }
    program_run(&p, 30, "predict", run_dir, one, NULL);
    assert_int_equal(p.code, 65);
    assert_non_null(strstr(p.err, "is a colour picture"));
    pool_free(pool);
}

/* The words of a line of CSV, without quotes inside. */
static int cut(char *line, char *cells[16]) {
    int n = 0;
    for (char *at = line; at && n < 16; n++) cells[n] = at, (at = strchr(at, ',')) ? *at++ = '\0' : 0;
    return n;
}

static char *csv_line(char *text, int i) {
    for (; i > 0; i--) text = strchr(text, '\n') + 1;
    char *line = strdup(text);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* A folder of pictures as a table: by name, with what single pictures are answered; a damaged one is named. */
static void a_folder_is_a_table(void **state) {
    (void)state;
    struct pool *pool;
    char dir[600], folder[600], one[700], *cells[16], at[4096];
    assert_ok(pool_create(&pool));
    snprintf(dir, sizeof dir, "%s", scratch_path("named"));
    snprintf(folder, sizeof folder, "%s", scratch_path("pictures"));
    save_text(scratch_path("pictures/tall/03.jpg"), "no picture");
    /* from another folder than the run was started in, and the data's path is the run's */
    assert_non_null(getcwd(at, sizeof at));
    assert_int_equal(chdir("/"), 0);
    program_run(&p, 30, "predict", dir, folder, "--csv", "--logits", "--top", "1", NULL);
    assert_int_equal(chdir(at), 0);
    assert_int_equal(p.code, 65);
    assert_non_null(strstr(p.err, "tall/03.jpg"));
    char *header = csv_line(p.out, 0), *table = strdup(p.out);
    assert_string_equal(header, "input,sample,class,confidence,logit:tall,logit:wide");
    free(header);
    for (int i = 0; i < 12; i++) { /* tall/00, 02, ..., wide/01, 03, ... */
        snprintf(one, sizeof one, "%s/%s/%02d.png", folder, i < 6 ? "tall" : "wide", i < 6 ? 2 * i : 2 * i - 11);
        char *line = csv_line(table, i + 1);
        assert_int_equal(cut(line, cells), 6);
        assert_string_equal(cells[0], one);
        assert_string_equal(cells[1], "0");
        program_run(&p, 30, "predict", dir, one, "--json", NULL);
        const struct json_value *a = answers(pool), *best = top(&a->children[0], 0);
        assert_string_equal(cells[2], json_get(best, "text")->text);
        assert_true(fabs(atof(cells[3]) - number(best, "probability")) < 1e-5);
        float logits[2] = {strtof(cells[4], NULL), strtof(cells[5], NULL)};
        assert_true(logits[(int)number(best, "label")] == (float)number(best, "logit"));
        double share = 1 / (1 + exp(-fabs((double)logits[0] - (double)logits[1])));
        assert_true(fabs(atof(cells[3]) - share) < 1e-5);
        free(line);
    }
    char *end = csv_line(table, 13);
    assert_string_equal(end, "");
    free(end);
    free(table);
    snprintf(one, sizeof one, "%s", scratch_path("answers.csv"));
    program_run(&p, 30, "predict", dir, "val:0-3", "-o", one, NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.out, "");
    char *text;
    size_t n;
    assert_ok(file_read(one, 1 << 16, pool, &text, &n));
    static const char first[] = "input,sample,truth,class,confidence,class2,confidence2\nval:0-3,0,tall,";
    assert_memory_equal(text, first, sizeof first - 1);
    snprintf(one, sizeof one, "%s/tall/03.jpg", folder);
    program_run(&p, 30, "predict", dir, one, NULL);
    assert_int_equal(p.code, 65);
    pool_free(pool);
}

/* Classes are called as folders are, whose names may hold anything. */
static void a_terminal_obeys_no_name(void **state) {
    (void)state;
    static const char *const names[] = {"\x1b[31mred", "\xc2\x9b"
                                                       "31m,\"b\"\n"};
    static const char *const forms[] = {"--csv", "--json", NULL};
    char data[700], one[700];
    for (int i = 0; i < 8; i++) {
        snprintf(one, sizeof one, "odd/%s", names[i % 2]);
        assert_ok(file_make_folders(scratch_path(one)));
        snprintf(one, sizeof one, "odd/%s/%02d.png", names[i % 2], i);
        png_put(one, i, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    }
    snprintf(data, sizeof data, "data={set: images, train: %s, val: 4, size: 12}", scratch_path("odd"));
    program_train(
        &p, SETS("mode=single", "devices=cpu:1", "model={layers: [flatten, {linear: 2}]}", "batch=4", "train=1st"),
        SETS(data, log_dir("odd-run")));
    snprintf(one, sizeof one, "%s", scratch_path("odd-run"));
    for (int i = 0; i < 3; i++) {
        program_run(&p, 30, "predict", one, "val:0-3", "--logits", forms[i], NULL);
        assert_int_equal(p.code, 0);
        assert_null(strpbrk(p.out, "\x1b"));
        assert_true(i == 1 || !strstr(p.out, "\xc2\x9b"));
        if (i == 0) assert_non_null(strstr(p.out, "logit:?[31mred,\"logit:??31m,\"\"b\"\"\n\""));
    }
    program_run(&p, 30, "data", "stats", one, NULL);
    assert_int_equal(p.code, 0);
    assert_null(strpbrk(p.out, "\x1b"));
}

static void wrong_inputs_are_told(void **state) {
    (void)state;
    static const float wide[6] = {0};
    char path[600], text[600], empty[600];
    snprintf(empty, sizeof empty, "%s", scratch_path("empty"));
    assert_ok(file_make_folders(empty));
    snprintf(path, sizeof path, "%s", scratch_path("wide.npy"));
    snprintf(text, sizeof text, "%s", scratch_path("no.npy"));
    write_npy(path, "<f4", "(2, 3)", wide, sizeof wide);
    FILE *f = fopen(text, "w");
    assert_non_null(f);
    fputs("no array", f);
    fclose(f);
    const struct {
        const char *words[4];
        int code;
        const char *text;
    } wrong[] = {
        {{run_dir}, 64, "of what?"},
        {{NULL}, 64, "whose predictions?"},
        {{run_dir, "val:x"}, 64, "val:0-9"},
        {{run_dir, "val:3-1"}, 64, "val:0-9"},
        {{run_dir, "val:20"}, 66, "0 to 19"},
        {{run_dir, "/no/such.npy"}, 66, "no file"},
        {{run_dir, "/etc/passwd"}, 66, "no data set reads"},
        {{run_dir, path}, 65, "samples of 3"},
        {{run_dir, text}, 65, NULL},
        {{run_dir, "val:0", "--top", "0"}, 64, "--top"},
        {{run_dir, "val:0", "--csv", "--json"}, 64, "two forms"},
        {{run_dir, empty}, 66, "has no pictures"},
        {{"/no/such/run", "val:0"}, 66, "/no/such/run"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const *w = wrong[i].words;
        program_run(&p, 30, "predict", w[0], w[1], w[2], w[3], NULL);
        if (p.code != wrong[i].code) fail_msg("case %zu: code %d\n%s", i, p.code, p.err);
        if (wrong[i].text) assert_non_null(strstr(p.err, wrong[i].text));
    }
}

/* ---- generate ---- */

static char writer[600];

static void a_network_of_text_is_trained(void **state) {
    (void)state;
    snprintf(writer, sizeof writer, "%s", scratch_path("writer"));
    program_run(&p, 120, "run", "--json", "--quiet", "--set", "mode=ddp", "--set", "devices=cpu:2", "--set",
                "model={zoo: gpt, depth: 1, width: 32, heads: 2}", "--set",
                "data={set: grammar, train: 2000, val: 64, context: 32}", "--set", "batch=32", "--set",
                "train={for: 6ep, until: {val.perplexity: 6}}", "--set", "optimizer={name: adamw, lr: 0.01}", "--set",
                "threads=1", "--set", "checkpoint={every: 1ep, best: val.perplexity}", "--set", log_dir("writer"),
                NULL);
    assert_int_equal(p.code, 0);
    double perplexity = program_number(&p, "val.perplexity");
    assert_true(fabs(log(perplexity) - program_number(&p, "val.loss")) < 1e-6);
    assert_true(perplexity < 10);
}

static void text_is_a_function_of_its_seed(void **state) {
    (void)state;
    static char first[4096];
    for (int i = 0; i < 3; i++) {
        program_run(&p, 60, "generate", writer, "--prompt", "the ", "--tokens", "100", "--seed", i < 2 ? "7" : "8",
                    NULL);
        assert_int_equal(p.code, 0);
        assert_int_equal(strlen(p.out), 4 + 100 + 1);
        assert_memory_equal(p.out, "the ", 4);
        assert_non_null(strstr(p.err, "tokens/s"));
        if (i == 0) strcpy(first, p.out);
        if (i == 1) assert_string_equal(p.out, first);
        if (i == 2) assert_string_not_equal(p.out, first);
    }
}

/* Longer than the window, on; the likeliest text has no chance in it, however it is asked for. */
static void the_likeliest_text_is_one(void **state) {
    (void)state;
    static char first[4096];
    program_run(&p, 60, "generate", writer, "--tokens", "80", "--temperature", "0", NULL);
    assert_int_equal(p.code, 0);
    strcpy(first, p.out);
    assert_int_equal(strlen(first), 81);
    program_run(&p, 60, "generate", writer, "--tokens", "80", "--top-k", "1", "--seed", "3", NULL);
    assert_string_equal(p.out, first);
    program_run(&p, 60, "generate", writer, "--tokens", "80", "--temperature", "0.001", NULL);
    assert_string_equal(p.out, first);
    /* what follows the text so far is the same when it is given as the prompt */
    char prompt[61];
    snprintf(prompt, sizeof prompt, "%.60s", first);
    program_run(&p, 60, "generate", writer, "--tokens", "20", "--temperature", "0", "--prompt", prompt, NULL);
    assert_string_equal(p.out, first);
    program_run(&p, 60, "predict", writer, "val:0", "--top", "2", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "'"));
}

static void wrong_wishes_are_told(void **state) {
    (void)state;
    const struct {
        const char *words[4];
        int code;
        const char *text;
    } wrong[] = {
        {{NULL}, 64, "whose text?"},
        {{writer, "--tokens", "0"}, 64, "--tokens"},
        {{writer, "--temperature", "-1"}, 64, "--temperature"},
        {{writer, "--temperature", "nan"}, 64, "--temperature"},
        {{writer, "--prompt"}, 64, "needs a value"},
        {{writer, "--json"}, 64, "--json"},
        {{writer, "--prompt", ""}, 64, "empty"},
        {{writer, "--prompt", "A"}, 65, "--prompt: "},
        {{run_dir, "--tokens", "3"}, 78, "not a text"},
        {{"/no/such/run"}, 66, "/no/such/run"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const *w = wrong[i].words;
        program_run(&p, 30, "generate", w[0], w[1], w[2], w[3], NULL);
        if (p.code != wrong[i].code) fail_msg("case %zu: code %d\n%s", i, p.code, p.err);
        assert_non_null(strstr(p.err, wrong[i].text));
        assert_string_equal(p.out, "");
    }
}

/* ---- keys of training ---- */

/* They are no business of a trained network: what they are bound to, as a mode, need not be there. */
static void keys_of_training_do_not_matter(void **state) {
    (void)state;
    static const char *const sets[][9] = {
        {"mode=ddp", "optimizer={name: adam, shard: true, clip: 1}", "comm.compress=topk",
         "run={restarts: 1, elastic: 1}", "ema=0.9", "batch.accumulate=2"},
        {"mode=ddp", "ddp={sync: 2, bucket: 1KB, overlap: false}", "comm={algorithm: ring, emulate: 1Gbit}"},
        {"mode=dp", "dp={server: dedicated, staleness: 1}", "precision=bf16", "inject.slow.by=1%"},
        {"mode=dp", "dp={server: sharded, overlap: true}", "schedule=cosine", "lr_scale=linear", "recompute=2",
         "train={for: 3st, patience: {val.loss: 9}}", "deterministic=bitwise", "batch.pad=true"}};
    static const char *const commands[][5] = {
        {"predict", "DIR", "val:0"},
        {"generate", "DIR", "--tokens", "3"},
        {"model", "export", "DIR", "-o", "x.onnx"},
        {"eval", "DIR"},
        {"eval", "DIR", "--mode", "single"},
        {"data", "stats", "DIR"},
        {"model", "summary", "DIR"},
    };
    char dir[600], at[4096];
    assert_non_null(getcwd(at, sizeof at));
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "keys-%d", i);
        program_train(&p,
                      SETS("devices=cpu:2", "model={zoo: gpt, depth: 1, width: 16, heads: 2}",
                           "data={set: grammar, train: 64, val: 16, context: 8}", "batch={size: 16, shards: 4}",
                           "train=3st", log_dir(name)),
                      sets[i]);
        snprintf(dir, sizeof dir, "%s", scratch_path(name));
        for (size_t k = 0; k < sizeof commands / sizeof *commands; k++) {
            const char *w[5];
            for (int j = 0; j < 5; j++) w[j] = commands[k][j] && !strcmp(commands[k][j], "DIR") ? dir : commands[k][j];
            assert_int_equal(chdir(scratch_folder()), 0);
            program_run(&p, 60, w[0], w[1], w[2], w[3], w[4], NULL);
            assert_int_equal(chdir(at), 0);
            if (p.code) fail_msg("%s %s of a run with %s: exit code %d\n%s", w[0], w[1], sets[i][1], p.code, p.err);
        }
    }
    save_text(scratch_path("far.yaml"), "mode: dp\ndevices: cuda:7\nprecision: fp16\ndata: {set: digits, train: 64}\n");
    program_run(&p, 60, "data", "stats", scratch_path("far.yaml"), NULL);
    if (p.code) fail_msg("data stats where the run's devices are not: exit code %d\n%s", p.code, p.err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_agree_with_evaluation),
        cmocka_unit_test(a_file_is_as_good_as_the_set),
        cmocka_unit_test(numbers_are_told_as_they_are),
        cmocka_unit_test(pictures_are_named),
        cmocka_unit_test(a_folder_is_a_table),
        cmocka_unit_test(wrong_inputs_are_told),
        cmocka_unit_test(a_network_of_text_is_trained),
        cmocka_unit_test(text_is_a_function_of_its_seed),
        cmocka_unit_test(the_likeliest_text_is_one),
        cmocka_unit_test(wrong_wishes_are_told),
        cmocka_unit_test(keys_of_training_do_not_matter),
        cmocka_unit_test(a_terminal_obeys_no_name),
    };
    return cmocka_run_group_tests_name("predict", tests, train_on_files, NULL);
}
