/* What a lane's thread does while it waits: it asks around, compares calls, keeps the deadline, and
 * finds words for what it sees. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "transport/link/tcp_impl.h"

#include <stdio.h>
#include <string.h>

static const double reason_seconds = 1; /* that the control stream has to say why a lane broke */

/* What this rank does on the lane. */
static void describe_call(struct tcp *t, int lane, char out[DESCRIBED_MAX]) {
    const struct link_params *p = &t->link.params;
    if (t->opened)
        p->describe(p->user, lane, out);
    else
        snprintf(out, DESCRIBED_MAX, "the group");
}

/* A peer whose call of the same number on this lane is another: -1 when there is none. */
static int find_other_call(struct tcp *t, int lane, struct call *mine, struct call *theirs) {
    int found = -1;
    pthread_mutex_lock(&t->mutex);
    *mine = t->lane[lane].met;
    for (int r = 0; r < t->link.params.size && found < 0; r++) {
        const struct call *c = &t->peers[r].state.call[lane];
        if (r == t->link.params.rank || !mine->sequence || c->sequence != mine->sequence) continue;
        if (same_call(c, mine)) continue;
        *theirs = *c;
        found = r;
    }
    pthread_mutex_unlock(&t->mutex);
    return found;
}

static enum error compare_calls(struct tcp *t, int lane) {
    struct call mine, theirs;
    if (lane >= LANES) return ERR_NONE;
    const struct link_params *p = &t->link.params;
    int r = find_other_call(t, lane, &mine, &theirs);
    return r < 0 ? ERR_NONE : p->disagree(p->user, lane, r, &mine, &theirs);
}

/* A peer that has not come to this rank's call, as far as is known; -1: all have. With the mutex. */
static int find_absent(const struct tcp *t, int lane) {
    const struct call *mine = &t->lane[lane].met;
    for (int r = 0; r < t->link.params.size; r++) {
        uint32_t theirs = t->peers[r].state.call[lane].sequence;
        if (r != t->link.params.rank && (int32_t)(theirs - mine->sequence) < 0) return r;
    }
    return -1;
}

static void watch_complain(struct tcp *t, int lane, int peer, enum late how, double seconds, char out[REASON_MAX]) {
    char name[NAME_MAX_BYTES], doing[DESCRIBED_MAX];
    describe_call(t, lane, doing);
    pthread_mutex_lock(&t->mutex);
    struct sighting seen = health_seen(&t->peers[peer]);
    pthread_mutex_unlock(&t->mutex);
    tcp_name(&t->link.params, peer, name);
    words_late(out, name, how, doing, seconds, &seen);
}

/* Of one that has not come to the call, if there is one; else of the one awaited. */
static void watch_blame(struct tcp *t, int lane, double seconds, char out[REASON_MAX]) {
    const struct tcp_lane *n = &t->lane[lane];
    pthread_mutex_lock(&t->mutex);
    int absent = n->label->sequence ? find_absent(t, lane) : -1;
    pthread_mutex_unlock(&t->mutex);
    if (absent < 0)
        watch_complain(t, lane, n->awaited, LATE_WITHIN, seconds, out);
    else
        watch_complain(t, lane, absent, LATE_ENTERING, seconds, out);
}

enum error tcp_overdue(struct link *l, int lane, const char *otherwise) {
    struct tcp *t = tcp_of(l);
    double timeout = l->params.timeout;
    struct timespec answers = tcp_until(timeout / 8 < 0.05 ? timeout / 8 : 0.05);
    char text[REASON_MAX];
    pthread_mutex_lock(&t->mutex);
    health_tell_all(t, FRAME_ASK);
    while (pthread_cond_timedwait(&t->changed, &t->mutex, &answers) == 0) {
    }
    int absent = find_absent(t, lane);
    pthread_mutex_unlock(&t->mutex);
    if (absent < 0) return tcp_fail(l, ERR_TIMEOUT, otherwise);
    watch_complain(t, lane, absent, LATE_ENTERING, timeout, text);
    return tcp_fail(l, ERR_TIMEOUT, text);
}

/* Says what it waits in, and asks all ranks for their states, now and then. */
static void ask_around(struct tcp *t, int lane, int64_t now) {
    struct tcp_lane *n = &t->lane[lane];
    double period = t->link.params.timeout / 12 < 0.5 ? t->link.params.timeout / 12 : 0.5;
    if (n->vigil.asked && clock_seconds(now - n->vigil.asked) < period) return;
    char doing[DESCRIBED_MAX];
    describe_call(t, lane, doing);
    pthread_mutex_lock(&t->mutex);
    strcpy(n->waits, doing);
    n->awaited = n->in.peer >= 0 && n->in.done < n->in.total ? n->in.peer : n->out.peer;
    health_tell_all(t, FRAME_ASK);
    pthread_mutex_unlock(&t->mutex);
    n->vigil.asked = now;
}

enum error tcp_watch(struct tcp *t, int lane) {
    struct tcp_vigil *v = &t->lane[lane].vigil;
    int64_t now = clock_ns();
    double timeout = t->link.params.timeout;
    char text[REASON_MAX];
    TRY(tcp_failure(&t->link));
    size_t progress = t->lane[lane].out.done + t->lane[lane].in.done + 1; /* at first: some */
    if (progress != v->progress) *v = (struct tcp_vigil){.start = now, .progress = progress};
    ask_around(t, lane, now);
    if (t->opened) TRY(compare_calls(t, lane));
    double waited = clock_seconds(now - v->start);
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
    struct tcp_peer *p = &t->peers[peer];
    struct timespec until = tcp_until(reason_seconds);
    char doing[DESCRIBED_MAX];
    describe_call(t, lane, doing);
    pthread_mutex_lock(&t->mutex);
    while (t->judging == FINE && !p->left && pthread_cond_timedwait(&t->changed, &t->mutex, &until) == 0) {
    }
    strcpy(t->lane[lane].waits, doing);
    t->lane[lane].awaited = peer;
    bool settled = t->judging == FINE && health_lost(t, p, p->left ? "has left" : "cannot be reached any more");
    pthread_mutex_unlock(&t->mutex);
    if (settled) health_announce(t);
    return tcp_failure(&t->link);
}

enum error tcp_changed(struct tcp *t, int lane, int peer) {
    char name[NAME_MAX_BYTES], doing[DESCRIBED_MAX], text[REASON_MAX];
    const struct link_params *p = &t->link.params;
    describe_call(t, lane, doing);
    tcp_name(p, peer, name);
    snprintf(text, sizeof text, "a message of %s to rank %d was changed on the way (link tcp, in %s)", name,
             link_rank_name(p, p->rank), doing);
    return tcp_fail(&t->link, ERR_PEER, text);
}
