/* The beat: each fifth of the heartbeat a rank reports to its neighbours and looks whether they are silent.
 *
 * A neighbour that has been silent for a heartbeat is lost if its kernel has not acknowledged either what was sent to it:
 * its host is down or cut off. If the kernel does acknowledge, the process is stopped or starved by others, which a busy
 * machine may do: that is warned of, and the rank is lost after PATIENCE heartbeats. To both the hops through the tree
 * are added until all know it. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "transport/link/tcp_impl.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

enum { PATIENCE = 3 };

/* The kernel of a stopped process acknowledges what was sent to it; a host that is down or cut off does not. */
static bool kernel_answers(const struct tcp *t, const struct tcp_near *p) {
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    if (getsockopt(p->line->fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0) return false;
    return info.tcpi_unacked == 0 || info.tcpi_last_ack_recv / 1e3 < 0.7 * t->link.params.heartbeat;
}

static void warn_silent(struct tcp *t, struct tcp_near *p, double silent) {
    char name[NAME_MAX_BYTES];
    if (p->warned) return;
    p->warned = true;
    tcp_name(&t->link.params, p->rank, name);
    log_warn("%s is silent for %.3g s, though its host answers: stopped, or starved by others; it counts as lost after "
             "%.3g s",
             name, silent, PATIENCE * t->link.params.heartbeat);
}

static bool judge_silence(struct tcp *t, int64_t now) {
    char how[96];
    double heartbeat = t->link.params.heartbeat;
    for (struct tcp_near *p = t->near; p; p = p->next) {
        double silent = clock_seconds(now - p->heard);
        if (!near_is_open(p) || silent < heartbeat) continue;
        bool answers = kernel_answers(t, p);
        double most = answers ? PATIENCE * heartbeat : heartbeat;
        if (silent < most) {
            warn_silent(t, p, silent);
            continue;
        }
        snprintf(how, sizeof how, "is silent for %.3g s: %s", most,
                 answers ? "stopped, or starved by others" : "its host is down, or its network is cut");
        near_gone(t, p);
        return health_lost(t, p->rank, how);
    }
    return false;
}

/* Who was stopped himself has heard of nobody and may accuse nobody. */
static void forgive(struct tcp *t, int64_t now) {
    if (t->beaten && clock_seconds(now - t->beaten) > t->link.params.heartbeat / 2)
        for (struct tcp_near *p = t->near; p; p = p->next) p->heard = now;
    t->beaten = now;
}

/* Seconds to the next beat: soon enough that the neighbours of a rank find it silent at one time. */
static double beat_period(const struct tcp *t, int64_t now) {
    double heartbeat = t->link.params.heartbeat, least = heartbeat / 5;
    if (t->judging == SETTLING) return 0.05;
    for (const struct tcp_near *p = t->near; p; p = p->next) {
        double silent = clock_seconds(now - p->heard), left = (p->warned ? PATIENCE : 1) * heartbeat - silent;
        if (near_is_open(p) && left > 0 && left < least) least = left;
    }
    return least;
}

static void on_beat(void *arg) {
    struct tcp *t = arg;
    int64_t now = clock_ns();
    timer_clear(&t->beat_timer);
    pthread_mutex_lock(&t->mutex);
    forgive(t, now);
    health_tell_others(t, NULL, FRAME_STATE);
    bool settled = t->judging == FINE ? judge_silence(t, now) : health_settle(t);
    heal_start(t);
    double period = beat_period(t, now);
    bool again = !t->stopped && t->judging != SETTLED;
    pthread_mutex_unlock(&t->mutex);
    if (settled) health_announce(t);
    if (again) timer_sleep(&t->beat_timer, t->beat, clock_ns() + (int64_t)(period * 1e9));
}

enum error beat_open(struct tcp *t) {
    if (nng_aio_alloc(&t->beat, on_beat, t) != 0) return FAIL(ERR_MEMORY, "out of memory for the heartbeat");
    timer_sleep(&t->beat_timer, t->beat, clock_ns());
    return ERR_NONE;
}

void beat_close(struct tcp *t) {
    if (!t->beat) return;
    nng_aio_stop(t->beat);
    timer_clear(&t->beat_timer);
    nng_aio_free(t->beat);
}
