/* Ranks as processes: this program starts itself. With ENGINE_LAUNCH set it is a rank and plays the
 * scene that its arguments name. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "tests/harness/timing.h"
#include "transport/launch/launch.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what ranks do ---- */

static _Noreturn void wait_for_ever(void) {
    for (;;) pause();
}

static bool env_is(const char *name, int value) {
    const char *text = getenv(name);
    return text && atoi(text) == value;
}

static int scene_hello(const struct launch_self *s) {
    if (!env_is("RANK", s->rank) || !env_is("WORLD_SIZE", s->size) || !env_is("LOCAL_RANK", s->rank) ||
        !env_is("LOCAL_WORLD_SIZE", s->size) || getenv("ENGINE_LAUNCH"))
        return 9;
    if ((s->console_out >= 0) != (s->rank == 0) || (s->console_err >= 0) != (s->rank == 0)) return 8;
    if (getchar() != EOF) return 7;
    if (s->meeting_fd < 0 || !(fcntl(s->meeting_fd, F_GETFD) & FD_CLOEXEC)) return 6;
    printf("out %d\n", s->rank);
    fprintf(stderr, "err %d\n", s->rank);
    return 0;
}

/* Rank 'who' dies by SIGKILL while it holds a lock, which it tells by a byte in the file; the
 * others get the lock, know, and end as those who lost a peer. */
static int scene_notice(const struct launch_self *s, int who, const char *path) {
    char byte;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->rank == who) {
        if (flock(fd, LOCK_EX) || pwrite(fd, "!", 1, 0) != 1) return 9;
        usleep(100000);
        raise(SIGKILL);
    }
    while (pread(fd, &byte, 1, 0) != 1) usleep(1000);
    flock(fd, LOCK_EX);
    return 75;
}

/* Rank 'who' fails, and is longer on its way out than the grace; the others know at once. */
static int scene_late(const struct launch_self *s, int who) {
    if (s->rank != who) return 75;
    usleep(350000);
    return 65;
}

/* Rank 'who' is killed; the others hear of it, but have something to do before they end. */
static int scene_busy(const struct launch_self *s, int who, const char *ms) {
    usleep(s->rank == who ? 50000 : (useconds_t)atoi(ms) * 1000);
    if (s->rank == who) raise(SIGKILL);
    return 75;
}

static int scene_bytes(const struct launch_self *s) {
    if (s->rank != 0) return 0;
    for (int i = 0; i < 10000; i++) putchar('x');
    static const char junk[] = "\nbin\0\x01\xff\n\n\tlast words";
    fwrite(junk, 1, sizeof junk - 1, stdout);
    return 3;
}

/* What all ranks tell, and what each has to say; rank 1 after the others. */
static int scene_alike(const struct launch_self *s) {
    usleep(s->rank == 1 ? 100000 : 0);
    printf("error: the same\nhint: the same\nerror: of %d\nthe same\nerror: the same\n", s->rank);
    printf("rank %d: warning: rank 7 has not come within %d s; last seen\n", s->rank, s->rank + 1);
    return 0;
}

static int scene_flood(const struct launch_self *s) {
    for (int i = 0; i < 20000; i++) printf("line %d of rank %d\n", i, s->rank);
    return s->rank == 1 ? 4 : 0;
}

/* Leaves a process behind that holds the pipes: in the ranks' process group, or in a session of its
 * own. */
static int scene_leave(bool apart) {
    char *argv[] = {(char[]){"test"}, (char[]){"sleep"}, NULL};
    posix_spawnattr_t attr;
    pid_t pid;
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, apart ? POSIX_SPAWN_SETSID : 0);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, &attr, argv, environ)) return 9;
    posix_spawnattr_destroy(&attr);
    printf("left %d\n", (int)pid);
    return 0;
}

static int play(const struct launch_self *s, char **argv) {
    const char *scene = argv[1];
    int who = argv[2] ? atoi(argv[2]) : -1, code = argv[2] && argv[3] ? atoi(argv[3]) : 0;
    if (!strcmp(scene, "hello")) return scene_hello(s);
    if (!strcmp(scene, "notice")) return scene_notice(s, who, argv[3]);
    if (!strcmp(scene, "late")) return scene_late(s, who);
    if (!strcmp(scene, "busy")) return scene_busy(s, who, argv[3]);
    if (!strcmp(scene, "all")) return who;
    if (!strcmp(scene, "first") && s->rank == 0) return 0;
    if (!strcmp(scene, "victims") && s->rank != who) return 75;
    if (!strcmp(scene, "victims")) wait_for_ever();
    if (!strcmp(scene, "again") && s->rank != who) return 79;
    if (!strcmp(scene, "bytes")) return scene_bytes(s);
    if (!strcmp(scene, "alike")) return scene_alike(s);
    if (!strcmp(scene, "flood")) return scene_flood(s);
    if (!strcmp(scene, "leave")) return scene_leave(false);
    if (!strcmp(scene, "leave-apart")) return scene_leave(true);
    if (!strcmp(scene, "stopped") && s->rank == 1) raise(SIGSTOP);
    if (s->rank != who) wait_for_ever(); /* else: exit, kill and stopped: one ends, the others wait in vain */
    usleep(50000);
    fprintf(stderr, "rank %d has had enough\n", s->rank);
    if (!strcmp(scene, "exit")) return code;
    raise(SIGKILL);
    return 9;
}

/* ---- starting them here ---- */

static char *text;                           /* what came in p->log */
static bool (*busy)(void *user, bool known); /* for launch_params */
static bool (*over)(void *user);             /* likewise */
static int again_code;
static bool once;
static double last_s;

static void forget_text(void) {
    free(text);
    text = NULL;
}

static int lost[16]; /* of the last launch */

static enum error launch(int size, struct launch_result *out, const char *scene, const char *a, const char *b) {
    size_t n;
    forget_text();
    FILE *log = open_memstream(&text, &n);
    assert_non_null(log);
    const char *const argv[] = {"test", scene, a, b, NULL};
    struct meeting *meeting;
    assert_ok(meeting_create_shared(size, &meeting));
    struct launch_params p = {
        .size = size, .argv = argv, .meeting = meeting, .log_folder = scratch_folder(), .log = log, .grace = 0.2};
    p.over = over, p.busy = busy, p.again = again_code, p.last = last_s, p.once = once, p.lost = lost;
    enum error err = launch_processes(&p, out);
    meeting_free(meeting);
    fclose(log);
    struct sigaction now;
    sigaction(SIGINT, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL); /* as it was */
    /* Nothing is left, nor was anything left unreaped: orphans would have come to this process
     * (PR_SET_CHILD_SUBREAPER). */
    if (strncmp(scene, "leave", 5)) assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    return err;
}

static void assert_text(const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

static void read_rank_log(int rank, char *out, size_t size) {
    char name[32];
    snprintf(name, sizeof name, "rank%d.log", rank);
    FILE *f = fopen(scratch_path(name), "r");
    assert_non_null(f);
    out[fread(out, 1, size - 1, f)] = '\0';
    fclose(f);
    remove(scratch_path(name));
}

static void normal_end(void **unused) {
    (void)unused;
    static const int sizes[] = {1, 2, 8};
    setenv("RANK", "77", 1); /* a stale one does not get through */
    for (int i = 0; i < 3; i++) {
        struct launch_result r;
        assert_ok(launch(sizes[i], &r, "hello", NULL, NULL));
        assert_int_equal(r.first, -1);
        assert_int_equal(r.exit_code, 0);
        assert_int_equal(r.signal, 0);
        for (int rank = 0; rank < sizes[i]; rank++) {
            char line[64], log[256];
            snprintf(line, sizeof line, "[rank %d] out %d\n", rank, rank);
            assert_text(line);
            snprintf(line, sizeof line, "[rank %d] err %d\n", rank, rank);
            assert_text(line);
            read_rank_log(rank, log, sizeof log);
            snprintf(line, sizeof line, "err %d\nout %d\n", rank, rank); /* stdout was flushed at its end */
            assert_string_equal(log, line);
        }
    }
    unsetenv("RANK");
}

static void exit_codes(void **unused) {
    (void)unused;
    struct launch_result r;
    assert_ok(launch(3, &r, "exit", "1", "78"));
    assert_int_equal(r.first, 1);
    assert_int_equal(r.exit_code, 78);
    assert_int_equal(r.signal, 0);
    assert_true(r.seconds < timing_limit(1));
    assert_string_equal(r.lines, "rank 1 has had enough");
    assert_ok(launch(1, &r, "exit", "0", "1"));
    assert_int_equal(r.exit_code, 1);
    /* a rank that somebody else has told to stop: the rest is told, too */
    assert_ok(launch(2, &r, "exit", "0", "143"));
    assert_int_equal(r.first, -1);
    assert_int_equal(r.exit_code, 143);
}

static void killed(void **unused) {
    (void)unused;
    static const char *const ranks[] = {"0", "1", "2", "3"};
    for (int rank = 0; rank < 4; rank++) {
        struct launch_result r;
        char line[64];
        assert_fails(ERR_PEER, launch(4, &r, "kill", ranks[rank], NULL));
        snprintf(line, sizeof line, "rank %d ", rank);
        assert_memory_equal(error_message(), line, strlen(line));
        assert_non_null(strstr(error_message(), "killed by signal 9"));
        assert_int_equal(r.first, rank);
        assert_int_equal(r.exit_code, -1);
        assert_int_equal(r.signal, SIGKILL);
        assert_int_equal(r.nlost, 1); /* those that had to be killed then are not */
        assert_int_equal(r.lost[0], rank);
        assert_true(r.seconds >= 0.15 && r.seconds < timing_limit(1)); /* the grace that was given, then the end */
        snprintf(line, sizeof line, "rank %d has had enough", rank);
        assert_string_equal(r.lines, line);
    }
}

static bool kills_spawned; /* the next process that is spawned, before it does anything */

/* In the place of the C library's: a process that is killed before it executes a program was started, too. */
int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
                 char *const argv[], char *const envp[]) {
    union {
        void *symbol;
        __typeof__(&posix_spawnp) call;
    } next = {dlsym(RTLD_NEXT, "posix_spawnp")};
    if (!kills_spawned) return next.call(pid, file, actions, attr, argv, envp);
    kills_spawned = false;
    *pid = fork();
    if (*pid == 0) raise(SIGKILL);
    siginfo_t end;
    return *pid < 0 ? errno : waitid(P_PID, (id_t)*pid, &end, WEXITED | WNOWAIT);
}

/* The process that was to make the group of all never did. */
static void killed_before_it_runs(void **unused) {
    (void)unused;
    struct launch_result r;
    kills_spawned = true;
    assert_fails(ERR_PEER, launch(3, &r, "wait", NULL, NULL));
    assert_int_equal(r.first, 0);
    assert_int_equal(r.signal, SIGKILL);
    assert_int_equal(r.lost[0], 0);
}

static void eight_ranks(void **unused) {
    (void)unused;
    struct launch_result r;
    assert_fails(ERR_PEER, launch(8, &r, "kill", "5", NULL));
    assert_int_equal(r.first, 5);
    assert_true(r.seconds < timing_limit(1));
}

/* A stopped process heeds SIGKILL alone. */
static void stopped(void **unused) {
    (void)unused;
    struct launch_result r;
    assert_fails(ERR_PEER, launch(3, &r, "stopped", "2", NULL));
    assert_int_equal(r.first, 2);
    assert_true(r.seconds < timing_limit(1));
}

/* Those who end because they lost a peer are not the cause, even when all are found dead at one
 * look. */
static void cause_is_named(void **unused) {
    (void)unused;
    static const char *const ranks[] = {"0", "3"};
    for (int i = 0; i < 2; i++) {
        struct launch_result r;
        assert_fails(ERR_PEER, launch(4, &r, "notice", ranks[i], scratch_path(ranks[i])));
        assert_int_equal(r.first, atoi(ranks[i]));
        assert_int_equal(r.signal, SIGKILL);
        assert_int_equal(r.nlost, 1);
        assert_int_equal(r.lost[0], r.first);
    }
}

static void a_cause_that_ends_late_is_named(void **unused) {
    (void)unused;
    struct launch_result r;
    assert_ok(launch(3, &r, "late", "1", NULL));
    assert_int_equal(r.first, 1);
    assert_int_equal(r.exit_code, 65);
    assert_int_equal(r.stuck, -1);
}

static bool busy_when_known(void *user, bool known) {
    (void)user;
    return known;
}

static void who_is_busy_may_end(void **unused) {
    (void)unused;
    struct launch_result r;
    assert_fails(ERR_PEER, launch(3, &r, "busy", "1", "600"));
    assert_true(r.stuck >= 0);
    busy = busy_when_known;
    assert_fails(ERR_PEER, launch(3, &r, "busy", "1", "600"));
    assert_int_equal(r.stuck, -1);
    assert_true(r.seconds < timing_limit(10)); /* they are not waited for any longer than they need */
    busy = NULL;
    assert_ok(launch(3, &r, "victims", "1", NULL));
    assert_int_equal(r.stuck, 1); /* the others say that it is lost */
    assert_int_equal(r.lost[0], 1);
    assert_int_equal(r.asked, 0); /* that it was killed was nobody's wish */
}

static bool over_now(void *user) {
    (void)user;
    return true;
}

/* All wait for ever, while the ranks elsewhere have ended. */
static void all_hang(void **unused) {
    (void)unused;
    struct launch_result r;
    over = over_now;
    enum error err = launch(3, &r, "wait", NULL, NULL);
    over = NULL;
    assert_ok(err);
    assert_int_equal(r.first, 0);
    assert_int_equal(r.stuck, 0);
    assert_int_equal(r.exit_code, 75);
    assert_int_equal(r.nlost, 3);
    assert_int_equal(r.asked, 0);
}

/* Ranks that end to be started again have not failed. */
static void again(void **unused) {
    (void)unused;
    struct launch_result r;
    assert_ok(launch(2, &r, "all", "79", NULL));
    assert_int_equal(r.exit_code, 79); /* nobody said what it means */
    again_code = 79;
    assert_ok(launch(2, &r, "all", "79", NULL));
    assert_true(r.again && r.first < 0 && r.exit_code == 0 && r.seen > 0);
    assert_ok(launch(2, &r, "all", "0", NULL));
    assert_false(r.again);
    assert_fails(ERR_PEER, launch(2, &r, "again", "1", NULL)); /* one is lost meanwhile */
    assert_false(r.again);
    assert_int_equal(r.lost[0], 1);
    again_code = 0;
}

/* Nobody waits for ever for a rank that hangs when the run is over. */
static void rank_0_is_the_last(void **unused) {
    (void)unused;
    struct launch_result r;
    last_s = 0.3;
    assert_ok(launch(3, &r, "first", NULL, NULL));
    assert_true(r.first < 0 && r.exit_code == 0 && r.stuck > 0);
    last_s = 0;
}

static void any_bytes(void **unused) {
    (void)unused;
    static char log[20000];
    struct launch_result r;
    read_rank_log(0, log, sizeof log); /* what earlier tests left: logs are added to */
    assert_ok(launch(2, &r, "bytes", NULL, NULL));
    assert_int_equal(r.first, 0);
    /* "[rank 0] xxx...": cut at 4096 with the prefix, nothing lost */
    int x = 0, lines = 0;
    for (const char *p = strstr(text, "[rank 0] x"); p; p = strstr(p + 1, "[rank 0] x")) lines++;
    for (const char *p = text; *p; p++) x += *p == 'x';
    assert_int_equal(x, 10000);
    assert_int_equal(lines, 3);
    assert_text("\n[rank 0] bin"); /* a NUL follows: the rest is seen in the last lines */
    static const char last[] = "bin??\xff\n\n\tlast words";
    assert_string_equal(r.lines + strlen(r.lines) - (sizeof last - 1), last);
}

/* An error or a warning that all ranks find is told by the first of them; the logs have all. */
static void what_was_told_is_not_told_again(void **unused) {
    (void)unused;
    static char log[20000];
    struct launch_result r;
    once = true;
    assert_ok(launch(2, &r, "alike", NULL, NULL));
    assert_string_equal(text, "[rank 0] error: the same\n[rank 0] hint: the same\n[rank 0] error: of 0\n"
                              "[rank 0] the same\n[rank 0] error: the same\n"
                              "[rank 0] rank 0: warning: rank 7 has not come within 1 s; last seen\n"
                              "[rank 1] error: of 1\n"
                              "[rank 1] the same\n");
    read_rank_log(1, log, sizeof log);
    assert_non_null(strstr(log, "error: the same\nhint: the same\nerror: of 1\nthe same\nerror: the same\n"));
    once = false;
    assert_ok(launch(2, &r, "alike", NULL, NULL));
    assert_text("[rank 1] error: the same\n[rank 1] hint: the same\n[rank 1] error: of 1\n");
}

static void flood(void **unused) {
    (void)unused;
    struct launch_result r;
    assert_ok(launch(2, &r, "flood", NULL, NULL));
    assert_int_equal(r.first, 1);
    assert_int_equal(r.exit_code, 4);
    assert_text("[rank 0] line 19999 of rank 0\n");
    assert_text("[rank 1] line 19999 of rank 1\n");
    assert_text("[rank 1] line 7 of rank 1\n");
    assert_memory_equal(r.lines, "line ", 5); /* whole lines, the last ones */
    assert_string_equal(r.lines + strlen(r.lines) - 20, "line 19999 of rank 1");
    assert_true(strlen(r.lines) > 1900);
}

/* What a rank leaves behind in its process group is killed; what has gone away from it is not
 * waited for. */
static void left_behind(void **unused) {
    (void)unused;
    for (int apart = 0; apart < 2; apart++) {
        struct launch_result r;
        int64_t begin = clock_ns();
        assert_ok(launch(1, &r, apart ? "leave-apart" : "leave", NULL, NULL));
        assert_int_equal(r.first, -1);
        assert_true(clock_seconds(clock_ns() - begin) < timing_limit(3));
        const char *left = strstr(text, "left ");
        assert_non_null(left);
        int status;
        if (apart) kill(atoi(left + 5), SIGTERM);
        assert_int_equal(waitpid(atoi(left + 5), &status, 0), atoi(left + 5));
        assert_int_equal(WTERMSIG(status), apart ? SIGTERM : SIGKILL);
    }
}

static void cannot_start(void **unused) {
    (void)unused;
    struct launch_result r;
    const char *const argv[] = {"test", "hello", NULL};
    struct launch_params p = {.size = 2, .argv = argv, .log_folder = scratch_path("missing")};
    assert_fails(ERR_CREATE, launch_processes(&p, &r));
    assert_int_equal(r.first, -1);
    assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

int main(int argc, char **argv) {
    struct launch_self self;
    bool rank;
    if (argc > 1 && !strcmp(argv[1], "sleep")) return sleep(20) != 0;
    if (launch_self(&self, &rank) != ERR_NONE) return fprintf(stderr, "%s\n", error_message()), 70;
    if (rank) return play(&self, argv);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_end),
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(killed),
        cmocka_unit_test(killed_before_it_runs),
        cmocka_unit_test(eight_ranks),
        cmocka_unit_test(stopped),
        cmocka_unit_test(cause_is_named),
        cmocka_unit_test(a_cause_that_ends_late_is_named),
        cmocka_unit_test(who_is_busy_may_end),
        cmocka_unit_test(all_hang),
        cmocka_unit_test(again),
        cmocka_unit_test(rank_0_is_the_last),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(what_was_told_is_not_told_again),
        cmocka_unit_test(flood),
        cmocka_unit_test(left_behind),
        cmocka_unit_test(cannot_start),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    forget_text();
    return failed;
}
