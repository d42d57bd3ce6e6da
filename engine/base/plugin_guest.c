/* Who is a guest of which plug-in, and what becomes of a process whose guest crashes or does not come back.
 *
 * Each stay is noted in a place of a fixed table, so that a signal's handler and the thread that watches can read it
 * without a lock. Neither a crash nor an endless loop can be undone: both end the process, with a line that names the
 * file, and the other ranks find out as they do of any that is gone. */
#include "engine/base/plugin.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STAYS = 512, LOOKS_A_STAY = 8 };
struct stay {
    _Atomic int64_t since; /* 0: the place is free; -1: it is being taken */
    const struct plugin *plugin;
    const char *doing;
};
static struct stay stays[STAYS];
static _Thread_local struct stay *mine;
static _Thread_local struct stay outside; /* where the table is full: known to the handler alone */
static _Atomic int64_t patience_ns;
static pthread_once_t first = PTHREAD_ONCE_INIT;

/* ---- crashes ---- */

static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
enum { CRASHES = sizeof crashes / sizeof *crashes };
static struct sigaction before[CRASHES];

static const char *(*crash_explain)(const void *address);

void plugin_explain_crash(const char *(*explain)(const void *address)) {
    crash_explain = explain;
}

/* In a handler: the whole line in one write. */
static void crash_write(const struct stay *s, const siginfo_t *info) {
    char line[PATH_MAX + 320];
    bool touched = info->si_signo == SIGSEGV || info->si_signo == SIGBUS;
    const char *what = crash_explain && touched ? crash_explain(info->si_addr) : NULL;
    int n = snprintf(line, sizeof line, "error: plug-in '%s' crashed in %s: signal %d (%s)%s%s\n", s->plugin->path,
                     s->doing, info->si_signo, sigabbrev_np(info->si_signo), what ? ", past the end of " : "",
                     what ? what : "");
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

/* Outside of a guest, what was there before (a sanitizer's handler) has its turn. */
static void crash_handle(int signo, siginfo_t *info, void *context) {
    int i = 0;
    (void)context;
    if (mine) {
        crash_write(mine, info);
        _exit(error_exit_code(ERR_BUG));
    }
    while (i < CRASHES - 1 && crashes[i] != signo) i++;
    sigaction(signo, &before[i], NULL); /* and returns to what crashed, which does so again */
    if (signo == SIGABRT) raise(signo);
}

static void crashes_take(void) {
    struct sigaction action = {.sa_sigaction = crash_handle, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < CRASHES; i++) sigaction(crashes[i], &action, &before[i]);
}

/* ---- stays that are too long ---- */

static void overstay_end(const struct stay *s, double seconds) {
    log_error("plug-in '%s' has been in %s for %.3g s and does not return: an endless loop, or a deadlock of its own",
              s->plugin->path, s->doing, seconds);
    _exit(error_exit_code(ERR_TIMEOUT));
}

static void *stays_watch(void *none) {
    while (!none) {
        int64_t most = atomic_load(&patience_ns), pause = most / LOOKS_A_STAY, now = clock_ns();
        for (int i = 0; i < STAYS && most; i++) {
            int64_t since = atomic_load(&stays[i].since);
            if (since > 0 && now - since > most) overstay_end(&stays[i], clock_seconds(now - since));
        }
        clock_nap(pause + 1000000);
    }
    return NULL;
}

static void watch_start(void) {
    pthread_t id;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&id, NULL, stays_watch, NULL) == 0)
        pthread_detach(id);
    else
        log_warn("no thread to watch plug-ins: one that does not return will not be named");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void plugin_set_patience(double seconds) {
    atomic_store(&patience_ns, (int64_t)(seconds * 1e9));
}

double plugin_patience(void) {
    return clock_seconds(atomic_load(&patience_ns));
}

/* ---- guests ---- */

static struct stay *stay_take(void) {
    for (int i = 0; i < STAYS; i++) {
        int64_t none = 0;
        if (atomic_compare_exchange_strong(&stays[i].since, &none, -1)) return &stays[i];
    }
    return &outside;
}

static void guests_begin(void) {
    crashes_take();
    if (atomic_load(&patience_ns) > 0) watch_start();
}

void plugin_enter(const struct plugin *p, const char *doing) {
    pthread_once(&first, guests_begin);
    struct stay *s = stay_take();
    s->plugin = p, s->doing = doing;
    atomic_store(&s->since, clock_ns());
    mine = s;
}

void plugin_leave(void) {
    struct stay *s = mine;
    mine = NULL;
    if (s) atomic_store(&s->since, 0);
}

const struct plugin *plugin_guest(const char **doing) {
    if (doing) *doing = mine->doing;
    return mine->plugin;
}
