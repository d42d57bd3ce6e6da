/* Fibers: stacks that one thread switches between. */
#pragma once
#include <stddef.h>

struct fiber {
    void *point;      /* where it stands while it does not run */
    char *stack;      /* its lower end: the guard */
    void *annotation; /* the thread sanitizer's */
};
enum { FIBER_GUARD = 64 << 10, FIBER_STACK = 128 << 10 }; /* multiples of any page */
/* How many fibers a block's threads are spread over at least: the thread sanitizer knows nothing of races between
 * those that one fiber runs. */
#ifdef EMULATED_THREAD_SANITIZER
enum { FIBERS_LEAST = 64 };
#else
enum { FIBERS_LEAST = 1 };
#endif
/* A fiber that begins with main, which never returns. colour: neighbours' stacks should not share cache sets.
 * It comes after what 'by' has done, whoever runs now. */
void fiber_create(struct fiber *f, const struct fiber *by, void (*main)(void), unsigned colour);
void fiber_free(struct fiber *f);  /* does not run */
void fiber_adopt(struct fiber *f); /* the calling thread as it is */
void fiber_switch(struct fiber *from, struct fiber *to);
/* What happened before a fiber's 'gives' has happened for one that 'takes' after it. */
void fiber_gives(void *what);
void fiber_takes(void *what);
/* Memory that is as if nobody had touched it, for the thread sanitizer; what: where it lay before, NULL at first. */
void *fiber_memory(void *what, size_t bytes);
