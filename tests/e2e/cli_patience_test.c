/* train.patience and train.until: where a run ends follows from what metrics.jsonl tells of its evaluations and steps, in
 * every mode and after a resume; and what ends it is told. */
#include "tests/harness/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program p;

static const char *place_dir(void) {
    static char dir[700];
    static int serial;
    snprintf(dir, sizeof dir, "log.dir=%s-%d", scratch_path("run"), serial++);
    return dir;
}

static void run(const char *train, const char *mode, const char *devices, const char *more, const char *dir) {
    program_train(&p,
                  SETS("model={zoo: mlp, hidden: [16]}", "data={set: digits, train: 300, val: 70}",
                       "batch={size: 64, shards: 8}", "optimizer={lr: 0.2}", "eval=4st", "threads=1", train),
                  SETS(mode, devices, more, dir));
}

/* The step of the evaluation after which there have been 'most' without a value better by more than 'delta'. */
static int64_t expected_end(const char *key, int most, double delta, bool rises) {
    char path[700], line[1024];
    double best = (double)NAN;
    int waits = 0;
    long long step = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", program_string(&p, "run_dir"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (waits < most && fgets(line, sizeof line, f)) {
        const char *val = strstr(line, "\"val\":"), *at = val ? strstr(val, key) : NULL;
        if (!at) continue;
        double value = strtod(at + strlen(key), NULL);
        bool better = isnan(best) || (rises ? value > best + delta : value < best - delta);
        waits = better ? 0 : waits + 1;
        if (better) best = value;
        assert_int_equal(sscanf(line, "{\"step\":%lld", &step), 1);
    }
    fclose(f);
    assert_int_equal(waits, most);
    return step;
}

static void assert_ended(int64_t step) {
    assert_string_equal(program_string(&p, "ended"), "no improvement");
    assert_true(program_number(&p, "steps") == (double)step);
}

static void assert_target(int64_t step) {
    assert_string_equal(program_string(&p, "ended"), "target reached");
    assert_true(program_number(&p, "steps") == (double)step);
}

static void it_ends_where_the_numbers_say(void **state) {
    (void)state;
    run("train={for: 400st, patience: {val.loss: 3, min_delta: 0.05}}", "mode=single", "devices=cpu:1",
        "checkpoint=off", place_dir());
    assert_ended(expected_end("\"loss\":", 3, 0.05, false));
    assert_non_null(strstr(p.err, "val.loss has not improved in 3 evaluations"));
    run("train={for: 400st, patience: {val.loss: 2}}", "mode=single", "devices=cpu:1", "checkpoint=off", place_dir());
    assert_ended(expected_end("\"loss\":", 2, 0, false));
    run("train={for: 400st, patience: {val.accuracy: 2}}", "mode=single", "devices=cpu:1", "checkpoint=off",
        place_dir());
    assert_ended(expected_end("\"accuracy\":", 2, 0, true));
    run("train={for: 60s, patience: {val.loss: 2}}", "mode=single", "devices=cpu:1", "checkpoint=off", place_dir());
    assert_ended(expected_end("\"loss\":", 2, 0, false));
}

/* All ranks end at once; one that goes on from any checkpoint before ends at the same step, one from the last at once,
 * and one without patience does not. */
static void every_rank_and_a_resume_end_there(void **state) {
    (void)state;
    static const char full[] = "train={for: 400st, patience: {val.loss: 3, min_delta: 0.05}}";
    static const char *const modes[][2] = {{"mode=ddp", "devices=cpu:3"}, {"mode=dp", "devices=cpu:2"}};
    char resume[800], weights[80];
    run(full, "mode=single", "devices=cpu:1", "checkpoint=off", place_dir());
    int64_t end = expected_end("\"loss\":", 3, 0.05, false);
    snprintf(weights, sizeof weights, "%s", program_string(&p, "weights_sha256"));
    for (int step = 9; step < end; step += 8) { /* evaluations at 8, 16, 24 have been counted by then */
        char part[128];
        const char *first = place_dir();
        snprintf(part, sizeof part, "train={for: %dst, patience: {val.loss: 3, min_delta: 0.05}}", step);
        snprintf(resume, sizeof resume, "checkpoint={resume: '%s'}", first + strlen("log.dir="));
        run(part, modes[0][0], modes[0][1], "checkpoint=4st", first);
        assert_string_equal(program_string(&p, "ended"), "finished");
        run(full, modes[step / 8 % 2][0], modes[step / 8 % 2][1], resume, place_dir());
        assert_ended(end);
        assert_string_equal(program_string(&p, "weights_sha256"), weights);
    }
    const char *whole = place_dir();
    snprintf(resume, sizeof resume, "checkpoint={resume: '%s'}", whole + strlen("log.dir="));
    run(full, "mode=single", "devices=cpu:1", "checkpoint=4st", whole);
    run(full, "mode=single", "devices=cpu:1", resume, place_dir());
    assert_ended(end);
    assert_true(program_number(&p, "first_step") == (double)end);
    run("train=40st", "mode=single", "devices=cpu:1", resume, place_dir());
    assert_string_equal(program_string(&p, "ended"), "finished");
    run("train={for: 400st, patience: {val.accuracy: 1000}}", "mode=single", "devices=cpu:1", resume, place_dir());
    assert_string_equal(program_string(&p, "ended"), "finished");
}

/* The first step whose line holds the value that the target asks for, or a better one. */
static int64_t expected_target(const char *kind, const char *key, double value, bool rises) {
    char path[700], line[1024];
    int64_t step = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", program_string(&p, "run_dir"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (!step && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, kind) ? strstr(line, key) : NULL, *number = at ? strstr(line, "\"step\":") : NULL;
        if (!number) continue;
        double v = strtod(at + strlen(key), NULL);
        if (rises ? v >= value : v <= value) step = strtoll(number + strlen("\"step\":"), NULL, 10);
    }
    fclose(f);
    assert_true(step > 0);
    return step;
}

/* A run that has reached its target stays there, in whatever way it goes on; for another target it goes on. */
static void a_target_that_is_reached_stays_reached(void **state) {
    (void)state;
    static const struct {
        const char *full, *further, *kind, *key;
        double value;
        bool rises;
    } cases[] = {{"train={for: 400st, until: {val.accuracy: 0.3}}", "train={for: 40st, until: {val.accuracy: 0.99}}",
                  "\"val\":", "\"accuracy\":", 0.3, true},
                 {"train={for: 400st, until: {train.loss: 2.1}}", "train={for: 40st, until: {train.loss: 0.01}}",
                  "\"grad_norm\":", "\"loss\":", 2.1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *dir = place_dir();
        char folder[700], from[800], weights[80];
        snprintf(folder, sizeof folder, "%s", dir + strlen("log.dir="));
        run(cases[i].full, "mode=single", "devices=cpu:1", "checkpoint={every: 1st, keep: 99}", dir);
        int64_t end = expected_target(cases[i].kind, cases[i].key, cases[i].value, cases[i].rises);
        assert_target(end);
        snprintf(weights, sizeof weights, "%s", program_string(&p, "weights_sha256"));
        for (int again = 0; again < 2; again++) {
            program_run(&p, 60, "run", folder, "--json", NULL);
            assert_int_equal(p.code, 0);
            assert_target(end);
            assert_string_equal(program_string(&p, "weights_sha256"), weights);
        }
        for (int64_t step = end - 1; step <= end; step++) {
            snprintf(from, sizeof from, "checkpoint={resume: '%s/ckpt/step-%09lld'}", folder, (long long)step);
            run(cases[i].full, "mode=ddp", "devices=cpu:2", from, place_dir());
            assert_target(end);
            assert_string_equal(program_string(&p, "weights_sha256"), weights);
        }
        run(cases[i].further, "mode=dp", "devices=cpu:2", from, place_dir());
        assert_string_equal(program_string(&p, "ended"), "finished");
        assert_true(program_number(&p, "steps") == 40);
    }
}

static void mistakes_are_told(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"train.patience=5", "must be a metric and a number of evaluations"},
        {"train.patience={}", "must be a metric and a number of evaluations"},
        {"train.patience={min_delta: 1}", "must be a metric and a number of evaluations"},
        {"train.patience={val.los: 5}", "did you mean 'val.loss'?"},
        {"train.patience={train.loss: 5}", "it is about a metric of validation"},
        {"train.patience={val.loss: 0}", "must be a number of evaluations, 1 or more"},
        {"train.patience={val.loss: [1]}", "must be a number of evaluations, 1 or more"},
        {"train.patience={val.loss: 5, val.top5: 5}", "is about one metric"},
        {"train.patience={val.loss: 5, min_delta: -1}", "0 or more"},
        {"train.patience={val.perplexity: 5}", "there is no val.perplexity"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program_run(&p, 60, "validate", "--set", wrong[i][0], NULL);
        if (p.code != 78 || !strstr(p.err, wrong[i][1])) fail_msg("%s: %d, %s", wrong[i][0], p.code, p.err);
    }
    program_run(&p, 60, "validate", "--set", "train.patience={val.loss: 5}", "--set", "eval=end", NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "'train.patience' needs validation"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_ends_where_the_numbers_say),
        cmocka_unit_test(every_rank_and_a_resume_end_there),
        cmocka_unit_test(a_target_that_is_reached_stays_reached),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests_name("patience", tests, NULL, NULL);
}
