#include "engine/train/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

/* Lock-free, so a handler may use them. */
static atomic_int asked; /* read by every rank's thread */
static atomic_bool at_once;
static _Atomic(const char *) left; /* what goes with the process then */
static atomic_int kills;           /* likewise */

int stop_exit_code(int signal) {
    return 128 + signal;
}

/* The first one stays: a starter sends SIGTERM to ranks that have agreed on another. */
void stop_with_others(int signal) {
    int none = 0;
    atomic_compare_exchange_strong(&asked, &none, signal);
}

static void stop_handle(int signal) {
    const char *file = left;
    if (signal == SIGHUP || signal == SIGUSR1) signal = SIGTERM;
    if (at_once && file) (void)unlink(file);
    if (at_once || (asked && signal == SIGINT)) {
        if (kills) (void)kill(-kills, SIGKILL);
        _exit(stop_exit_code(signal));
    }
    stop_with_others(signal);
}

void stop_install(void) {
    struct sigaction act = {.sa_handler = stop_handle, .sa_flags = SA_RESTART}, hangup;
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGUSR1, &act, NULL); /* a batch system's warning (sbatch --signal) */
    sigaction(SIGHUP, NULL, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &act, NULL);
    act.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &act, NULL);
}

void stop_at_once(bool on, const char *leaves) {
    left = leaves;
    at_once = on;
    if (on && asked) raise(asked);
}

void stop_kills(int group) {
    kills = group;
}

int stop_signal(void) {
    return asked;
}
