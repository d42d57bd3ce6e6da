/* The server alone keeps the state: the workers know no more than its last word. */
#include "modes/share/mailbox.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <stdio.h>

enum { SERVER = 0, TO_SERVER = 1, TO_WORKER = 2 /* tags */, LATE_WORDS = 160 };
enum word { ALIVE, TAKEN, GIVEN, MET };
enum state { COMPUTING, READY, SERVED };
struct slot { /* of a worker */
    enum state state;
    int64_t step;   /* that it computes */
    int64_t since;  /* ns: when it began to */
    int64_t ticket; /* READY: in which order */
    int64_t spoken; /* ns: when the server last said something to it */
    int64_t word;   /* what */
    struct work *saying;
    bool warned;
};
struct mailbox {
    struct group *group;
    double timeout;
    int workers;
    int64_t heard; /* the word of the other end, which 'hearing' receives */
    int source;    /* its rank */
    struct work *hearing, *saying, *giving;
    int given; /* the worker that 'giving' sends to */
    int64_t step, tickets;
    struct slot slot[];
};

enum error mailbox_create(struct group *g, double timeout, struct mailbox **out) {
    int workers = group_size(g) - 1;
    struct mailbox *m = *out = memory_new(sizeof *m + (size_t)workers * sizeof(struct slot));
    if (!m) return ERR_MEMORY;
    m->group = g;
    m->timeout = timeout;
    m->workers = workers;
    return ERR_NONE;
}

void mailbox_free(struct mailbox *m) {
    memory_free(m);
}

static int64_t mailbox_ns(const struct mailbox *m, double timeouts) {
    return (int64_t)(m->timeout * timeouts * 1e9);
}

/* Sends *word, which must not change before the next word on the same *work. */
static enum error mailbox_say(struct mailbox *m, int peer, const int64_t *word, struct work **work) {
    const struct group_message message = {.buf = (int64_t *)(uintptr_t)word,
                                          .count = 1,
                                          .type = DTYPE_I64,
                                          .peer = peer,
                                          .tag = peer == SERVER ? TO_SERVER : TO_WORKER};
    return group_post(m->group, &message, work);
}

/* Waits for a word until then; *heard says whether there was one: m->heard, of m->source. */
static enum error mailbox_hear(struct mailbox *m, int peer, int64_t until, bool *heard) {
    const struct group_message message = {.buf = &m->heard,
                                          .count = 1,
                                          .type = DTYPE_I64,
                                          .peer = peer,
                                          .tag = peer == SERVER ? TO_WORKER : TO_SERVER,
                                          .source = &m->source};
    if (!m->hearing) TRY(group_take(m->group, &message, &m->hearing));
    enum error err = work_wait_until(m->hearing, until, heard);
    if (*heard) m->hearing = NULL;
    return err;
}

/* ---- workers ---- */

static enum error mailbox_await(struct mailbox *m, enum word word) {
    static const double silence = 2; /* timeouts */
    char late[LATE_WORDS];
    do {
        bool heard;
        TRY(mailbox_hear(m, SERVER, clock_ns() + mailbox_ns(m, silence), &heard));
        if (heard) continue;
        snprintf(late, sizeof late, "rank 0, the server, has taken no gradient and sent no weights for %.3g s",
                 silence * m->timeout);
        return group_late(m->group, late);
    } while (m->heard != (int64_t)word);
    return ERR_NONE;
}

enum error mailbox_offer(struct mailbox *m, int64_t step) {
    if (m->saying) TRY(work_wait(m->saying));
    m->step = step;
    TRY(mailbox_say(m, SERVER, &m->step, &m->saying));
    return mailbox_await(m, TAKEN);
}

enum error mailbox_await_weights(struct mailbox *m) {
    return mailbox_await(m, GIVEN);
}

enum error mailbox_await_all(struct mailbox *m) {
    return mailbox_await(m, MET);
}

/* ---- the server ---- */

static enum error slot_say(struct mailbox *m, int worker, enum word word) {
    struct slot *s = &m->slot[worker];
    if (s->saying) TRY(work_wait(s->saying));
    s->word = (int64_t)word;
    s->spoken = clock_ns();
    return mailbox_say(m, worker + 1, &s->word, &s->saying);
}

static void slot_start(struct slot *s) {
    s->state = COMPUTING;
    s->since = clock_ns();
    s->warned = false;
}

/* Tells those that wait that the server is there. */
static enum error mailbox_reassure(struct mailbox *m) {
    int64_t due = clock_ns() - mailbox_ns(m, 0.25);
    for (int w = 0; w < m->workers; w++)
        if (m->slot[w].state != COMPUTING && m->slot[w].spoken < due) TRY(slot_say(m, w, ALIVE));
    return ERR_NONE;
}

void mailbox_begin(struct mailbox *m, int64_t step) {
    for (int w = 0; w < m->workers; w++) {
        struct slot *s = &m->slot[w];
        s->step = step;
        if (s->state != READY) slot_start(s); /* it may be already */
    }
}

/* The worker whose gradient is to be taken next; -1: there is none. */
static int slot_find_ready(const struct mailbox *m, int worker) {
    int found = -1;
    for (int w = 0; w < m->workers; w++) {
        const struct slot *s = &m->slot[w];
        if (s->state != READY || (worker != MAILBOX_ANY && w != worker)) continue;
        if (found < 0 || s->ticket < m->slot[found].ticket) found = w;
    }
    return found;
}

/* Of those that are awaited, the one that began first may be late. */
static enum error mailbox_check_late(struct mailbox *m, int worker) {
    char late[LATE_WORDS];
    struct slot *first = NULL;
    if (m->giving && work_done(m->giving)) TRY(mailbox_settle(m));
    for (int w = 0; w < m->workers; w++) {
        struct slot *s = &m->slot[w];
        if (s->state != COMPUTING || (worker != MAILBOX_ANY && w != worker) || (m->giving && m->given == w)) continue;
        if (!first || s->since < first->since) first = s;
    }
    int64_t waited = first ? clock_ns() - first->since : 0;
    if (waited < mailbox_ns(m, 1) && (waited < mailbox_ns(m, 1.0 / 6) || first->warned)) return ERR_NONE;
    snprintf(late, sizeof late, "rank %d has not sent its gradient of step %lld within %.3g s",
             (int)(first - m->slot) + 1, (long long)first->step, clock_seconds(waited));
    if (waited >= mailbox_ns(m, 1)) return group_late(m->group, late);
    first->warned = true;
    log_warn("%s", late);
    return ERR_NONE;
}

/* Hears what all workers have said, and waits for a while where none has. */
static enum error mailbox_listen(struct mailbox *m) {
    enum { NOW = 1 };
    int64_t until = clock_ns() + mailbox_ns(m, 1.0 / 24);
    for (bool heard = true; heard; until = NOW) {
        TRY(mailbox_hear(m, GROUP_ANY, until, &heard));
        if (!heard) continue;
        struct slot *s = &m->slot[m->source - 1];
        s->state = READY;
        s->step = m->heard;
        s->ticket = m->tickets++;
        s->spoken = clock_ns();
    }
    return mailbox_reassure(m);
}

enum error mailbox_take(struct mailbox *m, int worker, int *out) {
    while ((*out = slot_find_ready(m, worker)) < 0) {
        TRY(mailbox_listen(m));
        TRY(mailbox_check_late(m, worker));
    }
    m->slot[*out].state = SERVED;
    return slot_say(m, *out, TAKEN);
}

enum error mailbox_settle(struct mailbox *m) {
    if (!m->giving) return ERR_NONE;
    struct work *work = m->giving;
    m->giving = NULL;
    TRY(work_wait(work));
    if (m->slot[m->given].state == COMPUTING) slot_start(&m->slot[m->given]);
    return mailbox_reassure(m);
}

enum error mailbox_give(struct mailbox *m, int worker, const float *weights, int64_t n, bool meets) {
    TRY(mailbox_settle(m));
    TRY(slot_say(m, worker, GIVEN));
    TRY(group_send(m->group, GROUP_COMM(&m->giving), weights, n, DTYPE_F32, worker + 1));
    m->given = worker;
    m->slot[worker].step++;
    if (!meets) slot_start(&m->slot[worker]);
    return ERR_NONE;
}

enum error mailbox_meet(struct mailbox *m) {
    TRY(mailbox_settle(m));
    for (int w = 0; w < m->workers; w++) TRY(slot_say(m, w, MET));
    return ERR_NONE;
}
