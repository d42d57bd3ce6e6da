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

/* The time in so many seconds; thirty years are for ever. */
static inline int64_t clock_after(double seconds) {
    return clock_ns() + (int64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9);
}

static inline struct timespec clock_timespec(int64_t ns) {
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* A signal may end it early. */
static inline void clock_nap(int64_t ns) {
    struct timespec t = clock_timespec(ns);
    nanosleep(&t, NULL);
}

/* From now on, as poll counts: never less than it takes, and -1 for INT64_MAX, which is never. */
static inline int clock_ms_until(int64_t when) {
    if (when == INT64_MAX) return -1;
    int64_t left = when - clock_ns();
    return left <= 0 ? 0 : left / 1000000 < INT32_MAX ? (int)(left / 1000000) + 1 : INT32_MAX;
}

/* A pause in a spinning loop: lets the core's other thread run, and saves power. */
static inline void clock_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
