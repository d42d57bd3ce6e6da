/* Emulated links: a link of any kind whose ranks have ports and links as engine/base/emulation.h describes them, so that a
 * laptop shows what a network would.
 *
 * Each rank has one port, which its lanes share. The sender's call ends when the message has left its port, the
 * receiver's when it has come; when it left, with what delays it, travels with the message as its stamp. The bytes
 * themselves go through the inner link, as fast as it can: meanwhile and afterwards the ranks wait.
 *
 * Time is logical. A thread that waits for T wakes a little later, and were the next message to begin then, a ring of
 * many steps would take longer than it should. So each lane keeps by how much it lags: the next call begins at T plus
 * what the thread did since it woke, and a call that was queued never before it was asked for. What a call costs on the inner link, and the
 * wait for a peer that is late, are no part of it either: when a message is there follows from its stamp. A thread sleeps
 * only when logical time is ahead of the clock. Lag that is more than bad sleep and a full pipe can explain is real and
 * is not made up for; and a barrier begins anew at the clock, so what follows one is never faster than the formulas.
 *
 * Memory that peers could reach is hidden, so that every byte passes a port. A link is emulated in its place: it gets a
 * table of its own, in which the functions of this file stand before those that they call. */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/base/text.h"
#include "engine/base/whole.h"
#include "transport/link/link.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>

struct emulated {
    struct link_ops ops; /* the link's own, but for those of this file */
    const struct link_ops *inner;
    struct emulation as;
    int64_t latency; /* the longest, ns */
    bool roomy;      /* each rank of this host has a core to itself */
    pthread_mutex_t mutex;
    int64_t out_free, in_free; /* the port, and the link from each rank, which follow: under the mutex */
    int64_t lag[ALL_LANES];    /* of logical time behind the clock, when the last call ended */
    uint64_t sent[ALL_LANES];  /* messages */
    int64_t link_free[];
};

enum { MICROSECOND = 1000, MILLISECOND = 1000 * MICROSECOND };
static const int64_t forever = INT64_MAX / 64; /* a few may be added */

/* ---- time ---- */

int64_t link_time(const struct link *l, int lane) {
    const struct emulated *e = l->emulated;
    if (!e) return 0;
    int64_t most = 2 * MILLISECOND + 2 * e->latency, lag = e->lag[lane];
    return at_least(clock_ns() - (lag < most ? lag : most), l->asked[lane]);
}

void link_waited(struct link *l, int64_t since, int64_t ended) {
    if (l->emulated) l->emulated->lag[0] = clock_ns() - at_least(since, ended);
}

/* The kernel may wake a thread 50 us late so as to wake several at once; not here. */
static void thread_sleep_until(int64_t when) {
    const struct timespec t = clock_timespec(when);
    prctl(PR_SET_TIMERSLACK, 1UL);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    prctl(PR_SET_TIMERSLACK, 0UL); /* the default again */
}

static enum error message_refuse_long(struct link *l, size_t bytes, int64_t ns) {
    char n[32], time[32], reason[DESCRIBED_MAX * 2];
    snprintf(reason, sizeof reason,
             "rank %d: a message of %s takes %s on an emulated link, more than the timeout of %g s", l->params.rank,
             text_of_bytes((double)bytes, n), text_of_seconds(clock_seconds(ns), time), l->params.timeout);
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

static int64_t emulated_ns(double seconds) {
    double ns = ceil(seconds * 1e9);
    return ns < (double)forever ? (int64_t)ns : forever;
}

/* rate: bytes/s; 0: unlimited. */
static int64_t pass_time(size_t bytes, double rate) {
    return rate > 0 ? emulated_ns((double)bytes / rate) : 0;
}

/* Passes a message through one way of a port, or a link, not before 'from'; gives when it begins. */
static int64_t way_pass(struct emulated *e, int64_t *way_free, int64_t from, int64_t takes) {
    pthread_mutex_lock(&e->mutex);
    int64_t begin = at_least(from, *way_free);
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

/* Gives when it has left, and its stamp. */
static int64_t message_leave(struct link *l, int lane, int64_t begin, struct outgoing *out) {
    struct emulated *e = l->emulated;
    int me = l->params.rank;
    int64_t takes = pass_time(out->bytes, emulation_port(&e->as, me, true));
    int64_t leaves = way_pass(e, &e->out_free, begin, takes);
    double delay = emulation_delay(&e->as, me, out->peer, (double)out->bytes, lane, e->sent[lane]++);
    out->stamp = leaves + emulated_ns(delay);
    return leaves + takes;
}

/* Gives when a message has come that left at 'sent'. */
static int64_t message_come(struct link *l, int peer, size_t bytes, int64_t sent) {
    struct emulated *e = l->emulated;
    int me = l->params.rank;
    const struct emulated_line line = emulation_line(&e->as, peer, me);
    int64_t out = pass_time(bytes, emulation_port(&e->as, peer, true)), way = pass_time(bytes, line.bandwidth);
    int64_t in = pass_time(bytes, emulation_port(&e->as, me, false)), latency = emulated_ns(line.latency);
    int64_t begin = way_pass(e, &e->link_free[peer], sent, way), end = at_least(sent + out, begin + way);
    return at_least(end + latency, way_pass(e, &e->in_free, begin + latency, in) + in);
}

static enum error emulated_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                    const struct incoming *in) {
    struct emulated *e = l->emulated;
    int64_t end = link_time(l, lane), stamp = 0;
    struct outgoing o = {0};
    struct incoming i = {0};
    if (out) {
        o = *out;
        end = message_leave(l, lane, end, &o);
    }
    if (in) {
        i = *in;
        i.stamp = &stamp;
    }
    TRY(e->inner->exchange(l, lane, label, out ? &o : NULL, in ? &i : NULL));
    int64_t now = clock_ns();
    if (in) {
        end = at_least(end, message_come(l, in->peer, in->bytes, message_sent_at(l, in->peer, stamp, now)));
        if (in->stamp) *in->stamp = stamp;
    }
    if (clock_seconds(end - now) > l->params.timeout)
        return message_refuse_long(l, at_least(o.bytes, i.bytes), end - now);
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
    int size = l->params.size;
    TRY(emulation_check(as));
    struct emulated *e = l->emulated = memory_new(sizeof *e + (size_t)size * sizeof(int64_t));
    if (!e) return ERR_MEMORY;
    e->inner = l->ops;
    e->as = *as;
    e->ops = emulated_ops(l->ops);
    const struct emulated_worst worst = emulation_worst(as, size);
    e->latency = emulated_ns(worst.latency);
    e->roomy = host_has_cores(&l->params);
    pthread_mutex_init(&e->mutex, NULL);
    l->ops = &e->ops;
    l->alpha += worst.alpha;
    l->beta += worst.beta;
    return ERR_NONE;
}
