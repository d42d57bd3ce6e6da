/* A race detector over streams: no memory may be used by work of two streams, at least one of which writes, unless one
 * piece of work comes after the other by an event, a wait of the host, or the order of a stream.
 *
 * What comes after what is known when work is asked for. Every stream counts its pieces of work; a clock has, for each
 * stream, the last piece that has surely ended. Work inherits its stream's clock, which takes in an event's where it
 * waits for one, and the host's, which takes in what the host has waited for. All threads of the host share a clock:
 * what one has waited for, the others may rely on, so the detector finds too little there and never too much.
 *
 * Who used what is known when work runs. Kernels are compiled so that they call __tsan_read4 and its like at each
 * access; copies and the stand-ins of libraries call emulated_touch. Each four bytes of device or pinned memory have a
 * cell: the last write, and up to three reads, of some of these bytes. Memory lies in one stretch of addresses, cells in another. Atomic
 * accesses do not count: they are made to meet. */
#include "tests/emulated/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOT_BITS = 6, NUMBER_BITS = 22, GRAIN = 4, GRAIN_BYTES = (1 << GRAIN) - 1, NAMES = 256, READS = 3 };
_Static_assert(CLOCK_STREAMS == 1 << SLOT_BITS, "a cell names one of these");
static const size_t stretch = (size_t)64 << 30;

struct cell {
    uint32_t write, read[READS]; /* the stream's slot, the number of its work, a bit for each byte; 0: none */
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct clock host;
static bool slot_taken[CLOCK_STREAMS];
static uint32_t slot_count[CLOCK_STREAMS]; /* goes on when a slot is given to another stream */
static char names[CLOCK_STREAMS][NAMES][40];
static char *memory, *memory_next;
static struct cell *cells;

static EMULATED_TLS const struct clock *now; /* of the work that this thread runs; NULL: none */
static EMULATED_TLS uint32_t me;

/* ---- clocks ---- */
static void clock_join(struct clock *to, const struct clock *from) {
    for (int i = 0; i < CLOCK_STREAMS; i++)
        if (from->at[i] > to->at[i]) to->at[i] = from->at[i];
}

int race_slot_take(void) {
    int slot = 0;
    pthread_mutex_lock(&lock);
    while (slot < CLOCK_STREAMS - 1 && slot_taken[slot]) slot++; /* the last one is shared by all that are too many */
    slot_taken[slot] = true;
    pthread_mutex_unlock(&lock);
    return slot;
}

/* The stream has ended, and was waited for. */
void race_slot_leave(const struct CUstream_st *s) {
    pthread_mutex_lock(&lock);
    slot_taken[s->slot] = s->slot == CLOCK_STREAMS - 1;
    clock_join(&host, &s->clock);
    pthread_mutex_unlock(&lock);
}

void race_work(struct CUstream_st *s, struct work *w) {
    pthread_mutex_lock(&lock);
    clock_join(&s->clock, &host);
    s->clock.at[s->slot] = ++slot_count[s->slot];
    w->clock = s->clock;
    pthread_mutex_unlock(&lock);
}

void race_record(struct ticket *t, const struct CUstream_st *s) {
    pthread_mutex_lock(&lock);
    t->clock = s->clock;
    pthread_mutex_unlock(&lock);
}

void race_follow(struct CUstream_st *s, const struct ticket *t) {
    pthread_mutex_lock(&lock);
    clock_join(&s->clock, &t->clock);
    pthread_mutex_unlock(&lock);
}

void race_host(const struct clock *waited) {
    pthread_mutex_lock(&lock);
    clock_join(&host, waited);
    pthread_mutex_unlock(&lock);
}

struct clock race_host_clock(void) {
    pthread_mutex_lock(&lock);
    struct clock c = host;
    pthread_mutex_unlock(&lock);
    return c;
}

struct clock race_clock_of(const struct CUstream_st *s) {
    pthread_mutex_lock(&lock);
    struct clock c = s->clock;
    pthread_mutex_unlock(&lock);
    return c;
}

/* ---- the work that runs ---- */
void race_begin(const struct CUstream_st *s, const struct work *w) {
    now = &w->clock;
    uint32_t number = w->clock.at[s->slot];
    if (number >> NUMBER_BITS) now = NULL; /* more work than can be told apart */
    me = (uint32_t)s->slot << (NUMBER_BITS + GRAIN) | number << GRAIN;
    race_name("work of a library");
}

void race_end(void) {
    now = NULL;
}

static uint32_t slot_of(uint32_t access) {
    return access >> (NUMBER_BITS + GRAIN);
}

static uint32_t number_of(uint32_t access) {
    return access >> GRAIN & ((1u << NUMBER_BITS) - 1);
}

static bool is_mine(uint32_t access) {
    return (access & ~(uint32_t)GRAIN_BYTES) == me;
}

void race_name(const char *name) {
    if (!now) return;
    char *to = names[slot_of(me)][number_of(me) % NAMES];
    snprintf(to, sizeof names[0][0], "%s", name);
}

static bool comes_before(uint32_t access, const struct clock *c) {
    return !access || number_of(access) <= c->at[slot_of(access)];
}

static const char *name_of(uint32_t access) {
    return names[slot_of(access)][number_of(access) % NAMES];
}

/* ---- memory ---- */
static void stretch_open(void) {
    void *m = mmap(NULL, stretch, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *c = mmap(NULL, stretch / GRAIN * sizeof *cells, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED || c == MAP_FAILED) {
        fprintf(stderr, "emulated GPU: there are no addresses for the race detector\n");
        abort();
    }
    cells = c;
    memory_next = m;
    memory = m;
}

static struct cell *cell_of(const char *p) {
    return cells + (size_t)(p - memory) / GRAIN;
}

static bool is_watched(const void *p) {
    return memory && (size_t)((const char *)p - memory) < stretch;
}

void *race_map(size_t bytes) {
    pthread_mutex_lock(&lock);
#ifndef ENGINE_SANITIZED
    if (!memory) stretch_open();
#else
    (void)stretch_open;
#endif
    char *at = memory_next;
    bool fits = memory && bytes <= stretch - (size_t)(at - memory); /* nothing is given twice: else it is not watched */
    if (fits) memory_next += bytes;
    pthread_mutex_unlock(&lock);
    int fixed = fits ? MAP_FIXED : 0;
    void *p = mmap(fits ? at : NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void race_unmap(void *p, size_t bytes) {
    if (!is_watched(p)) {
        munmap(p, bytes);
        return;
    }
    mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = bytes / GRAIN * sizeof *cells / page * page;
    madvise(cell_of(p), n, MADV_DONTNEED);
}

/* ---- accesses ---- */
static bool is_allowed(void) {
    const char *races = getenv("ENGINE_EMULATED_RACES");
    return races && *races == '0';
}

__attribute__((noinline)) static void race(const void *p, uint32_t before, const char *did, const char *does) {
    if (is_allowed()) return;
    fprintf(stderr,
            "emulated GPU: a race: %s of stream %u %s %p, which %s of stream %u %s, and neither waits for the other\n",
            name_of(me), slot_of(me), does, p, name_of(before), slot_of(before), did);
    abort();
}

/* Whether that access was of some of these bytes, by work that this one does not come after. */
static bool clashes(uint32_t access, unsigned bytes) {
    return access & bytes && !comes_before(access, now);
}

static void cell_write(struct cell *c, const char *p, unsigned bytes) {
    uint32_t mine = me | bytes;
    if (c->write == mine && !c->read[0]) return;
    if (clashes(c->write, bytes)) race(p, c->write, "writes", "writes");
    for (int i = 0; i < READS; i++) {
        if (clashes(c->read[i], bytes)) race(p, c->read[i], "reads", "writes");
        c->read[i] &= ~bytes;
        if (!(c->read[i] & GRAIN_BYTES)) c->read[i] = 0;
    }
    c->write = is_mine(c->write) ? c->write | bytes : mine;
}

static void cell_read(struct cell *c, const char *p, unsigned bytes) {
    uint32_t mine = me | bytes;
    if (c->write == mine || c->read[0] == mine) return;
    if (clashes(c->write, bytes)) race(p, c->write, "writes", "reads");
    int at = READS - 1; /* the place of one that is no longer needed */
    for (int i = 0; i < READS; i++)
        if (!c->read[i] || is_mine(c->read[i]) || comes_before(c->read[i], now)) at = i;
    if (is_mine(c->read[at])) mine |= c->read[at];
    c->read[at] = c->read[0];
    c->read[0] = mine; /* the last one stands first */
}

static inline void touch(const void *p, size_t bytes, bool writes) {
    if (!now || !is_watched(p)) return;
    const char *at = p, *end = at + bytes;
    unsigned skip = (unsigned)((uintptr_t)at % GRAIN);
    for (at -= skip; at < end; at += GRAIN, skip = 0) {
        unsigned those = GRAIN_BYTES << skip & GRAIN_BYTES;
        if (end - at < GRAIN) those &= (1u << (end - at)) - 1;
        if (writes)
            cell_write(cell_of(at), at, those);
        else
            cell_read(cell_of(at), at, those);
    }
}

void emulated_touch(const void *p, size_t bytes, bool writes) {
    touch(p, bytes, writes);
}

/* Whether the page of cells that begins here was ever touched: of large memory most pages were not, and reading them would
 * make them. */
static bool is_there(const struct cell *page) {
    unsigned char there = 1;
    return mincore((void *)(uintptr_t)page, 1, &there) != 0 || there & 1;
}

/* The host frees memory: what has used it must have been waited for, since cudaFree would wait without a deadline. */
void race_free(const struct region *r, const struct clock *waited) {
    if (!is_watched(r->begin)) return;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (const struct cell *x = cell_of(r->begin), *end = x + r->bytes / GRAIN; x < end; x++) {
        if ((uintptr_t)x % page == 0 && !is_there(x)) {
            x += page / sizeof *x - 1;
            continue;
        }
        uint32_t late = !comes_before(x->write, waited) ? x->write : 0;
        for (int i = 0; i < READS; i++)
            if (!comes_before(x->read[i], waited)) late = x->read[i];
        if (!late || is_allowed()) continue;
        fprintf(stderr,
                "emulated GPU: %zu bytes at %p are freed, which %s of stream %u uses: nobody has waited for it\n",
                r->bytes, (void *)r->begin, name_of(late), slot_of(late));
        abort();
    }
}

#ifndef ENGINE_SANITIZED
/* ---- what the compiler calls (-fsanitize=thread) ---- */
#define ACCESS(n)                                                                                                      \
    void __tsan_read##n(void *p);                                                                                      \
    void __tsan_write##n(void *p);                                                                                     \
    void __tsan_unaligned_read##n(void *p);                                                                            \
    void __tsan_unaligned_write##n(void *p);                                                                           \
    void __tsan_volatile_read##n(void *p);                                                                             \
    void __tsan_volatile_write##n(void *p);                                                                            \
    void __tsan_read##n(void *p) {                                                                                     \
        touch(p, n, false);                                                                                            \
    }                                                                                                                  \
    void __tsan_write##n(void *p) {                                                                                    \
        touch(p, n, true);                                                                                             \
    }                                                                                                                  \
    void __tsan_unaligned_read##n(void *p) {                                                                           \
        touch(p, n, false);                                                                                            \
    }                                                                                                                  \
    void __tsan_unaligned_write##n(void *p) {                                                                          \
        touch(p, n, true);                                                                                             \
    }                                                                                                                  \
    void __tsan_volatile_read##n(void *p) {                                                                            \
        touch(p, n, false);                                                                                            \
    }                                                                                                                  \
    void __tsan_volatile_write##n(void *p) {                                                                           \
        touch(p, n, true);                                                                                             \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_init(void);
void __tsan_read_range(void *p, unsigned long n);
void __tsan_write_range(void *p, unsigned long n);
void __tsan_vptr_update(void *p, void *v);
void __tsan_vptr_read(void *p);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);
void __tsan_init(void) {
}
void __tsan_read_range(void *p, unsigned long n) {
    touch(p, n, false);
}
void __tsan_write_range(void *p, unsigned long n) {
    touch(p, n, true);
}
void __tsan_vptr_update(void *p, void *v) {
    (void)p, (void)v;
}
void __tsan_vptr_read(void *p) {
    (void)p;
}
void __tsan_func_entry(void *pc) {
    (void)pc;
}
void __tsan_func_exit(void) {
}
/* clang's, in place of calls of the library */
void *__tsan_memcpy(void *to, const void *from, unsigned long n);
void *__tsan_memmove(void *to, const void *from, unsigned long n);
void *__tsan_memset(void *p, int value, unsigned long n);
void *__tsan_memcpy(void *to, const void *from, unsigned long n) {
    return emulated_copy(to, from, n), to;
}
void *__tsan_memmove(void *to, const void *from, unsigned long n) {
    return emulated_copy(to, from, n), to;
}
void *__tsan_memset(void *p, int value, unsigned long n) {
    return emulated_fill(p, value, n), p;
}

#define ATOMIC(bits, type)                                                                                             \
    type __tsan_atomic##bits##_load(const volatile type *p, int order);                                                \
    void __tsan_atomic##bits##_store(volatile type *p, type v, int order);                                             \
    type __tsan_atomic##bits##_exchange(volatile type *p, type v, int order);                                          \
    type __tsan_atomic##bits##_fetch_add(volatile type *p, type v, int order);                                         \
    type __tsan_atomic##bits##_fetch_sub(volatile type *p, type v, int order);                                         \
    type __tsan_atomic##bits##_fetch_or(volatile type *p, type v, int order);                                          \
    type __tsan_atomic##bits##_fetch_and(volatile type *p, type v, int order);                                         \
    type __tsan_atomic##bits##_fetch_xor(volatile type *p, type v, int order);                                         \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type *p, type *expected, type v, int order, int other); \
    type __tsan_atomic##bits##_load(const volatile type *p, int order) {                                               \
        return (void)order, __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                      \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile type *p, type v, int order) {                                            \
        (void)order, __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                         \
    }                                                                                                                  \
    type __tsan_atomic##bits##_exchange(volatile type *p, type v, int order) {                                         \
        return (void)order, __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                               \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_add(volatile type *p, type v, int order) {                                        \
        return (void)order, __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                                \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_sub(volatile type *p, type v, int order) {                                        \
        return (void)order, __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                                \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_or(volatile type *p, type v, int order) {                                         \
        return (void)order, __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                                 \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_and(volatile type *p, type v, int order) {                                        \
        return (void)order, __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                                \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_xor(volatile type *p, type v, int order) {                                        \
        return (void)order, __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                                                \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type *p, type *expected, type v, int order,             \
                                                      int other) {                                                     \
        (void)order, (void)other;                                                                                      \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                 \
    }
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order) {
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
#endif
