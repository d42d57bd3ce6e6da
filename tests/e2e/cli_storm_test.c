/* Random faults at random moments of random runs. After each: an end within its bound, the exit
 * code of the manual, no process and no file left, and a last checkpoint from which the run goes on
 * to the end that it would have had. ENGINE_STORM=N injects so many; ENGINE_STORM_SEED=S those of
 * another storm. */
#include "engine/base/rng.h"
#include "tests/harness/training.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
enum { RESTART_STEPS = 2000, FOREIGN_STEPS = 60000, JOIN_SECONDS = 8 };

/* Ways to run. 'how' changes no weight; 'what' does, and so is given to the undisturbed run too. */
struct kind {
    const char *name, *how[2], *what[2];
    bool processes; /* a rank is a process, which can be struck alone */
    bool own_bits;  /* the weights depend on the number of devices */
};
static const struct kind kinds[] = {
    {"ddp over shm", {"mode=ddp"}, .processes = true},
    {"ddp over tcp", {"mode=ddp", "comm.link=tcp"}, .processes = true},
    {"ddp in slices", {"mode=ddp", "optimizer.shard=true"}, .processes = true},
    {"ddp without overlap", {"mode=ddp", "ddp={bucket: 16KB, overlap: false}"}, .processes = true},
    {"ddp along a tree", {"mode=ddp", "comm.algorithm=tree"}, .processes = true},
    {"local SGD", {"mode=ddp"}, {"ddp.sync=4"}, .processes = true, .own_bits = true},
    {"adamw and accumulation",
     {"mode=ddp"},
     {"optimizer={name: adamw, lr: 0.002}", "batch.accumulate=2"},
     .processes = true},
    {"dp", {"mode=dp"}},
    {"dp with a server of its own", {"mode=dp", "dp.server=dedicated"}},
    {"dp in slices", {"mode=dp", "dp.server=sharded"}},
    {"dp scattering samples", {"mode=dp", "dp.scatter=server"}},
    {"single", {"mode=single"}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct injection {
    enum fault fault;
    const struct kind *kind;
    bool early;   /* before the first step */
    bool foreign; /* another run's checkpoints lie in its folder */
    int ranks, victim;
    int after_ms;
};
static struct program p;
static struct rng_key key;
static char dir[32], what[200];

/* Checkpoints of a longer run with other weights, which must neither be taken nor deleted. */
static bool is_planted(const struct injection *j) {
    return j->foreign && !j->early;
}

static void copy(const char *from, const char *to) {
    static struct program cp;
    const char *const words[] = {"cp", "-a", from, to, NULL};
    program_spawn(&cp, words);
    assert_true(program_wait(&cp, 10) && cp.code == 0);
}

static const char *foreign_path(const char *run) {
    char name[80];
    snprintf(name, sizeof name, "%s/ckpt/step-%09d", run, FOREIGN_STEPS);
    return scratch_path(name);
}

static void make_foreign(void) {
    const char *const more[] = {"mode=single",        "devices=cpu:1",      "train=60000st", /* FOREIGN_STEPS */
                                "checkpoint=60000st", "optimizer.lr=0.001", "log.every=10000st", NULL};
    training_start(&p, "foreign", more);
    assert_true(program_wait(&p, 120) && p.code == 0);
}

static void plant_foreign(void) {
    char folder[80];
    snprintf(folder, sizeof folder, "%s/ckpt", dir);
    mkdir(scratch_path(folder), 0755);
    copy(foreign_path("foreign"), scratch_path(folder));
}

static int draw(int turn, uint64_t i, int n) {
    return (int)rng_below(key, (uint64_t)turn, i, (uint64_t)n);
}

static struct injection choose(int turn) {
    const struct kind *k = &kinds[draw(turn, 0, KINDS)];
    struct injection j = {.kind = k,
                          .foreign = draw(turn, 1, 2) == 0,
                          .early = draw(turn, 2, 4) == 0,
                          .ranks = strcmp(k->name, "single") != 0 ? 2 + draw(turn, 3, 3) : 1};
    j.fault = k->processes ? (enum fault)draw(turn, 4, FAULTS)
                           : (enum fault)(KILL_PARENT + draw(turn, 4, FAULTS - KILL_PARENT));
    j.victim = draw(turn, 5, j.ranks);
    j.after_ms = draw(turn, 6, j.early ? 100 : 300);
    snprintf(dir, sizeof dir, "storm-%d", turn);
    snprintf(what, sizeof what, "injection %d: %s, %s, %d ranks, rank %d, %d ms after %s%s", turn, fault_names[j.fault],
             k->name, j.ranks, j.victim, j.after_ms, j.early ? "the start" : "the first step",
             is_planted(&j) ? ", beside checkpoints of another run" : "");
    return j;
}

static const char batch[] = "batch={size: 64, shards: 4}";

static int add(const char **words, int n, const char *const *more) {
    for (int i = 0; i < 2 && more[i]; i++) words[n++] = more[i];
    return n;
}

static void start(const struct injection *j) {
    char devices[32], length[32];
    bool ends = j->fault == KILL_AND_RESTART;
    snprintf(devices, sizeof devices, "devices=cpu:%d", j->ranks);
    snprintf(length, sizeof length, "train=%dst", ends ? RESTART_STEPS : 100000000);
    const char *more[16] = {devices,
                            length,
                            batch,
                            "checkpoint=20st",
                            "run.join_timeout=8s", /* JOIN_SECONDS */
                            ends ? "run.restarts=3" : "run.restarts=0",
                            ends ? "comm.emulate.latency=200us" : "comm.emulate.latency=0us"};
    add(more, add(more, 7, j->kind->how), j->kind->what);
    training_start(&p, dir, more);
    if (!j->early) program_wait_text(&p, "step=1/", 30);
    if (is_planted(j)) plant_foreign();
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

static const char *undisturbed(const struct injection *j, long steps) {
    char devices[32];
    snprintf(devices, sizeof devices, "devices=cpu:%d", j->ranks);
    const char *more[8] = {batch};
    int n = add(more, 1, j->kind->what);
    if (j->ranks == 3 || j->kind->own_bits) {
        more[n++] = j->kind->own_bits ? "mode=ddp" : "mode=dp";
        more[n++] = devices;
    }
    return training_hash(steps, more);
}

static void goes_on(const struct injection *j) {
    char hash[80];
    long saved = training_saved_before(dir, FOREIGN_STEPS), end = (saved < 0 ? 0 : saved) + 20;
    if (j->fault == KILL_AND_RESTART) {
        end = RESTART_STEPS;
    } else {
        training_resume(&p, dir, end);
        if (!program_wait(&p, 60) || p.code) fail_msg("%s: not resumed: %s", what, p.err);
        if (saved >= 0) training_says(&p, "resuming from");
    }
    snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
    if (strcmp(hash, undisturbed(j, end)) != 0) fail_msg("%s: other weights", what);
    if (is_planted(j)) assert_int_equal(access(foreign_path(dir), R_OK), 0);
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
                  training_saved_before(dir, FOREIGN_STEPS));
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
    make_foreign();
    for (int turn = 0; turn < n; turn++) one(turn);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(storm)};
    return cmocka_run_group_tests_name("storm", tests, NULL, NULL);
}
