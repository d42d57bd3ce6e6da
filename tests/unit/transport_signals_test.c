/* Ranks as processes whose starter is signalled or killed, and what a rank makes of its
 * environment. This program starts itself: as "starter" it launches ranks; with ENGINE_LAUNCH set
 * it is a rank and plays the scene that its arguments name. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "tests/harness/timing.h"
#include "transport/launch/launch.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what ranks do ---- */

static volatile sig_atomic_t signals, last_signal;

static void count_signal(int signo) {
    signals++;
    last_signal = signo;
}

static _Noreturn void wait_for_ever(void) {
    for (;;) pause();
}

static void say_ready(void) {
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
}

/* Stops for the first signal, a while after it: another would be counted. */
static int scene_obey(const struct launch_self *s) {
    signal(SIGINT, count_signal);
    signal(SIGTERM, count_signal);
    say_ready();
    while (!signals) usleep(1000);
    usleep(200000);
    printf("rank %d got %d\n", s->rank, (int)signals);
    return 128 + last_signal;
}

static int scene_deaf(void) {
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    say_ready();
    wait_for_ever();
}

static int play(const struct launch_self *s, const char *scene) {
    if (!strcmp(scene, "obey")) return scene_obey(s);
    if (!strcmp(scene, "deaf")) return scene_deaf();
    if (!strcmp(scene, "console")) return s->rank == 0 && dprintf(s->console_out, "console of rank 0\n") < 0;
    say_ready();
    wait_for_ever();
}

/* ---- signals to a starter ---- */

static int starter(char **argv) {
    struct meeting *meeting;
    struct launch_result r;
    int size = atoi(argv[2]);
    if (meeting_create_shared(size, &meeting) != ERR_NONE) return 1;
    struct launch_params p = {
        .size = size, .argv = (const char *const *)argv + 2, .meeting = meeting, .log = stdout, .grace = 0.2};
    enum error err = launch_processes(&p, &r);
    meeting_free(meeting);
    printf("result %d: first %d, code %d, signal %d\n", (int)err, r.first, r.exit_code, r.signal);
    return 0;
}

struct started {
    pid_t pid;
    int pipe;
    size_t n;
    char text[16384];
};

/* In a process group of its own, as a shell starts a job. */
static struct started *start(const char *size, const char *scene) {
    struct started *s = calloc(1, sizeof *s);
    int ends[2];
    assert_non_null(s);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    char *argv[] = {strdup("test"), strdup("starter"), strdup(size), strdup(scene), NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    assert_int_equal(posix_spawn(&s->pid, "/proc/self/exe", &files, &attr, argv, environ), 0);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    for (int i = 0; i < 4; i++) free(argv[i]);
    close(ends[1]);
    s->pipe = ends[0];
    return s;
}

static int count(const char *in, const char *what) {
    int n = 0;
    for (const char *p = strstr(in, what); p; p = strstr(p + 1, what)) n++;
    return n;
}

/* Reads until 'what' has come n times, or to the end when what is NULL. */
static void await(struct started *s, const char *what, int n) {
    int64_t end = clock_ns() + 20 * INT64_C(1000000000);
    while (!what || count(s->text, what) < n) {
        struct pollfd p = {.fd = s->pipe, .events = POLLIN};
        if (poll(&p, 1, 100) == 1) {
            ssize_t got = read(s->pipe, s->text + s->n, sizeof s->text - 1 - s->n);
            if (got == 0 && !what) return;
            if (got <= 0) fail_msg("ended before '%s':\n%s", what ? what : "its end", s->text);
            s->n += (size_t)got;
        }
        if (clock_ns() > end) fail_msg("'%s' does not come:\n%s", what ? what : "its end", s->text);
    }
}

static void finish(struct started *s, const char *expected) {
    await(s, NULL, 0);
    if (!strstr(s->text, expected)) fail_msg("'%s' is not in:\n%s", expected, s->text);
    int status;
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    assert_int_equal(status, 0);
    assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    close(s->pipe);
    free(s);
}

static void console_of_rank_0(void **unused) {
    (void)unused;
    struct started *s = start("2", "console");
    await(s, NULL, 0);
    assert_non_null(strstr(s->text, "console of rank 0\n"));
    assert_null(strstr(s->text, "] console"));
    finish(s, "result 0: first -1, code 0, signal 0");
}

/* Once to each rank, also when the whole process group of the starter gets it, as with Ctrl-C. */
static void passed_on_once(void **unused) {
    (void)unused;
    struct started *s = start("4", "obey");
    await(s, "] ready", 4);
    kill(s->pid, SIGTERM);
    await(s, " got 1", 4);
    finish(s, "result 0: first -1, code 143, signal 0");
    s = start("3", "obey");
    await(s, "] ready", 3);
    kill(-s->pid, SIGINT);
    await(s, " got 1", 3);
    finish(s, "result 0: first -1, code 130, signal 0");
}

static void second_interrupt_kills(void **unused) {
    (void)unused;
    struct started *s = start("3", "deaf");
    await(s, "] ready", 3);
    kill(s->pid, SIGINT);
    usleep(100000);
    kill(s->pid, SIGTERM); /* not an interrupt: nothing more happens */
    usleep(100000);
    assert_int_equal(waitpid(s->pid, NULL, WNOHANG), 0);
    int64_t begin = clock_ns();
    kill(s->pid, SIGINT);
    finish(s, "result 0: first -1, code 130, signal 0");
    assert_true(clock_seconds(clock_ns() - begin) < timing_limit(1));
}

/* Ranks that have no handler yet end by the signal itself: that is no failure either. */
static void before_handlers(void **unused) {
    (void)unused;
    struct started *s = start("3", "wait");
    await(s, "] ready", 3);
    kill(s->pid, SIGTERM);
    finish(s, "result 0: first -1, code 143, signal 0");
}

/* The starter cannot clean up after SIGKILL; the kernel does. */
static void starter_killed(void **unused) {
    (void)unused;
    struct started *s = start("4", "deaf");
    await(s, "] ready", 4);
    kill(s->pid, SIGKILL);
    int64_t begin = clock_ns();
    for (int gone = 0; gone < 5;) { /* the starter and its ranks, which are this process's children now */
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) {
            gone++;
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        }
        if (clock_seconds(clock_ns() - begin) > timing_limit(1)) fail_msg("only %d of 5 processes ended", gone);
        usleep(1000);
    }
    assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    close(s->pipe);
    free(s);
}

/* ---- launch_self ---- */

static void bad_environment(void **unused) {
    (void)unused;
    static const char *const bad[] = {
        "",
        "rank=0",
        "rank=0,size=2,local=0,locals=2,meeting=-1,out=-1,err=-1,own=0,parent=0",
        "rank=2,size=2,local=0,locals=2,meeting=-1,out=-1,err=-1,own=0,parent=7",
        "rank=-1,size=2,local=0,locals=2,meeting=-1,out=-1,err=-1,own=0,parent=7",
        "rank= 0,size=2,local=0,locals=2,meeting=-1,out=-1,err=-1,own=0,parent=7",
        "rank=00,size=2,local=0,locals=2,meeting=-1,out=-1,err=-1,own=0,parent=7",
        "rank=0,size=2,local=0,locals=2,meeting=-1,out=-1,err=-1,own=0,parent=7,",
        "rank=0,size=2,local=0,locals=2,meeting=999,out=-1,err=-1,own=0,parent=7",
        "rank=0,size=2,local=0,locals=2,meeting=-2,out=-1,err=-1,own=0,parent=7",
        "rank=0,size=2,local=2,locals=2,meeting=-1,out=-1,err=-1,own=0,parent=7",
        "rank=0,size=2,local=0,locals=2,meeting=1,out=-1,err=-1,own=0,parent=7",
        "rank=0,size=99999999999999999999,local=0,locals=2,meeting=-1,out=-1,err=-1,own=0,parent=7",
    };
    struct launch_self self;
    bool is;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("ENGINE_LAUNCH", bad[i], 1);
        assert_fails(ERR_USAGE, launch_self(&self, &is));
    }
    setenv("ENGINE_LAUNCH", "rank=0,size=2,local=0,locals=2,meeting=-1,out=-1,err=-1,own=1,parent=999999999", 1);
    assert_fails(ERR_PEER, launch_self(&self, &is));
    prctl(PR_SET_PDEATHSIG, 0);
    unsetenv("ENGINE_LAUNCH");
    assert_ok(launch_self(&self, &is));
    assert_false(is);
}

int main(int argc, char **argv) {
    struct launch_self self;
    bool rank;
    if (launch_self(&self, &rank) != ERR_NONE) return fprintf(stderr, "%s\n", error_message()), 70;
    if (rank) return play(&self, argv[1]);
    if (argc > 1 && !strcmp(argv[1], "starter")) return starter(argv);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(console_of_rank_0), cmocka_unit_test(passed_on_once), cmocka_unit_test(second_interrupt_kills),
        cmocka_unit_test(before_handlers),   cmocka_unit_test(starter_killed), cmocka_unit_test(bad_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
