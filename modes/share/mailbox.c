/* One mutex. What is waited for is looked at under it after every waking, so no wake-up is lost. */
#include "modes/share/mailbox.h"

#include "engine/base/clock.h"

#include <pthread.h>
#include <stdio.h>

enum state { COMPUTING, READY, TAKEN, ANSWERED };
struct slot { /* of a worker */
    enum state state;
    int64_t step;   /* that it computes */
    int64_t since;  /* ns: when it began to */
    int64_t ticket; /* READY, ANSWERED: in which order */
};
struct mailbox {
    pthread_mutex_t mutex;
    int workers;
    int64_t tickets, alive; /* alive, ns: when the server was last seen */
    int64_t answers, received;
    struct slot slot[];
};

enum error mailbox_create(int workers, struct mailbox **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct mailbox) + (size_t)workers * sizeof(struct slot), &memory));
    struct mailbox *m = *out = memory;
    m->workers = workers;
    pthread_mutex_init(&m->mutex, NULL);
    return ERR_NONE;
}

void mailbox_free(struct mailbox *m) {
    if (!m) return;
    pthread_mutex_destroy(&m->mutex);
    memory_free(m);
}

static void wake_worker(struct group *g, int worker) {
    group_wake(g, worker + 1);
}

/* ---- workers ---- */

static void slot_start(struct slot *s, int64_t now) {
    s->state = COMPUTING;
    s->since = now;
}

void mailbox_post(struct mailbox *m, struct group *g, int worker) {
    pthread_mutex_lock(&m->mutex);
    m->slot[worker].state = READY;
    m->slot[worker].ticket = m->tickets++;
    pthread_mutex_unlock(&m->mutex);
    group_wake(g, 0);
}

static bool is_taken(const struct mailbox *m, const struct slot *s) {
    (void)m;
    return s->state != READY;
}

/* Weights leave one after the other. */
static bool in_turn(const struct mailbox *m, const struct slot *s) {
    return s->state == ANSWERED && s->ticket == m->received;
}

/* Whether anything is to come of it: a gradient, if only after its weights. */
static bool is_due(const struct mailbox *m, const struct slot *s) {
    return s->state == COMPUTING || in_turn(m, s);
}

static bool all_have(const struct mailbox *m, const struct slot *s) {
    for (int w = 0; w < m->workers; w++) {
        const struct slot *of = &m->slot[w];
        if (of->step < s->step || (of->step == s->step && of->state == ANSWERED)) return false;
    }
    return true;
}

struct look { /* of one wait */
    struct mailbox *m;
    int worker; /* that waits; or that the server waits for, perhaps any */
    bool (*met)(const struct mailbox *m, const struct slot *s);
    int64_t began;
    int taken;
};

static bool is_met(void *user) {
    const struct look *l = user;
    pthread_mutex_lock(&l->m->mutex);
    bool met = l->met(l->m, &l->m->slot[l->worker]);
    pthread_mutex_unlock(&l->m->mutex);
    return met;
}

static bool server_late(void *user, int64_t *since, char words[GROUP_WORDS]) {
    const struct look *l = user;
    pthread_mutex_lock(&l->m->mutex);
    *since = l->m->alive > l->began ? l->m->alive : l->began;
    pthread_mutex_unlock(&l->m->mutex);
    snprintf(words, GROUP_WORDS, "rank 0, the server, has taken no gradient and sent no weights for");
    return true;
}

static enum error worker_await(struct mailbox *m, struct group *g, int worker,
                               bool (*met)(const struct mailbox *m, const struct slot *s)) {
    struct look l = {.m = m, .worker = worker, .met = met, .began = clock_ns()};
    return group_await(g, &(struct group_wait){is_met, server_late, &l});
}

enum error mailbox_await_taking(struct mailbox *m, struct group *g, int worker) {
    return worker_await(m, g, worker, is_taken);
}

enum error mailbox_await(struct mailbox *m, struct group *g, int worker) {
    return worker_await(m, g, worker, in_turn);
}

enum error mailbox_await_all(struct mailbox *m, struct group *g, int worker) {
    return worker_await(m, g, worker, all_have);
}

/* A worker that waits on is not woken. */
void mailbox_received(struct mailbox *m, struct group *g, int worker) {
    pthread_mutex_lock(&m->mutex);
    m->alive = clock_ns();
    m->received++;
    slot_start(&m->slot[worker], m->alive);
    for (int w = 0; w < m->workers; w++) {
        struct slot *s = &m->slot[w];
        if (in_turn(m, s)) s->since = m->alive;
        if (is_due(m, s)) wake_worker(g, w);
    }
    pthread_mutex_unlock(&m->mutex);
}

/* ---- the server ---- */

void mailbox_begin(struct mailbox *m, int64_t step) {
    pthread_mutex_lock(&m->mutex);
    int64_t now = m->alive = clock_ns();
    for (int w = 0; w < m->workers; w++) {
        struct slot *s = &m->slot[w];
        s->step = step;
        if (s->state == COMPUTING) slot_start(s, now); /* it may have posted already */
    }
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_alive(struct mailbox *m) {
    pthread_mutex_lock(&m->mutex);
    m->alive = clock_ns();
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_answer(struct mailbox *m, struct group *g, int worker) {
    struct slot *s = &m->slot[worker];
    pthread_mutex_lock(&m->mutex);
    m->alive = clock_ns();
    s->step++;
    slot_start(s, m->alive);
    s->state = ANSWERED;
    s->ticket = m->answers++;
    pthread_mutex_unlock(&m->mutex);
    wake_worker(g, worker);
}

/* The worker whose gradient is to be taken next, -1: there is none. */
static int ready_find(const struct mailbox *m, int worker) {
    int found = -1;
    for (int w = 0; w < m->workers; w++) {
        const struct slot *s = &m->slot[w];
        if (s->state != READY || (worker != MAILBOX_ANY && w != worker)) continue;
        if (found < 0 || s->ticket < m->slot[found].ticket) found = w;
    }
    return found;
}

static bool mailbox_ready(void *user) {
    struct look *l = user;
    pthread_mutex_lock(&l->m->mutex);
    l->m->alive = clock_ns();
    l->taken = ready_find(l->m, l->worker);
    if (l->taken >= 0) l->m->slot[l->taken].state = TAKEN;
    pthread_mutex_unlock(&l->m->mutex);
    return l->taken >= 0;
}

/* The worker that began first, of those that are awaited: the group's words on who is late. */
static bool worker_late(void *user, int64_t *since, char words[GROUP_WORDS]) {
    const struct look *l = user;
    int late = -1;
    pthread_mutex_lock(&l->m->mutex);
    for (int w = 0; w < l->m->workers; w++) {
        const struct slot *s = &l->m->slot[w];
        if (!is_due(l->m, s) || (l->worker != MAILBOX_ANY && w != l->worker)) continue;
        if (late < 0 || s->since < *since) late = w, *since = s->since;
    }
    if (late >= 0)
        snprintf(words, GROUP_WORDS, "rank %d has not sent its gradient of step %lld within", late + 1,
                 (long long)l->m->slot[late].step);
    pthread_mutex_unlock(&l->m->mutex);
    return late >= 0;
}

enum error mailbox_take(struct mailbox *m, struct group *g, int worker, int *out) {
    struct look l = {.m = m, .worker = worker, .taken = -1};
    enum error err = group_await(g, &(struct group_wait){mailbox_ready, worker_late, &l});
    *out = l.taken;
    if (err == ERR_NONE) wake_worker(g, l.taken);
    return err;
}
