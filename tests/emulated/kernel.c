/* Runs kernels: the blocks of a grid in turn, the threads of a block as fibers of the stream's thread. A fiber runs
 * one thread after the other until one must wait for others; only then is another fiber needed. */
#include "tests/emulated/fiber.h"
#include "tests/emulated/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    WARP = 32,
    THREADS = 1024,
    SITES = 32,
    SHARED_MOST = 227 << 10,
    SHARED_DEFAULT = 48 << 10,
    SHARED_ROOM = 256 << 10,
    POISON = 0xff
};

EMULATED_TLS struct uint3 threadIdx, blockIdx, blockDim, gridDim;

struct thread {
    enum { FRESH, READY, AT_BLOCK, AT_WARP, ENDED } state;
    struct uint3 index;
    struct fiber *fiber;
    enum emulated_meeting what;
    unsigned mask, votes;
    int yes, source, line;
    const char *file;
    uint64_t value;
};
struct warp { /* lanes, as bits */
    unsigned alive, waiting;
};
struct multiprocessor { /* of one stream */
    const struct emulated_kernel *kernel;
    const void *args;
    uint64_t *random;
    int threads, fresh, ended, arrived, votes, answer; /* fresh: the next in 'order' to begin */
    struct thread thread[THREADS];
    struct warp warp[THREADS / WARP];
    int order[THREADS];
    int ready[THREADS], first_ready, ready_count;
    struct thread *now;
    struct fiber *fiber, home, fibers[THREADS];
    struct fiber *idle[THREADS]; /* the first that came is the first that goes */
    unsigned first_idle, idle_count;
    int fibers_made;
    struct {
        const struct emulated_site *site;
        size_t at, bytes;
    } site[SITES];
    int sites;
    size_t shared_used, shared_limit;
    unsigned char *shared;
    void *fault_stack;
};
static EMULATED_TLS struct multiprocessor *mp;

static const char *name_of(enum emulated_meeting what) {
    return what == MEET_BLOCK    ? "__syncthreads"
           : what == MEET_WARP   ? "__syncwarp"
           : what == MEET_BALLOT ? "a ballot"
                                 : "a shuffle";
}

bool kernel_where(char *to, size_t bytes) {
    if (!mp || !mp->kernel) return false;
    int n = snprintf(to, bytes, "emulated GPU: kernel %s, block (%u, %u, %u)", mp->kernel->name, blockIdx.x, blockIdx.y,
                     blockIdx.z);
    if (mp->now && n > 0 && (size_t)n < bytes)
        snprintf(to + n, bytes - (size_t)n, ", thread (%u, %u, %u)", threadIdx.x, threadIdx.y, threadIdx.z);
    return true;
}

bool kernel_stack_is_full(const void *touched) {
    const char *stack = mp && mp->fiber && mp->fiber != &mp->home ? mp->fiber->stack : NULL;
    return stack && (const char *)touched >= stack && (const char *)touched < stack + FIBER_GUARD;
}

static void say_where(void) {
    char where[512];
    fprintf(stderr, "%s: ", kernel_where(where, sizeof where) ? where : "emulated GPU");
}

void emulated_trap(const char *why) {
    say_where();
    fprintf(stderr, "%s\n", why);
    abort();
}

/* Each place where threads wait, once. */
__attribute__((noreturn)) static void stuck(void) {
    mp->now = NULL;
    say_where();
    fprintf(stderr, "threads wait for others that never come\n");
    for (int i = 0, said = 0; i < mp->threads && said < 8; i++) {
        const struct thread *t = mp->thread + i, *before = i ? t - 1 : NULL;
        if (t->state != AT_BLOCK && t->state != AT_WARP) continue;
        if (before && before->state == t->state && before->line == t->line && before->mask == t->mask) continue;
        fprintf(stderr, "  from thread (%u, %u, %u) on: at %s, %s:%d", t->index.x, t->index.y, t->index.z,
                name_of(t->what), t->file, t->line);
        if (t->state == AT_WARP) fprintf(stderr, ", mask %08x", t->mask);
        fprintf(stderr, "\n");
        said++;
    }
    fprintf(stderr, "  %d of %d have ended\n", mp->ended, mp->threads);
    abort();
}

/* ---- who runs next ---- */
static void make_ready(struct thread *t) {
    t->state = READY;
    mp->ready[(unsigned)(mp->first_ready + mp->ready_count++) % THREADS] = (int)(t - mp->thread);
}

static void fiber_main(void);

static struct fiber *fiber_for_fresh(void) {
    if (mp->idle_count && mp->fibers_made >= FIBERS_LEAST) {
        mp->idle_count--;
        return mp->idle[mp->first_idle++ % THREADS];
    }
    struct fiber *f = mp->fibers + mp->fibers_made;
    fiber_create(f, &mp->home, fiber_main, (unsigned)mp->fibers_made++);
    return f;
}

/* Leaves this fiber for the next that can run; the block's end is at home. */
static void leave(void) {
    struct fiber *from = mp->fiber, *to;
    if (mp->ready_count) {
        struct thread *t = mp->thread + mp->ready[mp->first_ready];
        mp->first_ready = (int)((unsigned)(mp->first_ready + 1) % THREADS);
        mp->ready_count--;
        to = t->fiber;
    } else if (mp->fresh < mp->threads)
        to = fiber_for_fresh();
    else if (mp->ended == mp->threads)
        to = &mp->home;
    else
        stuck();
    mp->fiber = to;
    if (to != from) fiber_switch(from, to);
}

static void wait_here(struct thread *t) {
    t->fiber = mp->fiber;
    leave();
    mp->now = t;
    threadIdx = t->index;
}

/* ---- meetings ---- */
static void check_one_place(void) {
    const struct thread *first = NULL;
    for (int i = 0; i < mp->threads; i++) {
        const struct thread *t = mp->thread + i;
        if (t->state != AT_BLOCK) continue;
        if (!first) first = t;
        if (t->line == first->line && (t->file == first->file || !strcmp(t->file, first->file))) continue;
        say_where();
        fprintf(stderr,
                "__syncthreads where the block has diverged: thread (%u, %u, %u) is at %s:%d, "
                "thread (%u, %u, %u) at %s:%d\n",
                first->index.x, first->index.y, first->index.z, first->file, first->line, t->index.x, t->index.y,
                t->index.z, t->file, t->line);
        abort();
    }
}

/* Lets the block go on when all its threads that have not ended are there. */
static bool block_met(const struct thread *caller) {
    if (!mp->arrived || mp->arrived + mp->ended < mp->threads) return false;
    check_one_place();
    mp->answer = mp->votes;
    mp->arrived = mp->votes = 0;
    for (int i = 0; i < mp->threads; i++) {
        struct thread *t = mp->thread + i;
        if (t->state != AT_BLOCK) continue;
        t->votes = (unsigned)mp->answer;
        if (t == caller)
            t->state = READY;
        else
            make_ready(t);
    }
    return true;
}

int emulated_meet_block(int yes, const char *file, int line) {
    struct thread *t = mp->now;
    t->what = MEET_BLOCK;
    t->state = AT_BLOCK;
    t->file = file;
    t->line = line;
    t->mask = 0;
    mp->arrived++;
    mp->votes += yes;
    fiber_gives(&mp->arrived);
    if (!block_met(t)) wait_here(t);
    fiber_takes(&mp->arrived);
    return (int)t->votes;
}

#define EACH_LANE(i, lanes)                                                                                            \
    for (unsigned left_ = (lanes), i; left_ && (i = (unsigned)__builtin_ctz(left_), true); left_ &= left_ - 1)

static void shuffle(struct thread *t, unsigned lanes) {
    uint64_t values[WARP];
    memset(values, POISON, sizeof values); /* what a lane gives that does not take part */
    EACH_LANE(i, lanes) values[i] = t[i].value;
    EACH_LANE(i, lanes) t[i].value = values[t[i].source & (WARP - 1)];
}

/* Lets the lanes of a mask go on when all that have not ended are there. */
static bool warp_met(struct warp *w, unsigned mask, enum emulated_meeting what, const struct thread *caller) {
    struct thread *t = mp->thread + (w - mp->warp) * WARP;
    unsigned lanes = mask & w->alive, votes = 0;
    if (lanes & ~w->waiting) return false;
    EACH_LANE(i, lanes) {
        if (t[i].mask != mask || t[i].what != what) return false;
        votes |= (unsigned)t[i].yes << i;
    }
    if (what == MEET_SHUFFLE) shuffle(t, lanes);
    w->waiting &= ~lanes;
    EACH_LANE(i, lanes) {
        t[i].votes = votes;
        if (t + i == caller)
            t[i].state = READY;
        else
            make_ready(t + i);
    }
    return true;
}

static struct warp *warp_of(const struct thread *t) {
    return mp->warp + (t - mp->thread) / WARP;
}

unsigned emulated_lane(void) {
    return (unsigned)(mp->now - mp->thread) % WARP;
}

unsigned emulated_active(void) {
    return warp_of(mp->now)->alive;
}

uint64_t emulated_meet_warp(enum emulated_meeting what, unsigned mask, int yes, uint64_t value, int source,
                            const char *file, int line) {
    struct thread *t = mp->now;
    struct warp *w = warp_of(t);
    unsigned me = 1u << emulated_lane();
    if (!(mask & me)) emulated_trap("a lane meets others, but is not in the mask");
    t->what = what;
    t->state = AT_WARP;
    t->mask = mask;
    t->yes = yes;
    t->source = source;
    t->value = value;
    t->file = file;
    t->line = line;
    w->waiting |= me;
    fiber_gives(w);
    if (!warp_met(w, mask, what, t)) wait_here(t);
    fiber_takes(w);
    return what == MEET_SHUFFLE ? t->value : t->votes;
}

/* ---- shared memory ---- */
void *emulated_shared(const struct emulated_site *site, size_t bytes) {
    if (!site) return mp->shared;
    for (int i = 0; i < mp->sites; i++)
        if (mp->site[i].site == site) return mp->shared + mp->site[i].at;
    size_t at = (mp->shared_used + 127) / 128 * 128, limit = mp->shared_limit;
    if (at + bytes > limit || mp->sites == SITES) {
        say_where();
        fprintf(stderr, "%zu bytes of shared memory with %s, %zu is the limit\n", at + bytes, site->name, limit);
        abort();
    }
    mp->site[mp->sites].site = site;
    mp->site[mp->sites].at = at;
    mp->site[mp->sites++].bytes = bytes;
    mp->shared_used = at + bytes;
    return mp->shared + at;
}

/* What no declaration covers is as the block found it. */
static void check_shared(size_t dynamic) {
    size_t at = dynamic, end = mp->shared_used + 128;
    for (int i = 0; i <= mp->sites; i++) {
        size_t until = i < mp->sites ? mp->site[i].at : end;
        for (; at < until; at++)
            if (mp->shared[at] != POISON) emulated_trap("something wrote beyond an array in shared memory");
        if (i < mp->sites) at += mp->site[i].bytes;
    }
}

/* ---- a block, a grid ---- */
/* Others wait for it no longer. */
static void thread_ended(struct thread *t) {
    struct warp *w = warp_of(t);
    const struct thread *lanes = mp->thread + (w - mp->warp) * WARP;
    t->state = ENDED;
    mp->ended++;
    w->alive &= ~(1u << (t - mp->thread) % WARP);
    while (w->waiting) {
        unsigned before = w->waiting;
        EACH_LANE(i, before)
        if (w->waiting >> i & 1) warp_met(w, lanes[i].mask, lanes[i].what, NULL);
        if (w->waiting == before) break;
    }
    block_met(NULL);
}

static void fiber_main(void) {
    for (;;) {
        while (mp->fresh < mp->threads && !mp->ready_count) {
            struct thread *t = mp->thread + mp->order[mp->fresh++];
            t->state = READY;
            mp->now = t;
            threadIdx = t->index;
            fiber_takes(mp);
            mp->kernel->run(mp->args);
            fiber_gives(&mp->ended);
            thread_ended(t);
            if (FIBERS_LEAST > 1) break;
        }
        mp->idle[(mp->first_idle + mp->idle_count++) % THREADS] = mp->fiber;
        leave();
    }
}

/* Threads begin in their order, or in any. */
static void lay_out(const struct emulated_kernel *k) {
    int i = 0;
    for (unsigned z = 0; z < k->threads.z; z++)
        for (unsigned y = 0; y < k->threads.y; y++)
            for (unsigned x = 0; x < k->threads.x; x++) {
                mp->thread[i].index = (struct uint3){x, y, z};
                mp->order[i] = i;
                i++;
            }
    mp->threads = i;
    for (int j = i - 1; j > 0 && mp->random && *mp->random; j--) {
        int other = (int)(jitter_next(mp->random) % (uint64_t)(j + 1)), was = mp->order[j];
        mp->order[j] = mp->order[other];
        mp->order[other] = was;
    }
}

static void run_block(const struct emulated_kernel *k) {
    mp->shared = fiber_memory(mp->shared, SHARED_ROOM);
    if (FIBERS_LEAST > 1) mp->shared_used = mp->shared_limit; /* it is new */
    size_t dirty = mp->shared_used > k->shared ? mp->shared_used : k->shared;
    memset(mp->shared, POISON, dirty + 128);
    mp->shared_used = k->shared;
    mp->sites = 0;
    mp->fresh = mp->ended = mp->arrived = mp->votes = 0;
    for (int i = 0; i < mp->threads; i++) mp->thread[i].state = FRESH;
    for (int i = 0; i < mp->threads; i += WARP) {
        int lanes = mp->threads - i < WARP ? mp->threads - i : WARP;
        mp->warp[i / WARP] = (struct warp){.alive = UINT32_MAX >> (WARP - lanes)};
    }
    fiber_gives(mp); /* to all threads; between those of two blocks there is no order */
    mp->fiber = &mp->home;
    leave();
    mp->now = NULL;
    check_shared(k->shared);
}

void kernel_run(const struct emulated_kernel *k, const void *args, uint64_t *random) {
    if (!mp) {
        mp = calloc(1, sizeof *mp);
        if (!mp) abort();
        mp->shared = fiber_memory(NULL, SHARED_ROOM);
        mp->shared_used = SHARED_MOST;
        fiber_adopt(&mp->home);
        mp->fault_stack = fault_stack();
    }
    mp->kernel = k;
    mp->args = args;
    mp->random = random;
    size_t limit = kernel_shared_limit(k->entry);
    mp->shared_limit = limit > SHARED_DEFAULT ? SHARED_MOST : SHARED_DEFAULT;
    lay_out(k);
    blockDim = k->threads;
    gridDim = k->blocks;
    for (unsigned z = 0; z < k->blocks.z; z++)
        for (unsigned y = 0; y < k->blocks.y; y++)
            for (unsigned x = 0; x < k->blocks.x; x++) {
                blockIdx = (struct uint3){x, y, z};
                run_block(k);
            }
    fiber_takes(&mp->ended);
    mp->kernel = NULL;
}

void kernel_forget(void) {
    if (!mp) return;
    for (int i = 0; i < mp->fibers_made; i++) fiber_free(mp->fibers + i);
    fault_stack_free(mp->fault_stack);
    munmap(mp->shared, SHARED_ROOM);
    free(mp);
    mp = NULL;
}
