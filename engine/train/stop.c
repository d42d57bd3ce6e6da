#include "engine/train/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

/* Lock-free, so a handler may use them. */
static atomic_int asked; /* read by every rank's thread */
static atomic_bool at_once;

int stop_exit_code(int signal) {
    return 128 + signal;
}

static void handle(int signal) {
    if (at_once || (asked && signal == SIGINT)) _exit(stop_exit_code(signal));
    asked = signal;
}

void stop_install(void) {
    struct sigaction act = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    act.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &act, NULL);
}

void stop_at_once(bool on) {
    at_once = on;
    if (on && asked) raise(asked);
}

void stop_with_others(void) {
    int none = 0;
    atomic_compare_exchange_strong(&asked, &none, SIGTERM);
}

int stop_signal(void) {
    return asked;
}
