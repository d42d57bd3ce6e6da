/* Helpers wait for a round of work, and the calling thread waits for its last part. A wait spins first, since the
 * kernel takes fifty microseconds to wake a sleeper, and sleeps on a futex if it takes long.
 *
 * Every thread has its own part, so that what it wrote in one round is in its cache in the next. It takes the part in
 * pieces: half of it, then half of what is left, and so on. A thread that has finished also takes pieces of others' parts
 * that nobody has begun, so a helper that is late, because it slept, lost its core or gave it to a loader, holds nobody up
 * for long. It may even come when the next round has begun; then it takes a piece of that round.
 *
 * Spinning is right on a core of one's own and ruinous on a shared one: the scheduler counts it as work, so the thread
 * has used up its turn when its work comes, and a step of twenty rounds waits for twenty turns of others. A thread that
 * lost its core for a quarter of a window (a loader takes it for less) therefore reports that the machine is busy. For
 * some time all threads of the device then sleep without spinning, and the scheduler lets them go first when they wake.
 *
 * No wake-up is lost: a sleeper counts itself before the kernel compares the word, and whoever changes the word looks
 * for sleepers afterwards. Both are sequentially consistent. */
#include "engine/device/threads.h"

#include "engine/base/clock.h"
#include "engine/base/futex.h"
#include "engine/base/thread.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECES = 4 };                                                                         /* of a part, at most */
enum { SPIN = 200000, SPIN_BUSY = 1000, LOOK = 20000, WINDOW = 20000000, BUSY = 200000000 }; /* ns */

struct word { /* that threads wait for */
    _Atomic uint32_t value;
    _Atomic int sleepers;
};
struct threads {
    int count;
    void (*begin)(const void *user);
    const void *user;

    _Alignas(64) struct word round; /* grows by one with each loop */
    int64_t n, grain, grains, parts;
    void (*work)(void *ctx, int64_t begin, int64_t end);
    void *ctx;
    _Atomic bool stop;

    _Alignas(64) struct word left; /* pieces that are not done */
    _Alignas(64) _Atomic int64_t busy_until;
    struct member {                    /* the calling thread, then its helpers */
        _Alignas(64) _Atomic int open; /* pieces of its part that nobody has begun; none: 0 or less */
        struct threads *of;
        pthread_t thread;
        int number; /* of the thread, and of its part */
    } member[];
};

static _Thread_local int self;
static _Thread_local bool working; /* it runs a part */

int threads_self(void) {
    return self;
}

/* ---- waiting ---- */

static _Thread_local struct watch { /* this thread's clocks when its window began; time asleep does not count */
    int64_t wall, own;
} watch;

static struct watch watch_now(void) {
    struct timespec own = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
    return (struct watch){clock_ns(), (int64_t)own.tv_sec * 1000000000 + own.tv_nsec};
}

/* Whether others had the core for a quarter of the time in which this thread wanted it. */
static bool was_preempted(void) {
    struct watch now = watch_now();
    int64_t wall = now.wall - watch.wall, taken = wall - (now.own - watch.own);
    if (watch.own && wall < WINDOW) return false;
    bool first = !watch.own;
    watch = now;
    return !first && taken > wall / 4;
}

static bool word_spin(const struct word *w, uint32_t seen, int64_t until) {
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&w->value, memory_order_acquire) != seen) return true;
            clock_relax();
        }
    } while (clock_ns() < until);
    return false;
}

/* Waits until the word is no longer 'seen'. */
static void threads_wait_for(struct threads *t, struct word *w, uint32_t seen) {
    int64_t start = clock_ns();
    bool busy = start < atomic_load_explicit(&t->busy_until, memory_order_relaxed);
    if (word_spin(w, seen, start + (busy ? SPIN_BUSY : LOOK))) return;
    if (!busy && (busy = was_preempted())) atomic_store_explicit(&t->busy_until, start + BUSY, memory_order_relaxed);
    if (!busy && word_spin(w, seen, start + SPIN)) return;
    while (atomic_load(&w->value) == seen) {
        atomic_fetch_add(&w->sleepers, 1);
        int64_t from = clock_ns();
        (void)futex_wait(&w->value, seen, -1);
        watch.wall += clock_ns() - from;
        atomic_fetch_sub(&w->sleepers, 1);
    }
}

static void wake_sleepers(struct word *w) {
    if (atomic_load(&w->sleepers) > 0) futex_wake(&w->value, INT_MAX);
}

/* ---- sharing a loop ---- */

static int64_t part_begin(const struct threads *t, int64_t part) {
    return t->grains * part / t->parts;
}

static int pieces_of(const struct threads *t, int64_t part) {
    int64_t n = part_begin(t, part + 1) - part_begin(t, part);
    int most = 64 - __builtin_clzll((unsigned long long)n);
    return most < PIECES ? most : PIECES;
}

/* The piece of a part behind which open - 1 are left. */
static void threads_do_piece(const struct threads *t, int64_t part, int open) {
    int64_t first = part_begin(t, part), n = part_begin(t, part + 1) - first;
    int before = pieces_of(t, part) - open;
    int64_t begin = (first + n - (n >> before)) * t->grain;
    int64_t end = (open > 1 ? first + n - (n >> (before + 1)) : first + n) * t->grain;
    working = true;
    t->work(t->ctx, begin, end < t->n ? end : t->n);
    working = false;
}

/* Does all open pieces of a part. The round's fields are written before its pieces are opened, and stay until the last is
 * done. */
static void threads_do_part(struct threads *t, struct member *m) {
    uint32_t done = 0;
    for (int open; atomic_load(&m->open) > 0 && (open = atomic_fetch_sub(&m->open, 1)) > 0; done++)
        threads_do_piece(t, m->number, open);
    if (done && atomic_fetch_sub(&t->left.value, done) == done) wake_sleepers(&t->left);
}

/* Does all open pieces: the thread's own first, then those after it. */
static void threads_do_open(struct threads *t) {
    for (int i = 0; i < t->count; i++) threads_do_part(t, &t->member[(self + i) % t->count]);
}

void threads_share(struct threads *t, int64_t count, int64_t grain, void (*work)(void *ctx, int64_t begin, int64_t end),
                   void *ctx) {
    uint32_t pieces = 0;
    if (!t || working || count <= grain) {
        work(ctx, 0, count);
        return;
    }
    t->n = count, t->grain = grain, t->work = work, t->ctx = ctx;
    t->grains = (count + grain - 1) / grain;
    t->parts = t->count < t->grains ? t->count : t->grains;
    for (int64_t part = 0; part < t->parts; part++) pieces += (uint32_t)pieces_of(t, part);
    atomic_store(&t->left.value, pieces);
    for (int64_t part = 0; part < t->parts; part++) atomic_store(&t->member[part].open, pieces_of(t, part));
    atomic_fetch_add(&t->round.value, 1);
    wake_sleepers(&t->round);
    threads_do_open(t);
    for (uint32_t left; (left = atomic_load(&t->left.value)) != 0;) threads_wait_for(t, &t->left, left);
}

static void *helper_main(void *arg) {
    const struct member *m = arg;
    struct threads *t = m->of;
    self = m->number;
    t->begin(t->user);
    for (uint32_t seen = 0;; threads_do_open(t)) {
        threads_wait_for(t, &t->round, seen);
        seen = atomic_load(&t->round.value);
        if (t->stop) return NULL;
    }
}

/* ---- their life ---- */

void threads_free(struct threads *t) {
    if (!t) return;
    t->stop = true;
    atomic_fetch_add(&t->round.value, 1);
    futex_wake(&t->round.value, INT_MAX);
    for (int i = 1; i < t->count; i++) pthread_join(t->member[i].thread, NULL);
    free(t);
}

enum error threads_create(int count, void (*begin)(const void *user), const void *user, struct threads **out) {
    void *memory;
    *out = NULL;
    if (count <= 1) return ERR_NONE;
    size_t bytes = sizeof(struct threads) + (size_t)count * sizeof(struct member);
    if (posix_memalign(&memory, _Alignof(struct threads), bytes) != 0) return FAIL(ERR_MEMORY, "no memory for threads");
    struct threads *t = memset(memory, 0, bytes);
    t->begin = begin, t->user = user;
    for (t->count = 1; t->count < count; t->count++) {
        struct member *m = &t->member[t->count];
        *m = (struct member){.of = t, .number = t->count};
        int failed = thread_start(&m->thread, helper_main, m);
        if (!failed) continue;
        threads_free(t);
        return FAIL(ERR_MEMORY, "cannot start %d threads: %s\nset threads to fewer", count, strerror(failed));
    }
    *out = t;
    return ERR_NONE;
}
