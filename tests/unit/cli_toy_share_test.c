/* A mode with a way of sharing that only this test knows: what their rows say about themselves is enough for the step,
 * its bytes, the formula, the simulator, and for commands that start runs by themselves. Those start this program again,
 * which is the engine when it is called with words. */
#include "tests/harness/program.h"

#include "cli/line/cli.h"
#include "cli/line/load.h"
#include "engine/base/file.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"
#include "lab/predict/simulate.h"
#include "lab/results/result.h"
#include "modes/modes.h"
#include "modes/share/share.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define assert_near(got, expected, share) assert_true(fabs((got) - (expected)) <= (share)*fabs((double)(expected)))

/* ---- the row -------------------------------------------------------------------------------- */

/* Rank 0 adds the gradients and returns the sum; then every rank makes the same update. */
static const struct share_row toy_share = {
    .plan = {.nbefore = 2,
             .before = {{MOVE_REDUCE, .doing = "sum at rank 0"}, {MOVE_BROADCAST, .doing = "sum from rank 0"}},
             .update = UPDATE_BY_ALL}};

static const struct mode_way toy_ways[] = {
    {.name = "there and back", .words = "there and back", .share = &toy_share, .order = 1}, {0}};
static struct mode_row toy;

static const struct mode_way *toy_way(const struct run_config *c) {
    (void)c;
    return toy_ways;
}

static void make_toy(void) {
    toy = mode_dp; /* threads of this process, which know this row */
    toy.name = "toy", toy.also = "", toy.summary = "there and back";
    toy.choose = mode_take, toy.check = shares_check;
    toy.overlaps = mode_ddp.overlaps;
    toy.ways = toy_ways, toy.way = toy_way;
    mode_register(&toy);
}

/* ---- what is made of it --------------------------------------------------------------------- */

enum { DEVICES = 4, STEPS = 7 };

static void load(const char *mode, const char *devices, struct run_settings *s) {
    static char dir[256];
    char *report, set_mode[32];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path(mode));
    snprintf(set_mode, sizeof set_mode, "mode=%s", mode);
    const char *sets[] = {dir,
                          set_mode,
                          devices,
                          "threads=1",
                          "train=7st",
                          "eval=end",
                          "checkpoint=off",
                          "log.every=1st",
                          "data={set: digits, train: 640, val: 10}",
                          "batch={size: 64, shards: 8}",
                          "optimizer={name: adam, clip: 1}",
                          "ddp.bucket={first: 4KB, cap: 64KB}",
                          "model={zoo: mlp, hidden: [64, 32]}"};
    const struct run_ask ask = {
        .sets = sets, .nsets = sizeof sets / sizeof *sets, .modes = mode_kinds(&(int){0}), .algorithms = algo_names()};
    assert_ok(run_settings_load(&ask, s, &report));
}

static void train(struct run_settings *s, struct run_result *out) {
    struct job job = {.settings = s,
                      .mode = s->mode,
                      .process = {.rank = -1},
                      .processes = 1,
                      .quiet = true,
                      .console_out = -1,
                      .console_err = 2};
    int code;
    assert_ok(cli_train(&job, NULL, &code));
    assert_int_equal(code, 0);
    assert_ok(run_result_read(s->config.log.dir, s->pool, out));
}

/* The same bits as one device alone, and the bytes that the plan says. */
static void a_run_follows_the_plan(void **state) {
    (void)state;
    struct run_settings alone, s;
    struct run_result one, r;
    load("single", "devices=cpu:1", &alone);
    train(&alone, &one);
    load("toy", "devices=cpu:4", &s);
    train(&s, &r);
    assert_string_equal(r.weights, one.weights);
    assert_string_equal(r.losses, one.losses);
    double sent = 0;
    for (int i = 0; i < r.ranks; i++) sent += r.sent[i];
    double arena = one.state[0] / 2; /* adam has two slots */
    double each = cost_bytes(&toy_share.plan, 1, 1, DEVICES, 0, 1) * arena;
    assert_true(cost_bytes(&toy_share.plan, 1, 1, DEVICES, 0, 1) == 2 * (DEVICES - 1));
    assert_near(sent / (double)run_result_stretch(&r), each, 0.02);
    run_settings_free(&alone);
    run_settings_free(&s);
}

/* A step of 8 + 2 ms whose 8 MB go to rank 0 and back through ports of 1 Gbit/s: 2 (W-1) 64 ms. */
static void the_simulator_follows_the_plan(void **state) {
    (void)state;
    static struct step_shape shape = {
        .before = 4e-3, .backward = 4e-3, .update = 2e-3, .buckets = 1, .bytes = {8e6}, .ready = {1}};
    for (int devices = 1; devices <= 8; devices *= 2) {
        const struct simulate_plan p = {
            .net = {.devices = devices, .per_host = 1, .oversubscription = 1, .outside = {50e-6, 8e-9}},
            .scheme = SCHEMES,
            .moves = toy_share.plan,
            .every = 1,
            .steps = 1};
        struct simulated out;
        assert_ok(simulate(&shape, &p, &out));
        assert_near(out.step, 10e-3 + 2 * (devices - 1) * 64e-3, 0.03);
        assert_near(out.step, simulate_formula(&shape, &p), 0.03);
        assert_true(devices == 1 || out.port.which == 0); /* rank 0's port is the busiest */
    }
}

/* ---- in commands that start runs ------------------------------------------------------------ */

static struct program said;

#define ENGINE(...) engine(SETS("/proc/self/exe", __VA_ARGS__))
static const char *engine(const char *const *words) {
    program_spawn(&said, words);
    assert_true(program_wait(&said, 120));
    if (said.code) fail_msg("%s: %d, %s%s", words[1], said.code, said.out, said.err);
    return said.out;
}

/* Both sides of a comparison compute the same; the toy's steps are predicted, by its plan; its runs are reported and
 * exported like any. */
static void it_is_compared_reported_and_exported(void **state) {
    (void)state;
    char experiment[600], folder[600], run[1200], file[600];
    struct pool *pool;
    snprintf(experiment, sizeof experiment, "%s", scratch_path("question.yaml"));
    snprintf(folder, sizeof folder, "%s", scratch_path("compared"));
    snprintf(file, sizeof file, "%s", scratch_path("toy.onnx"));
    save_text(experiment, "name: question\n"
                          "base: {devices: 'cpu:2', threads: 1, train: 7st, data: {set: digits, train: 640, val: 10},\n"
                          "       batch: {size: 64, shards: 8}, model: {zoo: mlp, hidden: [64, 32]},\n"
                          "       comm: {emulate: 1Gbit}, checkpoint: 1ep}\n"
                          "matrix: {mode: [dp, toy]}\n"
                          "repeats: 5\nwarmup: 1st\nmetrics: [step_time, bytes]\n");
    ENGINE("compare", experiment, "--dir", folder, "--json");
    assert_ok(pool_create(&pool));
    const struct json_value *root = program_json(&said, pool), *cell = json_get(root, "cells")->children + 1;
    const struct json_value *pair = json_get(root, "pairs")->children, *predicted = json_get(cell, "predicted");
    assert_string_equal(json_get_text(cell, "label"), "toy");
    assert_true(json_get(pair, "same_weights")->truth && json_get(pair, "same_losses")->truth);
    assert_string_equal(json_get_text(predicted, "from"), "dp");
    assert_string_equal(json_get_text(predicted, "port"), "emulated 1Gbit");
    snprintf(run, sizeof run, "%s/%s", folder, json_get_text(json_get(cell, "runs")->children, "dir"));
    pool_free(pool);
    assert_non_null(strstr(ENGINE("report", run, "-o", "-", "--format", "txt"), "toy"));
    assert_non_null(strstr(ENGINE("report", folder, "-o", "-", "--format", "txt"), "toy"));
    ENGINE("model", "export", run, "-o", file);
    assert_true(file_exists(file));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_follows_the_plan),
                                       cmocka_unit_test(the_simulator_follows_the_plan),
                                       cmocka_unit_test(it_is_compared_reported_and_exported)};
    make_toy();
    if (argc > 1) return command_call(command_find(argv[1]), argc - 1, (const char *const *)argv + 1);
    return cmocka_run_group_tests_name("a toy share", tests, NULL, NULL);
}
