/* Runs of a user's own command: what it has told in each form is read to the same numbers, what is none is refused, and
 * the folder that is written reads back as any run's. */
#include "tests/harness/harness.h"

#include "lab/results/foreign.h"
#include "lab/results/foreign_told.h"
#include "lab/results/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct pool *pool;
static struct told told;
static char dir[600];
static struct run_result result;

static int set_up(void **state) {
    (void)state;
    static int tests;
    char name[32];
    assert_ok(pool_create(&pool));
    told_init(&told);
    snprintf(name, sizeof name, "run-%d", ++tests);
    snprintf(dir, sizeof dir, "%s", scratch_path(name));
    assert_ok(foreign_begin(dir, pool));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    told_fini(&told);
    pool_free(pool);
    return 0;
}

static const char *in_dir(const char *name) {
    return pool_printf(pool, "%s/%s", dir, name);
}

static void put_bytes(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put(const char *name, const char *text) {
    put_bytes(name, text, strlen(text));
}

static enum error finish(void) {
    struct node *item = pool_alloc(pool, sizeof *item), **items = pool_alloc(pool, sizeof(void *));
    struct node settings = {.kind = NODE_MAP, .items = items, .count = 1};
    *item = (struct node){.kind = NODE_SCALAR, .key = "command", .text = "python x.py"};
    items[0] = item;
    const struct foreign f = {.dir = dir,
                              .metrics = in_dir("command.jsonl"),
                              .out = in_dir("output.txt"),
                              .settings = &settings,
                              .devices = 2,
                              .warmup = 1,
                              .memory = 4096};
    return foreign_finish(&f, pool);
}

static void read_back(void) {
    assert_ok(finish());
    assert_ok(run_result_read(dir, pool, &result));
}

static double measured(const char *name) {
    return measure_of(measure_find(name, (int)strlen(name)), &result, 1);
}

static void lines_become_a_run(void **state) {
    (void)state;
    put("output.txt", "hello\n{'step': 7}\n"
                      "{\"step\": 1, \"loss\": 4, \"ms\": 100, \"samples\": 8, \"accuracy\": 0.25}\n"
                      "{\"step\": 2, \"loss\": 3, \"ms\": 10, \"samples\": 8, \"comm_ms\": 2}\n"
                      "  {\"step\": 3, \"loss\": NaN, \"ms\": 30, \"samples\": 8, \"comm_ms\": 4}\n"
                      "{\"step\": 3, \"val\": {\"loss\": 1.5, \"accuracy\": 0.75, \"r2\": -2}}\n{\"other\": 1}\n"
                      "{\"bytes\": 1000, \"weights_sha256\": "
                      "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}");
    read_back();
    assert_string_equal(result.mode, "command");
    assert_int_equal(result.devices, 2);
    assert_int_equal(result.steps, 3);
    assert_int_equal(result.nsteps, 3);
    assert_true(result.step[0].loss == 4 && result.step[0].accuracy == 0.25 && isnan(result.step[2].loss));
    assert_true(measured("step_time") == 20 && measured("step_q25") == 15 && measured("step_best") == 10);
    assert_true(measured("throughput") == 400);
    assert_true(measured("time") == 0.14 && measured("bytes") == 1000 && measured("memory") == 4096);
    assert_true(fabs(measured("comm_exposed") - 3) < 1e-9 && isnan(measured("forward")));
    assert_true(isnan(measured("train_loss"))); /* not that of the step before */
    assert_true(measured("val_loss") == 1.5 && measured("val_accuracy") == 0.75);
    assert_true(measured("val_r2") == -2 && isnan(measured("val_rmse")));
    assert_int_equal(strlen(result.weights), 64);
    assert_string_equal(run_result_setting(&result, "command"), "python x.py");
    assert_true(*result.environment.host && *result.environment.time);
}

/* From moments: seconds since any, of each line; ms of a step is its share of what lies between two lines. */
static void times_follow_from_moments(void **state) {
    (void)state;
    put("output.txt", "{\"step\": 9, \"loss\": 1, \"ms\": 5}\n"); /* not read, as the file is there */
    put("command.jsonl", "{\"step\": 0, \"loss\": 4, \"time\": 100}\n{\"step\": 1, \"loss\": 3, \"time\": 100.5}\n"
                         "{\"step\": 5, \"loss\": 2, \"time\": 102.5}\n");
    read_back();
    assert_int_equal(result.nsteps, 3);
    assert_true(result.step[0].step == 1 && result.step[1].step == 2 && result.step[2].step == 6);
    assert_true(isnan(result.step[0].ms) && result.step[1].ms == 500 && result.step[2].ms == 500);
    assert_true(measured("step_time") == 500 && measured("time") == 2.5);
    assert_true(isnan(measured("throughput")) && isnan(measured("bytes")));
    assert_string_equal(result.weights, "");
    assert_string_equal(run_result_training(&result), result.losses);
    put("command.jsonl", "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3}\n");
    read_back();
    assert_true(isnan(measured("step_time")) && isnan(measured("time")) && measured("train_loss") == 3);
}

/* Steps without a loss are no steps of equal losses. */
static void losses_that_are_not_reported_have_no_hash(void **state) {
    (void)state;
    put("command.jsonl", "{\"step\": 1, \"ms\": 5}\n{\"step\": 2, \"ms\": 5}\n{\"step\": 2, \"val_accuracy\": 0.5}\n");
    read_back();
    assert_true(isnan(measured("train_loss")) && measured("val_accuracy") == 0.5);
    assert_string_equal(result.losses, "");
    assert_null(run_result_training(&result));
}

static void tables_are_read(void **state) {
    (void)state;
    put("output.txt", "no json\n");
    assert_int_equal(mkdir(in_dir("logs"), 0755), 0);
    put("logs/other.csv", "name,size\r\na,b\r\n");
    put("logs/metrics.csv",
        "epoch,\"step\",train/loss,Val-Accuracy,step_ms,note\r\n0,1,2.5,,7,a\r\n0,2,nan,,9,\"b, c\"\r\n"
        "0,2,,0.5,,\r\n");
    read_back();
    assert_true(result.nsteps == 2 && result.step[0].loss == 2.5 && isnan(result.step[1].loss));
    assert_true(measured("step_time") == 9 && measured("val_accuracy") == 0.5);
    put("command.jsonl", "step,loss\n1,2\n2,1\n"); /* a table where lines were expected */
    read_back();
    assert_true(measured("train_loss") == 1);
}

/* ---- what is none ---- */

static void refused(const char *name, const char *text, const char *message) {
    put("output.txt", "");
    put(name, text);
    assert_fails(ERR_DATA, finish());
    if (!strstr(error_message(), message)) fail_msg("'%s' is not in '%s'", message, error_message());
}

static void what_is_missing_is_told(void **state) {
    (void)state;
    refused("output.txt", "epoch 1\n", "reported no step");
    assert_non_null(strstr(error_hint(), "\"step\": 1"));
    refused("output.txt", "x\n{'step': 1, 'loss': 2}\n", "line 2 of its output begins with '{' but is not JSON");
    refused("output.txt", "{\"step\": 1, \"loss\": 2}\n", "reported 1 steps, all of them warm-up");
    refused("output.txt", "{\"step\": 1, \"loss\": 2}\n{\"step\": 1, \"loss\": 3}\n", "step 1 is reported twice");
    refused("output.txt", "{\"step\": 1.5, \"loss\": 2}\n", "line 1: step 1.5 is not a step number");
    refused("output.txt", "{\"step\": -1, \"loss\": 2}\n", "step -1 is not a step number");
    refused("output.txt", "{\"step\": 1e300, \"loss\": 2}\n", "is not a step number");
    refused("output.txt", "{\"weights_sha256\": \"abc\"}\n", "weights_sha256 is 'abc'");
    refused("command.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"step\": 2,\n", "command.jsonl: line 2: ");
    refused("command.jsonl", "{\"step\": 1, \"loss\": 2}\n7\n", "line 2: no object");
    refused("command.jsonl", "step,loss\n1,2\n2,x\n", "line 3: 'x' is no number");
    assert_int_equal(remove(in_dir("command.jsonl")), 0);
}

static void names_have_other_words(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int field;
    } names[] = {{"loss", TOLD_LOSS},
                 {"Train/Loss", TOLD_LOSS},
                 {"val.acc", TOLD_VAL_ACCURACY},
                 {"val/loss", TOLD_VAL_LOSS},
                 {"Loss/Val", TOLD_VAL_LOSS},
                 {"phase_ms/comm", TOLD_COMM},
                 {"ms", TOLD_MS},
                 {"learning-rate", TOLD_LR},
                 {"", -1},
                 {" ", -1},
                 {"loss train_loss", -1},
                 {"test_loss", -1}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (told_field_of(names[i].name, strlen(names[i].name)) != names[i].field) fail_msg("'%s'", names[i].name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_become_a_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(times_follow_from_moments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(losses_that_are_not_reported_have_no_hash, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tables_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_missing_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_have_other_words, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
