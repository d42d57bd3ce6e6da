/* Health: what ranks report to each other beside the messages, and how a group fails as one.
 *
 * A rank reports to its neighbours in the tree (tcp_tree.c) with each beat (tcp_control.c), and when it is asked, as all
 * are by a rank that waits long: a question is passed on, and so is each answer that changes what is known. A
 * control stream that ends without leave means that its rank died. The neighbours of a lost rank find it; all others
 * hear of it within as many hops as the tree has.
 *
 * One verdict. Ranks may find different faults at the same time, and all must report one. Whoever finds a fault, or
 * first hears of one, tells its neighbours that verdict at once, and from then on finds none by itself. A fault wins
 * over the end of a rank, which the fault may have caused, and that over a stream of messages that broke off, as
 * those of all who have heard the news do; among equals the lowest rank's wins. A rank that has heard from all
 * neighbours but one what is the best verdict behind them concludes: it tells that one the best of these and its own;
 * and who has heard so from all has the best of all ranks, and is settled. In a tree this ends after one message in
 * each direction of each edge: leaves conclude first, two ranks in the middle are settled first, and the rest as they
 * hear it. That takes milliseconds, but a second after the last such message when one of them is dumb and not yet
 * known to be. A lost rank cuts the tree: its neighbours mend it in that time (tcp_tree.c), and count as one that has
 * not concluded whoever is to come.
 *
 * A rank that finds a damaged message stops believing it, but still tells its sender the verdict and hears whether it
 * has arrived. */
#include "engine/base/clock.h"
#include "transport/link/tcp_impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const double settle_seconds = 1;

void tcp_name(const struct link_params *p, int rank, char out[NAME_MAX_BYTES]) {
    const char *name = p->roster->of[rank].name;
    if (*name)
        snprintf(out, NAME_MAX_BYTES, "rank %d (%.60s)", link_rank_name(p, rank), name);
    else
        snprintf(out, NAME_MAX_BYTES, "rank %d", link_rank_name(p, rank));
}

double health_period(const struct tcp *t) {
    double twelfth = t->link.params.timeout / 12;
    return twelfth < 0.5 ? twelfth : 0.5;
}

/* ---- telling (all with the mutex) ---- */

void health_tell_others(struct tcp *t, const struct tcp_near *but, enum frame_kind kind) {
    for (struct tcp_near *p = t->near; p; p = p->next)
        if (p != but) p->due |= kind;
}

/* However many ranks ask, each edge passes on one question in a period. */
void health_ask(struct tcp *t, const struct tcp_near *but) {
    int64_t now = clock_ns();
    for (struct tcp_near *p = t->near; p; p = p->next) {
        if (p == but || clock_seconds(now - p->asks) < health_period(t)) continue;
        p->asks = now;
        p->due |= FRAME_ASK;
    }
    control_wake(t);
}

/* Whether that neighbour may still tell a verdict that this rank has not heard. */
static bool near_may_tell(const struct tcp *t, const struct tcp_near *p, int64_t now) {
    return near_is_open(p) && !p->told && clock_seconds(now - p->heard) < t->link.params.heartbeat / 2;
}

/* Whether all verdicts behind the other neighbours are known, or have been waited for long enough. */
static bool verdict_others_told(const struct tcp *t, const struct tcp_near *but, int64_t now) {
    if (t->judging == SETTLED || clock_seconds(now - t->judging_since) >= settle_seconds) return true;
    for (const struct tcp_near *p = t->near; p; p = p->next)
        if (p->awaited || (p != but && near_may_tell(t, p, now))) return false;
    return true;
}

/* The most urgent of what is due. */
static enum frame_kind frame_due(const struct tcp *t, const struct tcp_near *p) {
    if (p->due & FRAME_FAIL) return FRAME_FAIL;
    if (p->leavers_told < t->nleavers) return FRAME_LEAVE;
    return p->due & FRAME_ASK ? FRAME_ASK : p->due & FRAME_STATE;
}

static void leavers_take(const struct tcp *t, struct tcp_near *p, struct tcp_leavers *out) {
    while (out->n < LEAVERS && p->leavers_told < t->nleavers) out->rank[out->n++] = t->peers[p->leavers_told++].leaver;
}

bool health_frame(struct tcp *t, struct tcp_near *p) {
    enum frame_kind kind = frame_due(t, p);
    if (!kind) return false;
    p->due &= ~(unsigned)kind;
    memset(&p->out, 0, sizeof p->out);
    p->out.kind = kind;
    if (kind == FRAME_FAIL) {
        p->out.verdict = t->verdict;
        p->out.last = p->concluded = verdict_others_told(t, p, clock_ns());
    } else if (kind == FRAME_LEAVE) {
        leavers_take(t, p, &p->out.leavers);
    } else {
        p->out.report = tree_report(t, p);
    }
    seal_make(&p->line->out, &p->out, offsetof(struct tcp_frame, seal), p->out.seal);
    p->out_left = sizeof p->out;
    return true;
}

/* ---- failing ---- */

void health_settle(struct tcp *t) {
    int64_t now = clock_ns();
    if (t->judging != SETTLING) return;
    if (verdict_others_told(t, NULL, now)) {
        t->judging = SETTLED;
        pthread_cond_broadcast(&t->changed);
    }
    for (struct tcp_near *p = t->near; p; p = p->next)
        if (!p->concluded && verdict_others_told(t, p, now)) p->due |= FRAME_FAIL;
}

/* Takes the first verdict, found here or received, and passes it on at once. Lanes end: no thread waits on them. */
static void verdict_take(struct tcp *t, const struct tcp_verdict *v) {
    t->verdict = *v;
    t->judging_since = clock_ns();
    t->judging = SETTLING;
    t->beats = 0;
    health_tell_others(t, NULL, FRAME_FAIL);
    lines_end(t);
    control_wake(t);
    pthread_cond_broadcast(&t->changed);
}

void health_judge(struct tcp *t, enum error err, enum cause cause, const char *reason) {
    if (t->judging != FINE || t->closing) return;
    struct tcp_verdict v = {.error = (int32_t)err, .origin = t->link.params.rank, .cause = cause};
    memcpy(v.reason, reason, strnlen(reason, sizeof v.reason - 1));
    verdict_take(t, &v);
}

enum error tcp_failure(struct link *l) {
    struct tcp *t = tcp_of(l);
    if (atomic_load_explicit(&t->judging, memory_order_acquire) == FINE) return ERR_NONE;
    pthread_mutex_lock(&t->mutex);
    while (t->judging == SETTLING && !t->stopped) pthread_cond_wait(&t->changed, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
    return FAIL((enum error)t->verdict.error, "%s", t->verdict.reason);
}

enum error tcp_fail(struct link *l, enum error err, const char *reason) {
    struct tcp *t = tcp_of(l);
    assert(err != ERR_NONE);
    pthread_mutex_lock(&t->mutex);
    health_judge(t, err, err == ERR_TIMEOUT ? ENDED : FAULTY, reason);
    pthread_mutex_unlock(&t->mutex);
    return tcp_failure(l);
}

/* In what a lane's thread waits for that rank, or NULL. */
static const char *lane_waits_for(const struct tcp *t, int rank) {
    for (int i = 0; i < ALL_LANES; i++)
        if (*t->lane[i].waits && t->lane[i].awaited == rank) return t->lane[i].waits;
    return NULL;
}

void health_lost(struct tcp *t, int rank, enum cause cause, const char *how) {
    const struct link_params *p = &t->link.params;
    char name[NAME_MAX_BYTES], reason[REASON_MAX];
    struct sighting seen = tree_seen(t, rank);
    tcp_name(p, rank, name);
    words_lost(reason, name, how, &seen, link_rank_name(p, p->rank), lane_waits_for(t, rank));
    health_judge(t, ERR_PEER, cause, reason);
}

/* ---- hearing (with the mutex) ---- */

static bool verdict_wins(const struct tcp_verdict *v, const struct tcp_verdict *over) {
    return v->cause != over->cause ? v->cause < over->cause : v->origin < over->origin;
}

static void verdict_hear(struct tcp *t, struct tcp_near *p) {
    struct tcp_verdict *v = &p->in.verdict;
    v->reason[sizeof v->reason - 1] = '\0';
    if (p->in.last) p->told = true;
    if (v->error <= ERR_NONE || v->error > ERR_CONFIG) v->error = ERR_PEER;
    if (t->judging == SETTLING) t->judging_since = clock_ns();
    if (t->judging == FINE) {
        verdict_take(t, v);
    } else if (t->judging == SETTLING && verdict_wins(v, &t->verdict)) {
        t->verdict = *v;
        health_tell_others(t, p, FRAME_FAIL);
    }
}

/* That rank has left: known now, and passed on. */
static void leaver_note(struct tcp *t, int rank) {
    if (rank < 0 || rank >= t->link.params.size || t->peers[rank].left) return;
    t->peers[rank].left = clock_ns();
    t->peers[t->nleavers++].leaver = rank;
}

static void leavers_hear(struct tcp *t, struct tcp_near *p) {
    const struct tcp_leavers *l = &p->in.leavers;
    for (int i = 0; i < l->n && i < LEAVERS; i++) leaver_note(t, l->rank[i]);
    pthread_cond_broadcast(&t->changed);
    if (t->link.params.mail) tcp_poke(&t->link); /* a receive may be waiting for it */
}

static bool stand_is_same(const struct tcp_stand *a, const struct tcp_stand *b) {
    return a->rank == b->rank && same_call(&a->call, &b->call);
}

static bool report_is_same(const struct tcp_report *a, const struct tcp_report *b) {
    bool same = a->missing == b->missing;
    for (int i = 0; i < LANES; i++)
        same = same && stand_is_same(&a->lane[i].least, &b->lane[i].least) &&
               stand_is_same(&a->lane[i].most, &b->lane[i].most);
    return same;
}

/* Whoever has asked lately hears what has changed, and while the group is opened all do. */
static void report_hear(struct tcp *t, struct tcp_near *p) {
    struct tcp_report *r = &p->in.report;
    int64_t now = clock_ns();
    bool same = p->reported && report_is_same(r, &p->report);
    r->seen.doing[NOTE_TEXT] = '\0';
    for (int i = 0; i < LANES; i++) r->lane[i].seen.doing[NOTE_TEXT] = '\0';
    p->report = *r;
    p->reported = p->heard;
    if (p->in.kind == FRAME_ASK) {
        p->asked = now;
        p->due |= FRAME_STATE;
        health_ask(t, p);
    }
    if (same) return;
    for (struct tcp_near *q = t->near; q; q = q->next)
        if (q != p && (!t->joined || clock_seconds(now - q->asked) < 2 * health_period(t))) q->due |= FRAME_STATE;
    if (!t->joined) pthread_cond_broadcast(&t->changed);
}

void health_hear(struct tcp *t, struct tcp_near *p) {
    if (!seal_holds(&p->line->in, &p->in, offsetof(struct tcp_frame, seal), p->in.seal))
        health_lost(t, p->rank, FAULTY, "sent a message that was changed on the way (link tcp, control)");
    else if (p->in.kind == FRAME_FAIL)
        verdict_hear(t, p);
    else if (p->in.kind == FRAME_LEAVE)
        leavers_hear(t, p);
    else if (p->in.kind == FRAME_STATE || p->in.kind == FRAME_ASK)
        report_hear(t, p);
    else
        health_lost(t, p->rank, FAULTY, "sent something unknown");
}

/* ---- leaving ---- */

/* Others may hear of each other by this rank alone: where all leave, the leaves of the tree go first. */
static bool rank_is_between(const struct tcp *t) {
    int n = 0;
    for (const struct tcp_near *p = t->near; p; p = p->next) n += near_is_open(p);
    return t->judging == SETTLING || (t->judging == FINE && n > 1);
}

static bool control_has_more_to_tell(const struct tcp *t) {
    for (const struct tcp_near *p = t->near; p; p = p->next)
        if (near_is_open(p) && (p->out_left || frame_due(t, p))) return true;
    return false;
}

/* What is due fits into any stream's buffer, unless the peer has stopped reading, which is not waited
 * for; on a busy machine it takes a moment. */
void health_leave(struct tcp *t) {
    int64_t until = clock_after(settle_seconds);
    pthread_mutex_lock(&t->mutex);
    t->closing = true;
    leaver_note(t, t->link.params.rank);
    control_wake(t);
    while (rank_is_between(t) && condition_await(&t->changed, &t->mutex, until)) {
    }
    health_tell_others(t, NULL, FRAME_STATE); /* says to whom they are left */
    control_wake(t);
    while (control_has_more_to_tell(t) && condition_await(&t->changed, &t->mutex, until)) {
    }
    t->stopped = true;
    control_wake(t);
    pthread_mutex_unlock(&t->mutex);
}
