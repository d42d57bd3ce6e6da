#include "lab/process/process.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/train/stop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { LOOK_MS = 20, WORDS_MOST = 256, LOG_MOST = 1 << 24, LOG_SHOWN = 2000 };

struct running {
    pid_t pid;
    int input; /* the end of its pipe that is written to; -1 */
    int fd;    /* becomes readable when it ends; -1: this kernel has no such descriptors */
    bool ended;
};

/* ---- starting ---- */

static enum error list_words(const struct process *p, struct pool *pool, char *words[WORDS_MOST + 2]) {
    int n = 1;
    if (!(words[0] = pool_printf(pool, "%s", p->program))) return ERR_MEMORY;
    for (; p->args[n - 1]; n++) {
        if (n > WORDS_MOST) return FAIL(ERR_USAGE, "more than %d words for '%s'", WORDS_MOST, p->program);
        if (!(words[n] = pool_printf(pool, "%s", p->args[n - 1]))) return ERR_MEMORY;
    }
    words[n] = NULL;
    return ERR_NONE;
}

static bool variables_set(const char *const *variables, const char *old) {
    size_t n = strcspn(old, "=") + 1;
    for (; *variables; variables++)
        if (!strncmp(*variables, old, n)) return true;
    return false;
}

/* This process's environment with the variables in place of those of the same names. */
static char **process_environment(const char *const *variables, struct pool *pool) {
    size_t n = 0, more = 0;
    if (!variables) return environ;
    while (environ[n]) n++;
    while (variables[more]) more++;
    char **all = pool_alloc(pool, (n + more + 1) * sizeof *all), **to = all;
    for (size_t i = 0; all && i < n; i++)
        if (!variables_set(variables, environ[i])) *to++ = environ[i];
    for (size_t i = 0; all && i < more; i++)
        if (!(*to++ = pool_printf(pool, "%s", variables[i]))) return NULL;
    return all;
}

static void place_files(const struct process *p, int input, posix_spawn_file_actions_t *files) {
    const int make = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND;
    if (input >= 0)
        posix_spawn_file_actions_adddup2(files, input, 0);
    else
        posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
    if (p->out) posix_spawn_file_actions_addopen(files, 1, p->out, make, 0644);
    if (p->err) posix_spawn_file_actions_addopen(files, 2, p->err, make, 0644);
    if (p->folder) posix_spawn_file_actions_addchdir_np(files, p->folder);
}

static enum error process_spawn(const struct process *p, pid_t group, int input, struct pool *pool, pid_t *pid) {
    char *words[WORDS_MOST + 2], **variables = process_environment(p->variables, pool);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    if (!variables) return ERR_MEMORY;
    TRY(list_words(p, pool, words));
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attr, group);
    place_files(p, input, &files);
    int err = posix_spawnp(pid, p->program, &files, &attr, words, variables);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (err) return FAIL(ERR_IO, "cannot start '%s': %s", p->program, strerror(err));
    return ERR_NONE;
}

static enum error process_start(const struct process *p, pid_t group, struct pool *pool, struct running *r) {
    int ends[2] = {-1, -1};
    *r = (struct running){0, -1, -1, true};
    if (p->input && pipe2(ends, O_CLOEXEC) != 0) return FAIL(ERR_IO, "cannot make a pipe: %s", strerror(errno));
    enum error err = p->input ? file_write_all(ends[1], p->input, strlen(p->input), p->program) : ERR_NONE;
    if (err == ERR_NONE) err = process_spawn(p, group, ends[0], pool, &r->pid);
    if (ends[0] >= 0) close(ends[0]);
    r->input = ends[1];
    r->ended = err != ERR_NONE;
    if (!r->ended) r->fd = (int)syscall(SYS_pidfd_open, r->pid, 0); /* closed on exec */
    return err;
}

/* ---- waiting ---- */

struct process_watch {
    struct running r[PROCESSES_MOST];
    int n, left;
    pid_t group; /* of all: the first one's number, which stays taken until that one is waited for */
    struct process_limits limits;
    int64_t began, asked; /* asked: to stop; 0: not yet */
    bool killed;
};

static void process_close_inputs(struct process_watch *w) {
    for (int i = 0; i < w->n; i++) {
        if (w->r[i].input >= 0) close(w->r[i].input);
        w->r[i].input = -1;
    }
}

static void process_ask_to_stop(struct process_watch *w) {
    if (w->asked) return;
    w->asked = clock_ns();
    kill(-w->group, SIGTERM);
    process_close_inputs(w);
}

/* Whether it has just ended, with a code then. It stays to be waited for. */
static bool process_has_ended(struct running *r, int *code) {
    siginfo_t info = {0};
    if (r->ended) return false;
    if (waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != r->pid) return false;
    *code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    return r->ended = true;
}

/* Notes which processes have ended since the last look, and asks the others to stop where one failed, time is up or a signal came. */
static void process_processes_look(struct process_watch *w, struct process_end *end) {
    int code = 0;
    for (int i = 0; i < w->n; i++) {
        if (!process_has_ended(&w->r[i], &code)) continue;
        w->left--;
        if (code == 0) continue;
        if (end->code == 0) end->code = code, end->which = i;
        process_ask_to_stop(w);
    }
    if (w->limits.timeout > 0 && !w->asked && clock_seconds(clock_ns() - w->began) > w->limits.timeout) {
        end->late = true;
        process_ask_to_stop(w);
    }
    if (stop_signal()) process_ask_to_stop(w);
    if (w->asked && !w->killed && w->limits.grace > 0 && clock_seconds(clock_ns() - w->asked) > w->limits.grace) {
        w->killed = true;
        kill(-w->group, SIGKILL);
    }
}

/* Until one of them ends, or it is time for a look at the clock and at signals. */
static void process_wait(const struct process_watch *w) {
    struct pollfd of[PROCESSES_MOST];
    for (int i = 0; i < w->n; i++) of[i] = (struct pollfd){.fd = w->r[i].ended ? -1 : w->r[i].fd, .events = POLLIN};
    (void)poll(of, (nfds_t)w->n, LOOK_MS);
}

static void process_add_usage(const struct rusage *mine, struct rusage *sum) {
    timeradd(&sum->ru_utime, &mine->ru_utime, &sum->ru_utime);
    timeradd(&sum->ru_stime, &mine->ru_stime, &sum->ru_stime);
    if (mine->ru_maxrss > sum->ru_maxrss) sum->ru_maxrss = mine->ru_maxrss;
}

/* All have ended; the processes that they have left running are ended now. */
static void process_processes_bury(struct process_watch *w, struct process_end *end) {
    struct rusage used;
    int status;
    if (w->group) kill(-w->group, SIGKILL);
    for (int i = 0; i < w->n; i++)
        while (w->r[i].pid && wait4(w->r[i].pid, &status, 0, &used) == w->r[i].pid)
            process_add_usage(&used, &end->used);
    for (int i = 0; i < w->n; i++)
        if (w->r[i].fd >= 0) close(w->r[i].fd);
    process_close_inputs(w);
}

enum error processes_run(const struct process *p, int n, struct process_limits limits, struct pool *pool,
                         struct process_end *end) {
    struct process_watch w = {.limits = limits, .began = clock_ns()};
    enum error err = ERR_NONE;
    *end = (struct process_end){0};
    if (n > PROCESSES_MOST) return FAIL(ERR_USAGE, "%d processes, and %d at most", n, PROCESSES_MOST);
    for (; w.n < n && err == ERR_NONE; w.n++, w.left += err == ERR_NONE) {
        err = process_start(&p[w.n], w.group, pool, &w.r[w.n]);
        if (w.n == 0) w.group = w.r[0].pid;
    }
    stop_kills((int)w.group);
    if (err != ERR_NONE && w.group) process_ask_to_stop(&w);
    while (w.left) {
        process_processes_look(&w, end);
        if (w.left) process_wait(&w);
    }
    process_processes_bury(&w, end);
    stop_kills(0);
    return err;
}

/* Any child of this process, by /proc; 0: there is none. */
static pid_t process_child(void) {
    DIR *d = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        char path[300], line[512];
        int pid, parent;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        const char *after =
            file_line(path, line, sizeof line) ? strrchr(line, ')') : NULL; /* the name may hold blanks */
        if (after && sscanf(line, "%d", &pid) == 1 && sscanf(after, ") %*c %d", &parent) == 1 && parent == getpid())
            found = pid;
    }
    if (d) closedir(d);
    return found;
}

enum error processes_kill_left(void) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return FAIL(ERR_BUG, "prctl: %s", strerror(errno));
    for (pid_t pid; (pid = process_child()) != 0;) { /* with each that dies its children become this one's */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return ERR_NONE;
}

enum error process_run(const struct process *p, struct pool *pool, int *code) {
    struct process_end end;
    TRY(processes_run(p, 1, (struct process_limits){0}, pool, &end));
    *code = end.code;
    return ERR_NONE;
}

const char *process_path(const char *program, struct pool *pool) {
    char path[PATH_MAX];
    ssize_t n = strncmp(program, "/proc/", 6) ? 0 : readlink(program, path, sizeof path);
    return n > 0 ? pool_strndup(pool, path, (size_t)n) : pool_printf(pool, "%s", program);
}

/* ---- the engine's own --------------------------------------------------------------------------- */

enum error process_error(int code) {
    for (int e = ERR_NONE + 1; e <= ERR_CONFIG; e++)
        if (error_exit_code((enum error)e) == code) return (enum error)e;
    return ERR_BUG;
}

/* The error of a process that failed: the error and hint that it printed, or else the end of its log. */
static enum error process_failure(const struct process *p, struct pool *pool, int code) {
    char *text = NULL;
    size_t n = 0;
    if (file_read(p->err, LOG_MOST, pool, &text, &n) != ERR_NONE || n == 0)
        return FAIL(process_error(code), "'engine %s' has ended with %d", p->args[0], code);
    char *said = strstr(text, "error: "), *hint = said ? strstr(said, "\nhint: ") : NULL;
    if (hint && !strncmp(text, "error: ", 7)) {
        *hint = '\0';
        return FAIL(process_error(code), "%s\n%.*s", said + 7, (int)strcspn(hint + 7, "\n"), hint + 7);
    }
    return FAIL(process_error(code), "%s", n > LOG_SHOWN ? text + n - LOG_SHOWN : said == text ? text + 7 : text);
}

enum error process_engine(const struct process *p, double timeout, struct pool *pool) {
    struct process_end end;
    TRY(processes_run(p, 1, (struct process_limits){timeout, 10}, pool, &end));
    if (stop_signal()) return FAIL(ERR_RESULT, "stopped");
    if (end.late) return FAIL(ERR_TIMEOUT, "'engine %s' has not ended within %g s", p->args[0], timeout);
    return end.code ? process_failure(p, pool, end.code) : ERR_NONE;
}
