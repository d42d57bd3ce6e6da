/* engine eval: the numbers of training again, the same on any devices, and the best checkpoint
 * rather than the last. */
#include "tests/harness/program.h"

#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct program p;
static char trained[600];

/* A small run, once: its best is not its last, since the learning rate jumps at the end. */
static int train_one(void **state) {
    (void)state;
    char dir[640];
    setenv("TMPDIR", scratch_folder(), 1);
    snprintf(trained, sizeof trained, "%s", scratch_path("trained"));
    snprintf(dir, sizeof dir, "log.dir=%s", trained);
    program_run(&p, 60, "run", "--json", "--quiet", "--set", "mode=ddp", "--set", "devices=cpu:2", "--set", "threads=1",
                "--set", "data={set: digits, train: 1000, val: 503}", "--set", "batch={size: 64, shards: 4}", "--set",
                "train=6ep", "--set", dir, "--set", "optimizer={name: sgd, lr: 0.1, momentum: 0.9}", "--set",
                "checkpoint={every: 1ep, keep: 1, best: val.top5}", NULL);
    return p.code;
}

static double value(const char *path) {
    return program_number(&p, path);
}

static void numbers_are_those_of_training(void **state) {
    (void)state;
    double loss = value("val.loss"), accuracy = value("val.accuracy"), top5 = value("val.top5");
    assert_true(accuracy > 0.3 && top5 > accuracy && top5 <= 1);
    char last[700];
    snprintf(last, sizeof last, "%s/ckpt/step-%09d", trained, (int)value("steps"));
    program_run(&p, 30, "eval", trained, "--checkpoint", last, "--json", NULL);
    assert_int_equal(p.code, 0);
    assert_true(value("result.loss") == loss);
    assert_true(value("result.accuracy") == accuracy);
    assert_true(value("result.top5") == top5);
    assert_int_equal((int)value("result.samples"), 503);
}

/* The classes' counts add up to the samples, and their hits to the accuracy. */
static void confusions_add_up(void **state) {
    (void)state;
    program_run(&p, 30, "eval", trained, "--json", NULL);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *j = program_json(&p, pool), *rows = json_get(j, "confusion"),
                            *result = json_get(j, "result");
    double all = 0, right = 0;
    assert_int_equal(rows->count, 10);
    for (int k = 0; k < 10; k++) {
        double of_class = 0;
        for (int a = 0; a < 10; a++) of_class += rows->children[k].children[a].number;
        const struct json_value *one = &json_get(j, "classes")->children[k];
        assert_true(json_get(one, "samples")->number == of_class);
        right += rows->children[k].children[k].number;
        all += of_class;
    }
    assert_true(all == 503);
    assert_true(fabs(right / all - json_get(result, "accuracy")->number) < 1e-8);
    pool_free(pool);
}

static void the_same_on_any_devices(void **state) {
    (void)state;
    static const char *const places[][2] = {{"single", "cpu:1"}, {"dp", "cpu:4"}, {"ddp", "cpu:4"}, {"dp", "cpu:2"}};
    program_run(&p, 30, "eval", trained, "--json", NULL);
    double loss = value("result.loss"), top5 = value("result.top5");
    for (int i = 0; i < 4; i++) {
        program_run(&p, 30, "eval", trained, "--json", "--mode", places[i][0], "--devices", places[i][1], NULL);
        assert_int_equal(p.code, 0);
        assert_true(value("result.loss") == loss);
        assert_true(value("result.top5") == top5);
    }
    assert_int_equal(program_orphans(), 0);
}

/* Any number of devices evaluates what three have made, in whatever mode, and one host what was
 * trained on two; and any number goes on. */
static void made_on_three_devices(void **state) {
    (void)state;
    static const char *const places[][2] = {{"single", NULL}, {"single", "cpu:1"}, {"ddp", "cpu:2"},
                                            {"ddp", "cpu:5"}, {"dp", "cpu:2"},     {"dp", "cpu:4"}};
    char run[640], dir[600];
    snprintf(dir, sizeof dir, "%s", scratch_path("three"));
    snprintf(run, sizeof run, "log.dir=%s", dir);
    program_run(&p, 60, "run", "--json", "--set", "data={set: digits, train: 500, val: 203}", "--set", "batch=96",
                "--set", "train=9st", "--devices", "cpu:3", "--set", "threads=1", "--set", run, NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    double loss = value("val.loss");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        program_run(&p, 30, "eval", dir, "--json", "--set", "threads=1", "--mode", places[i][0],
                    places[i][1] ? "--devices" : NULL, places[i][1], NULL);
        if (p.code != 0) fail_msg("%s: %s", places[i][0], p.err);
        assert_true(value("result.loss") == loss);
        assert_true(value("result.samples") == 203);
    }
    program_run(&p, 30, "eval", dir, "--mode", "single", "--devices", "cpu:2", NULL);
    assert_int_equal(p.code, 78);
    program_run(&p, 30, "predict", dir, "val:0-1", NULL);
    assert_int_equal(p.code, 0);
    program_run(&p, 30, "run", dir, "--devices", "cpu:2", "--set", "train=10st", "--json", NULL);
    assert_int_equal(p.code, 0);
    assert_true(value("first_step") == 9);
}

/* What a killed one has left goes with the next. */
static bool leaves_a_folder(void) {
    glob_t left = {0};
    bool found = glob(scratch_path("engine-eval-*"), 0, NULL, &left) == 0;
    globfree(&left);
    return found;
}

static void leftovers_go(void **state) {
    (void)state;
    const char *words[] = {"eval", trained, "--devices", "cpu:2", "--mode", "ddp", NULL};
    setenv("TMPDIR", scratch_folder(), 1);
    for (int i = 0; i < 50; i++) { /* until it is killed in time */
        program_start(&p, words);
        for (int k = 0; k < 2000 && !program_ended(&p); k++) {
            if (leaves_a_folder()) break;
            usleep(500);
        }
        kill(p.pid, SIGKILL);
        assert_true(program_wait(&p, 10));
        if (leaves_a_folder()) break;
    }
    assert_true(leaves_a_folder());
    program_run(&p, 30, "eval", trained, NULL);
    assert_int_equal(p.code, 0);
    assert_false(leaves_a_folder());
}

/* Of the run's checkpoints the last and the best are there: the best is taken. */
static void the_best_is_taken(void **state) {
    (void)state;
    char run[640];
    const char *dir = scratch_path("worse");
    snprintf(run, sizeof run, "log.dir=%s", dir);
    program_run(&p, 60, "run", "--json", "--quiet", "--set", "mode=single", "--set", "devices=cpu:1", "--set",
                "data={set: digits, train: 500, val: 200}", "--set", "batch=50", "--set", "train=4ep", "--set", run,
                "--set", "optimizer={name: sgd, lr: 0.1, clip: 1}", "--set",
                "schedule={name: step, at: [2ep], gamma: 20}", "--set",
                "checkpoint={every: 1ep, keep: 1, best: val.accuracy}", NULL);
    assert_int_equal(p.code, 0);
    double last = value("val.accuracy"), best = value("best_checkpoint.value");
    assert_true(value("best_checkpoint.step") == 20);
    program_run(&p, 30, "eval", dir, "--json", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(program_string(&p, "checkpoint"), "step-000000020"));
    assert_true(value("result.accuracy") > last);
    assert_true(value("result.accuracy") == best); /* it is the one that is named at the end of the run */
    program_run(&p, 30, "inspect", dir, "--json", NULL);
    assert_non_null(strstr(program_string(&p, "best_checkpoint"), "step-000000020"));
    program_run(&p, 30, "inspect", dir, NULL);
    assert_non_null(strstr(p.out, "ckpt/step-000000020, after step 20\n"));
}

static void people_see_a_table(void **state) {
    (void)state;
    program_run(&p, 30, "eval", trained, "--split", "train", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "1,000 training samples"));
    assert_non_null(strstr(p.out, "top-5"));
    assert_non_null(strstr(p.out, "precision"));
    assert_non_null(strstr(p.out, "taken for what"));
    assert_string_equal(p.err, "");
}

static void a_run_stops_at_its_goal(void **state) {
    (void)state;
    char dir[640];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("goal"));
    program_run(&p, 60, "run", "--json", "--quiet", "--set", "mode=single", "--set", "devices=cpu:1", "--set",
                "data={set: digits, train: 1000, val: 200}", "--set", "batch=50", "--set",
                "train={for: 50ep, until: {val.top5: 0.9}}", "--set", dir, "--set", "optimizer={name: sgd, lr: 0.1}",
                NULL);
    assert_int_equal(p.code, 0);
    assert_true(value("epochs") < 50);
    assert_true(value("val.top5") >= 0.9);
    program_run(&p, 60, "run", "--set", "train.until={val.perplexity: 3}", "--set", dir, NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "there is no val.perplexity"));
    program_run(&p, 60, "run", "--set", "checkpoint.best=val.top5", "--set", "data=spirals", "--set", dir, NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "no more than 5 classes"));
}

enum { ROWS = 60, HELD = 20 };
static double target_of(int i) {
    return 3 + i * 7 % 11 + 0.5 * (i % 3);
}

static void write_values(const char *path, int from, int to) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "a,b,target\n");
    for (int i = from; i < to; i++) fprintf(f, "%d,%d,%.1f\n", i % 5, i * 7 % 11, target_of(i));
    assert_int_equal(fclose(f), 0);
}

/* Of values there are RMSE, MAE and R2, as an independent computation from the predictions has them, with the same bits
 * on any devices; and no accuracy anywhere. */
static void values_have_metrics_of_their_own(void **state) {
    (void)state;
    static const char *const places[][2] = {
        {"mode=single", "devices=cpu:1"}, {"mode=dp", "devices=cpu:3"}, {"mode=ddp", "devices=cpu:2"}};
    static const char *const names[] = {"val.rmse", "val.mae", "val.r2", "val.loss"};
    char data[1400], dir[700], predicted[64];
    double first[4], squares = 0, absolute = 0, mean = 0, spread = 0;
    int n = snprintf(data, sizeof data, "data={set: csv, target: target, train: %s", scratch_path("learned.csv"));
    snprintf(data + n, sizeof data - (size_t)n, ", val: %s}", scratch_path("held.csv"));
    write_values(scratch_path("learned.csv"), HELD, ROWS);
    write_values(scratch_path("held.csv"), 0, HELD);
    for (int i = 0; i < 3; i++) {
        snprintf(dir, sizeof dir, "log.dir=%s-%d", scratch_path("values"), i);
        program_run(&p, 60, "run", "--json", "--set", data, "--set", places[i][0], "--set", places[i][1], "--set", dir,
                    "--set", "model={layers: [{linear: 4}, relu, {linear: 1}]}", "--set", "loss=mse", "--set",
                    "optimizer={name: adam, lr: 0.05}", "--set", "batch=8", "--set", "train=40st", "--set",
                    "log={dir: x, sinks: [jsonl, csv]}", "--set", dir, NULL);
        if (p.code) fail_msg("%s", p.err);
        assert_null(strstr(p.err, "acc="));
        assert_non_null(strstr(p.err, ", R2 "));
        for (int k = 0; k < 4; k++) {
            if (!i) first[k] = value(names[k]);
            assert_true(value(names[k]) == first[k]);
        }
    }
    struct pool *pool;
    assert_ok(pool_create(&pool));
    snprintf(predicted, sizeof predicted, "val:0-%d", HELD - 1);
    program_run(&p, 60, "predict", dir + strlen("log.dir="), predicted, "--json", NULL);
    assert_int_equal(p.code, 0);
    const struct json_value *rows = program_json(&p, pool);
    assert_int_equal(rows->count, HELD);
    for (int i = 0; i < HELD; i++) mean += target_of(i) / HELD;
    for (int i = 0; i < HELD; i++) {
        double t = target_of(i), e = json_get(&rows->children[i], "outputs")->children[0].number - t;
        squares += e * e, absolute += fabs(e), spread += (t - mean) * (t - mean);
    }
    pool_free(pool);
    assert_true(fabs(sqrt(squares / HELD) / first[0] - 1) < 1e-5);
    assert_true(fabs(absolute / HELD / first[1] - 1) < 1e-5);
    assert_true(fabs(1 - squares / spread - first[2]) < 1e-5);
}

/* A rate that changes no weight: all evaluations are equal, and the last is the best. One that changes the loss alone:
 * likewise. */
static void of_equal_values_the_lower_loss_is_the_best(void **state) {
    (void)state;
    static const char *const rates[] = {"optimizer={name: sgd, lr: 1e-30}", "optimizer={name: sgd, lr: 1e-5}"};
    char dir[640], text[64];
    for (int i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "log.dir=%s-%d", scratch_path("equal"), i);
        program_run(&p, 60, "run", "--json", "--quiet", "--set", "data={set: digits, train: 200, val: 100}", "--set",
                    "batch=50", "--set", "train=12st", "--set", "eval=3st", "--set", rates[i], "--set", dir, "--set",
                    "checkpoint={every: 12st, best: val.accuracy}", NULL);
        assert_int_equal(p.code, 0);
        assert_int_equal((int)value("best_checkpoint.step"), 12);
        assert_true(value("best_checkpoint.value") == value("val.accuracy"));
    }
    snprintf(text, sizeof text, "\"best_step\":%d", 12);
    program_run(&p, 30, "runs", scratch_path("equal-0"), "--json", NULL);
    assert_non_null(strstr(p.out, text));
}

/* The last step is saved as due, and evaluated only after that. */
static void the_last_evaluation_may_find_the_best(void **state) {
    (void)state;
    char dir[640];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("late"));
    program_run(&p, 60, "run", "--json", "--quiet", "--set", "data={set: digits, train: 200, val: 100}", "--set",
                "batch=50", "--set", "train=10st", "--set", "eval=4st", "--set", dir, "--set",
                "checkpoint={every: 5st, best: val.loss}", NULL);
    assert_int_equal(p.code, 0);
    assert_int_equal((int)value("best_checkpoint.step"), 10);
    assert_true(value("best_checkpoint.value") == value("val.loss"));
}

static void the_balanced_accuracy_is_the_mean_of_recalls(void **state) {
    (void)state;
    program_run(&p, 30, "eval", trained, "--json", NULL);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *j = program_json(&p, pool), *classes = json_get(j, "classes");
    double sum = 0;
    for (int k = 0; k < classes->count; k++) sum += json_get(&classes->children[k], "recall")->number / classes->count;
    assert_true(fabs(sum - value("result.balanced_accuracy")) < 1e-7);
    pool_free(pool);
}

/* Six bytes of three characters, again and again: bits are shared by twice as many bytes as there are characters. */
static void bits_per_byte_count_the_bytes_of_characters(void **state) {
    (void)state;
    char data[700], dir[700];
    FILE *f = fopen(scratch_path("text.txt"), "w");
    assert_non_null(f);
    for (int i = 0; i < 700; i++) fputs("\xc3\xa4\xc3\xb6\xc3\xbc", f);
    assert_int_equal(fclose(f), 0);
    snprintf(data, sizeof data, "data={set: text, train: %s, val: 20%%, context: 16}", scratch_path("text.txt"));
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("text"));
    program_run(&p, 60, "run", "--json", "--quiet", "--set", data, "--set", dir, "--set", "model=gpt-nano", "--set",
                "train=4st", "--set", "batch=8", "--set", "mode=dp", "--set", "devices=cpu:2", NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_true(fabs(value("val.loss") / log(2) / 2 / value("val.bits_per_byte") - 1) < 1e-6);
}

static void wrong_input_is_told(void **state) {
    (void)state;
    static const struct {
        const char *words[4];
        int code;
        const char *text;
    } wrong[] = {
        {{"/no/such.yaml"}, 66, "/no/such.yaml"},
        {{"--split", "test"}, 64, "'test'"},
        {{"--nonsense"}, 64, "--nonsense"},
        {{"--checkpoint"}, 64, "needs a value"},
        {{"a.yaml", "b.yaml"}, 64, "one configuration"},
        {{trained, "--checkpoint", "/no/such"}, 66, "no checkpoint '/no/such'"},
        {{"--set", "log.dir=/no/such/runs"}, 66, "train it first"},
        {{trained, "--set", "model=lenet"}, 78, "tensor"},
        {{trained, "--set", "data=spirals"}, 78, NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const *w = wrong[i].words;
        program_run(&p, 30, "eval", w[0], w[1], w[2], NULL);
        if (p.code != wrong[i].code) fail_msg("%s: code %d\n%s", w[0], p.code, p.err);
        if (wrong[i].text) assert_non_null(strstr(p.err, wrong[i].text));
    }
    assert_false(leaves_a_folder());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_training),
        cmocka_unit_test(confusions_add_up),
        cmocka_unit_test(the_same_on_any_devices),
        cmocka_unit_test(made_on_three_devices),
        cmocka_unit_test(leftovers_go),
        cmocka_unit_test(the_best_is_taken),
        cmocka_unit_test(people_see_a_table),
        cmocka_unit_test(a_run_stops_at_its_goal),
        cmocka_unit_test(values_have_metrics_of_their_own),
        cmocka_unit_test(of_equal_values_the_lower_loss_is_the_best),
        cmocka_unit_test(the_last_evaluation_may_find_the_best),
        cmocka_unit_test(the_balanced_accuracy_is_the_mean_of_recalls),
        cmocka_unit_test(bits_per_byte_count_the_bytes_of_characters),
        cmocka_unit_test(wrong_input_is_told),
    };
    return cmocka_run_group_tests_name("eval", tests, train_one, NULL);
}
