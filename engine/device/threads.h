/* The threads of a device: the one that opened it, and helpers that share its loops. They live as long as the device.
 * While they wait on a busy machine, they take no processor time from others. */
#pragma once
#include "engine/base/error.h"

#include <stdint.h>

struct threads;
/* Creates this many threads, including the calling one (if it is the only one, *out is NULL). Each helper first calls
 * begin(user). */
MUST_CHECK enum error threads_create(int count, void (*begin)(const void *user), const void *user,
                                     struct threads **out);
void threads_free(struct threads *t); /* NULL is fine */

/* Calls work(ctx, begin, end) over parts of [0, count), one for each thread, in parallel, and each in a few pieces; these
 * begin at multiples of 'grain', and a part of one grain is one piece. Runs on the calling thread alone if t is NULL, count
 * is at most 'grain', or the caller is such work itself. Where pieces begin depends on the numbers alone; those of a late
 * thread may go to others. Only one thread at a time may call it, and the work that it shares. Allocates nothing. */
void threads_share(struct threads *t, int64_t count, int64_t grain, void (*work)(void *ctx, int64_t begin, int64_t end),
                   void *ctx);

/* The number of the thread that asks: 0 (the one that shares its loops) to count - 1. */
int threads_self(void);
