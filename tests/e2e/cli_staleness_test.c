/* A server that does not wait, as a user meets it: what it says, stops and resumes, and how it is
 * compared. tests/unit/cli_async_test.c looks at what it computes. */
#include "tests/harness/training.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct program p;
static const char *const server = "dp={server: dedicated, staleness: 2}";

/* ---- one run ---- */

static void run(const char *dir, const char *const *more) {
    training_start(&p, dir, more);
    if (!program_wait(&p, 120)) fail_msg("hung:\n%s", p.err);
}

static void the_summary_tells(void **state) {
    (void)state;
    const char *const more[] = {"mode=dp", server, "train=60st", "optimizer.name=adam", NULL};
    run("told", more);
    program_assert_code(&p, 0);
    assert_float_equal(program_number(&p, "staleness.bound"), 2, 0);
    assert_float_equal(program_number(&p, "staleness.most"), 3, 0);
    double mean = program_number(&p, "staleness.mean"), idle = program_number(&p, "staleness.idle");
    assert_true(mean > 2.5 && mean <= 3 && idle > 0 && idle < 1);
    training_says(&p, "each gradient by itself over thread, dedicated server, staleness 2 "
                      "(gradients in turn)");
    training_says(&p, "warning: each step is 4 updates (dp.staleness), and adam goes as far");

    const char *const without[] = {"mode=dp", "train=20st", NULL};
    run("quiet", without);
    program_assert_code(&p, 0);
    assert_null(strstr(p.out, "staleness"));
    assert_null(strstr(p.err, "staleness"));
}

/* In bytes it is a synchronous run with a server of its own. */
static void the_bytes_are_those_of_a_run_that_waits(void **state) {
    (void)state;
    static const char *const ways[] = {"dp={server: dedicated, staleness: 0}",
                                       "dp={server: dedicated, staleness: unbounded}"};
    double sent[2];
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {"mode=dp", ways[i], "deterministic=false", "train=1000st", "checkpoint=off", NULL};
        struct pool *pool;
        run(i ? "bytes-async" : "bytes-sync", more);
        program_assert_code(&p, 0);
        assert_ok(pool_create(&pool));
        const struct json_value *bytes = json_get(program_json(&p, pool), "bytes");
        sent[i] = json_get(bytes, "sent")->children[0].number;
        pool_free(pool);
    }
    assert_true(sent[1] > 0.99 * sent[0] && sent[1] < 1.01 * sent[0]);
}

/* The gradients of a step, and the weights for all, take longer than the timeout, each of them far
 * less: 669,706 floats by 35 Mbit/s are 0.61 s, for eight workers 4.9 s. A machine that gives nobody the processor for
 * longer than the timeout does lose ranks: then all times are made longer, of which such a pause is less. */
static void a_server_that_is_long_busy_is_not_lost(void **state) {
    (void)state;
    enum { TRIES = 3 };
    static const char *const orders[] = {"deterministic=true", "deterministic=false"};
    static const struct {
        const char *bandwidth, *timeout;
    } times[TRIES] = {{"comm.emulate.bandwidth=35Mbit", "comm.timeout=4s"},
                      {"comm.emulate.bandwidth=12Mbit", "comm.timeout=12s"},
                      {"comm.emulate.bandwidth=4Mbit", "comm.timeout=36s"}};
    for (int i = 0; i < 2; i++) {
        p.code = -1;
        for (int try = 0; try < TRIES && p.code != 0; try++) {
            char dir[32];
            snprintf(dir, sizeof dir, "busy-%d-%d", i, try);
            const char *const more[] = {"mode=dp",
                                        "dp={server: dedicated, staleness: 4}",
                                        orders[i],
                                        "devices=cpu:8",
                                        "batch={size: 64, shards: 8}",
                                        "train=2st",
                                        "model=mlp",
                                        times[try].bandwidth,
                                        times[try].timeout,
                                        NULL};
            training_start(&p, dir, more);
            if (!program_wait(&p, 600)) fail_msg("hung:\n%s", p.err);
        }
        program_assert_code(&p, 0);
    }
}

/* ---- stopping and going on ---- */

static void asked_to_stop(void **state) {
    (void)state;
    static const char *const orders[] = {"deterministic=true", "deterministic=false"};
    static const char *const bounds[] = {server, "dp={server: cpu, staleness: unbounded}"};
    for (int i = 0; i < 4; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "stop-%d", i);
        const char *const more[] = {"mode=dp", bounds[i / 2], orders[i % 2], "checkpoint=100000000st", NULL};
        training_begin(&p, dir, more);
        kill(p.pid, i % 2 ? SIGTERM : SIGINT);
        training_ends(&p, 2);
        program_assert_code(&p, i % 2 ? 143 : 130);
        assert_null(strstr(p.err, "error"));
        training_gone();
        long saved = training_saved(dir);
        assert_true(saved >= 10);
        training_resume(&p, dir, saved + 20);
        assert_true(program_wait(&p, 60));
        program_assert_code(&p, 0);
        assert_float_equal(program_number(&p, "steps"), saved + 20, 0);
    }
}

/* Gone on with from where all had met, it is the run that nobody disturbed. */
static void killed_and_resumed_it_is_the_same(void **state) {
    (void)state;
    const char *const more[] = {"mode=dp", server, "optimizer={name: adam, lr: 0.0005}", NULL};
    training_begin(&p, "killed", more);
    program_wait_text(&p, "step=120/", 60);
    kill(p.pid, SIGKILL);
    (void)program_wait(&p, 10);
    long saved = training_saved("killed");
    assert_true(saved >= 50 && saved % 50 == 0);
    training_resume(&p, "killed", saved + 70);
    assert_true(program_wait(&p, 60));
    program_assert_code(&p, 0);
    char hash[80];
    snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
    const char *const control[] = {
        "mode=dp", "devices=cpu:4", server, "checkpoint=50st", "optimizer={name: adam, lr: 0.0005}", NULL};
    assert_string_equal(hash, training_hash(saved + 70, control));
}

/* From a run that waits, to one that does not, to ddp. */
static void it_goes_on_from_any_other(void **state) {
    (void)state;
    static const char *const ways[][2] = {
        {"mode=dp", "dp={server: shared, staleness: 0}"},
        {"mode=dp", "dp={server: dedicated, staleness: 3}"},
        {"mode=ddp", "devices=cpu:2"},
        {"mode=dp", "dp={server: cpu, staleness: unbounded}"},
    };
    for (int i = 0; i < 4; i++) {
        char before[32], dir[32], resume[700], length[32];
        snprintf(before, sizeof before, "way-%d", i - 1);
        snprintf(dir, sizeof dir, "way-%d", i);
        snprintf(length, sizeof length, "train=%dst", 30 + 30 * i);
        snprintf(resume, sizeof resume, "checkpoint={every: 30st, resume: '%s'}", scratch_path(before));
        const char *const more[] = {ways[i][0], ways[i][1], length, i ? resume : "checkpoint=30st", NULL};
        run(dir, more);
        program_assert_code(&p, 0);
        assert_float_equal(program_number(&p, "steps"), 30 + 30 * i, 0);
    }
}

/* ---- mode ps: the same over any link ---- */

static void processes_give_the_bits_of_threads(void **state) {
    (void)state;
    static const char *const ways[][3] = {{"mode=dp", "dp={server: dedicated, staleness: 2}", "comm.link=auto"},
                                          {"mode=ps", "ps.staleness=2", "comm.link=shm"},
                                          {"mode=ps", "ps.staleness=unbounded", "comm.link=tcp"},
                                          {"mode=ps", "ps.staleness=2", "comm.link=hosts"}};
    char first[80] = "";
    for (int i = 0; i < 4; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "turns-%d", i);
        const char *const more[] = {ways[i][0], ways[i][1], ways[i][2], "eval=25st", "train=60st", NULL};
        run(dir, more);
        program_assert_code(&p, 0);
        if (i) assert_string_equal(program_string(&p, "weights_sha256"), first);
        snprintf(first, sizeof first, "%s", program_string(&p, "weights_sha256"));
        assert_float_equal(program_number(&p, "staleness.most"), 3, 0);
    }
    training_says(&p, "each gradient by itself over hosts, 1 server, staleness 2 (gradients in turn)");
}

/* Rank 0 is the server. Killed it is named, asked to stop it stops the run, and so does a worker. */
static void lost_and_asked_to_stop(void **state) {
    (void)state;
    static const char *const orders[] = {"deterministic=true", "deterministic=false"};
    static const char *const on[] = {"comm.link=shm", "comm.link=tcp"};
    for (int i = 0; i < 8; i++) {
        char dir[32], who[64];
        int rank = i / 4 * 2, asked = i / 2 % 2;
        snprintf(dir, sizeof dir, "lost-%d", i);
        snprintf(who, sizeof who, "rank %d was killed by signal 9", rank);
        const char *const more[] = {"mode=ps",         "ps.staleness=1",    on[i % 2],
                                    orders[i / 2 % 2], "train=100000000st", NULL};
        training_begin(&p, dir, more);
        kill(program_rank(&p, rank, 5), asked ? SIGTERM : SIGKILL);
        training_ends(&p, 5);
        program_assert_code(&p, asked ? 143 : 75);
        if (!asked) training_says(&p, who);
        training_gone();
    }
}

/* ---- comparing ---- */

static void compared_as_the_question_alone(void **state) {
    (void)state;
    char file[600], folder[600], a[600], b[600];
    snprintf(file, sizeof file, "%s", scratch_path("stale.yaml"));
    snprintf(folder, sizeof folder, "%s", scratch_path("compared"));
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("base: {mode: dp, devices: cpu:2, dp: {server: dedicated}, model: {zoo: mlp, hidden: "
          "[16]},\n"
          "  data: {set: digits, train: 200, val: 20}, batch: {size: 32, shards: 2}, train: 30st,\n"
          "  eval: end, checkpoint: 30st}\nmatrix: {dp.staleness: [0, 2]}\n",
          f);
    assert_int_equal(fclose(f), 0);
    program_run(&p, 120, "compare", file, "--dir", folder, NULL);
    program_assert_code(&p, 0);
    assert_non_null(strstr(p.out, "same losses and weights, bit for bit: no (0 of 1 pairs)"));
    assert_non_null(strstr(p.out, "no: step "));

    const char *const waits[] = {"mode=dp", "dp.server=dedicated", "train=20st", NULL};
    const char *const does_not[] = {"mode=dp", server, "train=20st", NULL};
    run("waits", waits);
    program_assert_code(&p, 0);
    run("does-not", does_not);
    program_assert_code(&p, 0);
    snprintf(a, sizeof a, "%s", scratch_path("waits"));
    snprintf(b, sizeof b, "%s", scratch_path("does-not"));
    program_run(&p, 60, "compare", a, b, NULL);
    program_assert_code(&p, 78);
    assert_non_null(strstr(p.err, "dp.staleness is '0' beside '2'"));
    program_run(&p, 60, "compare", a, b, "--axis", "dp.staleness", NULL);
    program_assert_code(&p, 0);
    assert_non_null(strstr(p.out, "no: step "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_summary_tells),
        cmocka_unit_test(the_bytes_are_those_of_a_run_that_waits),
        cmocka_unit_test(a_server_that_is_long_busy_is_not_lost),
        cmocka_unit_test(asked_to_stop),
        cmocka_unit_test(killed_and_resumed_it_is_the_same),
        cmocka_unit_test(it_goes_on_from_any_other),
        cmocka_unit_test(processes_give_the_bits_of_threads),
        cmocka_unit_test(lost_and_asked_to_stop),
        cmocka_unit_test(compared_as_the_question_alone),
    };
    return cmocka_run_group_tests_name("staleness", tests, NULL, NULL);
}
