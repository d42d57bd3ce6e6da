/* Training over an MPI library: the bits are those of shared memory, a killed rank ends the run
 * with its name, and a start that cannot work is refused. */
#include "engine/base/clock.h"
#include "tests/harness/program.h"
#include "tests/harness/timing.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const common =
    "--quiet --set mode=ddp --set threads=1 --set 'model={zoo: mlp, hidden: [64]}' "
    "--set 'data={set: digits, train: 2000, val: 100}' --set 'batch={size: 64, shards: 8}' "
    "--set seed=7 --set eval=end";

static bool has_mpi(void) {
    bool built = access(ENGINE_BINARY_DIR "/libengine_mpi.so", R_OK) == 0;
    return built && system("command -v mpirun > /dev/null 2>&1") == 0;
}

/* Starts a shell command with its words in files; its process. */
static pid_t start(const char *name, const char *launcher, const char *more, char log[600]) {
    static char command[4000];
    pid_t pid;
    char sh[] = "sh", c[] = "-c", *argv[] = {sh, c, command, NULL};
    char sanitized[] = "ASAN_OPTIONS=detect_leaks=0", root[] = "OMPI_ALLOW_RUN_AS_ROOT=1",
         sure[] = "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", path[4000];
    char *environment[] = {sanitized, root, sure, path, NULL};
    snprintf(path, sizeof path, "PATH=%s", getenv("PATH"));
    snprintf(log, 600, "%s", scratch_path(name));
    snprintf(command, sizeof command,
             "exec timeout -s KILL 60 %s %s/engine run %s --set log.dir=%s-run %s > %s 2> %s.err "
             "< /dev/null",
             launcher, ENGINE_BINARY_DIR, common, log, more, log, log);
    assert_int_equal(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environment), 0);
    return pid;
}

static int finish(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const char *read_text(const char *log, const char *end) {
    static char text[1 << 16];
    char path[700];
    snprintf(path, sizeof path, "%s%s", log, end);
    FILE *f = fopen(path, "r");
    text[0] = '\0';
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
    }
    return text;
}

static void train(const char *name, const char *launcher, const char *more, char hash[65]) {
    char log[600];
    int code = finish(start(name, launcher, more, log));
    if (code) fail_msg("%s: code %d: %s", name, code, read_text(log, ".err"));
    const char *at = strstr(read_text(log, ""), "\"weights_sha256\"");
    if (!at || sscanf(at, "\"weights_sha256\": \"%64[0-9a-f]", hash) != 1)
        fail_msg("%s: no hash: %s", name, read_text(log, ""));
}

static void same_bits(void **state) {
    (void)state;
    static const struct {
        const char *name, *launcher, *more;
    } runs[] = {
        {"two", "mpirun --oversubscribe -np 2", "--set comm.link=mpi"},
        {"four", "mpirun --oversubscribe -np 4", "--set comm.link=mpi"},
        {"star", "mpirun --oversubscribe -np 4", "--set 'comm={link: mpi, algorithm: star}'"},
    };
    char want[65], hash[65], more[300];
    if (!has_mpi()) skip();
    train("shm", "", "--json --set train=60st --set devices=cpu:2 --set comm.link=shm", want);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        snprintf(more, sizeof more, "--json --set train=60st %s", runs[i].more);
        train(runs[i].name, runs[i].launcher, more, hash);
        assert_string_equal(hash, want);
    }
}

/* The process of a rank, when it has trained a step. */
static int wait_for_rank(const char *pid_file, const char *log) {
    char path[700];
    int pid = 0;
    snprintf(path, sizeof path, "%s-run/metrics.jsonl", log);
    int64_t began = clock_ns();
    while (access(path, R_OK) != 0 && clock_seconds(clock_ns() - began) < 30) usleep(10000);
    FILE *f = fopen(pid_file, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    fclose(f);
    return pid;
}

static void a_killed_rank(void **state) {
    (void)state;
    char launcher[900], log[600], pids[600], file[700];
    if (!has_mpi()) skip();
    snprintf(pids, sizeof pids, "%s", scratch_path("pid"));
    snprintf(launcher, sizeof launcher,
             "mpirun --enable-recovery --oversubscribe -np 4 sh -c "
             "'echo $$ > %s.$OMPI_COMM_WORLD_RANK; exec \"$@\"' sh",
             pids);
    pid_t pid = start("killed", launcher, "--set train=1000000st --set comm.link=mpi", log);
    snprintf(file, sizeof file, "%s.2", pids);
    int rank = wait_for_rank(file, log);
    int64_t began = clock_ns();
    assert_int_equal(kill(rank, SIGKILL), 0);
    (void)finish(pid); /* its code is mpirun's */
    double seconds = clock_seconds(clock_ns() - began);
    const char *err = read_text(log, ".err");
    if (!strstr(err, "rank 2 (") || !strstr(err, "has died")) fail_msg("%s", err);
    assert_true(seconds < timing_limit(20));
    assert_int_equal(program_orphans(), 0);
}

static void refused(void **state) {
    (void)state;
    static struct program p;
    program_run(&p, 20, "run", "--set", "mode=ddp", "--set", "comm.link=mpi", NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "mpirun -np 4 engine run CONFIG"));
    program_run(&p, 20, "run", "--set", "mode=dp", "--set", "comm.link=mpi", NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "link 'mpi' joins processes"));
    program_run(&p, 20, "bench", "comm", "--link", "mpi", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "its own launcher"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(same_bits),
        cmocka_unit_test(a_killed_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
