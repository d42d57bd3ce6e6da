/* Memory: checked allocation, an allocator that modes can replace (so that arenas lie where peers
 * can read them), and vectors' alignment. */
#pragma once
#include "engine/base/error.h"
#include <stdarg.h>
#include <stdint.h>

enum { ALIGNMENT = 64, ALIGN_FLOATS = ALIGNMENT / sizeof(float) };

/* Rounds a count of floats, or of bytes, up, so that what follows starts on a cache line. */
static inline int64_t align_floats(int64_t n) {
    return (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static inline size_t align_bytes(size_t n) {
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Gives zeroed memory aligned to ALIGNMENT; free with memory_free. Zero bytes give a valid pointer.
 */
MUST_CHECK enum error memory_alloc(size_t bytes, void **out);
/* The same; NULL with the error recorded where there is none. */
void *memory_new(size_t bytes);
/* The same, but it holds anything: pages that are never touched cost nothing. */
MUST_CHECK enum error memory_reserve(size_t bytes, void **out);
/* Zeroed, but pages that are never touched cost nothing. */
MUST_CHECK enum error memory_alloc_sparse(size_t bytes, void **out);
void memory_free(void *p);
/* Gives the whole pages that lie in it back to the system: they read as zero then, and cost nothing until they are
 * touched again. p may lie in memory that processes share, which all of them then find so. */
void memory_release(void *p, size_t bytes);
/* Lays memory of this process alone over the whole pages that lie in it, zeroed and sparse, in large pages where they fit. */
MUST_CHECK enum error memory_overlay(void *p, size_t bytes);
/* What was overlaid as 'from' gives its whole pages, and what they hold, to 'to', which was overlaid, too, and is as large:
 * 'from' then is zero, and sparse. Where the system cannot, both are. */
MUST_CHECK enum error memory_move(void *from, void *to, size_t bytes);
/* The largest resident memory of this process since it was executed, in bytes. It excludes the time as a copy of its
 * parent, which getrusage includes. */
int64_t memory_peak(void);

/* n * size with overflow caught: ERR_MEMORY naming 'what'. */
MUST_CHECK enum error memory_size(size_t n, size_t size, const char *what, size_t *out);

/* The source of the engine's arenas. alloc gives zeroed, ALIGNMENT-aligned memory and may be collective (every rank
 * calls it with the same size in the same order). */
struct allocator {
    enum error (*alloc)(void *ctx, size_t bytes, void **out);
    void (*free)(void *ctx, void *p);
    void *ctx;
};
extern const struct allocator allocator_heap, allocator_sparse; /* memory_alloc, memory_alloc_sparse */

/* Copies of strings and other small things that live as long as their owner: a bump allocator. */
struct pool;
MUST_CHECK enum error pool_create(struct pool **out);
void pool_free(struct pool *p);
/* Give zeroed memory owned by the pool, or NULL with the error recorded (ERR_MEMORY). */
void *pool_alloc(struct pool *p, size_t bytes);
char *pool_strndup(struct pool *p, const char *s, size_t n);
char *pool_printf(struct pool *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *pool_vprintf(struct pool *p, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Words that are only shown: without memory they are "". */
const char *pool_say(struct pool *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
