/* What a lane's thread does while it waits: it asks around, compares calls, keeps the deadline, and
 * finds words for what it sees. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "transport/link/tcp_impl.h"

#include <stdio.h>
#include <string.h>

static const double reason_least = 1; /* s that control has at least to say why a lane broke */

void tcp_describe(const struct tcp *t, int lane, char out[DESCRIBED_MAX]) {
    if (t->opened)
        t->link.params.describe(t->link.params.user, lane, out);
    else
        snprintf(out, DESCRIBED_MAX, "the group");
}

/* Of all that is known of other ranks, their call of the same number on this lane has to be the same. */
static enum error watch_calls(struct tcp *t, int lane) {
    const struct link_params *p = &t->link.params;
    struct tcp_stand other = {.rank = -1};
    if (lane >= LANES) return ERR_NONE;
    pthread_mutex_lock(&t->mutex);
    struct call mine = t->lane[lane].met;
    for (const struct tcp_near *n = t->near; n && mine.sequence; n = n->next) {
        const struct tcp_stand of[] = {n->report.lane[lane].least, n->report.lane[lane].most};
        for (int i = 0; i < 2 && n->reported; i++)
            if (of[i].call.sequence == mine.sequence && !same_call(&of[i].call, &mine)) other = of[i];
    }
    pthread_mutex_unlock(&t->mutex);
    return other.rank < 0 || other.rank >= p->size ? ERR_NONE
                                                   : p->disagree(p->user, lane, other.rank, &mine, &other.call);
}

/* The rank that has come to the fewest calls, if that is not this rank's; -1: all have, as far as is known. With the
 * mutex. */
static int watch_find_absent(struct tcp *t, int lane) {
    const struct tcp_stand least = tree_report(t, NULL).lane[lane].least;
    bool behind = (int32_t)(least.call.sequence - t->lane[lane].met.sequence) < 0;
    return behind && least.rank < t->link.params.size ? least.rank : -1;
}

static void watch_complain(struct tcp *t, int lane, int peer, enum late how, double seconds, char out[REASON_MAX]) {
    char name[NAME_MAX_BYTES], doing[DESCRIBED_MAX];
    tcp_describe(t, lane, doing);
    pthread_mutex_lock(&t->mutex);
    struct sighting seen = tree_seen(t, peer);
    pthread_mutex_unlock(&t->mutex);
    tcp_name(&t->link.params, peer, name);
    words_late(out, name, how, doing, seconds, &seen);
}

/* Of one that has not come to the call, if there is one; else of the one awaited. */
static void watch_blame(struct tcp *t, int lane, double seconds, char out[REASON_MAX]) {
    const struct tcp_lane *n = &t->lane[lane];
    pthread_mutex_lock(&t->mutex);
    int absent = n->label->sequence ? watch_find_absent(t, lane) : -1;
    pthread_mutex_unlock(&t->mutex);
    watch_complain(t, lane, absent < 0 ? n->awaited : absent, absent < 0 ? LATE_WITHIN : LATE_ENTERING, seconds, out);
}

enum error tcp_overdue(struct link *l, int lane, const char *otherwise) {
    struct tcp *t = tcp_of(l);
    double timeout = l->params.timeout;
    int64_t answers = clock_after(timeout / 8 < 0.05 ? timeout / 8 : 0.05);
    char text[REASON_MAX];
    pthread_mutex_lock(&t->mutex);
    health_ask(t, NULL);
    while (condition_await(&t->changed, &t->mutex, answers)) {
    }
    int absent = watch_find_absent(t, lane);
    pthread_mutex_unlock(&t->mutex);
    if (absent < 0) return tcp_fail(l, ERR_TIMEOUT, otherwise);
    watch_complain(t, lane, absent, LATE_ENTERING, timeout, text);
    return tcp_fail(l, ERR_TIMEOUT, text);
}

/* Says what it waits in, and then asks all ranks how far they are, each time after twice as long: where all are slow, questions
 * are not to make them slower. */
static void watch_ask(struct tcp *t, int lane, double waited) {
    struct tcp_lane *n = &t->lane[lane];
    bool said = n->vigil.asks > 0;
    if (said && waited < n->vigil.asks) return;
    char doing[DESCRIBED_MAX];
    tcp_describe(t, lane, doing);
    pthread_mutex_lock(&t->mutex);
    strcpy(n->waits, doing);
    n->awaited = n->in.peer >= 0 && n->in.done < n->in.total ? n->in.peer : n->out.peer;
    if (said) health_ask(t, NULL);
    pthread_mutex_unlock(&t->mutex);
    n->vigil.asks = said ? 2 * waited : health_period(t);
}

/* The rank for which the lane waits, if it has left and no stream says so; else -1. */
static int watch_left(const struct tcp *t, int lane, int64_t now) {
    const struct sending *s = &t->lane[lane].out;
    const struct receiving *r = &t->lane[lane].in;
    int64_t out = s->done < s->total ? t->peers[s->peer].left : 0;
    int64_t in = r->done < r->total && r->fd < 0 ? t->peers[r->peer].left : 0;
    if (out && now - out > LEFT_FOR_GOOD) return s->peer;
    return in && now - in > LEFT_FOR_GOOD ? r->peer : -1;
}

enum error tcp_watch(struct tcp *t, int lane) {
    struct tcp_vigil *v = &t->lane[lane].vigil;
    int64_t now = clock_ns();
    double timeout = t->link.params.timeout;
    char text[REASON_MAX];
    TRY(tcp_failure(&t->link));
    size_t progress = t->lane[lane].out.done + t->lane[lane].in.done + 1; /* at first: some */
    if (progress != v->progress) *v = (struct tcp_vigil){.start = now, .progress = progress};
    double waited = clock_seconds(now - v->start);
    watch_ask(t, lane, waited);
    int left = watch_left(t, lane, now);
    if (left >= 0) return tcp_broken(t, lane, left);
    if (t->opened) TRY(watch_calls(t, lane));
    if (waited >= timeout) {
        watch_blame(t, lane, timeout, text);
        return tcp_fail(&t->link, ERR_TIMEOUT, text);
    }
    if (waited >= timeout / 6 && !v->warned) {
        v->warned = true;
        watch_blame(t, lane, waited, text);
        log_warn("%s", text);
    }
    return ERR_NONE;
}

enum error tcp_broken(struct tcp *t, int lane, int peer) {
    const struct tcp_peer *p = &t->peers[peer];
    double found = PATIENCE * t->link.params.heartbeat, timeout = t->link.params.timeout;
    double most = found < timeout ? found : timeout; /* control has found by then whoever is lost */
    int64_t until = clock_after(most > reason_least ? most : reason_least);
    char doing[DESCRIBED_MAX];
    tcp_describe(t, lane, doing);
    pthread_mutex_lock(&t->mutex);
    while (t->judging == FINE && !p->left && condition_await(&t->changed, &t->mutex, until)) {
    }
    strcpy(t->lane[lane].waits, doing);
    t->lane[lane].awaited = peer;
    if (t->judging == FINE) health_lost(t, peer, BROKEN_OFF, p->left ? "has left" : "cannot be reached any more");
    pthread_mutex_unlock(&t->mutex);
    return tcp_failure(&t->link);
}

enum error tcp_changed(struct tcp *t, int lane, int peer) {
    char name[NAME_MAX_BYTES], doing[DESCRIBED_MAX], text[REASON_MAX];
    const struct link_params *p = &t->link.params;
    tcp_describe(t, lane, doing);
    tcp_name(p, peer, name);
    snprintf(text, sizeof text, "a message of %s to rank %d was changed on the way (link tcp, in %s)", name,
             link_rank_name(p, p->rank), doing);
    return tcp_fail(&t->link, ERR_PEER, text);
}
