/* Ranks that die, stop, or lose their parent: the run ends in time, says who and why, and leaves
 * nothing behind. */
#include "engine/base/clock.h"
#include "tests/harness/program.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4 };
static struct program p;

static void start(const char *dir) {
    char set[600];
    snprintf(set, sizeof set, "log.dir=%s", scratch_path(dir));
    const char *words[] = {"run",
                           "--set",
                           "mode=ddp",
                           "--set",
                           "devices=cpu:4",
                           "--set",
                           "threads=1",
                           "--set",
                           "model={zoo: mlp, hidden: [64]}",
                           "--set",
                           "data={set: digits, train: 2000, val: 50}",
                           "--set",
                           "batch=64",
                           "--set",
                           "train=1000000st",
                           "--set",
                           "log.every=1st",
                           "--set",
                           "checkpoint=50st",
                           "--set",
                           "eval=off",
                           "--set",
                           "comm.timeout=2s",
                           "--set",
                           set,
                           NULL};
    program_start(&p, words);
    program_wait_text(&p, "step=10/", 30);
}

static void nothing_left(void) {
    for (int k = 0; k < 2000 && program_orphans() > 0; k++) usleep(1000);
    assert_int_equal(program_orphans(), 0);
}

static void says(const char *text) {
    size_t n = strlen(p.err);
    if (!strstr(p.err, text))
        fail_msg("'%s' is not in what it said: ...%s", text, p.err + (n > 800 ? n - 800 : 0));
}

static void kill_each_rank(void **state) {
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        char dir[32], who[64];
        snprintf(dir, sizeof dir, "kill-%d", rank);
        start(dir);
        kill(program_rank(&p, rank, 5), SIGKILL);
        int64_t dead = clock_ns();
        assert_true(program_wait(&p, 20));
        double took = clock_seconds(clock_ns() - dead);
        print_message("rank %d killed: ended %.2f s later, exit code %d\n", rank, took, p.code);
        assert_int_equal(p.code, 75);
        if (took > 1.5) fail_msg("took %.2f s", took);
        snprintf(who, sizeof who, "rank %d was killed by signal 9", rank);
        says(who);
        nothing_left();
    }
}

static void stop_each_rank(void **state) {
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        char dir[32], who[64];
        snprintf(dir, sizeof dir, "stop-%d", rank);
        start(dir);
        kill(program_rank(&p, rank, 5), SIGSTOP);
        int64_t stopped = clock_ns();
        assert_true(program_wait(&p, 20));
        double took = clock_seconds(clock_ns() - stopped);
        print_message("rank %d stopped: ended %.2f s later, exit code %d\n", rank, took, p.code);
        assert_int_equal(p.code, 75);
        if (took > 4) fail_msg("took %.2f s", took);
        snprintf(who, sizeof who, "rank %d", rank);
        says(who);
        says("has not"); /* entered, or done its part of, all_reduce N */
        nothing_left();
    }
}

static void kill_the_parent(void **state) {
    (void)state;
    start("parent");
    kill(p.pid, SIGKILL);
    assert_true(program_wait(&p, 5));
    nothing_left();
}

static void two_runs_in_one_folder(void **state) {
    (void)state;
    start("same");
    static struct program second;
    char set[600];
    snprintf(set, sizeof set, "log.dir=%s", scratch_path("same"));
    program_run(&second, 10, "run", "--set", set, NULL);
    assert_int_equal(second.code, 73);
    assert_non_null(strstr(second.err, "another process is running"));
    kill(p.pid, SIGTERM);
    assert_true(program_wait(&p, 10));
    assert_int_equal(p.code, 143);
    nothing_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_each_rank),
        cmocka_unit_test(stop_each_rank),
        cmocka_unit_test(kill_the_parent),
        cmocka_unit_test(two_runs_in_one_folder),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
