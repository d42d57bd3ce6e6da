/* train: 60s. A run ends when its steps have taken the time, on all ranks at once and in whatever way they share what
 * they have learned, and is then what a run of as many steps is; it goes on where it was, and says why it ended. */
#include "tests/harness/ports.h"
#include "tests/harness/program.h"
#include "tests/harness/timing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program control, other;
static const char *const network[] = {"model={zoo: mlp, hidden: [128, 64], dropout: 0.1}",
                                      "data={set: digits, train: 1000, val: 100}",
                                      "batch={size: 64, shards: 8}",
                                      "threads=1",
                                      "optimizer={name: adam, lr: 0.002}",
                                      "schedule={name: cosine, for: 3ep, warmup: 5st}",
                                      "eval=end",
                                      "checkpoint=off",
                                      NULL};

static void assert_ended(const struct program *p, const char *how) {
    if (strcmp(program_string(p, "ended"), how) != 0) fail_msg("%s, not %s", program_string(p, "ended"), how);
}

/* ---- all ways to share ---- */

static const char *const ways[][4] = {
    {"mode=single", "devices=cpu:1"},
    {"mode=dp", "devices=cpu:2"},
    {"mode=dp", "devices=cpu:3", "dp.server=dedicated"},
    {"mode=dp", "devices=cpu:2", "dp.server=sharded"},
    {"mode=dp", "devices=cpu:2", "dp.scatter=server"},
    {"mode=dp", "devices=cpu:3", "dp={server: dedicated, staleness: 2}"},
    {"mode=ddp", "devices=cpu:3"},
    {"mode=ddp", "devices=cpu:2", "optimizer={name: adam, shard: true}"},
    {"mode=ddp", "devices=cpu:2", "comm.compress=int8"},
    {"mode=ddp", "devices=cpu:2", "ddp.sync=8"},
    {"mode=ddp", "devices=cpu:2", "ddp.sync={every: 8, state: average}"},
    {"mode=ddp", "devices=cpu:2", "comm.link=tcp"},
};

static void as_a_run_of_as_many_steps(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *const *way = ways[i];
        const char *what = way[2] ? way[2] : way[0], *more = what;
        char steps[32];
        program_train(&other, network, SETS(way[0], way[1], more, "train=0.3s"));
        assert_ended(&other, "time over");
        long n = (long)program_number(&other, "steps");
        double took = program_number(&other, "train_s"), p50 = program_number(&other, "step_ms.p50") * 1e-3;
        if (took < 0.3 || n < 1) fail_msg("%s: %ld steps in %g s", what, n, took);
        if (strstr(what, "sync") && n % 8) fail_msg("%s ends at step %ld, where nobody meets", what, n);
        if (p50 * (double)n > 10 * took) fail_msg("%s: %ld steps of %g s in %g s", what, n, p50, took);
        snprintf(steps, sizeof steps, "train=%ldst", n);
        program_train(&control, network, SETS(way[0], way[1], more, steps));
        assert_ended(&control, "finished");
        program_assert_same(&control, &other, what);
        double accuracy = program_number(&control, "val.accuracy");
        if (program_number(&other, "val.accuracy") != accuracy) fail_msg("%s: evaluated elsewhere", what);
    }
}

/* 'engine run' as one of two nodes, of two devices each. */
static void start_node(struct program *p, int index, int port) {
    char set[3][600];
    snprintf(set[0], sizeof set[0], "log.dir=%s%d", scratch_path("node-"), index);
    snprintf(set[1], sizeof set[1], "run.node_rank=%d", index);
    snprintf(set[2], sizeof set[2], "run.port=%d", port);
    program_train_start(p, network,
                        SETS("mode=ddp", "devices=cpu:2", "run.nodes=2", "train=0.3s", set[0], set[1], set[2]));
}

static void two_nodes_end_together(void **state) {
    (void)state;
    int port = port_free();
    char steps[32];
    setenv("ENGINE_TOKEN", "of-the-test-0123456789", 1);
    start_node(&other, 0, port);
    start_node(&control, 1, port);
    program_train_end(&other);
    program_train_end(&control);
    unsetenv("ENGINE_TOKEN");
    if (other.code || control.code)
        fail_msg("exit codes %d and %d\n%s%s", other.code, control.code, other.err, control.err);
    assert_ended(&other, "time over");
    snprintf(steps, sizeof steps, "train=%.0fst", program_number(&other, "steps"));
    program_train(&control, network, SETS("mode=single", "devices=cpu:1", steps));
    program_assert_same(&control, &other, "two nodes");
}

/* ---- going on, and other ends ---- */

/* The steps before a resume count; what has spent its time takes no step more; and a longer one goes on. */
static void goes_on(void **state) {
    (void)state;
    char dir[600], steps[32];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("goes-on"));
    static const char *const modes[][2] = {
        {"mode=dp", "devices=cpu:2"}, {"mode=single", "devices=cpu:1"}, {"mode=ddp", "devices=cpu:3"}};
    static const char *const length[] = {"train=0.2s", "train=0.2s", "train=0.5s"};
    double at[3], took[3];
    for (int i = 0; i < 3; i++) {
        program_train(&other, network,
                      SETS(modes[i][0], modes[i][1], dir, "checkpoint={every: 1000000st, resume: auto}", length[i]));
        assert_ended(&other, "time over");
        at[i] = program_number(&other, "steps"), took[i] = program_number(&other, "train_s");
        assert_true(!strstr(other.err, "already finished") == (i != 1));
        assert_true(!strstr(other.err, "resuming from") == (i != 2));
    }
    if (at[1] != at[0] || took[1] != took[0]) fail_msg("a spent run went from step %g to %g", at[0], at[1]);
    if (at[2] <= at[1] || took[2] < 0.5 || took[2] > timing_limit(0.5 + 0.5 * took[0]))
        fail_msg("a longer one went from step %g to %g, after %g s", at[1], at[2], took[2]);
    snprintf(steps, sizeof steps, "train=%.0fst", at[2]);
    program_train(&control, network, SETS("mode=single", "devices=cpu:1", steps));
    program_assert_same(&control, &other, "after a resume");
}

/* A signal before the time is over, a target, and steps or time that nobody reaches. */
static void other_ends(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        program_train_start(&other, network, SETS(ways[3 * i][0], ways[3 * i][1], "train=1e9h", "log.every=1st"));
        program_wait_text(&other, " step=10 ", 60);
        kill(other.pid, SIGTERM);
        program_train_end(&other);
        if (other.code != 143 || !strstr(other.out, "\"ended\":\"stopped\"") || strstr(other.err, ": validation"))
            fail_msg("exit code %d\n%s%s", other.code, other.out, other.err);
    }
    program_train(&other, network, SETS("mode=single", "devices=cpu:1", "train={for: 1h, until: {train.loss: 1.5}}"));
    assert_ended(&other, "target reached");
    assert_true(program_number(&other, "train.loss") <= 1.5);
    program_train(&other, network, SETS("mode=single", "devices=cpu:1", "train=1e-9s"));
    assert_int_equal((int)program_number(&other, "steps"), 1);
}

/* Time is that of steps: evaluation after each of them takes none of it. */
static void evaluation_takes_no_time(void **state) {
    (void)state;
    program_train(&other, network, SETS("mode=single", "devices=cpu:1", "train=0.2s", "eval=1st", "data.val=5000"));
    double steps = program_number(&other, "steps"), p50 = program_number(&other, "step_ms.p50") * 1e-3;
    assert_true(program_number(&other, "train_s") >= 0.2);
    if (timing_checked() && (other.seconds < 0.4 || steps * p50 < 0.02))
        fail_msg("%g steps of %g s in %g s", steps, p50, other.seconds);
}

/* ---- what is said ---- */

/* What the summary's table tells a run of; the text after "train: ", or NULL. */
static const char *repeated(const char *deterministic) {
    static const char before[] = " s of steps: train: ";
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path(deterministic));
    program_run(&other, 120, "run", "--set", "train=0.1s", "--set", "data={set: digits, train: 300, val: 50}", "--set",
                "mode=dp", "--set", "devices=cpu:3", "--set", "dp={server: dedicated, staleness: 1}", "--set",
                deterministic, "--set", dir, NULL);
    if (other.code) fail_msg("exit code %d\n%s", other.code, other.err);
    const char *at = strstr(other.out, before);
    return at ? at + strlen(before) : NULL;
}

/* In order of arrival, no run is as another. */
static void says_how_it_is_repeated(void **state) {
    (void)state;
    char wanted[80];
    const char *length = repeated("deterministic=true");
    if (!length) fail_msg("%s", other.out);
    snprintf(wanted, sizeof wanted, "step %d: validation", atoi(length));
    if (!strstr(other.err, wanted) || !strstr(length, "st gives the same weights\n"))
        fail_msg("no '%s'\n%s%s", wanted, other.out, other.err);
    assert_null(repeated("deterministic=false"));
}

static void refused(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"train=0s", "'train' must be a length such as 5ep (epochs), 200st (steps) or 60s (time), got \"0s\""},
        {"train=-1s", "got \"-1s\""},
        {"train=nans", "got \"nans\""},
        {"train=60 s", "got \"60 s\""},
        {"train=60", "did you mean '60ep', '60st' or '60s'?"},
        {"eval=60s", "'eval' must be end or off or a length such as 5ep (epochs) or 200st (steps)"},
        {"schedule=cosine", "give it a length of its own, for example schedule: {name: cosine, for: 5ep}"},
        {"schedule=linear", "schedule 'linear' must know the last step, which is unknown if train.for is a time"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        program_run(&other, 20, "run", "--set", "train=60s", "--set", bad[i][0], NULL);
        if (other.code != 78 || !strstr(other.err, bad[i][1]))
            fail_msg("%s: exit code %d\n%s", bad[i][0], other.code, other.err);
    }
    program_run(&other, 60, "validate", "--set", "train=1.5min", "--set", "devices=cpu:1", NULL);
    if (other.code || !strstr(other.out, ", 90 s of steps of ")) fail_msg("%s%s", other.out, other.err);
}

static void a_warm_up_beyond_the_end_is_told(void **state) {
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        program_run(&other, 30, "config", "--check", "--set", "model=mlp", "--set", "train=10st", "--set",
                    longer ? "schedule.warmup=11st" : "schedule.warmup=10st", NULL);
        assert_int_equal(other.code, 0);
        assert_int_equal(!strstr(other.err, "warning: schedule.warmup: 11 steps, and the training has 10"), !longer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_a_run_of_as_many_steps),
        cmocka_unit_test(two_nodes_end_together),
        cmocka_unit_test(goes_on),
        cmocka_unit_test(other_ends),
        cmocka_unit_test(evaluation_takes_no_time),
        cmocka_unit_test(a_warm_up_beyond_the_end_is_told),
        cmocka_unit_test(says_how_it_is_repeated),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("a time to train", tests, NULL, NULL);
}
