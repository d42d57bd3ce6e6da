#include "tests/harness/program.h"

#include "engine/base/clock.h"
#include "tests/harness/timing.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The processes of tests that failed would otherwise outlive them. */
static pid_t running[16];

static void kill_running(void) {
    for (size_t i = 0; i < sizeof running / sizeof *running; i++)
        if (running[i] > 0) kill(running[i], SIGKILL);
}

static void note_running(pid_t from, pid_t to) {
    for (size_t i = 0; i < sizeof running / sizeof *running; i++)
        if (running[i] == from) {
            running[i] = to;
            return;
        }
}

void program_spawn(struct program *p, const char *const *words) {
    static int serial;
    char *argv[PROGRAM_ARGS + 2], name[64];
    int n = 0;
    for (; words[n] && n <= PROGRAM_ARGS; n++) memcpy(&argv[n], &words[n], sizeof argv[0]);
    argv[n] = NULL;
    snprintf(name, sizeof name, "program-%d.out", ++serial);
    snprintf(p->out_path, sizeof p->out_path, "%s", scratch_path(name));
    snprintf(p->err_path, sizeof p->err_path, "%s.err", p->out_path);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, p->out_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_addopen(&actions, 2, p->err_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawnattr_t attr;
    sigset_t heard; /* which a shell ignores in what it runs in the background, and a program would inherit that */
    sigemptyset(&heard);
    sigaddset(&heard, SIGINT), sigaddset(&heard, SIGQUIT);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigdefault(&attr, &heard);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
    p->started = clock_ns();
    int err = posix_spawnp(&p->pid, argv[0], &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (err) fail_msg("cannot start %s: %s", argv[0], strerror(err));
    if (serial == 1) atexit(kill_running);
    note_running(0, p->pid);
}

#ifdef ENGINE_EMULATED
#define PROGRAM ENGINE_BINARY_DIR "/engine_emulated"
#else
#define PROGRAM ENGINE_BINARY_DIR "/engine"
#endif
void program_start(struct program *p, const char *const *words) {
    const char *all[PROGRAM_ARGS + 2] = {PROGRAM};
    for (int i = 0; words[i] && i < PROGRAM_ARGS; i++) all[i + 1] = words[i];
    program_spawn(p, all);
}

static void slurp(const char *path, char *text) {
    FILE *f = fopen(path, "r");
    if (f && fseek(f, 1 - PROGRAM_TEXT, SEEK_END) != 0) rewind(f); /* the end of it, if it is long */
    size_t n = f ? fread(text, 1, PROGRAM_TEXT - 1, f) : 0;
    text[n] = '\0';
    if (f) fclose(f);
}

bool program_wait(struct program *p, double limit_s) {
    int status, killed = 0;
    limit_s = timing_limit(limit_s);
    while (waitpid(p->pid, &status, WNOHANG) == 0) {
        if (!killed && clock_seconds(clock_ns() - p->started) > limit_s) kill(p->pid, SIGKILL), killed = 1;
        usleep(1000);
    }
    note_running(p->pid, 0);
    p->seconds = clock_seconds(clock_ns() - p->started);
    p->code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    slurp(p->out_path, p->out);
    slurp(p->err_path, p->err);
    return !killed;
}

void program_train_start(struct program *p, const char *const *sets, const char *const *more) {
    static char dir[600];
    static int serial;
    const char *words[PROGRAM_ARGS];
    int n = 0;
    snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("training-"), serial++);
    words[n++] = "run", words[n++] = "--json", words[n++] = "--set", words[n++] = dir;
    for (; *sets && n < PROGRAM_ARGS - 2; sets++) words[n++] = "--set", words[n++] = *sets;
    for (; *more && n < PROGRAM_ARGS - 2; more++) words[n++] = "--set", words[n++] = *more;
    words[n] = NULL;
    program_start(p, words);
}

void program_train_end(struct program *p) {
    if (!program_wait(p, 120)) fail_msg("hung:\n%s", p->err);
}

void program_train(struct program *p, const char *const *sets, const char *const *more) {
    program_train_start(p, sets, more);
    program_train_end(p);
    if (p->code) fail_msg("%s ...: exit code %d\n%s", *more ? *more : *sets, p->code, p->err);
}

void program_assert_same(const struct program *a, const struct program *b, const char *what) {
    static const char *const keys[] = {"weights_sha256", "losses_sha256"};
    for (int i = 0; i < 2; i++)
        if (strcmp(program_string(a, keys[i]), program_string(b, keys[i])) != 0)
            fail_msg("%s: %s differs", what, keys[i]);
}

void program_assert_code(const struct program *p, int code) {
    if (p->code != code) fail_msg("exit code %d, not %d:\n%s%s", p->code, code, p->out, p->err);
}

void program_assert_says(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

bool program_ended(const struct program *p) {
    siginfo_t end = {0};
    return waitid(P_PID, (id_t)p->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0;
}

void program_run(struct program *p, double limit_s, ...) {
    const char *words[PROGRAM_ARGS];
    int n = 0;
    va_list ap;
    va_start(ap, limit_s);
    while (n < PROGRAM_ARGS - 1 && (words[n] = va_arg(ap, const char *))) n++;
    words[n] = NULL;
    va_end(ap);
    program_start(p, words);
    if (!program_wait(p, limit_s))
        fail_msg("engine %s %s: still running after %.0f s\n%s", words[0], words[1], limit_s, p->err);
}

const char *const program_small[] = {"model={zoo: mlp, hidden: [24]}",
                                     "data={set: digits, train: 256, val: 64}",
                                     "batch={size: 32, shards: 4}",
                                     "train=12st",
                                     "threads=1",
                                     "checkpoint=off",
                                     "mode=ddp",
                                     "devices=cpu:3",
                                     "optimizer={name: sgd, lr: 0.1, momentum: 0.9}",
                                     NULL};

const struct json_value *program_json(const struct program *p, struct pool *pool) {
    const struct json_value *v = NULL;
    struct json_limits limits = {.depth = 8, .entries = 10000, .text = 65536};
    if (p->code != 0) fail_msg("exit code %d:\n%s", p->code, p->err);
    assert_ok(json_parse(p->out, strlen(p->out), limits, pool, &v));
    return v;
}

const char *program_string(const struct program *p, const char *key) {
    static char texts[8][512];
    static int next;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *v = json_get(program_json(p, pool), key);
    if (!v || v->kind != JSON_STRING) fail_msg("no string '%s' in %s", key, p->out);
    char *out = texts[next++ % 8];
    snprintf(out, sizeof texts[0], "%s", v->text);
    pool_free(pool);
    return out;
}

double program_number(const struct program *p, const char *path) {
    struct pool *pool;
    char key[64];
    assert_ok(pool_create(&pool));
    const struct json_value *v = program_json(p, pool);
    for (const char *at = path; v && *at;) {
        size_t n = strcspn(at, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, at);
        v = json_get(v, key);
        at += n + (at[n] == '.');
    }
    if (!v || v->kind != JSON_NUMBER) fail_msg("no number '%s' in %s", path, p->out);
    double number = v->number;
    pool_free(pool);
    return number;
}

/* The beginning of /proc/PID/NAME, with a NUL after it; how long it is, 0 when the process is gone.
 */
static size_t read_proc(const char *pid, const char *name, char *text, size_t size) {
    char path[320];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    return n;
}

/* A process whose command line names this test's scratch folder. */
static bool is_ours(const char *pid) {
    char line[4096];
    size_t n = read_proc(pid, "cmdline", line, sizeof line);
    return atoi(pid) != getpid() && n > 0 && memmem(line, n, scratch_folder(), strlen(scratch_folder()));
}

int program_orphans(void) {
    int count = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && is_ours(e->d_name)) count++;
    if (d) closedir(d);
    return count;
}

/* The number after "KEY=" in a process's environment, or -1. */
static long environment_number(const char *pid, const char *key) {
    char text[16384];
    size_t n = read_proc(pid, "environ", text, sizeof text);
    for (const char *at = text; at < text + n; at += strlen(at) + 1)
        if (!strncmp(at, key, strlen(key)) && at[strlen(key)] == '=') return atol(at + strlen(key) + 1);
    return -1;
}

static pid_t parent_of(const char *pid) {
    char text[512];
    read_proc(pid, "stat", text, sizeof text);
    const char *end = strrchr(text, ')');
    return end ? (pid_t)atol(end + 4) : -1;
}

static pid_t find_rank(pid_t parent, int rank) {
    pid_t found = -1;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && found < 0 && (e = readdir(d));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && parent_of(e->d_name) == parent && is_ours(e->d_name) &&
            environment_number(e->d_name, "RANK") == rank)
            found = (pid_t)atol(e->d_name);
    if (d) closedir(d);
    return found;
}

pid_t program_rank(const struct program *p, int rank, double limit_s) {
    int64_t begin = clock_ns();
    while (clock_seconds(clock_ns() - begin) < timing_limit(limit_s)) {
        pid_t pid = find_rank(p->pid, rank);
        if (pid > 0) return pid;
        usleep(2000);
    }
    fail_msg("rank %d did not start", rank);
    return -1;
}

void program_wait_text(const struct program *p, const char *text, double limit_s) {
    static char err[PROGRAM_TEXT];
    int64_t begin = clock_ns();
    while (clock_seconds(clock_ns() - begin) < timing_limit(limit_s)) {
        slurp(p->err_path, err);
        if (strstr(err, text)) return;
        usleep(2000);
    }
    fail_msg("'%s' did not appear within %.0f s in:\n%s", text, limit_s, err);
}

const char *program_python(struct program *p, const char *modules) {
    const char *named = getenv("ENGINE_TORCH_PYTHON"), *python = named ? named : "/usr/bin/python3";
    char code[200];
    snprintf(code, sizeof code, "import %s", modules);
    if (access(python, X_OK) == 0) {
        program_spawn(p, (const char *const[]){python, "-c", code, NULL});
        if (program_wait(p, 60) && p->code == 0) return python;
    }
    print_message("%s has no %s (ENGINE_TORCH_PYTHON names another): not tested\n", python, modules);
    return NULL;
}
