/* Two runs that are there, held against each other: what is refused, and where losses begin to differ. The directories
 * are written here, as a run would write them. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "lab/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct made { /* a run */
    const char *name, *mode, *lr, *losses;
    double loss[30], ms;
};

static FILE *open_in(const char *run, const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", scratch_path(run), name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    return f;
}

static void make(const struct made *m) {
    assert_ok(file_make_folders(scratch_path(m->name)));
    FILE *f = open_in(m->name, "summary.json");
    fprintf(
        f,
        "{\"mode\":\"%s\",\"devices\":2,\"shards\":2,\"steps\":30,\"epochs\":1,\"train\":{\"loss\":"
        "1},\"val\":{\"loss\":1,\"accuracy\":null},\"step_ms\":{\"p50\":2,\"p95\":3},"
        "\"samples_per_s\":9,\"time_s\":{\"load\":0,\"forward\":1,\"backward\":1,"
        "\"comm_exposed\":0.3,\"comm_hidden\":0,\"update\":0,\"total\":2},\"bytes\":{\"sent\":[1,"
        "2],\"received\":[2,1]},\"peak_rss_bytes\":[5],\"optimizer_bytes\":[0,0],"
        "\"weights_sha256\":\"w\",\"losses_sha256\":\"%s\"}\n",
        m->mode, m->losses);
    assert_int_equal(fclose(f), 0);
    f = open_in(m->name, "resolved.yaml");
    fprintf(
        f, "name: %s\nmode: %s\nbatch: {size: 8}\noptimizer: {name: sgd, lr: %s}\nlog: {dir: %s}\n",
        m->name, m->mode, m->lr, m->name);
    assert_int_equal(fclose(f), 0);
    f = open_in(m->name, "metrics.jsonl");
    for (int i = 0; i < 30; i++)
        fprintf(f,
                "{\"step\":%d,\"epoch\":0,\"loss\":%.9g,\"accuracy\":0,\"samples\":8,\"ms\":%g}\n",
                i + 1, m->loss[i], i < 10 ? 100 : m->ms);
    assert_int_equal(fclose(f), 0);
}

static struct made a, b;
static struct experiment x;
static struct compared c;

static int set_up(void **state) {
    (void)state;
    scratch_folder();
    a = (struct made){.name = "a", .mode = "dp", .lr = "0.1", .losses = "same", .ms = 4};
    for (int i = 0; i < 30; i++) a.loss[i] = 3.0 - i * 0.1;
    b = a;
    b.name = "b", b.mode = "ddp", b.ms = 2;
    return 0;
}

static enum error two(const char *axis) {
    static char dirs[2][600];
    snprintf(dirs[0], sizeof dirs[0], "%s", scratch_path("a"));
    snprintf(dirs[1], sizeof dirs[1], "%s", scratch_path("b"));
    make(&a);
    make(&b);
    return compare_two((const char *const[]){dirs[0], dirs[1]}, axis, &x, &c);
}

static int tear_down(void **state) {
    (void)state;
    experiment_close(&x);
    return 0;
}

static void two_runs_are_told_apart_but_not_judged(void **state) {
    (void)state;
    assert_ok(two(NULL));
    const struct compared_pair *p = &c.pair[0];
    assert_true(p->judged && p->statistics.ratio == 2);
    assert_int_equal(p->verdict, VERDICT_INCONCLUSIVE);
    assert_true(p->comparable && p->same_losses);
    assert_int_equal(p->ndiffers, 1);
    assert_string_equal(p->differs[0].key, "mode");
    assert_string_equal(compare_bits(&c, p), "yes");
    assert_true(c.cell[0].median[1] == 2000); /* samples a second, warm-up left out */
    assert_true(c.cell[0].median[2] == 10);   /* 0.3 s of 30 steps */
}

static void the_first_step_that_differs_is_named(void **state) {
    (void)state;
    b.losses = "other", b.loss[6] = 2.5, b.loss[20] = 9;
    assert_ok(two(NULL));
    const struct compared_pair *p = &c.pair[0];
    assert_false(p->same_losses);
    assert_int_equal(p->step, 7);
    assert_true(fabs(p->loss[0] - 2.4) < 1e-8 && p->loss[1] == 2.5);
    assert_null(p->tensor);
    assert_non_null(strstr(compare_bits(&c, p), "no: step 7"));
    assert_non_null(strstr(compare_bits(&c, p), "beside 2.5"));
    experiment_close(&x);
    b = a, b.name = "b", b.losses = "other"; /* not in what was written down */
    assert_ok(two(NULL));
    assert_int_equal(c.pair[0].step, 0);
    assert_non_null(strstr(compare_bits(&c, &c.pair[0]), "in each step"));
}

static void other_trainings_are_refused(void **state) {
    (void)state;
    b.lr = "0.2";
    assert_fails(ERR_CONFIG, two(NULL));
    assert_non_null(strstr(error_message(), "optimizer.lr is '0.1' beside '0.2'"));
    experiment_close(&x);
    assert_fails(ERR_CONFIG, two("batch"));
    experiment_close(&x);
    assert_ok(two("optimizer.lr"));
    assert_false(c.pair[0].comparable);
    assert_string_equal(compare_bits(&c, &c.pair[0]), "-");
}

/* A gate that a comparison fails, or cannot answer, is an error. */
static void gates_are_judged(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool passed, judged;
    } gates[] = {{"B.step_time > 1.05 * A.step_time", true, true},
                 {"A.step_time > 1.05 * B.step_time", false, true},
                 {"A.step_time > 3.9", false, true},
                 {"A.step_time >= 4.1", true, true},
                 {"B.throughput < 2 * A.throughput", true, true},
                 {"B.throughput <= 2 * A.throughput", false, true},
                 {"A.val_accuracy < 0.9", true, false}};
    enum { GATES = sizeof gates / sizeof *gates };
    assert_ok(two(NULL));
    for (int i = 0; i < GATES; i++) {
        x.ngates = 1, x.gate[0].text = gates[i].text;
        assert_ok(compare_judge(&c));
        if (c.gate[0].passed != gates[i].passed || c.gate[0].judged != gates[i].judged)
            fail_msg("%s: passed %d, judged %d", gates[i].text, c.gate[0].passed, c.gate[0].judged);
        assert_int_equal(compare_gates(&c) == ERR_NONE, gates[i].passed && gates[i].judged);
    }
}

/* What programs read is what was measured. */
static void json_and_csv_hold_the_numbers(void **state) {
    (void)state;
    struct json j;
    const struct json_value *root;
    b.losses = "other", b.loss[0] = 1;
    assert_ok(two(NULL));
    json_init(&j);
    assert_ok(compare_json(&c, &j));
    assert_ok(json_parse(j.text, j.length, (struct json_limits){8, 4096, 4096}, x.pool, &root));
    json_fini(&j);
    const struct json_value *pair = &json_get(root, "pairs")->children[0];
    assert_true(json_get(pair, "ratio")->number == 2);
    assert_false(json_get(pair, "same_losses")->truth);
    assert_int_equal(json_get(json_get(pair, "difference"), "step")->integer, 1);
    assert_true(
        json_get(json_get(&json_get(root, "cells")->children[1], "median"), "step_time")->number ==
        2);
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    compare_csv(&c, f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "\"run\",run,\"step_time\""));
    assert_non_null(strstr(text, "\n\"B\",1,2,4000,10,1,,other,w,"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_runs_are_told_apart_but_not_judged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_step_that_differs_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_trainings_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gates_are_judged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(json_and_csv_hold_the_numbers, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
