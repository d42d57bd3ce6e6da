#include "engine/base/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum error memory_reserve(size_t bytes, void **out) {
    size_t whole = align_bytes(bytes);
    *out = whole < bytes ? NULL : aligned_alloc(ALIGNMENT, whole ? whole : ALIGNMENT);
    return *out ? ERR_NONE : FAIL(ERR_MEMORY, "cannot allocate %zu bytes", bytes);
}

/* Large pages, where the host has them, cost a fraction of the faults and of the look-ups of small ones. */
static void memory_enlarge(uintptr_t begin, uintptr_t end) {
    const uintptr_t large = 2 << 20;
    begin = (begin + large - 1) / large * large, end = end / large * large;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

enum error memory_alloc(size_t bytes, void **out) {
    TRY(memory_reserve(bytes, out));
    memory_enlarge((uintptr_t)*out, (uintptr_t)*out + bytes);
    memset(*out, 0, align_bytes(bytes));
    return ERR_NONE;
}

void *memory_new(size_t bytes) {
    void *p;
    return memory_alloc(bytes, &p) == ERR_NONE ? p : NULL;
}

/* The part of it that is whole pages; false: none is. */
static bool memory_pages(const void *p, size_t bytes, uintptr_t *begin, uintptr_t *end) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    *begin = ((uintptr_t)p + page - 1) / page * page;
    *end = ((uintptr_t)p + bytes) / page * page;
    return *begin < *end;
}

enum error memory_alloc_sparse(size_t bytes, void **out) {
    uintptr_t begin, end;
    TRY(memory_reserve(bytes, out));
    char *p = *out;
    if (!memory_pages(p, bytes, &begin, &end)) begin = end = (uintptr_t)p;
    memory_release(p, bytes);
    memset(p, 0, begin - (uintptr_t)p);
    memset((char *)end, 0, (uintptr_t)p + bytes - end);
    return ERR_NONE;
}

void memory_free(void *p) {
    free(p);
}

enum error memory_overlay(void *p, size_t bytes) {
    uintptr_t begin, end;
    if (!memory_pages(p, bytes, &begin, &end)) return ERR_NONE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap((void *)begin, end - begin, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        return FAIL(ERR_MEMORY, "cannot map %zu bytes: %s", (size_t)(end - begin), strerror(errno));
    memory_enlarge(begin, end);
    return ERR_NONE;
}

/* What is shared has its pages in a file, from which they are to go, too. */
void memory_release(void *p, size_t bytes) {
    uintptr_t begin, end;
    if (!memory_pages(p, bytes, &begin, &end)) return;
    if (madvise((void *)begin, end - begin, MADV_REMOVE) != 0) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

enum error memory_move(void *from, void *to, size_t bytes) {
    uintptr_t begin, end, place, limit;
    if (!memory_pages(to, bytes, &place, &limit)) return ERR_NONE;
    bool pages = memory_pages(from, bytes, &begin, &end) && end - begin == limit - place;
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (pages && mremap((void *)begin, end - begin, end - begin, flags, (void *)place) != MAP_FAILED) return ERR_NONE;
    memory_release(from, bytes);
    return memory_overlay(to, bytes);
}

int64_t memory_peak(void) {
    char line[256];
    long long kilobytes = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && !kilobytes && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld", &kilobytes) != 1) kilobytes = 0;
    if (f) fclose(f);
    struct rusage usage;
    if (!kilobytes && getrusage(RUSAGE_SELF, &usage) == 0) kilobytes = usage.ru_maxrss;
    return kilobytes * 1024;
}

enum error memory_size(size_t n, size_t size, const char *what, size_t *out) {
    if (__builtin_mul_overflow(n, size, out))
        return FAIL(ERR_MEMORY, "%s: %zu x %zu bytes do not fit in memory", what, n, size);
    return ERR_NONE;
}

static enum error heap_alloc(void *ctx, size_t bytes, void **out) {
    (void)ctx;
    return memory_alloc(bytes, out);
}

static void heap_free(void *ctx, void *p) {
    (void)ctx;
    memory_free(p);
}

static enum error sparse_alloc(void *ctx, size_t bytes, void **out) {
    (void)ctx;
    return memory_alloc_sparse(bytes, out);
}

const struct allocator allocator_heap = {.alloc = heap_alloc, .free = heap_free};
const struct allocator allocator_sparse = {.alloc = sparse_alloc, .free = heap_free};

struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) char data[];
};
struct pool {
    struct block *blocks;
};

enum error pool_create(struct pool **out) {
    struct pool *p = calloc(1, sizeof *p);
    if (!p) return FAIL(ERR_MEMORY, "cannot allocate a pool");
    *out = p;
    return ERR_NONE;
}

void pool_free(struct pool *p) {
    if (!p) return;
    for (struct block *b = p->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(p);
}

void *pool_alloc(struct pool *p, size_t bytes) {
    enum { BLOCK = 16384 };
    size_t need = (bytes + 15) & ~(size_t)15; /* below bytes where that wraps */
    if (!p->blocks || need < bytes || p->blocks->size - p->blocks->used < need) {
        size_t size = need > BLOCK ? need : BLOCK;
        bool fits = need >= bytes && size <= SIZE_MAX - sizeof(struct block);
        struct block *b = fits ? calloc(1, sizeof *b + size) : NULL;
        if (!b) {
            (void)FAIL(ERR_MEMORY, "cannot allocate %zu bytes", bytes);
            return NULL;
        }
        b->size = size;
        b->next = p->blocks;
        p->blocks = b;
    }
    void *out = p->blocks->data + p->blocks->used;
    p->blocks->used += need;
    return out;
}

char *pool_strndup(struct pool *p, const char *s, size_t n) {
    char *copy = pool_alloc(p, n + 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

char *pool_vprintf(struct pool *p, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *s = n < 0 ? NULL : pool_alloc(p, (size_t)n + 1);
    if (s) vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

char *pool_printf(struct pool *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *s = pool_vprintf(p, fmt, ap);
    va_end(ap);
    return s;
}

const char *pool_say(struct pool *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *s = pool_vprintf(p, fmt, ap);
    va_end(ap);
    return s ? s : "";
}
