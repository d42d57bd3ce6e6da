/* One mutex, a condition for each who may wait. What is waited for is looked at under the mutex
 * after every waking, so no wake-up is lost; sleeps are short, so that deadlines are kept. */
#include "modes/share/mailbox.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"

#include <pthread.h>
#include <stdbool.h>

enum state { COMPUTING, READY, TAKEN, ANSWERED };
struct slot {              /* of a worker */
    pthread_cond_t served; /* its state has changed */
    enum state state;
    int64_t step;   /* that it computes */
    int64_t since;  /* ns: when it began to */
    int64_t ticket; /* READY, ANSWERED: in which order */
    bool warned;
};
struct mailbox {
    pthread_mutex_t mutex;
    pthread_cond_t ready;
    int workers;
    double timeout;
    int64_t tickets, alive; /* alive, ns: when the server was last seen */
    int64_t answers, received;
    bool broken;
    struct slot slot[];
};

/* ---- from beginning to end ---- */

static void open_condition(pthread_cond_t *c) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

enum error mailbox_create(int workers, double timeout, struct mailbox **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct mailbox) + (size_t)workers * sizeof(struct slot), &memory));
    struct mailbox *m = *out = memory;
    m->workers = workers;
    m->timeout = timeout;
    pthread_mutex_init(&m->mutex, NULL);
    open_condition(&m->ready);
    for (int w = 0; w < workers; w++) open_condition(&m->slot[w].served);
    return ERR_NONE;
}

void mailbox_free(struct mailbox *m) {
    if (!m) return;
    for (int w = 0; w < m->workers; w++) pthread_cond_destroy(&m->slot[w].served);
    pthread_cond_destroy(&m->ready);
    pthread_mutex_destroy(&m->mutex);
    memory_free(m);
}

/* Sleeps until woken, or for a moment. */
static void doze(struct mailbox *m, pthread_cond_t *c) {
    double slice = m->timeout / 24 < 0.2 ? m->timeout / 24 : 0.2;
    int64_t until = clock_ns() + (int64_t)(slice * 1e9) + 1;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_cond_timedwait(c, &m->mutex, &t);
}

/* ---- workers ---- */

static void start(struct slot *s, int64_t now) {
    s->state = COMPUTING;
    s->since = now;
    s->warned = false;
}

void mailbox_post(struct mailbox *m, int worker) {
    pthread_mutex_lock(&m->mutex);
    m->slot[worker].state = READY;
    m->slot[worker].ticket = m->tickets++;
    pthread_cond_signal(&m->ready);
    pthread_mutex_unlock(&m->mutex);
}

static enum error check_server(const struct mailbox *m, int64_t began) {
    double silent = clock_seconds(clock_ns() - (m->alive > began ? m->alive : began));
    if (silent < m->timeout) return ERR_NONE;
    return FAIL(ERR_TIMEOUT,
                "rank 0, the server, has taken no gradient and sent no weights for "
                "%.3g s",
                silent);
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

static enum error await(struct mailbox *m, int worker, bool (*met)(const struct mailbox *m, const struct slot *s)) {
    struct slot *s = &m->slot[worker];
    enum error err = ERR_NONE;
    int64_t began = clock_ns();
    pthread_mutex_lock(&m->mutex);
    while (err == ERR_NONE && !met(m, s)) {
        err = m->broken ? ERR_PEER : check_server(m, began);
        if (err == ERR_NONE) doze(m, &s->served);
    }
    pthread_mutex_unlock(&m->mutex);
    return err;
}

enum error mailbox_await_taking(struct mailbox *m, int worker) {
    return await(m, worker, is_taken);
}

enum error mailbox_await(struct mailbox *m, int worker) {
    return await(m, worker, in_turn);
}

enum error mailbox_await_all(struct mailbox *m, int worker) {
    return await(m, worker, all_have);
}

/* Who waits on is not woken. */
void mailbox_received(struct mailbox *m, int worker) {
    pthread_mutex_lock(&m->mutex);
    m->alive = clock_ns();
    m->received++;
    start(&m->slot[worker], m->alive);
    for (int w = 0; w < m->workers; w++) {
        struct slot *s = &m->slot[w];
        if (in_turn(m, s)) s->since = m->alive;
        if (is_due(m, s)) pthread_cond_signal(&s->served);
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
        if (s->state == COMPUTING) start(s, now); /* it may have posted already */
    }
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_alive(struct mailbox *m) {
    pthread_mutex_lock(&m->mutex);
    m->alive = clock_ns();
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_answer(struct mailbox *m, int worker) {
    struct slot *s = &m->slot[worker];
    pthread_mutex_lock(&m->mutex);
    m->alive = clock_ns();
    s->step++;
    start(s, m->alive);
    s->state = ANSWERED;
    s->ticket = m->answers++;
    pthread_cond_signal(&s->served);
    pthread_mutex_unlock(&m->mutex);
}

/* The worker whose gradient is to be taken next, -1: there is none. */
static int find_ready(const struct mailbox *m, int worker) {
    int found = -1;
    for (int w = 0; w < m->workers; w++) {
        const struct slot *s = &m->slot[w];
        if (s->state != READY || (worker != MAILBOX_ANY && w != worker)) continue;
        if (found < 0 || s->ticket < m->slot[found].ticket) found = w;
    }
    return found;
}

/* Warned of after a sixth of the time, as in any call of the group. */
static enum error check_worker(const struct mailbox *m, int w, struct slot *s) {
    double waited = clock_seconds(clock_ns() - s->since);
    if (waited < m->timeout / 6 || (waited < m->timeout && s->warned)) return ERR_NONE;
    s->warned = true;
    enum error err = FAIL(ERR_TIMEOUT, "rank %d has not come with its gradient of step %lld within %.3g s", w + 1,
                          (long long)s->step, waited);
    if (waited >= m->timeout) return err;
    log_warn("%s", error_message());
    return ERR_NONE;
}

static enum error check_workers(struct mailbox *m, int worker) {
    for (int w = 0; w < m->workers; w++) {
        struct slot *s = &m->slot[w];
        if (is_due(m, s) && (worker == MAILBOX_ANY || w == worker)) TRY(check_worker(m, w, s));
    }
    return ERR_NONE;
}

enum error mailbox_take(struct mailbox *m, int worker, int *out) {
    enum error err = ERR_NONE;
    *out = -1;
    pthread_mutex_lock(&m->mutex);
    for (;;) {
        m->alive = clock_ns();
        err = m->broken ? ERR_PEER : check_workers(m, worker);
        if (err != ERR_NONE || (*out = find_ready(m, worker)) >= 0) break;
        doze(m, &m->ready);
    }
    if (err == ERR_NONE) {
        m->slot[*out].state = TAKEN;
        pthread_cond_signal(&m->slot[*out].served);
    }
    pthread_mutex_unlock(&m->mutex);
    return err;
}

/* ---- anybody ---- */

void mailbox_break(struct mailbox *m) {
    if (!m) return;
    pthread_mutex_lock(&m->mutex);
    m->broken = true;
    pthread_cond_signal(&m->ready);
    for (int w = 0; w < m->workers; w++) pthread_cond_signal(&m->slot[w].served);
    pthread_mutex_unlock(&m->mutex);
}
