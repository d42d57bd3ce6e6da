/* Emulated links: a link of any kind whose ranks have ports of a given rate and delay, so that a laptop shows what a
 * network would.
 *
 * Each rank has one port, which its lanes share, with a way out and a way in: each passes one message after the
 * other at B bytes/s, and the two do not disturb each other. A message of n bytes that is handed over at time t
 *
 *     leaves        from s = max(t, way out is free) to s + n/B
 *     arrives       from a = max(s + latency, way in is free) to a + n/B
 *
 * so it passes both ports at once (cut-through), and where many send to one, that one's port is what they wait for. The
 * sender's call ends at s + n/B, the receiver's at a + n/B; s travels with the message as its stamp. The bytes
 * themselves go through the inner link, as fast as it can: meanwhile and afterwards the ranks wait.
 *
 * Time is logical. A thread that waits for T wakes a little later, and were the next message to begin then, a ring of
 * many steps would take longer than it should. So each lane keeps by how much it lags: the next call begins at T plus
 * what the thread did since it woke. What a call costs on the inner link, and the wait for a peer that is late, are no
 * part of it either: when a message is there follows from its stamp. A thread sleeps only when logical time is ahead of
 * the clock. Lag that is more than bad sleep and a full pipe can explain is real and is not made up for; and a barrier
 * begins anew at the clock, so what follows one is never faster than the formulas.
 *
 * Memory that peers could reach is hidden, so that every byte passes a port. A link is emulated in its place: it gets a
 * table of its own, in which the functions of this file stand before those that they call. */
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
    struct link_ops ops; /* the link's own, but for those of this file */
    const struct link_ops *inner;
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

/* ---- time ---- */

static int64_t logical_now(const struct emulated *e, int lane) {
    int64_t most = 2 * MILLISECOND + 2 * e->latency, lag = e->lag[lane];
    return clock_ns() - (lag < most ? lag : most);
}

/* The kernel may wake a thread 50 us late so as to wake several at once; not here. */
static void thread_sleep_until(int64_t when) {
    struct timespec t = {.tv_sec = when / 1000000000, .tv_nsec = when % 1000000000};
    prctl(PR_SET_TIMERSLACK, 1UL);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    prctl(PR_SET_TIMERSLACK, 0UL); /* the default again */
}

static enum error message_refuse_long(struct link *l, size_t bytes, int64_t ns) {
    char n[32], rate[32], time[32], reason[DESCRIBED_MAX * 2];
    snprintf(reason, sizeof reason,
             "rank %d: a message of %s takes %s on an emulated link of %s/s, more than the timeout of %g s",
             l->params.rank, text_of_bytes((double)bytes, n), text_of_seconds(clock_seconds(ns), time),
             text_of_bytes(l->emulated->as.bandwidth, rate), l->params.timeout);
    return l->ops->fail(l, ERR_TIMEOUT, reason);
}

/* The call ends at that time, or at once if it is past. Sleeps are short enough to learn of a
 * failure; the last of the way is spun where there is a core for it. */
static enum error call_end_at(struct link *l, int lane, int64_t when) {
    bool spins = l->emulated->roomy && l->patient[lane];
    int64_t early = spins ? 60 * MICROSECOND : 0, now;
    while ((now = clock_ns()) < when) {
        int64_t until = when - early, most = now + 100 * MILLISECOND;
        if (until <= now) {
            clock_relax();
            continue;
        }
        thread_sleep_until(until < most ? until : most);
        TRY(l->ops->failure(l));
    }
    l->emulated->lag[lane] = now - when;
    return ERR_NONE;
}

/* ---- the port ---- */

static int64_t port_pass_time(const struct emulated *e, size_t bytes) {
    double ns = ceil((double)bytes * e->byte_time);
    return ns < (double)forever ? (int64_t)ns : forever;
}

static int64_t int64_greater(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Passes a message through one way of the port, not before 'from'; gives when it begins. */
static int64_t port_pass(struct emulated *e, int64_t *way_free, int64_t from, int64_t takes) {
    pthread_mutex_lock(&e->mutex);
    int64_t begin = int64_greater(from, *way_free);
    *way_free = begin + takes;
    pthread_mutex_unlock(&e->mutex);
    return begin;
}

/* When a message was handed over. The clock of another host says nothing here: from there it counts
 * as sent when it came. */
static int64_t message_sent_at(const struct link *l, int peer, int64_t stamp, int64_t now) {
    const struct roster *roster = l->params.roster;
    bool far = roster && roster->of[peer].host != roster->of[l->params.rank].host;
    return far || stamp < 0 || stamp > now + forever ? now : stamp;
}

static enum error emulated_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                    const struct incoming *in) {
    struct emulated *e = l->emulated;
    int64_t begin = logical_now(e, lane), end = begin, stamp = 0;
    struct outgoing o = {0};
    struct incoming i = {0};
    if (out) {
        int64_t takes = port_pass_time(e, out->bytes);
        o = *out;
        o.stamp = port_pass(e, &e->out_free, begin, takes);
        end = o.stamp + takes;
    }
    if (in) {
        i = *in;
        i.stamp = &stamp;
    }
    TRY(e->inner->exchange(l, lane, label, out ? &o : NULL, in ? &i : NULL));
    int64_t now = clock_ns();
    if (in) {
        int64_t takes = port_pass_time(e, in->bytes);
        int64_t sent = message_sent_at(l, in->peer, stamp, now);
        end = int64_greater(end, port_pass(e, &e->in_free, sent + e->latency, takes) + takes);
        if (in->stamp) *in->stamp = stamp;
    }
    if (clock_seconds(end - now) > l->params.timeout)
        return message_refuse_long(l, int64_greater(o.bytes, i.bytes), end - now);
    return call_end_at(l, lane, end);
}

/* ---- the rest ---- */

/* All ranks are here: messages between them have taken a latency, and time begins anew. */
static enum error meeting_end(struct link *l, int lane) {
    TRY(call_end_at(l, lane, clock_ns() + l->emulated->latency));
    l->emulated->lag[lane] = 0;
    return ERR_NONE;
}

/* A meeting for a collective of nothing is a barrier. A lazy link's barrier is the sync that follows. */
static enum error emulated_meet(struct link *l, int lane, const struct call *c, void *mine, void **at) {
    TRY(l->emulated->inner->meet(l, lane, c, NULL, at));
    for (int r = 0; r < l->params.size; r++) at[r] = r == l->params.rank ? mine : NULL;
    return c->count == 0 && !l->ops->lazy ? meeting_end(l, lane) : ERR_NONE;
}

static enum error emulated_sync(struct link *l, int lane) {
    TRY(l->emulated->inner->sync(l, lane));
    return meeting_end(l, lane);
}

static void emulated_close(struct link *l) {
    struct emulated *e = l->emulated;
    e->inner->close(l);
    pthread_mutex_destroy(&e->mutex);
    memory_free(e);
}

/* ---- opening ---- */

static struct link_ops emulated_ops(const struct link_ops *inner) {
    struct link_ops ops = *inner;
    ops.close = emulated_close;
    ops.meet = emulated_meet;
    ops.sync = emulated_sync;
    ops.exchange = emulated_exchange;
    ops.sync_near = NULL; /* no memory is near */
    ops.slot = NULL;
    ops.slot_bytes = 0;
    ops.lend = NULL;
    ops.lent = NULL;
    return ops;
}

static bool host_has_cores(const struct link_params *p) {
    int near = 0;
    for (int r = 0; r < p->size; r++) near += !p->roster || p->roster->of[r].host == p->roster->of[p->rank].host;
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && near <= CPU_COUNT(&set);
}

static enum error emulation_check(const struct emulation *as) {
    if (!(as->bandwidth >= 0) || isinf(as->bandwidth))
        return FAIL(ERR_CONFIG, "an emulated link of %g bytes/s", as->bandwidth);
    if (!(as->latency >= 0) || as->latency > 3600)
        return FAIL(ERR_CONFIG, "an emulated link with a latency of %g s\nat most an hour", as->latency);
    return ERR_NONE;
}

enum error link_emulate(struct link *l, const struct emulation *as) {
    void *memory;
    TRY(emulation_check(as));
    TRY(memory_alloc(sizeof(struct emulated), &memory));
    struct emulated *e = l->emulated = memory;
    e->inner = l->ops;
    e->as = *as;
    e->ops = emulated_ops(l->ops);
    e->latency = (int64_t)(as->latency * 1e9);
    e->byte_time = as->bandwidth > 0 ? 1e9 / as->bandwidth : 0;
    e->roomy = host_has_cores(&l->params);
    pthread_mutex_init(&e->mutex, NULL);
    l->ops = &e->ops;
    l->alpha += as->latency;
    l->beta += e->byte_time * 1e-9;
    return ERR_NONE;
}
