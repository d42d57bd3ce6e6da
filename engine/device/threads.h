/* The threads of a device: the one that opened it, and helpers that share its loops. They live as long as the device,
 * and take no processor's time from others while they wait on a busy machine. */
#pragma once
#include "engine/base/error.h"

#include <stdint.h>

struct threads;
/* Creates this many threads, including the calling one (if it is the only one, *out is NULL). Each helper first calls
 * begin(user). */
MUST_CHECK enum error threads_create(int count, void (*begin)(const void *user), const void *user,
                                     struct threads **out);
void threads_free(struct threads *t); /* NULL is fine */

/* Calls work(ctx, begin, end) over parts of [0, count), one a thread, in parallel; parts begin at multiples of
 * 'grain'. On the calling thread alone when t is NULL, count is no more than 'grain', or work itself calls. Where
 * parts begin is a function of the numbers alone; a thread that is late leaves its part to another. One thread at a time
 * may call, and what works for it. Allocates nothing. */
void threads_share(struct threads *t, int64_t count, int64_t grain, void (*work)(void *ctx, int64_t begin, int64_t end),
                   void *ctx);

/* The number of the thread that runs the work that asks: 0 (the calling one) to count - 1. */
int threads_self(void);
