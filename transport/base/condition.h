/* Conditions that are awaited by the monotonic clock. */
#pragma once
#include "engine/base/clock.h"
#include "engine/base/thread.h"
#include <stdbool.h>

static inline void condition_init(pthread_cond_t *c) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* False: it is that time (clock_ns). */
static inline bool condition_await(pthread_cond_t *c, pthread_mutex_t *m, int64_t until) {
    const struct timespec t = clock_timespec(until);
    return pthread_cond_timedwait(c, m, &t) == 0;
}
