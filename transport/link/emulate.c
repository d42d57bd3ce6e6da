/* Emulated links: a link of any kind whose ranks have ports of a given rate and delay, so that a
 * laptop shows what a network would.
 *
 * Each rank has one port, which its two lanes share, with a way out and a way in: each passes one
 * message after the other at B bytes/s, and the two do not disturb each other. A message of n bytes
 * that is handed over at time t
 *
 *     leaves        from s = max(t, way out is free) to s + n/B
 *     arrives       from a = max(s + latency, way in is free) to a + n/B
 *
 * so it passes both ports at once (cut-through), and where many send to one, that one's port is
 * what they wait for. The sender's call ends at s + n/B, the receiver's at a + n/B; s travels with
 * the message as its stamp. The bytes themselves go through the inner link, as fast as it can:
 * meanwhile and afterwards the ranks wait.
 *
 * Time is logical. A thread that waits for T wakes a little later, and were the next message to
 * begin then, a ring of many steps would take longer than it should. So each lane keeps by how much
 * it lags: the next call begins at T plus what the thread did since it woke. What a call costs on
 * the inner link, and the wait for a peer that is late, are no part of it either: when a message is
 * there follows from its stamp. A thread sleeps only when logical time is ahead of the clock. Lag
 * that is more than bad sleep and a full pipe can explain is real and is not made up for; and a
 * barrier begins anew at the clock, so what follows one is never faster than the formulas.
 *
 * Memory that peers could reach is hidden, so that every byte passes a port. */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/base/text.h"
#include "transport/link/link.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>

struct emulated {
    struct link link;
    struct link_ops ops; /* the inner link's, but for those of this file */
    struct link *inner;
    struct emulation as;
    int64_t latency;  /* ns */
    double byte_time; /* ns */
    bool roomy;       /* each rank of this host has a core to itself */
    pthread_mutex_t mutex;
    int64_t out_free, in_free; /* the port: under the mutex */
    int64_t lag[ALL_LANES];    /* of logical time behind the clock, when the last call ended */
};

enum { MICROSECOND = 1000, MILLISECOND = 1000 * MICROSECOND };
static const int64_t forever = INT64_MAX / 64; /* a few may be added */

static struct emulated *emulated_of(struct link *l) {
    return (struct emulated *)l;
}

/* The inner link, about to be used on a lane. */
static struct link *inner_of(struct emulated *e, int lane) {
    e->inner->patient[lane] = e->link.patient[lane];
    return e->inner;
}

/* ---- time ---- */

static int64_t logical_now(const struct emulated *e, int lane) {
    int64_t most = 2 * MILLISECOND + 2 * e->latency, lag = e->lag[lane];
    return clock_ns() - (lag < most ? lag : most);
}

/* The kernel may wake a thread 50 us late so as to wake several at once; not here. */
static void sleep_until(int64_t when) {
    struct timespec t = {.tv_sec = when / 1000000000, .tv_nsec = when % 1000000000};
    prctl(PR_SET_TIMERSLACK, 1UL);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    prctl(PR_SET_TIMERSLACK, 0UL); /* the default again */
}

static enum error refuse_long(struct emulated *e, size_t bytes, int64_t ns) {
    char n[32], rate[32], time[32], reason[DESCRIBED_MAX * 2];
    snprintf(reason, sizeof reason,
             "rank %d: a message of %s takes %s on an emulated link of %s/s, more than the timeout "
             "of %g s",
             e->link.params.rank, text_of_bytes((double)bytes, n), text_of_seconds(clock_seconds(ns), time),
             text_of_bytes(e->as.bandwidth, rate), e->link.params.timeout);
    return e->inner->ops->fail(e->inner, ERR_TIMEOUT, reason);
}

/* The call ends at that time, or at once if it is past. Sleeps are short enough to learn of a
 * failure; the last of the way is spun where there is a core for it. */
static enum error end_at(struct emulated *e, int lane, int64_t when) {
    bool spins = e->roomy && e->link.patient[lane];
    int64_t early = spins ? 60 * MICROSECOND : 0, now;
    while ((now = clock_ns()) < when) {
        int64_t until = when - early, most = now + 100 * MILLISECOND;
        if (until <= now) {
            clock_relax();
            continue;
        }
        sleep_until(until < most ? until : most);
        TRY(e->inner->ops->failure(e->inner));
    }
    e->lag[lane] = now - when;
    return ERR_NONE;
}

/* ---- the port ---- */

static int64_t pass_time(const struct emulated *e, size_t bytes) {
    double ns = ceil((double)bytes * e->byte_time);
    return ns < (double)forever ? (int64_t)ns : forever;
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Passes a message through one way of the port, not before 'from'; gives when it begins. */
static int64_t pass(struct emulated *e, int64_t *way_free, int64_t from, int64_t takes) {
    pthread_mutex_lock(&e->mutex);
    int64_t begin = later(from, *way_free);
    *way_free = begin + takes;
    pthread_mutex_unlock(&e->mutex);
    return begin;
}

/* When a message was handed over. The clock of another host says nothing here: from there it counts
 * as sent when it came. */
static int64_t sent_at(const struct emulated *e, int peer, int64_t stamp, int64_t now) {
    const struct roster *roster = e->link.params.roster;
    bool far = roster && roster->of[peer].host != roster->of[e->link.params.rank].host;
    return far || stamp < 0 || stamp > now + forever ? now : stamp;
}

static enum error emulated_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                    const struct incoming *in) {
    struct emulated *e = emulated_of(l);
    int64_t begin = logical_now(e, lane), end = begin, stamp = 0;
    struct outgoing o = {0};
    struct incoming i = {0};
    if (out) {
        int64_t takes = pass_time(e, out->bytes);
        o = *out;
        o.stamp = pass(e, &e->out_free, begin, takes);
        end = o.stamp + takes;
    }
    if (in) {
        i = *in;
        i.stamp = &stamp;
    }
    struct link *inner = inner_of(e, lane);
    TRY(inner->ops->exchange(inner, lane, label, out ? &o : NULL, in ? &i : NULL));
    int64_t now = clock_ns();
    if (in) {
        int64_t takes = pass_time(e, in->bytes);
        int64_t sent = sent_at(e, in->peer, stamp, now);
        end = later(end, pass(e, &e->in_free, sent + e->latency, takes) + takes);
        if (in->stamp) *in->stamp = stamp;
    }
    if (clock_seconds(end - now) > l->params.timeout) return refuse_long(e, later(o.bytes, i.bytes), end - now);
    return end_at(e, lane, end);
}

/* ---- the rest ---- */

/* All ranks are here: messages between them have taken a latency, and time begins anew. */
static enum error end_meeting(struct emulated *e, int lane) {
    TRY(end_at(e, lane, clock_ns() + e->latency));
    e->lag[lane] = 0;
    return ERR_NONE;
}

/* A meeting for a collective of nothing is a barrier. A lazy link's barrier is the sync that
 * follows. */
static enum error emulated_meet(struct link *l, int lane, const struct call *c, void *mine, void **at) {
    struct emulated *e = emulated_of(l);
    struct link *inner = inner_of(e, lane);
    TRY(inner->ops->meet(inner, lane, c, NULL, at));
    for (int r = 0; r < l->params.size; r++) at[r] = r == l->params.rank ? mine : NULL;
    return c->count == 0 && !e->ops.lazy ? end_meeting(e, lane) : ERR_NONE;
}

static enum error emulated_sync(struct link *l, int lane) {
    struct emulated *e = emulated_of(l);
    struct link *inner = inner_of(e, lane);
    TRY(inner->ops->sync(inner, lane));
    return end_meeting(e, lane);
}

static enum error emulated_alloc(struct link *l, size_t bytes, void **out) {
    struct link *inner = inner_of(emulated_of(l), 0);
    return inner->ops->alloc(inner, bytes, out);
}

static enum error emulated_fail(struct link *l, enum error err, const char *reason) {
    struct link *inner = emulated_of(l)->inner;
    return inner->ops->fail(inner, err, reason);
}

static enum error emulated_failure(struct link *l) {
    struct link *inner = emulated_of(l)->inner;
    return inner->ops->failure(inner);
}

static enum error emulated_lost(struct link *l, int lane) {
    struct link *inner = emulated_of(l)->inner;
    return inner->ops->lost(inner, lane);
}

static enum error emulated_arrival(struct link *l, int *peer) {
    struct link *inner = emulated_of(l)->inner;
    return inner->ops->arrival(inner, peer);
}

static void emulated_poke(struct link *l) {
    struct link *inner = emulated_of(l)->inner;
    inner->ops->poke(inner);
}

static bool emulated_left(struct link *l, int rank) {
    struct link *inner = emulated_of(l)->inner;
    return inner->ops->left(inner, rank);
}

static void emulated_note(struct link *l, const char *doing, int64_t step) {
    struct link *inner = emulated_of(l)->inner;
    inner->ops->note(inner, doing, step);
}

static void emulated_close(struct link *l) {
    struct emulated *e = emulated_of(l);
    e->inner->ops->close(e->inner);
    pthread_mutex_destroy(&e->mutex);
    memory_free(e);
}

/* ---- opening ---- */

static enum error emulated_await(struct link *l, const struct group_wait *w) {
    return emulated_of(l)->inner->ops->await(emulated_of(l)->inner, w);
}

static void emulated_wake(struct link *l, int peer) {
    emulated_of(l)->inner->ops->wake(emulated_of(l)->inner, peer);
}

static struct link_ops ops_over(const struct link_ops *inner) {
    struct link_ops ops = *inner;
    ops.open = NULL; /* link_emulate is how it is opened */
    ops.close = emulated_close;
    ops.meet = emulated_meet;
    ops.sync = emulated_sync;
    ops.sync_near = NULL; /* no memory is near */
    ops.slot = NULL;
    ops.slot_bytes = 0;
    ops.lend = NULL;
    ops.lent = NULL;
    ops.exchange = emulated_exchange;
    ops.alloc = inner->alloc ? emulated_alloc : NULL;
    ops.fail = emulated_fail;
    ops.failure = emulated_failure;
    ops.lost = inner->lost ? emulated_lost : NULL;
    ops.await = inner->await ? emulated_await : NULL;
    ops.wake = inner->wake ? emulated_wake : NULL;
    ops.note = emulated_note;
    ops.arrival = emulated_arrival;
    ops.poke = emulated_poke;
    ops.left = emulated_left;
    return ops;
}

static bool has_cores(const struct link_params *p) {
    int near = 0;
    for (int r = 0; r < p->size; r++) near += !p->roster || p->roster->of[r].host == p->roster->of[p->rank].host;
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && near <= CPU_COUNT(&set);
}

static enum error check(const struct emulation *as) {
    if (!(as->bandwidth >= 0) || isinf(as->bandwidth))
        return FAIL(ERR_CONFIG, "an emulated link of %g bytes/s", as->bandwidth);
    if (!(as->latency >= 0) || as->latency > 3600)
        return FAIL(ERR_CONFIG, "an emulated link with a latency of %g s\nat most an hour", as->latency);
    return ERR_NONE;
}

enum error link_emulate(struct link *inner, const struct emulation *as, struct link **out) {
    void *memory = NULL;
    enum error err = check(as);
    if (!err) err = memory_alloc(sizeof(struct emulated), &memory);
    if (err) {
        inner->ops->close(inner);
        return err;
    }
    struct emulated *e = memory;
    e->inner = inner;
    e->as = *as;
    e->ops = ops_over(inner->ops);
    e->latency = (int64_t)(as->latency * 1e9);
    e->byte_time = as->bandwidth > 0 ? 1e9 / as->bandwidth : 0;
    e->roomy = has_cores(&inner->params);
    pthread_mutex_init(&e->mutex, NULL);
    e->link = (struct link){.ops = &e->ops,
                            .params = inner->params,
                            .alpha = inner->alpha + as->latency,
                            .beta = inner->beta + e->byte_time * 1e-9};
    *out = &e->link;
    return ERR_NONE;
}
