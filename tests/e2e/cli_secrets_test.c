/* The secret of a run is nowhere but where its owner has put it: in no file of the run, report,
 * answer of the dashboard, word of a command or environment of a rank. A run that goes on finds it
 * again or says where it was. Ranks of another user are not let in. */
#include "tests/harness/ports.h"
#include "tests/harness/program.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET "5b1d0c64e7a94f38b2c6d1aa07f3e915"
static struct program p;
static char dir[600], set_dir[700];

static int set_up(void **state) {
    (void)state;
    static int tests;
    char name[32];
    snprintf(name, sizeof name, "run-%d", tests++);
    snprintf(dir, sizeof dir, "%s", scratch_path(name));
    snprintf(set_dir, sizeof set_dir, "log.dir=%s", dir);
    setenv("ENGINE_TOKEN", SECRET, 1);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unsetenv("ENGINE_TOKEN");
    return program_orphans();
}

/* ---- looking for it ---- */

static bool holds(const char *bytes, size_t n) {
    return memmem(bytes, n, SECRET, strlen(SECRET)) != NULL;
}

static bool file_holds(const char *path) {
    static char bytes[4 << 20];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    for (ssize_t got; fd >= 0 && n < sizeof bytes; n += (size_t)got)
        if ((got = read(fd, bytes + n, sizeof bytes - n)) <= 0) break;
    if (fd >= 0) close(fd);
    return holds(bytes, n);
}

static int files;
static int look(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)at;
    if (kind != FTW_F || !S_ISREG(st->st_mode)) return 0;
    files++;
    if (file_holds(path)) fail_msg("the secret is in %s", path);
    return 0;
}

static void nowhere_in(const char *folder) {
    files = 0;
    assert_int_equal(nftw(folder, look, 16, FTW_PHYS), 0);
    assert_true(files > 5);
}

static void not_in_process(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (file_holds(path)) fail_msg("the secret is in %s", path);
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    if (file_holds(path)) fail_msg("the secret is in %s", path);
}

static void not_said(void) {
    assert_false(holds(p.out, strlen(p.out)));
    assert_false(holds(p.err, strlen(p.err)));
}

/* What the dashboard answers. */
static void not_shown(const char *target) {
    static char text[1 << 20];
    const char *url = strstr(p.err, "dashboard http://127.0.0.1:");
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {10, 0};
    size_t n = 0;
    assert_non_null(url);
    a.sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", target, ntohs(a.sin_port));
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    for (ssize_t got; n < sizeof text; n += (size_t)got)
        if ((got = recv(fd, text + n, sizeof text - n, 0)) <= 0) break;
    close(fd);
    assert_true(n > 100 && !memcmp(text, "HTTP/1.1 200", 12));
    assert_false(holds(text, n));
}

#define SMALL                                                                                                          \
    "run", "--mode", "ddp", "--devices", "cpu:2", "--set", "threads=1", "--set", "comm.link=tcp", "--set",             \
        "data={set: digits, train: 200, val: 20}", "--set", "batch={size: 32, shards: 2}", "--set",                    \
        "model={zoo: mlp, hidden: [16]}", "--set", set_dir

/* ---- ---- */

static void a_run_keeps_it_to_itself(void **state) {
    (void)state;
    program_start(
        &p, (const char *const[]){SMALL, "--set", "train=1000000st", "--set", "log.every=1st", "--dashboard=0", NULL});
    program_wait_text(&p, "step=10/", 60);
    for (int r = 0; r < 2; r++) not_in_process(program_rank(&p, r, 10));
    not_in_process(p.pid);
    FILE *f = fopen(p.err_path, "r");
    assert_non_null(f);
    p.err[fread(p.err, 1, 200, f)] = '\0'; /* the address is in the first line */
    p.err[strcspn(p.err, "\n")] = '\0';
    fclose(f);
    not_shown("/");
    not_shown("/api/ranks");
    not_shown("/api/metrics?since=0");
    kill(p.pid, SIGINT);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 130);
    not_said();
    program_run(&p, 60, "report", dir, NULL);
    assert_int_equal(p.code, 0);
    nowhere_in(dir);
    program_run(&p, 60, "report", dir, "-o", "-", NULL);
    assert_int_equal(p.code, 0);
    not_said();
    program_run(&p, 60, "inspect", dir, NULL);
    not_said();
    program_run(&p, 60, "config", dir, NULL);
    not_said();
}

static void a_comparison_keeps_it_to_itself(void **state) {
    (void)state;
    const char *file = scratch_path("small.yaml");
    save_text(file, "base: {model: {zoo: mlp, hidden: [16]}, data: {set: digits, train: 200, val: "
                    "20}, batch: {size: 32, shards: 2}, train: 20st, eval: end, mode: ddp, "
                    "devices: cpu:2, comm: {link: tcp}}\nmatrix: {optimizer.lr: [0.1, 0.2]}\n");
    program_run(&p, 120, "compare", file, "--quick", "--dir", dir, NULL);
    if (p.code) fail_msg("%d: %s%s", p.code, p.out, p.err);
    not_said();
    nowhere_in(dir);
}

/* Refused, without being repeated, and before anything is written. */
static void the_secret_is_no_setting(void **state) {
    (void)state;
    const char *file = scratch_path("plain.yaml");
    save_text(file, "train: 2st\nrun: {token: " SECRET "}\n");
    program_run(&p, 30, SMALL, "--set", "run.token=" SECRET, NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "'run.token' must be auto, none, env:NAME or file:PATH"));
    assert_non_null(strstr(p.err, "ENGINE_TOKEN"));
    not_said();
    for (int i = 0; i < 2; i++) {
        program_run(&p, 30, i ? "config" : "run", file, "--set", set_dir, NULL);
        assert_int_equal(p.code, 78);
        assert_non_null(strstr(p.err, "plain.yaml:2:"));
        not_said();
    }
    assert_int_equal(access(dir, F_OK), -1);
}

static void one_that_can_be_guessed_is_refused(void **state) {
    (void)state;
    setenv("ENGINE_TOKEN", "a", 1);
    program_run(&p, 30, "run", "--mode", "ddp", "--devices", "cpu:2", "--nnodes", "2", "--set", set_dir, NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "at least 16"));
    assert_non_null(strstr(p.err, "openssl rand -hex 16"));
    assert_int_not_equal(access(dir, F_OK), 0); /* it has begun nothing */
}

/* The configuration says where; a path is found from any folder. */
static void a_resumed_run_finds_it_again(void **state) {
    (void)state;
    const char *file = scratch_path("secret.txt"), *config = scratch_path("with-file.yaml");
    save_text(file, SECRET "\n");
    assert_int_equal(chmod(file, 0600), 0);
    save_text(config, "run: {token: 'file:secret.txt'}\n");
    program_run(&p, 60, SMALL, config, "--set", "train=5st", NULL);
    if (p.code) fail_msg("%s", p.err);
    nowhere_in(dir);
    program_run(&p, 60, "run", dir, "--set", "train=8st", NULL);
    if (p.code) fail_msg("%s", p.err);
    program_run(&p, 60, "run", dir, "--set", "train=11st", "--set", "run.token=env:OWN_SECRET", NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "run.token is env:OWN_SECRET, but OWN_SECRET is not set"));
    assert_non_null(strstr(p.err, "it is in no file of the run"));
    setenv("OWN_SECRET", SECRET, 1);
    program_run(&p, 60, "run", dir, "--set", "train=11st", "--set", "run.token=env:OWN_SECRET", NULL);
    unsetenv("OWN_SECRET");
    if (p.code) fail_msg("%s", p.err);
    nowhere_in(dir);
}

/* ---- other users ---- */

/* Starts a rank of two that meet at the port, as that user; gives its process. */
static pid_t start_rank(int rank, int port, uid_t user, const char *said) {
    char number[16], ranks[16], where[700];
    snprintf(number, sizeof number, "%d", port);
    snprintf(ranks, sizeof ranks, "%d", rank);
    snprintf(where, sizeof where, "log.dir=%s-%d-%d", dir, port, rank);
    pid_t pid = fork();
    if (pid) return pid;
    int fd = open(said, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1), dup2(fd, 2);
    unsetenv("ENGINE_TOKEN");
    setenv("RANK", ranks, 1), setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1), setenv("MASTER_PORT", number, 1);
    if (user && (chdir("/") || setgid(user) || setuid(user))) _exit(99);
    execl(ENGINE_BINARY_DIR "/engine", "engine", "run", "--set", "mode=ddp", "--set", "train=3st", "--set",
          "data={set: digits, train: 200, val: 20}", "--set", "batch={size: 32, shards: 2}", "--set",
          "run.join_timeout=4s", "--set", where, (char *)NULL);
    _exit(98);
}

static int ends(pid_t pid) {
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

static void assert_said(const char *path, const char *text) {
    char all[8192] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    all[fread(all, 1, sizeof all - 1, f)] = '\0';
    fclose(f);
    if (!strstr(all, text)) fail_msg("no '%s' in:\n%s", text, all);
}

static void another_user_does_not_join(void **state) {
    enum { NOBODY = 65534 };
    char said[2][600];
    int port = port_free();
    (void)state;
    for (int i = 0; i < 2; i++) snprintf(said[i], sizeof said[i], "%s", scratch_path(i ? "said-1" : "said-0"));
    pid_t a = start_rank(0, port, 0, said[0]), b = start_rank(1, port, 0, said[1]);
    assert_int_equal(ends(a), 0); /* of one user: no secret is needed */
    assert_int_equal(ends(b), 0);
    if (getuid() != 0) {
        print_message("only root can be another user: the rest is skipped\n");
        return;
    }
    port = port_free();
    a = start_rank(0, port, 0, said[0]), b = start_rank(1, port, NOBODY, said[1]);
    int code = ends(b);
    if (code == 98 || code == 99) print_message("the other user cannot run the program\n");
    assert_int_equal(ends(a), 75);
    if (code == 98 || code == 99) skip();
    assert_int_equal(code, 78);
    assert_said(said[1], "is not this user's, on this host");
    assert_said(said[1], "openssl rand -hex 16");
    assert_said(said[0], "turned away 127.0.0.1:");
    assert_said(said[0], "which is another user's");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_run_keeps_it_to_itself),     TEST(a_comparison_keeps_it_to_itself),
        TEST(the_secret_is_no_setting),     TEST(one_that_can_be_guessed_is_refused),
        TEST(a_resumed_run_finds_it_again), TEST(another_user_does_not_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
