/* The mailbox: messages that are received by rank and tag, in any order, beside the calls.
 *
 * A message is a head (tag, type, count) and its elements. It is sent on LANE_OUT by that lane's queue (work.c), in the
 * order of the sends. A thread of this file receives on LANE_IN whatever arrives from any rank, so a send never waits
 * for its receive, and two ranks that send to each other both finish. A message goes straight into the memory of the
 * oldest receive that its rank and tag fit. If no such receive has been asked for yet, the message is kept until one
 * is, in memory of this process; a warning tells when that is much, and the group fails before it is too much.
 *
 * The thread has no timeout. Whoever waits for a receive looks for ranks that are late, left or died. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/process.h"
#include "engine/base/text.h"
#include "transport/base/condition.h"
#include "transport/base/reserve.h"
#include "transport/core.h"
#include "transport/link/words.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_NOTED = 256 << 20, SMALL = 64 };
struct mail_head {
    int64_t tag, count;
    uint32_t type, unused;
};
/* A receive, from the call that asks for it to the end of the wait for it. */
struct letter {
    struct work work; /* first: whoever has the work has the letter */
    struct letter *next;
    int *source;
    int64_t asked, waited; /* since when (ns, of clock_ns); waited 0: nobody waits */
    int64_t look;          /* when to look for ranks that have died or left */
};
/* A message that nobody has asked for yet. */
struct early {
    struct early *next;
    int peer;
    struct mail_head head;
    char data[];
};
/* Letters and small messages that are there before any comes: how many are on their way at once is a matter of time. */
enum { LETTERS_READY = 8 };
struct mail {
    struct reserve spare_letters, spare_early; /* early: of at most SMALL bytes */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct letter *letters;      /* in the order of the calls; 'early' is in the order of arrival */
    struct early *early, **last; /* last: where the next one goes */
    _Atomic bool stop, busy;     /* busy: with a message */
    _Atomic bool over;           /* the thread has ended */
    struct collective shown;     /* what LANE_IN does, for messages */
    _Atomic size_t kept;         /* bytes of 'early' */
    size_t noted, most;          /* how many of them are worth a warning, how many there may be */
    struct letter *longest;      /* of those that somebody waits for, that which the recording tells of */
};

/* Between two looks for ranks that have died or left, in ns. */
static int64_t mail_slice(const struct group *g) {
    double slice = g->params.timeout / 24;
    return (int64_t)((slice < 0.2 ? slice : 0.2) * 1e9);
}

static enum work_state letter_state(const struct letter *l) {
    return (enum work_state)atomic_load(&l->work.state);
}

static void mail_show(struct mail *m, const struct collective *c) {
    pthread_mutex_lock(&m->mutex);
    m->shown = *c;
    pthread_mutex_unlock(&m->mutex);
}

struct collective mail_shown(struct group *g) {
    pthread_mutex_lock(&g->mail->mutex);
    struct collective c = g->mail->shown;
    pthread_mutex_unlock(&g->mail->mutex);
    return c;
}

static struct early *early_create(struct mail *m, size_t bytes) {
    if (bytes > SMALL) return malloc(sizeof(struct early) + bytes);
    return reserve_take(&m->spare_early);
}

static size_t early_bytes(const struct early *e) {
    return (size_t)e->head.count * dtype_size((enum dtype)e->head.type);
}

static void early_free(struct mail *m, struct early *e) {
    if (!e || early_bytes(e) > SMALL)
        free(e);
    else
        reserve_give(&m->spare_early, e);
}

/* ---- sending ---- */

enum error mail_send(struct collective *c) {
    struct mail_head h = {.tag = c->tag, .count = c->sum.count, .type = (uint32_t)c->sum.type};
    struct outgoing out = {.peer = c->root, .data = &h, .bytes = sizeof h};
    TRY(c->link->ops->exchange(c->link, LANE_OUT, &(struct call){.what = KIND_SEND}, &out, NULL));
    return c->sum.count ? collective_send(c, c->root, c->buf, c->sum.count) : ERR_NONE;
}

/* ---- what the recording says (with the mutex) ---- */

static void mail_record_wait(struct group *g, struct letter *l) {
    struct recorded_call r;
    g->mail->longest = l;
    if (l) r = call_recorded(&l->work.call);
    recorder_wait(g->params.recorder, l ? &r : NULL, l ? l->waited : 0);
}

static void letter_record_no_wait(struct group *g, struct letter *l) {
    struct letter *next = NULL;
    l->waited = 0;
    if (g->mail->longest != l) return;
    for (struct letter *k = g->mail->letters; k; k = k->next)
        if (k->waited && (!next || k->waited < next->waited)) next = k;
    mail_record_wait(g, next);
}

/* A receive is recorded when it ends, so one that waits for long does not hold the place of a newer one. */
static void letter_record_end(struct group *g, struct letter *l, int peer, enum error err) {
    struct recorded_call r = call_recorded(&l->work.call);
    r.peer = peer;
    recorder_add(g->params.recorder, &r, l->asked, (int)err);
    letter_record_no_wait(g, l);
}

/* ---- which message fits which receive (with the mutex) ---- */

static bool letter_fits(const struct letter *l, int peer, int64_t tag) {
    const struct collective *c = &l->work.call;
    return (c->root == peer || c->root == GROUP_ANY) && c->tag == tag;
}

static struct letter *mail_find_letter(const struct mail *m, int peer, int64_t tag) {
    struct letter *l = m->letters;
    while (l && !(letter_state(l) == WORK_QUEUED && letter_fits(l, peer, tag))) l = l->next;
    return l;
}

static struct early **mail_find_early(struct mail *m, const struct letter *l) {
    struct early **e = &m->early;
    while (*e && !letter_fits(l, (*e)->peer, (*e)->head.tag)) e = &(*e)->next;
    return e;
}

static bool letter_is_alike(const struct letter *l, const struct mail_head *h) {
    return l->work.call.sum.count == h->count && (uint32_t)l->work.call.sum.type == h->type;
}

/* e: the message, where it was kept or would have been; NULL: it has come to its place. */
static void letter_deliver(struct group *g, struct letter *l, int peer, const struct early *e) {
    if (e && e->head.count) memcpy(l->work.call.buf, e->data, early_bytes(e));
    if (l->source) *l->source = peer;
    letter_record_end(g, l, peer, ERR_NONE);
    atomic_fetch_add(&g->lanes[LANE_IN].collectives, 1);
    atomic_store(&l->work.state, WORK_DONE);
    pthread_cond_broadcast(&g->mail->changed);
}

/* ---- receiving ---- */

/* The arriving message as a receive, as its sender describes it. */
static struct collective mail_incoming(struct group *g, int peer, const struct mail_head *h) {
    struct collective c = {.kind = KIND_RECV,
                           .link = g->link,
                           .lane = LANE_IN,
                           .rank = g->rank,
                           .size = g->size,
                           .sum = {.type = (enum dtype)h->type, .count = h->count},
                           .root = peer,
                           .tag = h->tag,
                           .traffic = &g->lanes[LANE_IN].traffic};
    c.call = call_of(g, &c, 0);
    return c;
}

static enum error letter_refuse(struct group *g, const struct letter *l, int peer, const struct mail_head *h) {
    struct collective theirs = mail_incoming(g, peer, h), mine = l->work.call;
    mine.call = call_of(g, &mine, 0);
    mail_show(g->mail, &mine);
    return call_disagree(g, LANE_IN, peer, &mine.call, &theirs.call);
}

/* With the mutex, of a message that is kept: that nobody receives may be a mistake, and may exhaust the memory. */
static void mail_warn_of_kept(struct group *g, const struct early *e) {
    struct mail *m = g->mail;
    char size[32];
    if (m->kept < m->noted) return;
    m->noted = 2 * m->kept;
    log_warn("rank %d keeps %s of messages that it has not asked for yet; the last one is rank %d's with tag %lld",
             g->rank, text_of_bytes((double)m->kept, size), e->peer, (long long)e->head.tag);
}

/* Delivers the message if its receive was asked for while it arrived, and keeps it if not. */
static enum error early_keep(struct group *g, struct early *e) {
    struct mail *m = g->mail;
    pthread_mutex_lock(&m->mutex);
    struct letter *l = mail_find_letter(m, e->peer, e->head.tag);
    bool same = l && letter_is_alike(l, &e->head);
    if (same) {
        l->work.ended = link_time(g->link, LANE_IN);
        letter_deliver(g, l, e->peer, e);
    } else if (!l) {
        *m->last = e;
        m->last = &e->next;
        m->kept += sizeof *e + early_bytes(e);
        mail_warn_of_kept(g, e);
    }
    pthread_mutex_unlock(&m->mutex);
    enum error err = l && !same ? letter_refuse(g, l, e->peer, &e->head) : ERR_NONE;
    if (l) early_free(m, e);
    return err;
}

static enum error mail_take_early(struct group *g, int peer, const struct mail_head *h, struct collective *c) {
    char size[32], most[32];
    size_t kept = g->mail->kept + sizeof(struct early) + bytes_of(c, h->count);
    if (kept > g->mail->most)
        return group_fail(g, ERR_MEMORY,
                          "rank %d would keep %s of messages that it has not asked for yet, and at most %s; the last "
                          "one is rank %d's with tag %lld\nreceive them earlier, or send them later",
                          g->rank, text_of_bytes((double)kept, size), text_of_bytes((double)g->mail->most, most), peer,
                          (long long)h->tag);
    struct early *e = early_create(g->mail, bytes_of(c, h->count));
    if (!e)
        return group_fail(g, ERR_MEMORY, "rank %d has no memory for %s that rank %d has sent with tag %lld", g->rank,
                          text_of_bytes((double)bytes_of(c, h->count), size), peer, (long long)h->tag);
    *e = (struct early){.peer = peer, .head = *h};
    enum error err = h->count ? collective_receive(c, peer, e->data, h->count, LAND_COPY) : ERR_NONE;
    if (!err) return early_keep(g, e);
    early_free(g->mail, e);
    return err;
}

static enum error mail_take(struct group *g, int peer) {
    struct mail *m = g->mail;
    struct mail_head h;
    struct incoming in = {.peer = peer, .bytes = sizeof h, .sink = sink_copy, .ctx = &h};
    mail_show(m, &(struct collective){.kind = KIND_RECV, .lane = LANE_IN, .root = peer});
    TRY(g->link->ops->exchange(g->link, LANE_IN, &(struct call){.what = KIND_SEND}, NULL, &in));
    if (h.type >= DTYPES || h.count < 0 || h.count > INT64_MAX / 8)
        return group_fail(g, ERR_DATA, "rank %d has sent rank %d something that is no message", peer, g->rank);
    struct collective c = mail_incoming(g, peer, &h);
    pthread_mutex_lock(&m->mutex);
    struct letter *l = mail_find_letter(m, peer, h.tag);
    bool same = l && letter_is_alike(l, &h);
    if (same) atomic_store(&l->work.state, WORK_RUNNING); /* so nobody frees it, and no other message takes it */
    m->shown = c;
    pthread_mutex_unlock(&m->mutex);
    if (!l) return mail_take_early(g, peer, &h, &c);
    if (!same) return letter_refuse(g, l, peer, &h);
    if (h.count) TRY(collective_receive(&c, peer, l->work.call.buf, h.count, LAND_COPY));
    pthread_mutex_lock(&m->mutex);
    l->work.ended = link_time(g->link, LANE_IN);
    letter_deliver(g, l, peer, NULL);
    pthread_mutex_unlock(&m->mutex);
    return ERR_NONE;
}

static void *mail_thread(void *arg) {
    struct group *g = arg;
    struct mail *m = g->mail;
    int peer = -1;
    log_set_prefix(g->name);
    for (enum error err = ERR_NONE; !err && !m->stop; m->busy = false) {
        err = g->link->ops->arrival(g->link, &peer);
        if (err || peer < 0) continue;
        m->busy = true;
        err = mail_take(g, peer);
    }
    pthread_mutex_lock(&m->mutex);
    m->over = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

/* ---- asking ---- */

static enum error letter_fail(struct group *g, struct letter *l, int peer, enum error err) {
    pthread_mutex_lock(&g->mail->mutex);
    letter_record_end(g, l, peer, err);
    pthread_mutex_unlock(&g->mail->mutex);
    return err;
}

enum error mail_ask(struct group *g, const struct collective *c, int *source, struct work **out) {
    struct mail *m = g->mail;
    struct letter *l = reserve_take(&m->spare_letters), **last = &m->letters;
    if (!l) return group_fail(g, ERR_MEMORY, "rank %d has no memory for a receive", g->rank);
    int64_t now = clock_ns();
    *l = (struct letter){.work = {.group = g, .call = *c, .state = WORK_QUEUED}, .source = source, .asked = now};
    l->look = now + mail_slice(g);
    pthread_mutex_lock(&m->mutex);
    struct early **at = mail_find_early(m, l), *e = *at;
    bool same = e && letter_is_alike(l, &e->head);
    while (*last) last = &(*last)->next;
    if (same || !e) *last = l;
    if (same) {
        *at = e->next;
        if (m->last == &e->next) m->last = at;
        m->kept -= sizeof *e + early_bytes(e);
        letter_deliver(g, l, e->peer, e);
    }
    pthread_mutex_unlock(&m->mutex);
    if (e && !same) { /* which stays among the early ones */
        enum error err = letter_fail(g, l, e->peer, letter_refuse(g, l, e->peer, &e->head));
        reserve_give(&m->spare_letters, l);
        return err;
    }
    *out = &l->work;
    early_free(m, e);
    return ERR_NONE;
}

/* ---- waiting ---- */

/* Whether every rank that could send the message has left, and none is still on its way. */
static bool letter_is_lost(struct group *g, const struct letter *l) {
    int root = l->work.call.root;
    bool left = true;
    for (int r = 0; r < g->size && left; r++)
        if (r != g->rank && (root == r || root == GROUP_ANY)) left = g->link->ops->left(g->link, r);
    return left && !g->mail->busy && letter_state(l) == WORK_QUEUED;
}

static enum error letter_fail_lost(struct group *g, const struct letter *l) {
    char doing[DESCRIBED_MAX], name[32], text[REASON_MAX];
    int root = l->work.call.root;
    call_words(&l->work.call, doing);
    snprintf(name, sizeof name, root == GROUP_ANY ? "every other rank" : "rank %d", root);
    words_lost(text, name, "has left", NULL, g->rank, doing);
    return group_fail(g, ERR_PEER, "%s", text);
}

/* Finds ranks that have died or left. */
static enum error letter_look_for_loss(struct group *g, struct letter *l) {
    const struct link_ops *ops = g->link->ops;
    TRY(ops->failure(g->link));
    mail_show(g->mail, &l->work.call);
    if (ops->lost) TRY(ops->lost(g->link, LANE_IN));
    return letter_is_lost(g, l) ? letter_fail_lost(g, l) : ERR_NONE;
}

static enum error letter_look_after(struct group *g, struct letter *l, int64_t began, bool *warned) {
    double waited = clock_seconds(clock_ns() - began), timeout = g->params.timeout;
    char doing[DESCRIBED_MAX];
    TRY(letter_look_for_loss(g, l));
    call_words(&l->work.call, doing);
    if (waited >= timeout)
        return group_fail(g, ERR_TIMEOUT, "rank %d has waited %.3g s in %s: nobody has sent it", g->rank, timeout,
                          doing);
    if (waited >= timeout / 6 && !*warned) {
        log_warn("rank %d has waited %.3g s in %s: nobody has sent it", g->rank, waited, doing);
        *warned = true;
    }
    return ERR_NONE;
}

/* Takes it out of the list. */
static void letter_unlink(struct mail *m, struct letter *l) {
    struct letter **at = &m->letters;
    while (*at != l) at = &(*at)->next;
    *at = l->next;
}

/* Waits until it is done, or until the thread, the only one that writes to its memory, has ended; or until that time,
 * and then without a deadline (0: there is no such time). False: the last, and it stays. */
static bool letter_await(struct group *g, struct letter *l, int64_t until) {
    struct mail *m = g->mail;
    int64_t began = clock_ns(), now = began;
    bool warned = false;
    pthread_mutex_lock(&m->mutex);
    if (letter_state(l) != WORK_DONE) l->waited = began;
    if (l->waited && !m->longest) mail_record_wait(g, l);
    l->look = began + mail_slice(g);
    while (letter_state(l) != WORK_DONE && !m->over && (!until || now < until)) {
        /* Other letters end in between: what wakes this one says nothing about the time. */
        int64_t next = until && until < l->look ? until : l->look;
        (void)condition_await(&m->changed, &m->mutex, next);
        now = clock_ns();
        if (now < l->look) continue;
        l->look = now + mail_slice(g);
        if (letter_state(l) != WORK_QUEUED) continue;
        pthread_mutex_unlock(&m->mutex);
        enum error err = until ? letter_look_for_loss(g, l) : letter_look_after(g, l, began, &warned);
        if (err) g->link->ops->poke(g->link);
        pthread_mutex_lock(&m->mutex);
    }
    bool over = letter_state(l) == WORK_DONE || m->over;
    if (over)
        letter_unlink(m, l);
    else
        letter_record_no_wait(g, l);
    pthread_mutex_unlock(&m->mutex);
    return over;
}

bool mail_done(struct work *w) {
    struct group *g = w->group;
    struct letter *l = (struct letter *)w;
    if (letter_state(l) != WORK_QUEUED) return letter_state(l) == WORK_DONE;
    bool over = g->mail->over, due = clock_ns() >= l->look;
    if (due) l->look = clock_ns() + mail_slice(g); /* the next look */
    if (over || (due ? letter_look_for_loss(g, l) : g->link->ops->failure(g->link)) == ERR_NONE) return over;
    g->link->ops->poke(g->link);
    return true;
}

enum error mail_wait(struct work *w, int64_t until, bool *done) {
    struct group *g = w->group;
    struct letter *l = (struct letter *)w;
    int64_t since = link_time(g->link, LANE_INLINE);
    *done = letter_await(g, l, until);
    link_waited(g->link, since, *done ? l->work.ended : 0);
    if (!*done) return ERR_NONE;
    enum error err = letter_state(l) == WORK_DONE ? ERR_NONE : g->link->ops->failure(g->link);
    if (err) letter_fail(g, l, l->work.call.root, err);
    reserve_give(&g->mail->spare_letters, l);
    return err;
}

/* ---- opening and closing ---- */

enum error mail_open(struct group *g) {
    struct mail *m = memory_new(sizeof *m);
    if (!m) return ERR_MEMORY;
    pthread_mutex_init(&m->mutex, NULL);
    condition_init(&m->changed);
    m->last = &m->early;
    m->noted = KEPT_NOTED;
    m->most = g->params.kept ? g->params.kept : host_memory() / 2;
    g->mail = m;
    enum error err = reserve_init(&m->spare_letters, sizeof(struct letter), LETTERS_READY);
    if (!err) err = reserve_init(&m->spare_early, sizeof(struct early) + SMALL, LETTERS_READY);
    int rv = err ? 0 : thread_start(&m->thread, mail_thread, g);
    if (!err && rv) err = FAIL(ERR_CREATE, "cannot start the thread for messages: %s", strerror(rv));
    if (!err) return ERR_NONE;
    reserve_fini(&m->spare_letters);
    reserve_fini(&m->spare_early);
    g->mail = NULL;
    memory_free(m);
    return err;
}

void mail_close(struct group *g) {
    struct mail *m = g->mail;
    if (!m) return;
    m->stop = true;
    g->link->ops->poke(g->link);
    pthread_join(m->thread, NULL);
    for (struct letter *l = m->letters, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    for (struct early *e = m->early, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    reserve_fini(&m->spare_letters);
    reserve_fini(&m->spare_early);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    memory_free(m);
    g->mail = NULL;
}
