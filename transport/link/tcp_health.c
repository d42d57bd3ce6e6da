/* Control: what ranks tell each other beside the messages, and how a group fails as one.
 *
 * Every rank tells every other its state (its calls, its note) each fifth of the heartbeat, and at
 * once when it is asked, as every rank is by one that has waited for 20 ms. So silence means that a
 * rank is stopped or cut off; a control stream that ends without leave means that it died; and
 * whoever waits knows who has not come to the call, and who has come to another one.
 *
 * One verdict. Ranks may find different faults at the same time, and all must report one. Whoever
 * finds a fault, or first hears of one, tells every other that verdict, once; and when a rank has
 * heard from all that can still speak, it knows every verdict that any rank found by itself. A fault
 * wins over the end of a rank, which the fault may have caused; among equals the lowest rank's wins.
 * That is one round: a millisecond, but a second when one of them is dumb and not yet known to be.
 *
 * The end of a stream does not overtake the reason. A rank that finds a damaged message stops
 * believing it, but still tells its sender the verdict and hears whether it has arrived; and of a
 * stream that has ended, all that arrived before is read first. */
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

/* ---- telling (all with the mutex) ---- */

static struct peer_state own_state(struct tcp *t) {
    struct peer_state s = {0};
    for (int i = 0; i < LANES; i++) s.call[i] = t->lane[i].met;
    s.seen = note_read(&t->note);
    return s;
}

static void frame_send(struct tcp_peer *p) {
    nng_iov iov = {.iov_buf = (char *)&p->out + p->out_done, .iov_len = sizeof p->out - p->out_done};
    nng_aio_set_iov(p->send, 1, &iov);
    nng_stream_send(p->stream[CONTROL].s, p->send);
}

/* The most urgent of what is due. */
static void frame_next(struct tcp_peer *p) {
    static const unsigned urgency[] = {FRAME_FAIL, FRAME_LEAVE, FRAME_ASK, FRAME_STATE};
    if (p->sending || p->ended || p->left || !p->due) return;
    unsigned kind = FRAME_STATE;
    for (int i = 3; i >= 0; i--)
        if (p->due & urgency[i]) kind = urgency[i];
    p->due &= ~kind;
    p->out = (struct tcp_frame){.kind = kind};
    if (kind == FRAME_FAIL)
        p->out.verdict = p->of->verdict;
    else
        p->out.state = own_state(p->of);
    seal_make(&p->line[CONTROL]->out, &p->out, offsetof(struct tcp_frame, seal), p->out.seal);
    p->out_done = 0;
    p->sending = true;
    frame_send(p);
}

static void tell(struct tcp_peer *p, unsigned kind) {
    p->due |= kind;
    frame_next(p);
}

void health_tell_all(struct tcp *t, unsigned kind) {
    for (int r = 0; r < t->link.params.size; r++)
        if (r != t->link.params.rank) tell(&t->peers[r], kind);
}

static void on_told(void *arg) {
    struct tcp_peer *p = arg;
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

static bool can_speak(const struct tcp *t, const struct tcp_peer *p, int64_t now) {
    double silent = clock_seconds(now - p->heard);
    return p->rank != t->link.params.rank && !p->told && !p->left && !p->ended && silent < t->link.params.heartbeat / 2;
}

/* Whether the verdict is final. With the mutex; the caller tells 'failed' without it. */
static bool settle(struct tcp *t) {
    int64_t now = clock_ns();
    if (t->judging != SETTLING) return false;
    if (clock_seconds(now - t->judging_since) < settle_seconds)
        for (int r = 0; r < t->link.params.size; r++)
            if (can_speak(t, &t->peers[r], now)) return false;
    t->judging = SETTLED;
    pthread_cond_broadcast(&t->changed);
    return true;
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
    health_tell_all(t, FRAME_FAIL);
    for (int r = 0; r < t->link.params.size; r++)
        for (int i = 0; i < LINK_WAYS; i++)
            if (t->peers[r].fd[i] >= 0) shutdown(t->peers[r].fd[i], SHUT_RDWR);
    if (t->beat) nng_aio_cancel(t->beat);
    pthread_cond_broadcast(&t->changed);
}

/* A verdict of this rank's own: none is made any more once there is one. With the mutex; true when it has settled. */
static bool judge(struct tcp *t, enum error err, bool end, const char *reason) {
    if (t->judging == FINE) {
        struct tcp_verdict v = {.error = (int32_t)err, .origin = t->link.params.rank, .end = end};
        memcpy(v.reason, reason, strnlen(reason, sizeof v.reason - 1));
        take_verdict(t, &v);
    }
    return settle(t);
}

enum error tcp_failure(struct link *l) {
    struct tcp *t = tcp_of(l);
    if (atomic_load_explicit(&t->judging, memory_order_acquire) == FINE) return ERR_NONE;
    bool settled = false;
    pthread_mutex_lock(&t->mutex);
    while (t->judging == SETTLING && !(settled = settle(t))) {
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
    bool settled = judge(t, err, err == ERR_TIMEOUT, reason);
    pthread_mutex_unlock(&t->mutex);
    if (settled) health_announce(t);
    return tcp_failure(l);
}

/* ---- peers that are lost ---- */

struct sighting health_seen(const struct tcp_peer *p) {
    struct sighting s = p->state.seen;
    if (p->stated) s.ago += clock_seconds(clock_ns() - p->stated);
    return s;
}

/* In what a lane's thread waits for that peer, or NULL. */
static const char *waits_for(const struct tcp *t, int peer) {
    for (int i = 0; i < ALL_LANES; i++)
        if (*t->lane[i].waits && t->lane[i].awaited == peer) return t->lane[i].waits;
    return NULL;
}

static bool judge_peer(struct tcp *t, const struct tcp_peer *p, bool end, const char *how) {
    const struct link_params *lp = &t->link.params;
    char name[NAME_MAX_BYTES], reason[REASON_MAX];
    struct sighting seen = health_seen(p);
    tcp_name(lp, p->rank, name);
    words_lost(reason, name, how, &seen, link_rank_name(lp, lp->rank), waits_for(t, p->rank));
    return judge(t, ERR_PEER, end, reason);
}

bool health_lost(struct tcp *t, const struct tcp_peer *p, const char *how) {
    return judge_peer(t, p, true, how);
}

static bool judge_silence(struct tcp *t, int64_t now) {
    char how[96];
    double most = t->link.params.heartbeat;
    snprintf(how, sizeof how, "is silent for %.3g s: stopped, or its network is cut", most);
    for (int r = 0; r < t->link.params.size; r++) {
        const struct tcp_peer *p = &t->peers[r];
        if (r == t->link.params.rank || p->left || p->ended) continue;
        if (clock_seconds(now - p->heard) >= most) return health_lost(t, p, how);
    }
    return false;
}

/* Who was stopped himself has heard of nobody and may accuse nobody. */
static void forgive(struct tcp *t, int64_t now) {
    if (t->beaten && clock_seconds(now - t->beaten) > t->link.params.heartbeat / 2)
        for (int r = 0; r < t->link.params.size; r++) t->peers[r].heard = now;
    t->beaten = now;
}

static void on_beat(void *arg) {
    struct tcp *t = arg;
    int64_t now = clock_ns();
    timer_clear(&t->beat_timer);
    pthread_mutex_lock(&t->mutex);
    forgive(t, now);
    health_tell_all(t, FRAME_STATE);
    bool settled = t->judging == FINE ? judge_silence(t, now) : settle(t);
    double period = t->judging == SETTLING ? 0.05 : t->link.params.heartbeat / 5;
    bool again = !t->closing && t->judging != SETTLED;
    pthread_mutex_unlock(&t->mutex);
    if (settled) health_announce(t);
    if (again) timer_sleep(&t->beat_timer, t->beat, clock_ns() + (int64_t)(period * 1e9));
}

/* ---- hearing ---- */

static void frame_hear(struct tcp_peer *p) {
    nng_iov iov = {.iov_buf = (char *)&p->in + p->in_done, .iov_len = sizeof p->in - p->in_done};
    nng_aio_set_iov(p->recv, 1, &iov);
    nng_stream_recv(p->stream[CONTROL].s, p->recv);
}

static bool wins(const struct tcp_verdict *v, const struct tcp_verdict *over) {
    return !v->end != !over->end ? !v->end : v->origin < over->origin;
}

static bool hear_verdict(struct tcp *t, struct tcp_peer *p) {
    struct tcp_verdict *v = &p->in.verdict;
    v->reason[sizeof v->reason - 1] = '\0';
    p->told = true;
    if (v->error <= ERR_NONE || v->error > ERR_CONFIG) v->error = ERR_PEER;
    if (t->judging == FINE)
        take_verdict(t, v);
    else if (t->judging == SETTLING && wins(v, &t->verdict))
        t->verdict = *v;
    return settle(t);
}

/* With the mutex; true when the group has settled on a failure. */
static bool frame_heard(struct tcp *t, struct tcp_peer *p) {
    if (!seal_holds(&p->line[CONTROL]->in, &p->in, offsetof(struct tcp_frame, seal), p->in.seal))
        return judge_peer(t, p, false, "sent a message that was changed on the way (link tcp, control)");
    switch (p->in.kind) {
    case FRAME_FAIL:
        return hear_verdict(t, p);
    case FRAME_LEAVE:
        p->left = true;
        pthread_cond_broadcast(&t->changed);
        if (t->poked >= 0) tcp_poke(&t->link); /* a receive may be waiting for it */
        return settle(t);
    case FRAME_STATE:
    case FRAME_ASK:
        p->state = p->in.state;
        p->state.seen.doing[NOTE_TEXT] = '\0';
        p->stated = p->heard;
        if (p->in.kind == FRAME_ASK) tell(p, FRAME_STATE);
        return false;
    default:
        return judge_peer(t, p, false, "sent something unknown");
    }
}

static bool bytes_heard(struct tcp *t, struct tcp_peer *p, size_t n) {
    p->heard = clock_ns();
    p->in_done += n;
    if (p->in_done < sizeof p->in) return false;
    p->in_done = 0;
    return frame_heard(t, p);
}

/* nng gives up a stream that is reset, with what has arrived on it: that is read here. */
static bool stream_ended(struct tcp *t, struct tcp_peer *p) {
    bool settled = false;
    ssize_t n;
    while (!t->closing &&
           (n = recv(p->fd[CONTROL], (char *)&p->in + p->in_done, sizeof p->in - p->in_done, MSG_DONTWAIT)) > 0)
        settled |= bytes_heard(t, p, (size_t)n);
    p->ended = true;
    pthread_cond_broadcast(&t->changed);
    bool expected = t->closing || p->left || p->told;
    return (expected ? settle(t) : health_lost(t, p, "has died")) || settled;
}

static void on_heard(void *arg) {
    struct tcp_peer *p = arg;
    struct tcp *t = p->of;
    int rv = nng_aio_result(p->recv);
    bool settled = false;
    pthread_mutex_lock(&t->mutex);
    if (rv)
        settled = stream_ended(t, p);
    else
        settled = bytes_heard(t, p, nng_aio_count(p->recv));
    bool more = !p->ended;
    pthread_mutex_unlock(&t->mutex);
    if (settled) health_announce(t);
    if (more) frame_hear(p);
}

/* ---- opening and closing ---- */

enum error health_open(struct tcp *t) {
    int64_t now = clock_ns();
    for (int r = 0; r < t->link.params.size; r++) {
        struct tcp_peer *p = &t->peers[r];
        p->heard = now;
        if (r == t->link.params.rank) continue;
        if (nng_aio_alloc(&p->send, on_told, p) != 0 || nng_aio_alloc(&p->recv, on_heard, p) != 0)
            return FAIL(ERR_MEMORY, "out of memory for %d peers", t->link.params.size);
        nng_aio_set_timeout(p->send, NNG_DURATION_INFINITE);
        nng_aio_set_timeout(p->recv, NNG_DURATION_INFINITE);
    }
    if (nng_aio_alloc(&t->beat, on_beat, t) != 0) return FAIL(ERR_MEMORY, "out of memory for the heartbeat");
    for (int r = 0; r < t->link.params.size; r++)
        if (r != t->link.params.rank) frame_hear(&t->peers[r]);
    timer_sleep(&t->beat_timer, t->beat, now);
    return ERR_NONE;
}

/* What is due fits into any stream's buffer, unless the peer has stopped reading, which is not waited
 * for; on a busy machine it takes a moment. */
static void take_leave(struct tcp *t) {
    struct timespec until = tcp_until(settle_seconds);
    pthread_mutex_lock(&t->mutex);
    t->closing = true;
    health_tell_all(t, FRAME_LEAVE);
    for (int r = 0; r < t->link.params.size; r++) {
        struct tcp_peer *p = &t->peers[r];
        while ((p->sending || p->due) && !p->ended && p->stream[CONTROL].s &&
               pthread_cond_timedwait(&t->changed, &t->mutex, &until) == 0) {
        }
    }
    pthread_mutex_unlock(&t->mutex);
}

void health_close(struct tcp *t) {
    bool open = t->beat;
    if (open) take_leave(t);
    if (open) nng_aio_stop(t->beat);
    timer_clear(&t->beat_timer);
    for (int r = 0; r < t->link.params.size; r++) {
        struct tcp_peer *p = &t->peers[r];
        if (p->send) nng_aio_stop(p->send);
        if (p->recv) nng_aio_stop(p->recv);
        nng_aio_free(p->send);
        nng_aio_free(p->recv);
    }
    nng_aio_free(t->beat);
}
