/* The tree of control: who is whose neighbour, how ranks join, what they know of each other, and how the tree is mended.
 *
 * The first ranks of the hosts form a binary tree, in the order of hosts, and the ranks of a host one below their first.
 * So a rank has at most five neighbours, all ranks are within about 4 log2 n hops, and a host is behind one edge. The
 * higher of two neighbours dials the lower one, which is its parent.
 *
 * What is behind an edge. Each report of a rank to a neighbour sums up, for each lane, the rank that has come to the
 * fewest calls and the one that has come to the most, of itself and of all ranks behind its other edges. So reports have
 * one size however many ranks there are, and each rank knows who is late and whether a rank has come to another call:
 * where two calls have one number, the greater one counts as the later. In the same way each rank hears of a rank that
 * has not joined. A group is open when nobody is missing.
 *
 * A neighbour that is gone. Each report names the heir of its sender, its lowest neighbour, and says how many neighbours
 * there are. When a rank has died, is silent or has left, its other neighbours dial its heir, so that there is a tree
 * again: at once when the group fails, since all are to report one verdict, and with the next beat otherwise, since a
 * rank that leaves at the end of a run is followed by all. A rank that leaves passes on what it hears for as long as
 * it has more than one neighbour, for at most a second. What remains: if a rank and its heir are
 * lost together, those behind them fail with words of their own, and hear no more of the others. */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "transport/link/tcp_impl.h"

#include <string.h>

enum { NEAR_MOST = 5 };
static const double heal_seconds = 1;

/* ---- the shape ---- */

/* -1: the host has fewer ranks. */
static int seat_rank(const struct roster *of, int host, int local) {
    for (int r = 0; r < of->size; r++)
        if (of->of[r].host == host && of->of[r].local == local) return r;
    return -1;
}

/* Gives how many: the parent, if there is one, and the children. */
static int tree_neighbours(const struct roster *of, int rank, int out[NEAR_MOST]) {
    int host = of->of[rank].host, local = of->of[rank].local;
    int all[NEAR_MOST] = {local      ? seat_rank(of, host, (local - 1) / 2)
                          : host > 0 ? seat_rank(of, (host - 1) / 2, 0)
                                     : -1,
                          seat_rank(of, host, 2 * local + 1), seat_rank(of, host, 2 * local + 2),
                          local ? -1 : seat_rank(of, 2 * host + 1, 0), local ? -1 : seat_rank(of, 2 * host + 2, 0)};
    int n = 0;
    for (int i = 0; i < NEAR_MOST; i++)
        if (all[i] >= 0) out[n++] = all[i];
    return n;
}

/* ---- what ranks know of each other (with the mutex) ---- */

/* Any order of different calls does that all ranks share. */
static bool stand_before(const struct tcp_stand *a, const struct tcp_stand *b) {
    int32_t calls = (int32_t)(a->call.sequence - b->call.sequence);
    int order = calls ? calls : memcmp(&a->call, &b->call, offsetof(struct call, sequence));
    return order ? order < 0 : a->rank < b->rank;
}

/* The sighting with its age as it is now, where s was true at "since" (clock_ns). */
static struct sighting sighting_now(struct sighting s, int64_t since) {
    s.ago += clock_seconds(clock_ns() - since);
    return s;
}

static void span_add(struct tcp_span *s, const struct tcp_span *more, int64_t reported) {
    if (stand_before(&s->most, &more->most)) s->most = more->most;
    if (!stand_before(&more->least, &s->least)) return;
    s->least = more->least;
    s->seen = sighting_now(more->seen, reported);
}

static void missing_add(struct tcp_report *r, int rank) {
    if (rank >= 0 && (r->missing < 0 || rank < r->missing)) r->missing = rank;
}

struct tcp_report tree_report(struct tcp *t, const struct tcp_near *to) {
    struct tcp_report r = {.missing = -1, .heir = -1, .seen = note_read(&t->note)};
    for (int i = 0; i < LANES; i++) {
        struct tcp_stand own = {.rank = t->link.params.rank, .call = t->lane[i].met};
        r.lane[i] = (struct tcp_span){own, own, r.seen};
    }
    for (const struct tcp_near *p = t->near; p; p = p->next) {
        if (p->ended) continue;
        if (!t->peers[p->rank].left) {
            if (r.heir < 0 || p->rank < r.heir) r.heir = p->rank;
            r.degree++;
        }
        if (p == to) continue;
        missing_add(&r, p->reported ? p->report.missing : p->rank);
        for (int i = 0; i < LANES && p->reported; i++) span_add(&r.lane[i], &p->report.lane[i], p->reported);
    }
    return r;
}

/* Nothing, if it is neither a neighbour nor the last somewhere. */
struct sighting tree_seen(const struct tcp *t, int rank) {
    for (const struct tcp_near *p = t->near; p; p = p->next) {
        if (!p->reported) continue;
        if (p->rank == rank) return sighting_now(p->report.seen, p->reported);
        for (int i = 0; i < LANES; i++)
            if (p->report.lane[i].least.rank == rank) return sighting_now(p->report.lane[i].seen, p->reported);
    }
    return (struct sighting){0};
}

/* ---- neighbours (with the mutex) ---- */

/* NULL: there is no memory. */
static struct tcp_near *near_add(struct tcp *t, int rank) {
    struct tcp_near *p = memory_new(sizeof *p);
    if (!p) return NULL;
    p->rank = rank;
    p->report.heir = -1;
    p->next = t->near;
    return t->near = p;
}

static struct tcp_near *near_find(struct tcp *t, int rank) {
    struct tcp_near *p = t->near;
    while (p && (p->rank != rank || p->ended)) p = p->next;
    return p;
}

/* A neighbour of one that is gone has come to this rank, its heir. */
static void heir_gains(struct tcp *t) {
    struct tcp_near *p = t->near;
    while (p && !p->awaited) p = p->next;
    if (p) p->awaited--;
}

/* A control stream: it takes the place of an older one on which nothing has come, which its dialer has given up. Whatever is wrong
 * with it, the next turn of the control thread finds. */
static void near_came(struct tcp *t, int rank, struct tcp_line *line) {
    struct tcp_near *p = near_find(t, rank);
    if (t->closing || (p && (p->reported || (p->line && p->line->dialed > line->dialed)))) return;
    if (!p) {
        heir_gains(t);
        p = near_add(t, rank);
    }
    if (!p) return;
    p->line = line;
    p->heard = clock_ns();
    p->in_done = p->out_left = 0;
    p->leavers_told = 0;
    p->due = t->judging == FINE ? FRAME_STATE : FRAME_FAIL;
    if (!control_watch(t, line->fd)) control_wake(t);
}

/* Dials a neighbour, without the mutex. */
static enum error near_dial(struct tcp *t, int rank, int64_t deadline) {
    struct hello h = hello_of(&t->link.params, rank, CONTROL);
    struct stream s;
    struct tcp_line *line;
    TRY(tcp_dial(&t->link.params, &h, deadline, &s));
    TRY(line_open(t, &s, &h, &line));
    pthread_mutex_lock(&t->mutex);
    near_came(t, rank, line);
    pthread_mutex_unlock(&t->mutex);
    return ERR_NONE;
}

void tree_gone(struct tcp *t, struct tcp_near *p) {
    const struct tcp_report *r = &p->report;
    if (p->ended) return;
    p->ended = true;
    if (t->closing || t->judging == SETTLED || p->told) return;
    if (r->degree < 2 || r->heir == p->rank || r->heir < 0 || r->heir >= t->link.params.size) return;
    p->heals = r->heir != t->link.params.rank;
    p->awaited = p->heals ? 1 : r->degree - 1;
}

void tree_ended(struct tcp *t, struct tcp_near *p) {
    pthread_cond_broadcast(&t->changed);
    if (!p->reported && !t->joined && !t->closing) {
        p->line = NULL; /* its dialer has given it up: the neighbour is awaited again */
        return;
    }
    tree_gone(t, p);
    if (!t->closing && !t->peers[p->rank].left) health_lost(t, p->rank, ENDED, "has died");
}

/* While it dials, the rank is silent: not for so long that its neighbours would judge it. */
void tree_mend(struct tcp *t) {
    double half = t->link.params.heartbeat / 2, seconds = half < heal_seconds ? half : heal_seconds;
    for (struct tcp_near *p = t->near; p; p = p->next) {
        if (!p->heals || t->closing || t->judging == SETTLED) continue;
        p->heals = false;
        pthread_mutex_unlock(&t->mutex);
        (void)near_dial(t, p->report.heir, clock_after(seconds));
        pthread_mutex_lock(&t->mutex);
        p->awaited = 0;
    }
}

/* ---- opening and closing ---- */

void tree_came(struct tcp *t, const struct hello *h, const struct stream *s) {
    const struct link_params *p = &t->link.params;
    int from = (int)h->from;
    struct tcp_line *line;
    bool fits = h->size == (uint32_t)p->size;
    bool known = h->to == (uint32_t)p->rank && h->from < (uint32_t)p->size && from != p->rank && h->kind < STREAMS;
    char words[REASON_MAX];
    if (fits && (!known || (h->kind == MAIL_WAY && !p->mail))) {
        nng_stream_free(s->s);
        return;
    }
    enum error err = line_open(t, s, h, &line);
    if (!err && !fits)
        err = FAIL(ERR_MISMATCH, "rank %d is of a group of %u ranks, rank %d of %d", from, (unsigned)h->size, p->rank,
                   p->size);
    pthread_mutex_lock(&t->mutex);
    if (err) {
        health_judge(t, err, FAULTY, error_words(words, sizeof words));
    } else if (h->kind == CONTROL) {
        near_came(t, from, line);
    } else {
        line_came(t, from, h->kind, line);
    }
    pthread_mutex_unlock(&t->mutex);
}

/* Until nobody is missing, or the group has failed. */
static enum error tree_await_all(struct tcp *t, int64_t deadline) {
    char name[NAME_MAX_BYTES], text[REASON_MAX];
    int missing;
    pthread_mutex_lock(&t->mutex);
    while ((missing = tree_report(t, NULL).missing) >= 0 && t->judging == FINE &&
           condition_await(&t->changed, &t->mutex, deadline)) {
    }
    t->joined = missing < 0;
    bool fine = t->judging == FINE;
    pthread_mutex_unlock(&t->mutex);
    if (missing < 0 || !fine) return ERR_NONE;
    tcp_name(&t->link.params, missing, name);
    words_late(text, name, LATE_JOINING, NULL, t->link.params.timeout, NULL);
    return FAIL(ERR_TIMEOUT, "%s", text);
}

enum error tree_open(struct tcp *t) {
    const struct link_params *p = &t->link.params;
    int64_t deadline = clock_after(p->timeout);
    int near[NEAR_MOST], n = tree_neighbours(p->roster, p->rank, near);
    enum error err = ERR_NONE;
    for (int i = 0; i < n; i++)
        if (!near_add(t, near[i])) return ERR_MEMORY;
    TRY(control_open(t));
    port_serve(p->port, t);
    if (n && near[0] < p->rank) err = near_dial(t, near[0], deadline); /* the parent */
    if (!err) err = tree_await_all(t, deadline);
    return err ? link_fail_own(&t->link, err) : tcp_failure(&t->link);
}

void tree_close(struct tcp *t) {
    if (t->controlled) health_leave(t);
    port_unserve(t->link.params.port, t);
    control_close(t);
    for (struct tcp_near *p = t->near, *next; p; p = next) {
        next = p->next;
        memory_free(p);
    }
}
