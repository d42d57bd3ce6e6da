#include "engine/train/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static atomic_int asked; /* lock-free, so a handler may set it; read by every rank's thread */

int stop_exit_code(int signal) {
    return 128 + signal;
}

static void handle(int signal) {
    if (asked && signal == SIGINT) _exit(stop_exit_code(signal));
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

int stop_signal(void) {
    return asked;
}
