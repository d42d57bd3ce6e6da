/* engine compare as a user meets it: runs, resumes, refuses, fails for gates, stops when asked, and names what
 * differs. */
#include "tests/harness/program.h"

#include "lab/numbers/statistics.h"

#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;
static char file[600], folder[600];

static void write_experiment(const char *text) {
    save_text(file, text);
}

#define BASE                                                                                                           \
    "base: {model: {zoo: mlp, hidden: [16]}, data: {set: digits, train: 200, val: 20}, "                               \
    "batch: {size: 32, shards: 2}, train: 30st, eval: end"

static int set_up(void **state) {
    (void)state;
    static int tests;
    char name[32];
    if (!tests) setenv("TMPDIR", scratch_folder(), 1);
    snprintf(file, sizeof file, "%s", scratch_path("small.yaml"));
    snprintf(name, sizeof name, "out-%d", ++tests);
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return program_orphans();
}

/* The first file of that form. */
static const char *first(const char *pattern) {
    static char path[1400];
    glob_t found;
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    globfree(&found);
    return path;
}

static void a_matrix_is_run_and_gone_on_with(void **state) {
    (void)state;
    write_experiment(BASE "}\nmodel_fit: true\nrepeats: 5\n"
                          "matrix: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}\n");
    program_run(&p, 120, "compare", file, "--dir", folder, "--json", NULL);
    program_assert_code(&p, 0);
    assert_int_equal(folder_count(folder, "fit/*.json"), 2);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *j = program_json(&p, pool), *pairs = json_get(j, "pairs");
    assert_true(json_get(j, "complete")->truth);
    assert_int_equal(json_get(j, "repeats")->integer, 5);
    assert_int_equal(pairs->count, 2);
    for (int i = 0; i < 2; i++) assert_true(json_get(&pairs->children[i], "same_losses")->truth);
    assert_int_equal(json_get(json_get(j, "model"), "predicted")->integer, 3);
    for (int i = 1; i < 4; i++) {
        const struct json_value *cell = &json_get(j, "cells")->children[i];
        assert_true(json_get(json_get(cell, "predicted"), "step_time")->number > 0);
    }
    pool_free(pool);
    assert_int_equal(folder_count(folder, "cells/*/run-*/compare.json"), 20);
    assert_int_equal(folder_count(folder, "cells/*/run-*/env.json"), 20);
    assert_int_equal(folder_count(folder, "results.*") + folder_count(folder, "verdicts.csv"), 4);
    assert_non_null(strstr(p.err, "[20/20]"));

    /* nothing is run again, but what was broken or taken away */
    assert_int_equal(truncate(first("cells/*/run-02/summary.json"), 0), 0);
    assert_int_equal(unlink(first("cells/ddp*/run-03/compare.json")), 0);
    const char *cut = first("cells/dp*/run-04/metrics.jsonl");
    struct stat st;
    assert_int_equal(stat(cut, &st), 0);
    assert_int_equal(truncate(cut, st.st_size - 1), 0); /* the line that says that it has ended */
    program_run(&p, 60, "compare", file, "--dir", folder, NULL);
    program_assert_code(&p, 0);
    assert_non_null(strstr(p.err, "17 of 20 runs are already in"));
    assert_non_null(strstr(p.err, "[20/20]"));
    assert_null(strstr(p.err, "[17/20]"));
    assert_non_null(strstr(p.out, "same losses and weights, bit for bit: yes (2 of 2 pairs; the same in all cells)"));

    /* another configuration is another cell */
    program_run(&p, 60, "compare", file, "--dir", folder, "--set", "seed=3", "--csv", NULL);
    program_assert_code(&p, 0);
    assert_null(strstr(p.err, "already"));
    assert_int_equal(folder_count(folder, "cells/*"), 8);
    assert_non_null(strstr(p.out, "\"mode\",\"devices\",run,\"step_time\""));
}

static void gates_fail_with_exit_code_one(void **state) {
    (void)state;
    char config[600];
    snprintf(config, sizeof config, "%s", scratch_path("c \"\\ it's.yaml"));
    FILE *f = fopen(config, "w");
    fputs("model: {zoo: mlp, hidden: [16]}\ndata: {set: digits, train: 200, val: 20}\n"
          "batch: {size: 32, shards: 2}\ntrain: 30st\ndevices: cpu:2\n",
          f);
    assert_int_equal(fclose(f), 0);
    program_run(&p, 60, "compare", "--modes", "dp,ddp", config, "--dir", folder, "--fail-if",
                "B.step_time > 0.0001 * A.step_time", "-q", NULL);
    program_assert_code(&p, 1);
    assert_non_null(strstr(p.err, "gate failed: B.step_time"));
    assert_non_null(strstr(p.out, "gate FAILED"));
    program_run(&p, 60, "compare", "--modes", "dp,ddp", config, "--dir", folder, "--fail-if",
                "B.step_time > 10000 * A.step_time", NULL);
    program_assert_code(&p, 0);
    assert_non_null(strstr(p.out, "gate passed"));
    assert_non_null(strstr(p.err, " runs are already in")); /* and no other */
    assert_null(strstr(p.err, "run 1 "));
    program_run(&p, 60, "compare", "--modes", "dp,dp", config, "--dir", folder, "--repeats", "3", NULL);
    program_assert_code(&p, 78);
    assert_non_null(strstr(p.err, "at least 5"));
}

/* Compressed gradients are other gradients: the first step and the first tensor say so. */
static void what_differs_is_named(void **state) {
    (void)state;
    write_experiment(BASE ", mode: ddp, devices: cpu:2, checkpoint: 30st}\n"
                          "matrix: {comm.compress: [none, fp16]}\n");
    program_run(&p, 120, "compare", file, "--dir", folder, NULL);
    program_assert_code(&p, 0);
    assert_non_null(strstr(p.out, "same losses and weights, bit for bit: no (0 of 1 pairs)"));
    assert_non_null(strstr(p.out, "no: step "));
    assert_non_null(strstr(p.out, ", first tensor "));
}

static void finished_runs_are_compared(void **state) {
    (void)state;
    char a[600], b[600];
    write_experiment(BASE "}\nmatrix: {mode: [dp, ddp], devices: [cpu:2]}\nrepeats: 5\n");
    program_run(&p, 60, "compare", file, "--dir", folder, "-q", NULL);
    program_assert_code(&p, 0);
    snprintf(a, sizeof a, "%.590s", first("cells/dp-*/run-01"));
    snprintf(b, sizeof b, "%.590s", first("cells/ddp-*/run-01"));
    program_run(&p, 30, "compare", a, b, NULL);
    program_assert_code(&p, 0);
    assert_non_null(strstr(p.out, "B differs from A in mode: dp, ddp"));
    assert_non_null(strstr(p.out, "same losses and weights, bit for bit: yes"));
    assert_non_null(strstr(p.out, "no verdict"));
    program_run(&p, 30, "compare", a, b, a, "--csv", NULL);
    program_assert_code(&p, 0);
    assert_true(strstr(p.out, "\n\"A\",1,") && strstr(p.out, "\n\"B\",1,") && strstr(p.out, "\n\"C\",1,"));
    program_run(&p, 30, "compare", a, folder, NULL);
    program_assert_code(&p, 78);
    assert_non_null(strstr(p.err, "is an experiment"));
    program_run(&p, 30, "compare", a, scratch_path("nowhere"), NULL);
    program_assert_code(&p, 66);
}

/* A run that cannot be says what it said, with its exit code. */
static void a_failed_run_ends_the_experiment(void **state) {
    (void)state;
    write_experiment("base: {data: {set: csv, train: nothing.csv}, train: 30st}\n"
                     "matrix: {mode: [dp, ddp]}\n");
    program_run(&p, 30, "compare", file, "--dir", folder, NULL);
    assert_true(p.code != 0);
    assert_non_null(strstr(p.err, "nothing.csv"));
    assert_int_equal(folder_count(folder, "cells/*/run-*/compare.json"), 0);
}

/* One word a side, a seed a repeat: trainings of their own, in pairs. */
static void seeds_are_trainings(void **state) {
    (void)state;
    write_experiment(BASE ", devices: cpu:2}\nsides: {ddp: {mode: ddp}, dp: {mode: dp}, "
                          "int8: {mode: ddp, comm.compress: int8}}\nrepeats: {seeds: 7}\npairs: all\n"
                          "metrics: [train_loss]\n");
    program_run(&p, 120, "compare", file, "--dir", folder, "--json", "-q", NULL);
    program_assert_code(&p, 0);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *j = program_json(&p, pool), *pairs = json_get(j, "pairs"), *cells = json_get(j, "cells");
    assert_int_equal(pairs->count, 3);
    assert_int_equal(json_get(j, "seeds")->count, 7);
    assert_string_equal(json_get(json_get(json_get(j, "sides_settings"), "int8"), "comm.compress")->text, "int8");
    /* dp and ddp are the same training for each seed, and told to be */
    const struct json_value *same = &json_get(&pairs->children[0], "answers")->children[0];
    assert_true(json_get(same, "equal")->truth);
    assert_string_equal(json_get(same, "verdict")->text, "same");
    /* int8's losses are held against ddp's, seed by seed: the median of the averages of two ratios */
    const struct json_value *other = &json_get(&pairs->children[1], "answers")->children[0];
    assert_true(json_get(other, "paired")->truth && !json_get(other, "equal")->truth);
    double ratio[7], average[28];
    int n = 0;
    for (int i = 0; i < 7; i++) {
        const struct json_value *a = &json_get(&cells->children[0], "runs")->children[i];
        const struct json_value *b = &json_get(&cells->children[2], "runs")->children[i];
        assert_true(json_get(a, "seed")->integer == i && json_get(b, "seed")->integer == i);
        ratio[i] = log(json_get(a, "train_loss")->number / json_get(b, "train_loss")->number);
        for (int k = 0; k <= i; k++) average[n++] = (ratio[i] + ratio[k]) / 2;
    }
    assert_true(fabs(log(json_get(other, "estimate")->number) - statistics_median(average, n)) < 1e-6);
    pool_free(pool);
    assert_int_equal(folder_count(folder, "cells/*/run-*/compare.json"), 21);
    /* more questions of the same runs are too many for pairs of seven: 2 * 9 / 2^7, but not / 2^9 */
    write_experiment(BASE ", devices: cpu:2}\nsides: {ddp: {mode: ddp}, dp: {mode: dp}, "
                          "int8: {mode: ddp, comm.compress: int8}}\nrepeats: {seeds: 7}\npairs: all\n"
                          "metrics: [train_loss, step_time, bytes]\n");
    program_run(&p, 60, "compare", file, "--dir", folder, NULL);
    program_assert_code(&p, 0);
    const char *few = "7 seeds are too few to compare seed by seed for 9 questions, pairs times metrics (9 would do)";
    assert_true(strstr(p.err, few) && strstr(p.out, few));
    assert_non_null(strstr(p.err, "21 of 21 runs are already in"));
    /* another choice of seeds takes what there is */
    program_run(&p, 60, "compare", file, "--dir", folder, "--repeats", "5", "--quick", NULL);
    program_assert_code(&p, 0);
    assert_non_null(strstr(p.err, "15 of 15 runs are already in"));
}

static void an_interrupt_leaves_results_to_go_on_with(void **state) {
    (void)state;
    write_experiment(BASE ", comm: {emulate: {latency: 5ms}}}\n"
                          "matrix: {mode: [dp, ddp], devices: [cpu:2]}\nrepeats: 5\n");
    const char *words[] = {"compare", file, "--dir", folder, NULL};
    program_start(&p, words);
    program_wait_text(&p, "[2/10]", 60);
    kill(p.pid, SIGINT);
    assert_true(program_wait(&p, 20));
    program_assert_code(&p, 130);
    for (int i = 0; i < 200 && program_orphans(); i++) usleep(10000);
    assert_int_equal(program_orphans(), 0);
    assert_non_null(strstr(p.out, "some runs are missing"));
    assert_int_equal(folder_count(folder, "results.json"), 1);
    int done = folder_count(folder, "cells/*/run-*/compare.json");
    assert_true(done >= 2 && done < 10);
    assert_int_equal(folder_count(folder, "cells/*/run-0[0-9]"), done);
    program_run(&p, 60, "compare", file, "--dir", folder, NULL);
    program_assert_code(&p, 0);
    assert_non_null(strstr(p.err, "of 10 runs are already in"));
    assert_null(strstr(p.out, "some runs are missing"));
}

static void words_that_make_no_sense_are_usage(void **state) {
    (void)state;
    static const char *const wrong[][4] = {
        {"--json", "--csv", "x.yaml"}, {"a", "b", "--modes"},     {"--repeats", "none", "x"}, {"--modes"}, {"--wrong"},
        {"a", "b", "--repeats"},       {"x.yaml", "--axis", "lr"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program_run(&p, 10, "compare", wrong[i][0], wrong[i][1], wrong[i][2], NULL);
        if (p.code != 64) fail_msg("%s: exit code %d", wrong[i][0], p.code);
    }
    program_run(&p, 10, "compare", NULL);
    program_assert_code(&p, 64);
    program_run(&p, 10, "compare", "/no/such.yaml", NULL);
    program_assert_code(&p, 66);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_matrix_is_run_and_gone_on_with, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gates_fail_with_exit_code_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_differs_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(finished_runs_are_compared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_run_ends_the_experiment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(seeds_are_trainings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_interrupt_leaves_results_to_go_on_with, set_up, tear_down),
        cmocka_unit_test_setup_teardown(words_that_make_no_sense_are_usage, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
