/* Ranks that die, stop, or lose their parent, and users who stop a run: it ends in time, says who
 * and why, and leaves nothing behind. */
#include "tests/harness/training.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4 };
static struct program p;
static const char *const nothing[] = {NULL};
static const char *const links[] = {"comm.link=shm", "comm.link=tcp"};
enum { LINKS = sizeof links / sizeof *links };

static const char *folder(const char *what, int link, int rank) {
    static char name[64];
    snprintf(name, sizeof name, "%s-%s-%d", what, strchr(links[link], '=') + 1, rank);
    return name;
}

static void begin(const char *dir, int link) {
    const char *const more[] = {links[link], NULL};
    training_begin(&p, dir, more);
}

/* What is left of a run tells who was cut off, and where all were. */
static void inspect_names(const char *dir, int rank) {
    char who[64];
    const char *text = training_inspect(dir);
    snprintf(who, sizeof who, "killed: rank %d\n", rank);
    if (!strstr(text, who)) fail_msg("'%s' is not in:\n%s", who, text);
    for (int r = 0; r < RANKS; r++) {
        snprintf(who, sizeof who, "\nrank %d (pid ", r);
        const char *line = strstr(text, who), *end = line ? strchr(line + 1, '\n') : NULL;
        if (!end) fail_msg("no line of rank %d in:\n%s", r, text);
        if (!memmem(line, (size_t)(end - line), " in all_reduce ", 15)) fail_msg("where was rank %d?\n%s", r, text);
    }
}

static void kill_each_rank(void **state) {
    (void)state;
    for (int link = 0; link < LINKS; link++)
        for (int rank = 0; rank < RANKS; rank++) {
            char who[64];
            const char *dir = folder("kill", link, rank);
            begin(dir, link);
            kill(program_rank(&p, rank, 5), SIGKILL);
            double took = training_ends(&p, 1.5);
            print_message("%s: rank %d killed: ended %.2f s later\n", links[link], rank, took);
            assert_int_equal(p.code, 75);
            snprintf(who, sizeof who, "rank %d was killed by signal 9", rank);
            training_says(&p, who);
            training_gone();
            inspect_names(dir, rank);
        }
}

/* Named after comm.timeout, or comm.heartbeat where that is sooner; then the rest has its grace. */
static void stop_each_rank(void **state) {
    (void)state;
    for (int link = 0; link < LINKS; link++)
        for (int rank = link; rank < RANKS; rank += LINKS) {
            char who[64];
            const char *dir = folder("stop", link, rank);
            begin(dir, link);
            kill(program_rank(&p, rank, 5), SIGSTOP);
            double took = training_ends(&p, 2 + 2);
            print_message("%s: rank %d stopped: ended %.2f s later\n", links[link], rank, took);
            assert_int_equal(p.code, 75);
            snprintf(who, sizeof who, "error: rank %d (", rank);
            training_says(&p, who);
            snprintf(who, sizeof who, "rank %d did not end by itself", rank);
            training_says(&p, who);
            training_gone();
            inspect_names(dir, rank);
        }
}

/* Before it meets the others it is missed after run.join_timeout, and then after comm.timeout; a restart gets past it. */
static void stop_at_the_start(void **state) {
    (void)state;
    for (int link = 0; link < LINKS; link++)
        for (int restarts = 0; restarts < 2; restarts++) {
            const char *const more[] = {links[link], "run.join_timeout=2s",
                                        restarts ? "run.restarts=1" : "run.restarts=0",
                                        restarts ? "train=20st" : "train=100000000st", NULL};
            training_start(&p, folder("start", link, restarts), more);
            kill(program_rank(&p, restarts, 5), SIGSTOP);
            double took = training_ends(&p, 2 + 2 + (restarts ? 10 : 0));
            print_message("%s: rank %d stopped at its start: ended %.2f s later\n", links[link], restarts, took);
            assert_int_equal(p.code, restarts ? 0 : 75);
            training_says(&p, restarts ? "rank 1 did not end by itself" : "rank 0 did not end by itself");
            training_says(&p, restarts ? "starting again" : "within");
            training_gone();
        }
}

static void kill_the_parent(void **state) {
    (void)state;
    for (int link = 0; link < LINKS; link++) {
        const char *dir = folder("parent", link, 0);
        begin(dir, link);
        kill(p.pid, SIGKILL);
        training_ends(&p, 2);
        training_gone();
        assert_non_null(strstr(training_inspect(dir), "killed: ranks 0 to 3\n"));
    }
}

/* The last step is saved, and can be gone on from to the same end. */
static void saved_and_whole(const char *dir) {
    long saved = training_saved(dir);
    assert_true(saved >= 10);
    training_resume(&p, dir, saved + 20);
    assert_true(program_wait(&p, 60));
    char hash[80];
    snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
    assert_string_equal(hash, training_hash(saved + 20, nothing));
}

static void asked_to_stop(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++)
        for (int link = 0; link < LINKS; link++) {
            const char *dir = folder("asked", link, signals[i]);
            const char *const more[] = {links[link], "checkpoint=100000000st", NULL};
            training_begin(&p, dir, more);
            kill(p.pid, signals[i]);
            training_ends(&p, 2);
            assert_int_equal(p.code, 128 + signals[i]);
            training_gone();
            saved_and_whole(dir);
        }
}

/* A batch system may tell one process alone: all stop after the same step, and it is saved. */
static void one_rank_asked_to_stop(void **state) {
    (void)state;
    for (int link = 0; link < LINKS; link++)
        for (int rank = 0; rank < RANKS; rank += 2) {
            const int asked = (link + rank / 2) % 2 ? SIGINT : SIGTERM;
            const char *dir = folder("one", link, rank);
            const char *const more[] = {links[link], "checkpoint=100000000st", NULL};
            training_begin(&p, dir, more);
            kill(program_rank(&p, rank, 5), asked);
            training_ends(&p, 2);
            assert_int_equal(p.code, 128 + asked);
            assert_null(strstr(p.err, "error"));
            training_gone();
            saved_and_whole(dir);
        }
}

/* While one rank is stopped no step can end, so the first Ctrl-C cannot do its work. Two that come before the first was looked at are one, so
 * there may be more. */
static void second_interrupt(void **state) {
    (void)state;
    for (int link = 0; link < LINKS; link++) {
        begin(folder("second", link, 0), link);
        kill(program_rank(&p, 1, 5), SIGSTOP);
        for (int i = 0; i < 2 || (i < 50 && !program_ended(&p)); i++) {
            kill(p.pid, SIGINT);
            usleep(200000);
        }
        training_ends(&p, 0.4);
        assert_int_equal(p.code, 130);
        training_gone();
    }
}

/* Whenever the first Ctrl-C comes, one is enough. */
static void interrupt_at_the_start(void **state) {
    (void)state;
    for (int ms = 0; ms < 120; ms += 10) {
        char name[32];
        snprintf(name, sizeof name, "early-%d", ms);
        const char *const more[] = {links[ms / 10 % LINKS], NULL};
        training_start(&p, name, more);
        usleep((useconds_t)ms * 1000);
        kill(p.pid, SIGINT);
        training_ends(&p, 2.5);
        if (p.code != 130 && p.code != -SIGINT) fail_msg("%d ms: %d: %s", ms, p.code, p.err);
        training_gone();
    }
}

static void two_runs_in_one_folder(void **state) {
    (void)state;
    begin("same", 0);
    static struct program second;
    char set[600];
    snprintf(set, sizeof set, "log.dir=%s", scratch_path("same"));
    program_run(&second, 10, "run", "--set", set, NULL);
    assert_int_equal(second.code, 73);
    assert_non_null(strstr(second.err, "another process is running"));
    kill(p.pid, SIGTERM);
    training_ends(&p, 2);
    assert_int_equal(p.code, 143);
    training_gone();
}

/* Under a limit on addresses, which is far below the host's memory: a run that fits, and one that
 * does not, which is told what to lift. */
static void few_addresses(void **state) {
    (void)state;
#ifdef ENGINE_SANITIZED
    skip(); /* the sanitizers need all addresses */
#endif
    static const struct {
        const char *name, *model, *kilobytes;
        int code;
    } runs[] = {{"fits", "model={zoo: mlp, hidden: [64]}", "1500000", 0},
                {"too-large", "model={zoo: mlp, hidden: [4096, 4096, 4096]}", "700000", 71}};
    for (int i = 0; i < 2; i++) {
        char script[1200];
        snprintf(script, sizeof script,
                 "ulimit -v %s; exec %s/engine run --devices cpu:2 --set mode=ddp --set threads=1 "
                 "--set train=3st --set eval=end --set checkpoint=off --set '%s' --set log.dir=%s",
                 runs[i].kilobytes, ENGINE_BINARY_DIR, runs[i].model, scratch_path(runs[i].name));
        const char *words[] = {"sh", "-c", script, NULL};
        program_spawn(&p, words);
        assert_true(program_wait(&p, 60));
        if (p.code != runs[i].code) fail_msg("%s: code %d: %s", runs[i].name, p.code, p.err);
        if (p.code && !strstr(p.err, "ulimit -v")) fail_msg("%s: %s", runs[i].name, p.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_each_rank),         cmocka_unit_test(stop_each_rank),
        cmocka_unit_test(stop_at_the_start),      cmocka_unit_test(kill_the_parent),
        cmocka_unit_test(asked_to_stop),          cmocka_unit_test(one_rank_asked_to_stop),
        cmocka_unit_test(second_interrupt),       cmocka_unit_test(interrupt_at_the_start),
        cmocka_unit_test(two_runs_in_one_folder), cmocka_unit_test(few_addresses),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
