/* Conditions that are awaited by the monotonic clock. */
#pragma once
#include "engine/base/thread.h"
#include <time.h>

static inline void condition_init(pthread_cond_t *c) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
