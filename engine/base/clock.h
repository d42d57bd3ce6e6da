/* Time. Only monotonic: clocks of different hosts are never compared. */
#pragma once
#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Processor time of the calling thread, which does not count the time of other programs. */
static inline int64_t clock_thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_seconds(int64_t ns) {
    return (double)ns * 1e-9;
}

/* A pause in a spinning loop: lets the core's other thread run, and saves power. */
static inline void clock_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
