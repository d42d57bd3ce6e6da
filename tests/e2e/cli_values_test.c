/* Regression on a table: the unit of the target changes no answer, and a run from before targets were scaled and samples were
 * drawn goes on as it began. */
#include "engine/base/file.h"
#include "tests/harness/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 120, ASKED = 6 };
static struct program p;

/* y = offset + scale * (3 a - 2 b + a bit of each row), sorted by y, so that the end of the file is unlike the rest. */
static void write_table(const char *path, double scale, double offset) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "a,b,price\n");
    for (int i = 0; i < ROWS; i++) {
        double y = i * 0.05, b = (i * 37 % 41) / 41.0, a = (y + 2 * b) / 3;
        fprintf(f, "%.6f,%.6f,%.6f\n", a, b, offset + scale * (y + 0.01 * (i % 3)));
    }
    fclose(f);
}

static void write_samples(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "a,b\n");
    for (int i = 0; i < ASKED; i++) fprintf(f, "%.6f,%.6f\n", 0.3 + 0.2 * i, i * 3 % ASKED / 6.0);
    fclose(f);
}

#define KEYS                                                                                                           \
    "model={layers: [{linear: 16}, relu, {linear: 1}]}", "loss=mse", "batch={size: 16, shards: 4}",                    \
        "optimizer={name: adam, lr: 0.01}", "threads=1"

static void answers_of(const char *run, double out[ASKED]) {
    program_run(&p, 60, "predict", run, "new.csv", "--csv", NULL);
    assert_int_equal(p.code, 0);
    const char *line = p.out;
    assert_memory_equal(p.out, "input,sample,price\n", 19); /* the answers' column is called as the target */
    for (int i = 0; i < ASKED; i++) {
        line = strchr(line, '\n');
        assert_true(line && sscanf(++line, "new.csv,%*d,%lf", &out[i]) == 1);
    }
}

static void a_unit_changes_no_answer(void **state) {
    (void)state;
    static const double scale[] = {1, 1000, 1}, offset[] = {0, 0, 1e5};
    double first[ASKED], answer[ASKED], rmse = 0, r2 = 0;
    for (int k = 0; k < 3; k++) {
        char name[16], table[32], set[96], dir[64];
        snprintf(name, sizeof name, "unit%d", k);
        snprintf(table, sizeof table, "%s.csv", name);
        write_table(table, scale[k], offset[k]);
        snprintf(set, sizeof set, "data={set: csv, train: %s}", table);
        snprintf(dir, sizeof dir, "log.dir=%s", name);
        program_train(&p, SETS(KEYS, "train=60ep"), SETS(set, dir, "mode=ddp", "devices=cpu:2"));
        if (k == 0) rmse = program_number(&p, "val.rmse"), r2 = program_number(&p, "val.r2");
        assert_true(fabs(program_number(&p, "val.rmse") / scale[k] - rmse) < 0.02 * rmse);
        assert_true(r2 > 0.95 && fabs(program_number(&p, "val.r2") - r2) < 0.01);
        answers_of(name, k ? answer : first);
        for (int i = 0; i < ASKED; i++) {
            double want = 3 * (0.3 + 0.2 * i) - 2 * (i * 3 % ASKED / 6.0);
            if (!k && fabs(first[i] - want) > 0.25) fail_msg("%g, not about %g", first[i], want);
            if (k && fabs((answer[i] - offset[k]) / scale[k] - first[i]) > 0.05)
                fail_msg("%g in unit %d, %g in the first", answer[i], k, first[i]);
        }
    }
}

/* A checkpoint that says neither has the form of those from before; what it goes on with is not what a new run has. */
static void a_run_from_before_goes_on_as_it_began(void **state) {
    (void)state;
    static struct program whole, rest;
    const char *const old[] = {"data={set: csv, train: unit1.csv, split: end, normalize_target: false}", NULL};
    write_table("unit1.csv", 1, 0);
    program_train(&whole, SETS(KEYS, "train=20ep", "log.dir=whole"), old);
    program_train(&p, SETS(KEYS, "train=8ep", "checkpoint=8ep", "log.dir=half"), old);
    program_train(&rest, SETS(KEYS, "train=20ep", "log.dir=rest", "checkpoint.resume=half/ckpt/step-000000056"),
                  SETS("data={set: csv, train: unit1.csv}", "mode=dp", "devices=cpu:4"));
    program_assert_same(&whole, &rest, "the rest of a run from before");
    program_run(&p, 60, "eval", "rest", "--json", NULL);
    assert_int_equal(p.code, 0);
    double loss = program_number(&p, "result.loss");
    assert_true(fabs(loss - program_number(&whole, "val.loss")) <= 1e-6 * loss); /* of the end of the file */
}

/* Another number would validate on what was trained on. */
static void a_run_keeps_its_split(void **state) {
    (void)state;
    static struct program whole, rest;
    program_train(&whole, SETS(KEYS, "train=20ep", "log.dir=w3"), SETS("data={set: csv, train: unit1.csv, split: 3}"));
    program_train(&p, SETS(KEYS, "train=8ep", "checkpoint=8ep", "log.dir=h3"),
                  SETS("data={set: csv, train: unit1.csv, split: 3}"));
    program_train(&rest, SETS(KEYS, "train=20ep", "log.dir=r3", "checkpoint.resume=h3/ckpt/step-000000056"),
                  SETS("data={set: csv, train: unit1.csv, split: 4}"));
    program_assert_same(&whole, &rest, "a run with another data.split");
    assert_non_null(strstr(rest.err, "data.split: this run keeps 3"));
}

static const char script[] = "import json, sys, numpy as np, onnxruntime as ort\n"
                             "session = ort.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])\n"
                             "x = np.loadtxt('new.csv', delimiter=',', skiprows=1, dtype=np.float32)\n"
                             "want = np.array([a['outputs'] for a in json.load(open('answers.json'))])\n"
                             "got = session.run(None, {'input': x})[0]\n"
                             "sys.exit(0 if abs(got - want).max() < 1e-5 * abs(want).max() else 1)\n";

static void an_exported_network_answers_in_the_unit(void **state) {
    (void)state;
    program_run(&p, 60, "model", "export", "unit1", "-o", "unit1.onnx", NULL);
    assert_int_equal(p.code, 0);
    const char *python = program_python(&p, "onnxruntime, numpy");
    if (!python) return;
    save_text("check.py", script);
    program_run(&p, 60, "predict", "unit1", "new.csv", "--json", NULL);
    save_text("answers.json", p.out);
    program_spawn(&p, (const char *const[]){python, "check.py", "unit1.onnx", NULL});
    assert_true(program_wait(&p, 120));
    if (p.code) fail_msg("%s\n%s", p.out, p.err);
}

static void a_class_that_a_part_lacks_is_named(void **state) {
    (void)state;
    FILE *f = fopen("sorted.csv", "w");
    assert_non_null(f);
    for (int i = 0; i < 60; i++) fprintf(f, "%d,%s\n", i, i < 30 ? "cat" : i < 54 ? "dog" : "owl");
    fclose(f);
    program_run(&p, 30, "data", "stats", "sorted.csv", "--set", "data.split=end", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.err, "the training part has no sample of class 'owl'"));
    assert_non_null(strstr(p.err, "the validation part has no sample of class 'cat' and of 1 other"));
    program_run(&p, 30, "data", "stats", "sorted.csv", NULL);
    assert_null(strstr(p.err, "has no sample"));
    assert_non_null(strstr(p.out, "held out by data.split 0"));
    f = fopen("gaps.csv", "w");
    assert_non_null(f);
    for (int i = 0; i < 60; i++) fprintf(f, "%d,%de-6,%d\n", i, i % 2 ? 3 : 1, i % 2 ? 3 : 8);
    fclose(f);
    program_run(&p, 30, "data", "stats", "gaps.csv", "--set", "data.split=end", NULL);
    assert_non_null(strstr(p.out, "mean 2e-06"));
    assert_non_null(strstr(
        p.err,
        "the data have no sample of class 0 and of 6 others: classes are counted from 0 (values need loss: mse)"));
}

/* A row more draws all held-out rows anew, and an accuracy of trained ones must not pass for another. */
static void samples_that_were_trained_are_told(void **state) {
    (void)state;
    static const char words[] = "the samples that are held out now are not those of training";
    write_table("more.csv", 1, 0);
    program_train(&p, SETS(KEYS, "train=5ep", "log.dir=more"), SETS("data={set: csv, train: more.csv}"));
    assert_non_null(strstr(p.err, "targets are normalised: the loss is of these"));
    program_run(&p, 60, "eval", "more", "--json", NULL);
    assert_true(p.code == 0 && !strstr(p.err, words) && strstr(p.out, "\"held_out_differs\":false"));
    program_run(&p, 60, "eval", "more", "--json", "--set", "data.val=20%", NULL);
    assert_non_null(strstr(p.out, "\"held_out_differs\":true"));
    program_run(&p, 60, "eval", "more", "--set", "data.val=20%", NULL);
    assert_true(p.code == 0 && strstr(p.err, words));
    program_run(&p, 60, "eval", "more", "--set", "data.val=unit0.csv", NULL);
    assert_true(p.code == 0 && !strstr(p.err, words));
    FILE *f = fopen("more.csv", "a");
    assert_true(f && fputs("0.5,0.5,0.5\n", f) >= 0 && fclose(f) == 0);
    program_run(&p, 60, "eval", "more", NULL);
    assert_true(p.code == 0 && strstr(p.err, words));
    program_run(&p, 60, "predict", "more", "val:0", NULL);
    assert_true(p.code == 0 && strstr(p.err, words));
    program_run(&p, 60, "predict", "more", "train:0", NULL);
    assert_true(p.code == 0 && !strstr(p.err, words));
}

static void a_folder_may_be_called_as_a_set(void **state) {
    (void)state;
    assert_ok(file_make_folders("csv"));
    write_table("csv/table.csv", 1, 0);
    program_run(&p, 30, "data", "check", "csv", "--set", "loss=mse", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "108 samples can be read"));
    program_run(&p, 60, "init", "csv", "-o", "-", NULL);
    assert_int_equal(p.code, 0);
    assert_ok(file_make_folders("digits"));
    program_run(&p, 30, "data", "stats", "digits", NULL); /* what the engine draws has the name */
    assert_non_null(strstr(p.out, "1x28x28"));
}

static int set_up(void **state) {
    (void)state;
    if (chdir(scratch_folder()) != 0) return -1;
    write_samples("new.csv");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_changes_no_answer),
        cmocka_unit_test(an_exported_network_answers_in_the_unit),
        cmocka_unit_test(a_run_from_before_goes_on_as_it_began),
        cmocka_unit_test(a_run_keeps_its_split),
        cmocka_unit_test(a_class_that_a_part_lacks_is_named),
        cmocka_unit_test(samples_that_were_trained_are_told),
        cmocka_unit_test(a_folder_may_be_called_as_a_set),
    };
    return cmocka_run_group_tests_name("values", tests, set_up, NULL);
}
