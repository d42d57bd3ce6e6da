/* The communication lane, and the lane on which messages leave. Each has one thread a group, started on first use, that
 * runs its work in order. Of buffers on an accelerator the work is asked for as soon as it comes, and its end is looked
 * for afterwards: the device does not wait for the host between two calls. The work lies in slots, and a ring has their
 * order; nothing is allocated for a call. A caller that waits runs what the thread has not begun up to its work: this
 * saves two switches of thread where communication is not hidden anyway. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "transport/base/condition.h"
#include "transport/carrier/carrier.h"
#include "transport/core.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

struct queue {
    struct group *group;
    int lane;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more, done;
    fenv_t float_mode;                /* of the group's thread: sums must not depend on who makes them */
    bool stop, busy;                  /* busy: a thread is at this lane's work */
    uint32_t first, begun, next;      /* works from first on have not ended, from begun on not begun */
    struct work *ring[GROUP_WORKS];   /* those that are queued */
    struct carrier_patience patience; /* with the first, which is under way */
    int64_t ended;                    /* when the last one had */
    struct work works[GROUP_WORKS];
    int64_t parts[];
};

static struct work *work_at(struct queue *q, uint32_t index) {
    return q->ring[index % GROUP_WORKS];
}

/* The first work has ended. */
static void queue_pop(struct queue *q) {
    struct lane_state *lane = &q->group->lanes[q->lane];
    struct work *w = work_at(q, q->first++);
    int64_t now = clock_ns();
    atomic_fetch_add(&lane->busy_ns, now - (w->began > q->ended ? w->began : q->ended));
    atomic_fetch_add(&lane->collectives, 1);
    q->ended = now;
    atomic_store(&w->state, WORK_DONE);
}

/* Begins the oldest work that has not begun, or where there is none looks for the end of the first. False: that has not
 * come. The mutex is held on entry and on return, not between. */
static bool queue_go_on(struct queue *q, bool patient) {
    struct group *g = q->group;
    uint32_t ended = q->first;
    bool begins = q->begun != q->next;
    struct work *w = work_at(q, begins ? q->begun : q->first);
    q->busy = true;
    atomic_store(&w->state, WORK_RUNNING);
    pthread_mutex_unlock(&q->mutex);
    if (begins) {
        w->began = clock_ns();
        g->link->asked[q->lane] = w->asked;
        w->err = call_run(g, &w->call, patient);
    } else {
        w->err = call_look(g, &w->call, &q->patience, patient);
    }
    w->ended = link_time(g->link, q->lane);
    pthread_mutex_lock(&q->mutex);
    q->busy = false;
    q->begun += begins;
    while (q->first != q->begun && !work_at(q, q->first)->call.under_way) queue_pop(q);
    if (q->first != ended) pthread_cond_broadcast(&q->done);
    if (q->first != q->next) pthread_cond_signal(&q->more);
    return begins || q->first != ended;
}

/* What comes meanwhile is begun at once. */
static void queue_nap(struct queue *q) {
    enum { SHORT = 2000000 };
    int64_t now = clock_ns(), nap = now - q->patience.start < SHORT ? 20000 : 200000;
    (void)condition_await(&q->more, &q->mutex, now + nap);
}

static void *queue_thread(void *arg) {
    struct queue *q = arg;
    fesetenv(&q->float_mode);
    log_set_prefix(q->group->name);
    pthread_mutex_lock(&q->mutex);
    while (!q->stop) {
        if (q->busy || q->first == q->next)
            pthread_cond_wait(&q->more, &q->mutex);
        else if (!queue_go_on(q, false))
            queue_nap(q);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

/* Until w is done; NULL: until all work is. */
static void queue_await(struct queue *q, const struct work *w) {
    pthread_mutex_lock(&q->mutex);
    while (w ? atomic_load(&w->state) != WORK_DONE : q->first != q->next) {
        if (!q->busy && (!w || work_at(q, q->first) == w || q->begun == q->first))
            queue_go_on(q, true);
        else
            pthread_cond_wait(&q->done, &q->mutex);
    }
    pthread_mutex_unlock(&q->mutex);
}

void queue_drain(struct group *g) {
    if (g->queues[LANE_COMM]) queue_await(g->queues[LANE_COMM], NULL);
}

void group_wait_at_once(struct group *g) {
    g->waits_at_once = true;
}

static enum error queue_start(struct group *g, int lane) {
    size_t each = 2 * (size_t)(g->size + 1), parts = each * GROUP_WORKS * sizeof(int64_t);
    struct queue *q = g->queues[lane] = memory_new(sizeof *q + parts);
    if (!q) return ERR_MEMORY;
    q->group = g;
    q->lane = lane;
    pthread_mutex_init(&q->mutex, NULL);
    condition_init(&q->more);
    pthread_cond_init(&q->done, NULL);
    fegetenv(&q->float_mode);
    for (int i = 0; i < GROUP_WORKS; i++) {
        q->works[i].group = g;
        q->works[i].part = q->parts + (size_t)i * each;
    }
    int err = thread_start(&q->thread, queue_thread, q);
    if (!err) return ERR_NONE;
    g->queues[lane] = NULL;
    memory_free(q);
    return FAIL(ERR_CREATE, "cannot start the communication thread: %s", strerror(err));
}

/* The buffer's contents are complete once the compute lane has passed the mark 'ready'. */
static enum error work_mark_ready(struct group *g, struct work *w) {
    struct device *d = g->params.device;
    const struct device_runtime *runtime = device_runtime(d);
    enum error err = w->ready ? ERR_NONE : runtime->mark_create(d, &w->ready);
    if (!err && !w->end) err = runtime->mark_create(d, &w->end);
    if (!err) err = runtime->mark(d, LANE_COMPUTE, w->ready);
    w->call.ready = w->ready;
    w->call.end = g->carrier && g->size > 1 ? w->end : NULL;
    return err ? group_fail_own(g, err) : ERR_NONE;
}

static const int64_t *part_copy(int64_t *copy, const int64_t *part, int n) {
    return part ? memcpy(copy, part, (size_t)n * sizeof *copy) : NULL;
}

/* One that nobody uses, by preference that after the last; NULL: there is none. Only the group's thread takes one. */
static struct work *queue_free_slot(struct queue *q) {
    for (uint32_t i = 0; i < GROUP_WORKS; i++) {
        struct work *w = &q->works[(q->next + i) % GROUP_WORKS];
        if (atomic_load(&w->state) == WORK_FREE) return w;
    }
    return NULL;
}

enum error queue_submit(struct group *g, const struct collective *c, struct work **out) {
    if (!g->queues[c->lane]) TRY(queue_start(g, c->lane));
    struct queue *q = g->queues[c->lane];
    struct work *w = queue_free_slot(q);
    if (!w) return group_fail(g, ERR_BUG, "rank %d: %d calls have been begun and not waited for", g->rank, GROUP_WORKS);
    w->call = *c;
    w->call.part = part_copy(w->part, c->part, g->size + 1);
    w->call.send_part = part_copy(w->part + g->size + 1, c->send_part, g->size + 1);
    if (c->there) TRY(work_mark_ready(g, w));
    w->asked = link_time(g->link, LANE_INLINE);
    atomic_store(&w->state, WORK_QUEUED);
    pthread_mutex_lock(&q->mutex);
    q->ring[q->next++ % GROUP_WORKS] = w;
    if (!g->waits_at_once) pthread_cond_signal(&q->more);
    g->waits_at_once = false;
    pthread_mutex_unlock(&q->mutex);
    *out = w;
    return ERR_NONE;
}

enum error work_wait(struct work *w) {
    struct group *g = w->group;
    if (w == &g->finished) return ERR_NONE;
    bool done;
    if (w->call.lane == LANE_IN) return mail_wait(w, 0, &done);
    int64_t began = call_clock(g), since = link_time(g->link, LANE_INLINE);
    if (atomic_load(&w->state) != WORK_DONE) queue_await(g->queues[w->call.lane], w);
    link_waited(g->link, since, w->ended);
    call_tell(g, &w->call, began, true);
    enum error err = w->err;
    atomic_store(&w->state, WORK_FREE);
    return err ? g->link->ops->failure(g->link) : ERR_NONE; /* err's message lies with the lane's thread */
}

enum error work_wait_until(struct work *w, int64_t until, bool *done) {
    return mail_wait(w, until, done);
}

bool work_done(struct work *w) {
    if (w == &w->group->finished) return true;
    return w->call.lane == LANE_IN ? mail_done(w) : atomic_load(&w->state) == WORK_DONE;
}

static void queue_end(struct queue *q) {
    struct group *g = q->group;
    pthread_mutex_lock(&q->mutex);
    bool unfinished = q->first != q->next;
    q->stop = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
    if (unfinished) {
        enum error err = group_fail(g, ERR_PEER, "rank %d has left with work in flight", g->rank);
        (void)err; /* it is for the others */
    }
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->more);
    pthread_cond_destroy(&q->done);
    pthread_mutex_destroy(&q->mutex);
    for (int i = 0; i < GROUP_WORKS; i++) {
        if (q->works[i].ready) device_runtime(g->params.device)->mark_free(q->works[i].ready);
        if (q->works[i].end) device_runtime(g->params.device)->mark_free(q->works[i].end);
    }
    g->queues[q->lane] = NULL;
    memory_free(q);
}

void queue_stop(struct group *g) {
    for (int lane = 0; lane < ALL_LANES; lane++)
        if (g->queues[lane]) queue_end(g->queues[lane]);
}
