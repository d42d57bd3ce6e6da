/* Time. Only monotonic: clocks of different hosts are never compared. */
#pragma once
#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_seconds(int64_t ns) {
    return (double)ns * 1e-9;
}
