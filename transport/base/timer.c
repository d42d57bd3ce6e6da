#include "transport/base/timer.h"
#include "engine/base/clock.h"
#include "transport/base/condition.h"

#include <pthread.h>
#include <time.h>

static const int64_t again_ns = 20000000;    /* where a request had not begun yet */
enum { SLEEP_MS = 1000 * 60 * 60 * 24 * 7 }; /* of nng's own; a clock set forth may end it early */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct timer *first;
    int64_t wakes; /* the thread, at the latest */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .wakes = INT64_MAX};

/* Aborting never runs a callback here: nng's own threads do. So the lock may be held, and who has
 * cleared a timer knows that it does not strike any more. */
static int64_t timers_strike(int64_t now) {
    int64_t next = INT64_MAX;
    for (struct timer *t = all.first; t; t = t->next) {
        if (t->when <= now) {
            nng_aio_abort(t->aio, NNG_ETIMEDOUT);
            t->when = now + again_ns;
        }
        if (t->when < next) next = t->when;
    }
    return next;
}

static void *timer_thread(void *arg) {
    pthread_mutex_lock(&all.lock);
    for (;;) {
        all.wakes = timers_strike(clock_ns());
        struct timespec until = {all.wakes / 1000000000, all.wakes % 1000000000};
        if (all.wakes == INT64_MAX)
            pthread_cond_wait(&all.changed, &all.lock);
        else
            pthread_cond_timedwait(&all.changed, &all.lock, &until);
    }
    return arg;
}

/* As nng's threads it lives as long as the process, and leaves signals to the others. Without it no
 * request has a timeout, which only a process at its limits gets. */
static void timers_start(void) {
    pthread_t id;
    condition_init(&all.changed);
    if (thread_start(&id, timer_thread, NULL) == 0) pthread_detach(id);
}

static void timer_take_out(struct timer *t) {
    if (!t->aio) return;
    if (t->before)
        t->before->next = t->next;
    else
        all.first = t->next;
    if (t->next) t->next->before = t->before;
    *t = (struct timer){0};
}

void timer_set(struct timer *t, nng_aio *aio, int64_t when) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, timers_start);
    nng_aio_set_timeout(aio, NNG_DURATION_INFINITE);
    pthread_mutex_lock(&all.lock);
    timer_take_out(t);
    *t = (struct timer){.aio = aio, .when = when, .next = all.first};
    if (t->next) t->next->before = t;
    all.first = t;
    if (when < all.wakes) pthread_cond_signal(&all.changed);
    pthread_mutex_unlock(&all.lock);
}

void timer_clear(struct timer *t) {
    pthread_mutex_lock(&all.lock);
    timer_take_out(t);
    pthread_mutex_unlock(&all.lock);
}

void timer_sleep(struct timer *t, nng_aio *aio, int64_t when) {
    timer_set(t, aio, when);
    nng_sleep_aio(SLEEP_MS, aio);
}
