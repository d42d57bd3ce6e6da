/* A run that has come to its end is told to go on: nothing of what it has left is touched, and no number is told that
 * nobody has computed. */
#include "engine/base/file.h"
#include "tests/harness/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program p, q;
static const char *const places[][2] = {
    {"mode=single", "devices=cpu:1"}, {"mode=dp", "devices=cpu:2"}, {"mode=ddp", "devices=cpu:2"}};
enum { PLACES = sizeof places / sizeof *places, STEPS = 35, MORE = 40 };

static void ends_with(struct program *of, int code) {
    if (!program_wait(of, 120) || of->code != code) fail_msg("exit code %d, not %d:\n%s", of->code, code, of->err);
}

/* more: settings of a training that takes 'comm.timeout=60s', as nothing here is about being late. */
static void train(const char *dir, const char *const *more) {
    const char *all[16] = {"comm.timeout=60s"};
    for (int n = 1; n < 15 && *more; n++) all[n] = *more++;
    training_start(&p, dir, all);
    ends_with(&p, 0);
}

/* Names, sizes, times of change and contents. */
static char *all_files(const char *dir) {
    static char text[1 << 16];
    char command[2048];
    const char *path = scratch_path(dir);
    snprintf(command, sizeof command, "find %s -type f -printf '%%P %%s %%T@\n' | sort; cat %s/summary.json", path,
             path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    pclose(f);
    return strdup(text);
}

/* 'engine run DIR' and what is said; q has the results. */
static void again(const char *dir, const char *form, const char *set, long steps) {
    char said[80], *before = all_files(dir);
    snprintf(said, sizeof said, "already finished (%ld steps); nothing to do", steps);
    program_run(&q, 60, "run", scratch_path(dir), form, "--set", set, NULL);
    if (q.code) fail_msg("exit code %d:\n%s", q.code, q.err);
    training_says(&q, said);
    training_says(&q, "hint: to train longer: engine run");
    char *after = all_files(dir);
    assert_string_equal(after, before);
    free(before);
    free(after);
}

static void what_has_finished_is_left_as_it_is(void **state) {
    (void)state;
    for (int i = 0; i < PLACES; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "done-%d", i);
        const char *const first[] = {places[i][0], places[i][1], "checkpoint=10st", "train=35st", NULL};
        train(dir, first);
        again(dir, "--quiet", "train=35st", STEPS);
        assert_string_equal(q.out, "");
        again(dir, "--quiet", "train=20st", STEPS);
        again(dir, "--json", "log.every=2st", STEPS);
        assert_string_equal(q.out, p.out);
        program_run(&q, 60, "run", scratch_path(dir), "--quiet", "--set", "train=35st", "--set", "seed=7", NULL);
        assert_int_equal(q.code, 78); /* it would be another */
        training_resume(&q, dir, MORE);
        ends_with(&q, 0);
        assert_int_equal((int)program_number(&q, "steps"), MORE);
        assert_int_equal((int)program_number(&q, "first_step"), STEPS);
    }
}

/* Ranks that another launcher starts all begin, and only then find that nothing is left: the results stay. */
static void results_stay_under_a_launcher(void **state) {
    (void)state;
    const char *const first[] = {"mode=ddp", "devices=cpu:2", "checkpoint=10st", "train=35st", NULL};
    char path[700], *before, *after;
    struct pool *pool;
    size_t n;
    train("launched", first);
    snprintf(path, sizeof path, "%s/summary.json", scratch_path("launched"));
    assert_ok(pool_create(&pool));
    assert_ok(file_read(path, 1 << 20, pool, &before, &n));
    program_run(&q, 60, "launch", "-n", "2", ENGINE_BINARY_DIR "/engine", "run", scratch_path("launched"), NULL);
    if (q.code) fail_msg("exit code %d:\n%s%s", q.code, q.out, q.err);
    assert_ok(file_read(path, 1 << 20, pool, &after, &n));
    assert_string_equal(after, before);
    pool_free(pool);
}

/* By time, since nothing got better, and by a target. */
static void other_ends_are_ends(void **state) {
    (void)state;
    const char *const timed[] = {"mode=single", "devices=cpu:1", "train=0.2s", NULL};
    const char *const tired[] = {"mode=single", "devices=cpu:1", "eval=5st",
                                 "train={for: 90st, patience: {val.loss: 2, min_delta: 100}}", NULL};
    train("timed", timed);
    again("timed", "--json", "train=0.1s", (long)program_number(&p, "steps"));
    train("tired", tired);
    assert_int_equal((int)program_number(&p, "steps"), 15);
    again("tired", "--json", "train.for=90st", 15);
    const char *const reached[] = {"mode=single", "devices=cpu:1", "eval=5st",
                                   "train={for: 90st, until: {val.loss: 1000}}", NULL};
    train("reached", reached);
    assert_int_equal((int)program_number(&p, "steps"), 5);
    again("reached", "--json", "train.for=90st", 5);
    again("reached", "--json", "train={for: 90st, until: {val.loss: 2000}}", 5);
    program_run(&q, 60, "run", scratch_path("reached"), "--json", "--set", "train={for: 90st, until: {val.loss: 1e-9}}",
                NULL);
    if (q.code) fail_msg("exit code %d:\n%s", q.code, q.err);
    assert_int_equal((int)program_number(&q, "steps"), 90); /* a harder one is not reached yet */
}

/* Of a run that begins behind its end: the checkpoint's loss, which the steps before it have told. */
static void a_length_that_is_over_tells_the_last_loss(void **state) {
    (void)state;
    const char *const whole[] = {"mode=single", "devices=cpu:1", "train=40st", NULL};
    double loss[MORE];
    train("whole", whole);
    training_numbers("whole", "loss", loss, MORE);
    for (int i = 0; i < PLACES; i++) {
        char dir[32], resume[700];
        snprintf(dir, sizeof dir, "over-%d", i);
        snprintf(resume, sizeof resume, "checkpoint={every: 10st, resume: '%s'}", scratch_path("whole"));
        const char *const more[] = {places[i][0], places[i][1], resume, "train=20st", NULL};
        train(dir, more);
        assert_int_equal((int)program_number(&p, "steps"), MORE);
        assert_true(program_number(&p, "train.loss") == loss[MORE - 1]);
        assert_non_null(strstr(p.out, "\"step_ms\":{\"p50\":null,\"p95\":null}"));
        assert_int_equal((int)training_saved(dir), MORE); /* a run of its own has a checkpoint of its own */
        program_run(&q, 60, "predict", scratch_path(dir), "val:0", NULL);
        if (q.code) fail_msg("exit code %d:\n%s", q.code, q.err);
    }
}

/* A checkpoint of before does not say it: then nobody does, and readers bear that. */
static void an_unknown_loss_is_none(void **state) {
    (void)state;
    char resume[700];
    training_forget("whole", "step-000000040", "\"loss\"", "\"files\"");
    snprintf(resume, sizeof resume, "checkpoint={every: 10st, resume: '%s'}", scratch_path("whole"));
    const char *const more[] = {"mode=single", "devices=cpu:1", resume, "train=40st", NULL};
    train("unknown", more);
    assert_non_null(strstr(p.out, "\"train\":{\"loss\":null}"));
    program_run(&q, 60, "runs", scratch_folder(), "--json", "--name", "unknown", NULL);
    assert_int_equal(q.code, 0);
    assert_non_null(strstr(q.out, "\"loss\":null"));
    program_run(&q, 60, "compare", scratch_path("whole"), scratch_path("unknown"), NULL);
    if (q.code) fail_msg("%s", q.err);
    assert_non_null(strstr(q.out, "train_loss"));
    assert_null(strstr(q.out, "nan"));
    program_run(&q, 60, "report", scratch_path("unknown"), NULL);
    if (q.code) fail_msg("%s", q.err);
    training_resume(&q, "unknown", 41);
    ends_with(&q, 0);
    assert_true(isfinite(program_number(&q, "train.loss")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_finished_is_left_as_it_is),
        cmocka_unit_test(results_stay_under_a_launcher),
        cmocka_unit_test(other_ends_are_ends),
        cmocka_unit_test(a_length_that_is_over_tells_the_last_loss),
        cmocka_unit_test(an_unknown_loss_is_none),
    };
    return cmocka_run_group_tests_name("finished", tests, NULL, NULL);
}
