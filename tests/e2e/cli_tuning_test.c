/* ddp.bucket: tune and comm.algorithm: tune: the same bits as without, a choice that a formula explains, and one that a
 * resumed run keeps where it was made. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static struct program control, other;
static struct pool *pool;

/* With 10 KB, 256 KB four times and 784 KB of gradients, in this order. */
#define MODEL                                                                                                          \
    "model={layers: [flatten, {linear: {units: 256, bias: false}}, relu, {linear: {units: 256, bias: false}}, relu, "  \
    "{linear: {units: 256, bias: false}}, relu, {linear: {units: 256, bias: false}}, relu, {linear: {units: 256, "     \
    "bias: false}}, relu, {linear: 10}]}"
enum { BUCKET, ALGORITHM, KEYS };
static const char *const keys[KEYS] = {"ddp.bucket.cap", "comm.algorithm"};

static void train(struct program *p, const char *const *more) {
    program_train(p,
                  SETS(MODEL, "data={set: digits, train: 640, val: 32}", "batch={size: 16, shards: 8}", "threads=1",
                       "eval=end", "optimizer={name: sgd, lr: 0.05, momentum: 0.5}"),
                  more);
}

static const struct json_value *tuned(const struct program *p, int key) {
    const struct json_value *all = json_member(program_json(p, pool), "tuned", JSON_OBJECT);
    return json_member(all, keys[key], JSON_OBJECT);
}

static void assert_tuned(const struct program *p, int key, const char *by, int choices) {
    const struct json_value *of = tuned(p, key), *ms = json_member(of, "step_ms", JSON_OBJECT);
    if (!by) assert_null(of);
    if (!by) return;
    if (strcmp(json_text(of, "by"), by) != 0 || (ms ? ms->count : 0) != choices)
        fail_msg("%s: no %s of %d:\n%s", keys[key], by, choices, p->out);
    for (int i = 0; i < choices; i++) assert_true(ms->children[i].number > 0);
    if (choices) assert_string_equal(ms->children[0].key, json_text(of, "default"));
    if (choices) assert_non_null(json_get(ms, json_text(of, "chosen")));
}

/* Ranks that chose differently would call with other sizes, which fails. */
static void no_choice_changes_a_bit(void **state) {
    (void)state;
    static const struct {
        const char *mode, *devices, *more[2], *by[KEYS];
        int choices[KEYS];
    } ways[] = {
        {"mode=ddp", "devices=cpu:2", {"ddp.bucket=tune", "comm=tune"}, {"measured", "measured"}, {4, 4}},
        {"mode=ddp",
         "devices=cpu:4",
         {"ddp.bucket=tune", "comm={algorithm: tune, link: tcp}"},
         {"measured", "measured"},
         {4, 5}},
        {"mode=ddp", "devices=cpu:3", {"comm=tune", "seed=0"}, {NULL, "measured"}, {0, 2}},
        {"mode=ddp", "devices=cpu:2", {"ddp={bucket: tune, overlap: false}", "log.trace=3..9st"}, {"measured"}, {4}},
        {"mode=dp", "devices=cpu:2", {"ddp.bucket=tune", "dp.overlap=true"}, {"measured"}, {4}},
        {"mode=single",
         "devices=cpu:1",
         {"ddp.bucket=tune", "comm=tune"},
         {"nothing to choose", "nothing to choose"},
         {0, 0}},
    };
    train(&control, SETS("mode=single", "devices=cpu:1", "train=60st", "checkpoint=off"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        train(&other,
              SETS(ways[i].mode, ways[i].devices, ways[i].more[0], ways[i].more[1], "train=60st", "checkpoint=off"));
        program_assert_same(&control, &other, ways[i].more[0]);
        for (int k = 0; k < KEYS; k++) assert_tuned(&other, k, ways[i].by[k], ways[i].choices[k]);
    }
}

/* Four choices take 24 steps. */
static void a_run_that_ends_early_has_the_default(void **state) {
    (void)state;
    train(&other, SETS("mode=ddp", "devices=cpu:2", "ddp.bucket=tune", "train=23st", "checkpoint=off"));
    assert_tuned(&other, BUCKET, "unfinished", 0);
    assert_string_equal(json_text(tuned(&other, BUCKET), "chosen"), "25MB");
    assert_non_null(strstr(other.err, "ddp.bucket.cap: steps 1 to 24 try 25MB, 256KB, 512KB, flat; the run ends "));
    train(&other, SETS("mode=ddp", "devices=cpu:2", "ddp.bucket=tune", "train=24st", "checkpoint=off"));
    assert_tuned(&other, BUCKET, "measured", 4);
}

/* Of n messages each takes two latencies, one after another, whatever else there is to do: 2, 5, 3 and 1 of them. How much
 * longer a step takes depends on the machine, so a few runs may be needed until the times stand as the formula says, with
 * more latency where the machine is so busy that it hides 10 ms. */
static void latency_asks_for_one_message(void **state) {
    (void)state;
    enum { TRIES = 8 };
    static const char *const by_messages[] = {"flat", "25MB", "512KB", "256KB"};
    bool taken = false;
    for (int try = 0; try < TRIES && !taken; try++) {
        char latency[40];
        snprintf(latency, sizeof latency, "comm.emulate.latency=%dms", 10 << try / 2);
        train(&other, SETS("mode=ddp", "devices=cpu:2", "ddp.bucket=tune", latency, "train=24st", "checkpoint=off"));
        assert_tuned(&other, BUCKET, "measured", 4);
        const struct json_value *of = tuned(&other, BUCKET), *ms = json_member(of, "step_ms", JSON_OBJECT);
        taken = !strcmp(json_text(of, "chosen"), "flat");
        for (int i = 0; i < 3; i++)
            taken = taken && json_number(ms, by_messages[i]) < json_number(ms, by_messages[i + 1]);
    }
    assert_true(taken);
    program_run(&control, 60, "report", program_string(&other, "run_dir"), "--format", "txt", "-o", "-", NULL);
    if (!strstr(control.out, "flat (taken)")) fail_msg("%s%s", control.out, control.err);
}

/* The choice is in the checkpoint, with its place. */
static void a_resumed_run_keeps_its_choice(void **state) {
    (void)state;
    char dir[600], chosen[KEYS][40];
    const char *tune[] = {"mode=ddp", "devices=cpu:2", "ddp.bucket=tune", "comm=tune", "train=60st", "checkpoint=20st",
                          NULL};
    train(&control, SETS("mode=single", "devices=cpu:1", "train=90st", "checkpoint=off"));
    train(&other, tune);
    snprintf(dir, sizeof dir, "%s", program_string(&other, "run_dir"));
    for (int k = 0; k < KEYS; k++) snprintf(chosen[k], sizeof *chosen, "%s", json_text(tuned(&other, k), "chosen"));
    program_run(&other, 120, "run", dir, "--json", "--set", "train=90st", NULL);
    assert_int_equal(other.code, 0);
    program_assert_same(&control, &other, "a resumed run");
    for (int k = 0; k < KEYS; k++) {
        char says[128];
        assert_tuned(&other, k, "kept", 0);
        assert_string_equal(json_text(tuned(&other, k), "chosen"), chosen[k]);
        snprintf(says, sizeof says, "%s: %s, as this run has chosen before", keys[k], chosen[k]);
        if (!strstr(other.err, says)) fail_msg("no '%s':\n%s", says, other.err);
    }
    program_run(&other, 120, "run", dir, "--json", "--set", "train=160st", "--set", "comm.emulate=100Gbit", NULL);
    assert_int_equal(other.code, 0);
    for (int k = 0; k < KEYS; k++) assert_string_equal(json_text(tuned(&other, k), "by"), "measured");
    assert_non_null(strstr(other.err,
                           "tuned again: the checkpoint is of 2 cpu devices with 1 thread each on 1 host over "
                           "shm, and this run has 2 cpu devices with 1 thread each on 1 host over shm, emulated"));
}

/* Saved when the buckets were chosen, and the algorithm was not. */
static void what_was_not_chosen_is_chosen_later(void **state) {
    (void)state;
    train(&other,
          SETS("mode=ddp", "devices=cpu:2", "ddp.bucket=tune", "comm=tune", "train=30st", "checkpoint.every=30st"));
    assert_tuned(&other, BUCKET, "measured", 4);
    assert_tuned(&other, ALGORITHM, "unfinished", 0);
    char dir[600];
    snprintf(dir, sizeof dir, "%s", program_string(&other, "run_dir"));
    program_run(&other, 120, "run", dir, "--json", "--set", "train=60st", NULL);
    assert_int_equal(other.code, 0);
    assert_tuned(&other, BUCKET, "kept", 0);
    assert_tuned(&other, ALGORITHM, "measured", 4);
}

static int setup(void **state) {
    (void)state;
    return pool_create(&pool);
}

static int teardown(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_choice_changes_a_bit),
        cmocka_unit_test(a_run_that_ends_early_has_the_default),
        cmocka_unit_test(latency_asks_for_one_message),
        cmocka_unit_test(a_resumed_run_keeps_its_choice),
        cmocka_unit_test(what_was_not_chosen_is_chosen_later),
    };
    return cmocka_run_group_tests_name("tuning", tests, setup, teardown);
}
