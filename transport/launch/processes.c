/* Ranks as processes, watched by one loop that waits for whatever comes first:
 *
 *   a rank writes      its pipe is read (output.c)
 *   a rank ends        SIGCHLD; if that is a failure the rest have 'grace' to end, then SIGKILL
 *   a user stops us    the first SIGINT or SIGTERM (SIGHUP, SIGUSR1) goes to all ranks, who stop after the step;
 *                      the next SIGINT kills them
 *   the grace is over  SIGKILL, which also ends what is stopped (SIGSTOP)
 *
 * Signals come by a handler that writes their number to a pipe, so that they wake the loop whichever thread they hit.
 * The dead stay unreaped until all have ended: as long as they do, neither a process's number nor the group's can pass
 * to a stranger, and the last act is a SIGKILL to the group, for what the ranks themselves have started. */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "transport/launch/output.h"
#include "transport/launch/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const double DEFAULT_GRACE = 0.5, PATIENCE = 1;
static const int64_t DRAIN_NS = 500000000; /* how long output is awaited from what has left the ranks' process group */
static const int64_t LOOK_NS = 20000000;   /* between two looks whether one that is late is busy */
static const int64_t OVER_NS = 400000000;  /* between two looks whether the ranks elsewhere have ended */
enum { CODE_LOST = 75, CODE_INT = 130, CODE_TERM = 143 };

/* ---- signals ---- */

static const int watched[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1};
enum { WATCHED = sizeof watched / sizeof watched[0] };
static atomic_int wake = -1; /* where the handler writes: a handler can know nothing but globals */

struct signals {
    int pipe[2];
    struct sigaction old[WATCHED];
    sigset_t old_mask;
};

static void signal_note(int signo) {
    int saved = errno;
    unsigned char byte = (unsigned char)(signo == SIGHUP || signo == SIGUSR1 ? SIGTERM : signo);
    ssize_t n = write(wake, &byte, 1); /* a full pipe wakes too */
    (void)n;
    errno = saved;
}

static enum error signals_take(struct signals *s) {
    if (pipe2(s->pipe, O_CLOEXEC | O_NONBLOCK) != 0) return FAIL(ERR_CREATE, "pipe: %s", strerror(errno));
    int none = -1;
    if (!atomic_compare_exchange_strong(&wake, &none, s->pipe[1])) {
        close(s->pipe[0]), close(s->pipe[1]);
        return FAIL(ERR_BUG, "two launches of processes at a time");
    }
    struct sigaction action = {.sa_handler = signal_note, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigset_t open;
    sigemptyset(&action.sa_mask);
    sigemptyset(&open);
    for (int i = 0; i < WATCHED; i++) {
        sigaction(watched[i], NULL, &s->old[i]);
        if (watched[i] == SIGHUP && s->old[i].sa_handler == SIG_IGN) continue; /* nohup */
        sigaction(watched[i], &action, NULL);
        sigaddset(&open, watched[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &open, &s->old_mask);
    return ERR_NONE;
}

static void signals_give(struct signals *s) {
    pthread_sigmask(SIG_SETMASK, &s->old_mask, NULL);
    for (int i = 0; i < WATCHED; i++) sigaction(watched[i], &s->old[i], NULL);
    wake = -1;
    close(s->pipe[0]), close(s->pipe[1]);
}

/* ---- the ranks ---- */

struct rank_process {
    pid_t pid; /* 0: never started */
    bool ended;
    bool failed; /* by itself: neither as it was told to, nor because another was lost */
    bool stuck;  /* it had to be killed */
    struct rank_output output;
};
struct launch_watch {
    const struct launch_params *p;
    struct rank_process *ranks;
    struct pollfd *fds; /* signals, then the ranks' pipes */
    struct signals signals;
    pid_t group;
    int started, running;
    int asked;        /* the signal that was passed on, 0: none */
    bool obeyed;      /* a rank has ended as it was told to */
    bool killed;      /* all were, at the user's wish or when the grace was over */
    int64_t deadline; /* when the rest are killed; 0: never */
    int64_t pass;     /* the time of this look around */
    int64_t over;     /* when the next look is due whether the ranks elsewhere have ended; INT64_MAX: never */
    int64_t last;     /* the time of the last end */
    int64_t failed;   /* the time of the failure */
    struct told_lines told;
    siginfo_t failure; /* how the rank that failed first ended */
    int failed_local;  /* which it is of those started here */
    struct launch_result *out;
};

static void ranks_signal(struct launch_watch *w, int signo) {
    if (w->group) kill(-w->group, signo);
}

static void ranks_ask(struct launch_watch *w, int signo) {
    w->asked = signo;
    ranks_signal(w, signo);
}

static void ranks_kill(struct launch_watch *w) {
    w->killed = true;
    ranks_signal(w, SIGKILL);
}

/* The first rank makes the group of all before it executes the program, unless it is killed before that: then its
 * remains are made the group here, so that the others find one. In all other cases it is late for that, and no matter. */
static void group_make(struct launch_watch *w, pid_t first) {
    w->group = first;
    (void)setpgid(first, first);
}

static int rank_of(const struct launch_params *p, int local) {
    return local < p->servers ? p->first_server + local : p->first + local - p->servers;
}

static enum error rank_start(struct launch_watch *w, int local, const int console[2]) {
    const struct launch_params *p = w->p;
    struct rank_process *r = &w->ranks[local];
    int rank = rank_of(p, local);
    struct launch_self self = {.rank = rank,
                               .size = p->world ? p->world : p->size,
                               .local = local,
                               .locals = p->size,
                               .meeting_fd = p->meeting ? meeting_fd(p->meeting) : -1,
                               .console_out = rank == 0 ? console[0] : -1,
                               .console_err = rank == 0 ? console[1] : -1,
                               .own = !p->program};
    int rank_end;
    TRY(output_open(&r->output, rank, p->log_folder, p->log, &rank_end));
    enum error err = rank_spawn(p, &self, rank_end, w->group, &r->pid);
    close(rank_end);
    if (p->once) r->output.told = &w->told;
    if (err != ERR_NONE) return err;
    if (local == 0) group_make(w, r->pid);
    w->started++, w->running++;
    return ERR_NONE;
}

/* What a rank inherits must lie above the three that it gets anew. */
static enum error standard_files_check(void) {
    static const char *const names[] = {"input", "output", "error"};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            return FAIL(ERR_IO, "standard %s is closed\nto silence it, use /dev/null", names[fd]);
    return ERR_NONE;
}

static enum error ranks_start(struct launch_watch *w) {
    TRY(standard_files_check());
    enum error err = ERR_NONE;
    int console[2] = {fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1),
                      fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)};
    if (console[0] < 0 || console[1] < 0) err = FAIL(ERR_CREATE, "rank 0's console: %s", strerror(errno));
    for (int local = 0; local < w->p->size && err == ERR_NONE; local++) err = rank_start(w, local, console);
    for (int i = 0; i < 2; i++)
        if (console[i] >= 0) close(console[i]);
    return err;
}

/* ---- how they end ---- */

/* A rank that says by its code that it lost another is not the cause. Yet it may well end first: a
 * dying process closes its files, by which its peers know, a little before it can be waited for. So
 * a better cause is taken until we kill ourselves. */
static bool end_is_victims(const siginfo_t *end) {
    return end->si_code == CLD_EXITED && end->si_status == CODE_LOST;
}

/* Ended as it was told to, by us or another: by its handler's code or, before it had a handler, by
 * the signal itself. */
static bool end_was_told(const struct launch_watch *w, const siginfo_t *end) {
    if (end->si_code == CLD_EXITED) return end->si_status == CODE_INT || end->si_status == CODE_TERM;
    return (w->asked && end->si_status == w->asked) || (w->killed && end->si_status == SIGKILL);
}

/* Where only victims have ended, the cause is still on its way out, which takes longer on a busy machine. */
static void deadline_set(struct launch_watch *w) {
    double grace = w->p->grace > 0 ? w->p->grace : DEFAULT_GRACE;
    if (end_is_victims(&w->failure)) grace += PATIENCE;
    int64_t end = w->pass + (int64_t)(grace * 1e9);
    if (!w->deadline || end < w->deadline) w->deadline = end;
}

/* It has done what it was to do. */
static bool end_is_done(struct launch_watch *w, const siginfo_t *end) {
    bool exited = end->si_code == CLD_EXITED, again = exited && w->p->again && end->si_status == w->p->again;
    if (again && !w->out->again) w->out->again = true, w->out->seen = w->pass;
    return again || (exited && end->si_status == 0);
}

static void end_note(struct launch_watch *w, int local, const siginfo_t *end) {
    bool exited = end->si_code == CLD_EXITED, told = end_was_told(w, end), done = end_is_done(w, end);
    w->ranks[local].ended = true;
    w->ranks[local].failed = !told && !end_is_victims(end) && !done;
    w->running--;
    w->last = w->pass;
    if (done && rank_of(w->p, local) == 0 && w->p->last > 0) w->deadline = w->pass + (int64_t)(w->p->last * 1e9);
    if (done || (w->killed && !w->asked)) return;
    if (told) {
        w->out->exit_code = exited ? end->si_status : 128 + w->asked;
        w->obeyed = w->obeyed || !w->killed;
        if (!w->asked) ranks_ask(w, SIGTERM);
    } else if (w->out->first < 0 || (end_is_victims(&w->failure) && !end_is_victims(end))) {
        if (w->out->first < 0) w->out->seen = w->pass;
        w->out->first = rank_of(w->p, local);
        w->failed_local = local;
        w->failed = w->pass;
        w->failure = *end;
    }
    if (told && exited) return; /* they stop together, and one may have a checkpoint to save */
    deadline_set(w);
}

static void ends_look(struct launch_watch *w) {
    for (int i = 0; i < w->started; i++) {
        struct rank_process *r = &w->ranks[i];
        siginfo_t end = {0};
        if (r->ended) continue;
        if (waitid(P_PID, (id_t)r->pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) {
            end.si_pid = r->pid; /* someone else took it: how it ended is not known */
            end.si_code = CLD_KILLED;
            end.si_status = SIGKILL;
        }
        if (end.si_pid == r->pid) end_note(w, i, &end);
    }
}

static void signals_read(struct launch_watch *w) {
    unsigned char got[64];
    ssize_t n = read(w->signals.pipe[0], got, sizeof got);
    for (ssize_t i = 0; i < n; i++) {
        if (got[i] == SIGCHLD) continue;
        if (!w->asked) {
            ranks_ask(w, got[i]);
        } else if (got[i] == SIGINT) {
            ranks_kill(w);
        }
    }
}

/* ---- the loop ---- */

static int watch_ms(const struct launch_watch *w) {
    if (w->killed) return -1;
    return clock_ms_until(w->deadline && w->deadline < w->over ? w->deadline : w->over);
}

static void watch_wait(struct launch_watch *w, int timeout) {
    w->fds[0] = (struct pollfd){.fd = w->signals.pipe[0], .events = POLLIN};
    for (int i = 0; i < w->started; i++)
        w->fds[1 + i] = (struct pollfd){.fd = w->ranks[i].output.pipe, .events = POLLIN};
    (void)poll(w->fds, (nfds_t)w->started + 1, timeout); /* whatever it says, we look at all */
}

static void stuck_kill(struct launch_watch *w) {
    for (int i = w->started; i-- > 0;)
        if (!w->ranks[i].ended) w->ranks[i].stuck = true, w->out->stuck = rank_of(w->p, i);
    ranks_kill(w);
}

static void grace_end(struct launch_watch *w) {
    if (w->p->busy && w->p->busy(w->p->user, !end_is_victims(&w->failure)))
        w->deadline = w->pass + LOOK_NS;
    else
        stuck_kill(w);
}

/* All that are here hang: their end counts as that of ranks that have lost others. */
static void over_look(struct launch_watch *w) {
    w->over = w->pass + OVER_NS;
    if (w->deadline || w->out->first >= 0 || !w->p->over(w->p->user)) return;
    stuck_kill(w);
    w->out->first = w->out->stuck;
    while (rank_of(w->p, w->failed_local) != w->out->first) w->failed_local++;
    w->out->seen = w->failed = w->pass;
    w->failure.si_code = CLD_EXITED;
    w->failure.si_status = CODE_LOST;
}

static void ranks_watch(struct launch_watch *w) {
    while (w->running > 0) {
        watch_wait(w, watch_ms(w));
        w->pass = clock_ns();
        signals_read(w);
        for (int i = 0; i < w->started; i++) output_read(&w->ranks[i].output);
        ends_look(w);
        if (w->running && w->pass >= w->over && !w->killed) over_look(w);
        if (w->deadline && w->pass >= w->deadline && !w->killed) grace_end(w);
    }
}

/* What is still in the pipes. A process that a rank started and that left its group may hold one
 * open: it is not awaited. */
static void outputs_drain(struct launch_watch *w) {
    int64_t end = clock_ns() + DRAIN_NS;
    for (;;) {
        int open = 0;
        for (int i = 0; i < w->started; i++) {
            while (output_read(&w->ranks[i].output) && clock_ns() < end) {
            }
            open += w->ranks[i].output.pipe >= 0;
        }
        if (!open || clock_ns() >= end) return;
        watch_wait(w, 10);
    }
}

static void ranks_end(struct launch_watch *w) {
    ranks_signal(w, SIGKILL);
    outputs_drain(w);
    for (int i = 0; i < w->started; i++) {
        while (waitpid(w->ranks[i].pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
}

/* ---- the whole ---- */

/* Where nobody failed by itself, those who had to be killed are what the others waited for. */
static void lost_list(struct launch_watch *w) {
    int *lost = w->p->lost, n = 0;
    for (int i = 0; lost && i < w->started; i++)
        if (w->ranks[i].failed || (w->ranks[i].stuck && end_is_victims(&w->failure))) lost[n++] = i;
    w->out->lost = lost, w->out->nlost = n;
}

static enum error result_tell(struct launch_watch *w) {
    struct launch_result *out = w->out;
    out->asked = w->asked;
    /* Told to stop while they were meeting, some were gone before others knew. */
    if (w->obeyed && end_is_victims(&w->failure)) out->first = -1;
    if (out->again && w->asked && !out->exit_code) out->exit_code = 128 + w->asked;
    out->again = out->again && out->first < 0 && !out->exit_code;
    if (out->first < 0) return ERR_NONE;
    lost_list(w);
    bool exited = w->failure.si_code == CLD_EXITED;
    out->exit_code = exited ? w->failure.si_status : -1;
    out->signal = exited ? 0 : w->failure.si_status;
    out->seconds = clock_seconds(w->last - w->failed);
    const struct rank_process *r = &w->ranks[w->failed_local];
    output_last_lines(&r->output, out->lines);
    if (exited) return ERR_NONE;
    const char *name = sigdescr_np(out->signal);
    return FAIL(ERR_PEER, "rank %d (process %d) was killed by signal %d (%s)%s", out->first, (int)r->pid, out->signal,
                name ? name : "real-time",
                out->signal == SIGKILL ? "\nwhen memory runs out the kernel does that: see dmesg" : "");
}

static enum error watch_open(struct launch_watch *w) {
    size_t size = (size_t)w->p->size, bytes;
    TRY(memory_size(size, sizeof *w->ranks, "ranks", &bytes));
    TRY_MEMORY(w->ranks = memory_new(bytes));
    TRY(memory_size(size + 1, sizeof *w->fds, "ranks", &bytes));
    TRY_MEMORY(w->fds = memory_new(bytes));
    return signals_take(&w->signals);
}

static void watch_close(struct launch_watch *w) {
    for (int i = 0; w->ranks && i < w->p->size; i++) output_close(&w->ranks[i].output);
    memory_free(w->ranks);
    memory_free(w->fds);
}

static enum error ranks_run(struct launch_watch *w) {
    int signo = w->p->stop ? w->p->stop() : 0;
    if (signo) {
        w->out->exit_code = 128 + signo;
        return ERR_NONE;
    }
    enum error err = ranks_start(w);
    if (err != ERR_NONE)
        ranks_kill(w);
    else
        ranks_watch(w);
    ranks_end(w);
    return err;
}

enum error launch_processes(const struct launch_params *p, struct launch_result *out) {
    assert(p->size > 0);
    *out = (struct launch_result){.first = -1, .stuck = -1};
    struct launch_watch w = {.p = p, .out = out, .over = p->over ? 0 : INT64_MAX};
    enum error err = watch_open(&w);
    if (err != ERR_NONE) goto done;
    err = ranks_run(&w);
    signals_give(&w.signals);
    if (err == ERR_NONE) err = result_tell(&w);
done:
    watch_close(&w);
    return err;
}
