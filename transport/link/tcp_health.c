/* Control: what ranks report to each other beside the messages, and how a group fails as one.
 *
 * A rank reports to its neighbours in the tree (tcp_tree.c) with each beat (tcp_beat.c), and when it is asked, as all are
 * by a rank that has waited for 20 ms: a question is passed on, and so is each answer that changes what is known. A
 * control stream that ends without leave means that its rank died. The neighbours of a lost rank find it; all others
 * hear of it within as many hops as the tree has.
 *
 * One verdict. Ranks may find different faults at the same time, and all must report one. Whoever finds a fault, or
 * first hears of one, tells its neighbours that verdict at once, and from then on finds none by itself. A fault wins
 * over the end of a rank, which the fault may have caused; among equals the lowest rank's wins. A rank that has heard
 * from all neighbours but one what is the best verdict behind them concludes: it tells that one the best of these and its
 * own; and who has heard so from all has the best of all ranks, and is settled. In a tree this ends after one message in
 * each direction of each edge: leaves conclude first, two ranks in the middle are settled first, and the rest as they
 * hear it. That takes milliseconds, but a second after the last such message when one of them is dumb and not yet known
 * to be. A lost rank cuts the tree: its neighbours mend it in that time (tcp_tree.c), and count as one that has not
 * concluded whoever is to come.
 *
 * The end of a stream does not overtake the reason. A rank that finds a damaged message stops believing it, but still
 * tells its sender the verdict and hears whether it has arrived; and of a stream that has ended, all that arrived before
 * is read first. */
#include "engine/base/clock.h"
#include "transport/link/tcp_impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const double settle_seconds = 1;

void tcp_name(const struct link_params *p, int rank, char out[NAME_MAX_BYTES]) {
    const char *name = p->roster->of[rank].name;
    if (*name)
        snprintf(out, NAME_MAX_BYTES, "rank %d (%.60s)", link_rank_name(p, rank), name);
    else
        snprintf(out, NAME_MAX_BYTES, "rank %d", link_rank_name(p, rank));
}

struct timespec tcp_until(double seconds) {
    int64_t ns = clock_ns() + (int64_t)(seconds * 1e9);
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

double health_period(const struct tcp *t) {
    double twelfth = t->link.params.timeout / 12;
    return twelfth < 0.5 ? twelfth : 0.5;
}

/* ---- telling (all with the mutex) ---- */

static void frame_send(struct tcp_near *p) {
    nng_iov iov = {.iov_buf = (char *)&p->out + p->out_done, .iov_len = sizeof p->out - p->out_done};
    nng_aio_set_iov(p->send, 1, &iov);
    nng_stream_send(p->line->stream.s, p->send);
}

/* As many as fit; the others remain due. */
static void leavers_take(struct tcp_near *p, struct tcp_leavers *out) {
    for (int r = 0; r < p->of->link.params.size; r++) {
        uint64_t bit = (uint64_t)1 << r % 64;
        if (!(p->leaves[r / 64] & bit)) continue;
        if (out->n == LEAVERS) {
            p->due |= FRAME_LEAVE;
            return;
        }
        out->rank[out->n++] = r;
        p->leaves[r / 64] &= ~bit;
    }
}

/* Whether that neighbour may still tell a verdict that this rank has not heard. */
static bool may_tell(const struct tcp *t, const struct tcp_near *p, int64_t now) {
    return near_is_open(p) && !p->told && clock_seconds(now - p->heard) < t->link.params.heartbeat / 2;
}

/* Whether all verdicts behind the other neighbours are known, or have been waited for long enough. */
static bool others_told(const struct tcp *t, const struct tcp_near *but, int64_t now) {
    if (t->judging == SETTLED || clock_seconds(now - t->judging_since) >= settle_seconds) return true;
    for (const struct tcp_near *p = t->near; p; p = p->next)
        if (p->awaited || (p != but && may_tell(t, p, now))) return false;
    return true;
}

/* The most urgent of what is due. */
static void frame_next(struct tcp_near *p) {
    static const unsigned urgency[] = {FRAME_FAIL, FRAME_LEAVE, FRAME_ASK, FRAME_STATE};
    if (p->sending || !near_is_open(p) || !p->due || p->of->stopped) return;
    unsigned kind = FRAME_STATE;
    for (int i = 3; i >= 0; i--)
        if (p->due & urgency[i]) kind = urgency[i];
    p->due &= ~kind;
    memset(&p->out, 0, sizeof p->out);
    p->out.kind = kind;
    if (kind == FRAME_FAIL) {
        p->out.verdict = p->of->verdict;
        p->out.last = p->concluded = others_told(p->of, p, clock_ns());
    } else if (kind == FRAME_LEAVE) {
        leavers_take(p, &p->out.leavers);
    } else {
        p->out.report = tree_report(p->of, p);
    }
    seal_make(&p->line->out, &p->out, offsetof(struct tcp_frame, seal), p->out.seal);
    p->out_done = 0;
    p->sending = true;
    frame_send(p);
}

void health_tell(struct tcp_near *p, unsigned kind) {
    p->due |= kind;
    frame_next(p);
}

void health_tell_others(struct tcp *t, const struct tcp_near *but, unsigned kind) {
    for (struct tcp_near *p = t->near; p; p = p->next)
        if (p != but) health_tell(p, kind);
}

/* However many ranks ask, each edge passes on about two questions in a period. */
void health_ask(struct tcp *t, const struct tcp_near *but) {
    int64_t now = clock_ns();
    for (struct tcp_near *p = t->near; p; p = p->next) {
        if (p == but || clock_seconds(now - p->asks) < health_period(t) / 2) continue;
        p->asks = now;
        health_tell(p, FRAME_ASK);
    }
}

static void on_told(void *arg) {
    struct tcp_near *p = arg;
    struct tcp *t = p->of;
    int rv = nng_aio_result(p->send);
    pthread_mutex_lock(&t->mutex);
    p->out_done += rv ? 0 : nng_aio_count(p->send);
    if (rv == 0 && p->out_done < sizeof p->out) {
        frame_send(p);
    } else {
        p->sending = false; /* a stream that broke is seen by who receives on it */
        if (rv == 0) frame_next(p);
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->mutex);
}

/* ---- failing ---- */

bool health_settle(struct tcp *t) {
    int64_t now = clock_ns();
    if (t->judging != SETTLING) return false;
    bool settled = others_told(t, NULL, now);
    if (settled) t->judging = SETTLED;
    for (struct tcp_near *p = t->near; p; p = p->next)
        if (!p->concluded && others_told(t, p, now)) health_tell(p, FRAME_FAIL);
    if (settled) pthread_cond_broadcast(&t->changed);
    return settled;
}

void health_announce(struct tcp *t) {
    const struct link_params *p = &t->link.params;
    if (p->failed && t->opened) p->failed(p->user, (enum error)t->verdict.error, t->verdict.reason);
}

/* The first verdict here, found or heard: told on at once. Lanes end, so that nobody waits on them. */
static void take_verdict(struct tcp *t, const struct tcp_verdict *v) {
    t->verdict = *v;
    t->judging_since = clock_ns();
    t->judging = SETTLING;
    health_tell_others(t, NULL, FRAME_FAIL);
    lines_end(t);
    heal_start(t);
    if (t->beat) nng_aio_cancel(t->beat);
    pthread_cond_broadcast(&t->changed);
}

/* A verdict of this rank's own: none is made any more once there is one. */
bool health_judge(struct tcp *t, enum error err, bool end, const char *reason) {
    if (t->judging == FINE && !t->closing) {
        struct tcp_verdict v = {.error = (int32_t)err, .origin = t->link.params.rank, .end = end};
        memcpy(v.reason, reason, strnlen(reason, sizeof v.reason - 1));
        take_verdict(t, &v);
    }
    return health_settle(t);
}

enum error tcp_failure(struct link *l) {
    struct tcp *t = tcp_of(l);
    if (atomic_load_explicit(&t->judging, memory_order_acquire) == FINE) return ERR_NONE;
    bool settled = false;
    pthread_mutex_lock(&t->mutex);
    while (t->judging == SETTLING && !(settled = health_settle(t))) {
        struct timespec until = tcp_until(0.05);
        pthread_cond_timedwait(&t->changed, &t->mutex, &until);
    }
    pthread_mutex_unlock(&t->mutex);
    if (settled) health_announce(t);
    return FAIL((enum error)t->verdict.error, "%s", t->verdict.reason);
}

enum error tcp_fail(struct link *l, enum error err, const char *reason) {
    struct tcp *t = tcp_of(l);
    assert(err != ERR_NONE);
    pthread_mutex_lock(&t->mutex);
    bool settled = health_judge(t, err, err == ERR_TIMEOUT, reason);
    pthread_mutex_unlock(&t->mutex);
    if (settled) health_announce(t);
    return tcp_failure(l);
}

/* ---- ranks that are lost ---- */

/* In what a lane's thread waits for that rank, or NULL. */
static const char *waits_for(const struct tcp *t, int rank) {
    for (int i = 0; i < ALL_LANES; i++)
        if (*t->lane[i].waits && t->lane[i].awaited == rank) return t->lane[i].waits;
    return NULL;
}

static bool judge_rank(struct tcp *t, int rank, bool end, const char *how) {
    const struct link_params *p = &t->link.params;
    char name[NAME_MAX_BYTES], reason[REASON_MAX];
    struct sighting seen = tree_seen(t, rank);
    tcp_name(p, rank, name);
    words_lost(reason, name, how, &seen, link_rank_name(p, p->rank), waits_for(t, rank));
    return health_judge(t, ERR_PEER, end, reason);
}

bool health_lost(struct tcp *t, int rank, const char *how) {
    return judge_rank(t, rank, true, how);
}

/* ---- hearing ---- */

static void frame_hear(struct tcp_near *p) {
    nng_iov iov = {.iov_buf = (char *)&p->in + p->in_done, .iov_len = sizeof p->in - p->in_done};
    nng_aio_set_iov(p->recv, 1, &iov);
    nng_stream_recv(p->line->stream.s, p->recv);
}

static bool wins(const struct tcp_verdict *v, const struct tcp_verdict *over) {
    return !v->end != !over->end ? !v->end : v->origin < over->origin;
}

static bool hear_verdict(struct tcp *t, struct tcp_near *p) {
    struct tcp_verdict *v = &p->in.verdict;
    v->reason[sizeof v->reason - 1] = '\0';
    if (p->in.last) p->told = true;
    if (v->error <= ERR_NONE || v->error > ERR_CONFIG) v->error = ERR_PEER;
    if (t->judging == SETTLING) t->judging_since = clock_ns();
    if (t->judging == FINE) {
        take_verdict(t, v);
    } else if (t->judging == SETTLING && wins(v, &t->verdict)) {
        t->verdict = *v;
        health_tell_others(t, p, FRAME_FAIL);
    }
    return health_settle(t);
}

/* That rank has left: known now, and passed on. */
static void note_leave(struct tcp *t, struct tcp_near *from, int rank) {
    if (rank < 0 || rank >= t->link.params.size || t->peers[rank].left) return;
    t->peers[rank].left = clock_ns();
    if (from) from->report.present--;
    for (struct tcp_near *p = t->near; p; p = p->next) {
        if (p == from) continue;
        p->leaves[rank / 64] |= (uint64_t)1 << rank % 64;
        p->due |= FRAME_LEAVE;
    }
}

static bool hear_leavers(struct tcp *t, struct tcp_near *p) {
    const struct tcp_leavers *l = &p->in.leavers;
    for (int i = 0; i < l->n && i < LEAVERS; i++) note_leave(t, p, l->rank[i]);
    health_tell_others(t, p, 0);
    pthread_cond_broadcast(&t->changed);
    if (t->link.params.mail) tcp_poke(&t->link); /* a receive may be waiting for it */
    return health_settle(t);
}

static bool same_stand(const struct tcp_stand *a, const struct tcp_stand *b) {
    return a->rank == b->rank && same_call(&a->call, &b->call);
}

static bool same_report(const struct tcp_report *a, const struct tcp_report *b) {
    bool same = a->missing == b->missing;
    for (int i = 0; i < LANES; i++)
        same =
            same && same_stand(&a->lane[i].least, &b->lane[i].least) && same_stand(&a->lane[i].most, &b->lane[i].most);
    return same;
}

/* Whoever has asked lately hears what has changed, and while the group is opened all do. */
static void hear_report(struct tcp *t, struct tcp_near *p) {
    struct tcp_report *r = &p->in.report;
    int64_t now = clock_ns();
    bool same = p->reported && same_report(r, &p->report);
    r->seen.doing[NOTE_TEXT] = '\0';
    for (int i = 0; i < LANES; i++) r->lane[i].seen.doing[NOTE_TEXT] = '\0';
    p->report = *r;
    p->reported = p->heard;
    if (p->in.kind == FRAME_ASK) {
        p->asked = now;
        health_tell(p, FRAME_STATE);
        health_ask(t, p);
    }
    if (same) return;
    for (struct tcp_near *q = t->near; q; q = q->next)
        if (q != p && (!t->joined || clock_seconds(now - q->asked) < 2 * health_period(t))) health_tell(q, FRAME_STATE);
    if (!t->joined) pthread_cond_broadcast(&t->changed);
}

/* With the mutex; true when the group has settled on a failure. */
static bool frame_heard(struct tcp *t, struct tcp_near *p) {
    if (!seal_holds(&p->line->in, &p->in, offsetof(struct tcp_frame, seal), p->in.seal))
        return judge_rank(t, p->rank, false, "sent a message that was changed on the way (link tcp, control)");
    switch (p->in.kind) {
    case FRAME_FAIL:
        return hear_verdict(t, p);
    case FRAME_LEAVE:
        return hear_leavers(t, p);
    case FRAME_STATE:
    case FRAME_ASK:
        hear_report(t, p);
        return false;
    default:
        return judge_rank(t, p->rank, false, "sent something unknown");
    }
}

static bool bytes_heard(struct tcp *t, struct tcp_near *p, size_t n) {
    p->heard = clock_ns();
    p->warned = false;
    p->in_done += n;
    if (p->in_done < sizeof p->in) return false;
    p->in_done = 0;
    return frame_heard(t, p);
}

/* nng gives up a stream that is reset, with what has arrived on it: that is read here. */
static bool stream_ended(struct tcp *t, struct tcp_near *p) {
    bool settled = false;
    ssize_t n;
    if (t->stopped) return false;
    while ((n = recv(p->line->fd, (char *)&p->in + p->in_done, sizeof p->in - p->in_done, MSG_DONTWAIT)) > 0)
        settled |= bytes_heard(t, p, (size_t)n);
    bool expected = t->closing || t->peers[p->rank].left || p->ended || near_forget(t, p);
    near_gone(t, p);
    pthread_cond_broadcast(&t->changed);
    if (t->judging != FINE) heal_start(t);
    return (expected ? health_settle(t) : health_lost(t, p->rank, "has died")) || settled;
}

static void on_heard(void *arg) {
    struct tcp_near *p = arg;
    struct tcp *t = p->of;
    int rv = nng_aio_result(p->recv);
    bool settled = false;
    pthread_mutex_lock(&t->mutex);
    if (rv)
        settled = stream_ended(t, p);
    else
        settled = bytes_heard(t, p, nng_aio_count(p->recv));
    bool more = !p->ended && !t->stopped;
    pthread_mutex_unlock(&t->mutex);
    if (settled) health_announce(t);
    if (more) frame_hear(p);
}

/* ---- opening and closing ---- */

/* Without memory for it, it is as if the neighbour had not come. One that comes when the tree is mended may not have
 * heard who has left. */
void health_listen(struct tcp_near *p) {
    p->heard = clock_ns();
    for (int r = 0; r < p->of->link.params.size; r++)
        if (p->of->peers[r].left) {
            p->leaves[r / 64] |= (uint64_t)1 << r % 64;
            p->due |= FRAME_LEAVE;
        }
    if (nng_aio_alloc(&p->send, on_told, p) != 0 || nng_aio_alloc(&p->recv, on_heard, p) != 0) {
        p->ended = true;
        return;
    }
    nng_aio_set_timeout(p->send, NNG_DURATION_INFINITE);
    nng_aio_set_timeout(p->recv, NNG_DURATION_INFINITE);
    health_tell(p, p->of->judging == FINE ? FRAME_STATE : FRAME_FAIL);
    frame_hear(p);
}

/* Others may hear of each other by this rank alone. */
static bool is_between(const struct tcp *t) {
    int n = 0;
    for (const struct tcp_near *p = t->near; p; p = p->next) n += near_is_open(p) && p->report.present > 0;
    return t->judging == SETTLING || (t->judging == FINE && n > 1);
}

/* What is due fits into any stream's buffer, unless the peer has stopped reading, which is not waited
 * for; on a busy machine it takes a moment. */
void health_leave(struct tcp *t) {
    struct timespec until = tcp_until(settle_seconds);
    pthread_mutex_lock(&t->mutex);
    t->closing = true;
    note_leave(t, NULL, t->link.params.rank);
    health_tell_others(t, NULL, 0);
    while (is_between(t) && pthread_cond_timedwait(&t->changed, &t->mutex, &until) == 0) {
    }
    health_tell_others(t, NULL, FRAME_STATE); /* says to whom they are left */
    for (const struct tcp_near *p = t->near; p; p = p->next)
        while ((p->sending || p->due) && near_is_open(p) &&
               pthread_cond_timedwait(&t->changed, &t->mutex, &until) == 0) {
        }
    t->stopped = true;
    pthread_mutex_unlock(&t->mutex);
}
