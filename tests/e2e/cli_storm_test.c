/* Random faults at random moments of random runs. After each: an end within its bound, the exit
 * code of the manual, no process and no file left, and a last checkpoint from which the run goes on
 * to the end that it would have had. ENGINE_STORM=N injects so many; ENGINE_STORM_SEED=S those of
 * another storm. */
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "tests/harness/training.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum fault {
    KILL_RANK,
    STOP_RANK,
    TERM_RANK,
    KILL_AND_RESTART,
    KILL_PARENT,
    INTERRUPT,
    TERMINATE,
    INTERRUPT_TWICE,
    FAULTS
};
static const char *const fault_names[FAULTS] = {
    "kill -9 of a rank",
    "SIGSTOP of a rank",
    "SIGTERM to a rank",
    "kill -9 with restarts",
    "kill -9 of engine run",
    "Ctrl-C",
    "SIGTERM",
    "Ctrl-C twice",
};
enum { DP_FAULTS = KILL_PARENT, RESTART_STEPS = 2000, JOIN_SECONDS = 3 };

struct injection {
    enum fault fault;
    bool dp, tcp, early; /* early: before the first step */
    int ranks, victim;
    int after_ms;
};
static struct program p;
static struct rng_key key;
static char dir[32], what[200];

static int draw(int turn, uint64_t i, int n) {
    return (int)rng_below(key, (uint64_t)turn, i, (uint64_t)n);
}

static struct injection choose(int turn) {
    struct injection j = {.dp = draw(turn, 0, 4) == 0,
                          .tcp = draw(turn, 1, 2) == 0, /* of ddp */
                          .early = draw(turn, 2, 4) == 0,
                          .ranks = 2 + draw(turn, 3, 3)};
    j.fault = j.dp ? (enum fault)(DP_FAULTS + draw(turn, 4, FAULTS - DP_FAULTS))
                   : (enum fault)draw(turn, 4, FAULTS);
    j.victim = draw(turn, 5, j.ranks);
    j.after_ms = draw(turn, 6, j.early ? 100 : 300);
    snprintf(dir, sizeof dir, "storm-%d", turn);
    snprintf(what, sizeof what, "injection %d: %s, %s over %s, %d ranks, rank %d, %d ms after %s",
             turn, fault_names[j.fault], j.dp ? "dp" : "ddp",
             j.dp    ? "threads"
             : j.tcp ? "tcp"
                     : "shm",
             j.ranks, j.victim, j.after_ms, j.early ? "the start" : "the first step");
    return j;
}

/* Three ranks have three shards, which no single device computes. */
static const char *batch_of(const struct injection *j) {
    return j->ranks == 3 ? "batch={size: 60, shards: 3}" : "batch={size: 64, shards: 4}";
}

static void start(const struct injection *j) {
    char devices[32], length[32];
    bool ends = j->fault == KILL_AND_RESTART;
    snprintf(devices, sizeof devices, "devices=cpu:%d", j->ranks);
    snprintf(length, sizeof length, "train=%dst", ends ? RESTART_STEPS : 100000000);
    const char *const more[] = {j->dp ? "mode=dp" : "mode=ddp",
                                devices,
                                length,
                                batch_of(j),
                                "checkpoint=20st",
                                "run.join_timeout=3s", /* JOIN_SECONDS */
                                j->tcp && !j->dp ? "comm.link=tcp" : "comm.link=auto",
                                ends ? "run.restarts=3" : "run.restarts=0",
                                ends ? "comm.emulate.latency=200us" : "comm.emulate.latency=0us",
                                NULL};
    training_start(&p, dir, more);
    if (!j->early) program_wait_text(&p, "step=1/", 30);
    usleep((useconds_t)j->after_ms * 1000);
}

/* Gives the longest that the end may take from now on. */
static double inject(const struct injection *j) {
    static const int rank_signals[] = {SIGKILL, SIGSTOP, SIGTERM, SIGKILL};
    if (j->fault < KILL_PARENT) {
        kill(program_rank(&p, j->victim, 5), rank_signals[j->fault]);
        if (j->fault == STOP_RANK) return 2 + (j->early ? JOIN_SECONDS : 2);
        return j->fault == KILL_AND_RESTART ? 30 : 2;
    }
    static const int signals[] = {SIGKILL, SIGINT, SIGTERM, SIGINT};
    kill(p.pid, signals[j->fault - KILL_PARENT]);
    if (j->fault != INTERRUPT_TWICE) return 2.5;
    usleep((useconds_t)j->after_ms * 100);
    kill(p.pid, SIGINT);
    return 1;
}

/* A process that has not come so far as to take signals is ended by them. */
static bool code_is_right(const struct injection *j) {
    static const int codes[FAULTS] = {75, 75, 143, 0, -SIGKILL, 130, 143, 130};
    int expected = codes[j->fault];
    if (p.code == expected) return true;
    if (!j->early) return false;
    if (j->fault == TERM_RANK) return p.code == 75; /* killed by it, before it could listen */
    return expected > 128 && p.code == 128 - expected;
}

static void goes_on(const struct injection *j) {
    char hash[80];
    long saved = training_saved(dir), end = (saved < 0 ? 0 : saved) + 20;
    if (j->fault == KILL_AND_RESTART) {
        end = RESTART_STEPS;
    } else {
        training_resume(&p, dir, end);
        if (!program_wait(&p, 60) || p.code) fail_msg("%s: not resumed: %s", what, p.err);
        if (saved >= 0) training_says(&p, "resuming from");
    }
    snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
    const char *const three[] = {"mode=dp", "devices=cpu:3", batch_of(j), NULL};
    if (strcmp(hash, training_hash(end, j->ranks == 3 ? three : three + 3)) != 0)
        fail_msg("%s: other weights", what);
    training_gone();
}

static bool has_run_directory(void) {
    char path[600];
    snprintf(path, sizeof path, "%s/resolved.yaml", scratch_path(dir));
    return access(path, R_OK) == 0;
}

static void one(int turn) {
    struct injection j = choose(turn);
    print_message("%s\n", what);
    start(&j);
    double limit = inject(&j), took = training_ends(&p, limit);
    print_message("    ended %.2f s later, code %d, checkpoint %ld\n", took, p.code,
                  training_saved(dir));
    if (!code_is_right(&j)) fail_msg("%s: exit code %d: %s", what, p.code, p.err);
    training_gone();
    if (!has_run_directory()) {
        assert_true(j.early);
        return;
    }
    assert_true(*training_inspect(dir));
    if (turn % 3 == 0 || j.fault == KILL_AND_RESTART) goes_on(&j);
}

static long number_of(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static void storm(void **state) {
    (void)state;
    long n = number_of("ENGINE_STORM", 12), seed = number_of("ENGINE_STORM_SEED", 2026);
    print_message("storm of %ld, seed %ld\n", n, seed);
    key = rng_key((uint64_t)seed, RNG_TEST);
    for (int turn = 0; turn < n; turn++) one(turn);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(storm)};
    return cmocka_run_group_tests_name("storm", tests, NULL, NULL);
}
