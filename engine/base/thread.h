/* Threads that leave signals to the program's own. */
#pragma once
#include <pthread.h>
#include <signal.h>

/* An errno. */
static inline int thread_start(pthread_t *out, void *(*run)(void *arg), void *arg) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err;
}
