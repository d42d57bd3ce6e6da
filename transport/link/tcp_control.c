/* The control thread: one for each rank of a group. It alone reads and writes the control streams, and does the rest of
 * control between two reads. Other threads say under the mutex what is to be done, and wake it.
 *
 * The beat: each fifth of the heartbeat a rank reports to its neighbours and looks whether they are silent. A neighbour
 * that has been silent for a heartbeat is lost if its kernel has not acknowledged either what was sent to it: its host
 * is down or cut off. If the kernel does acknowledge, the process is stopped or starved by others, which a busy machine
 * may do: that is warned of, and the rank is lost after PATIENCE heartbeats. To both the hops through the tree are
 * added until all know it. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "transport/link/tcp_impl.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the streams (with the mutex) ---- */

/* Reads all that has come before an end is believed: the end of a stream does not overtake the reason. */
static void near_read(struct tcp *t, struct tcp_near *p) {
    ssize_t n = 0;
    while (near_is_open(p) &&
           (n = recv(p->line->fd, (char *)&p->in + p->in_done, sizeof p->in - p->in_done, MSG_DONTWAIT)) > 0) {
        p->heard = clock_ns();
        p->warned = false;
        p->in_done += (size_t)n;
        if (p->in_done < sizeof p->in) continue;
        p->in_done = 0;
        health_hear(t, p);
    }
    if (near_is_open(p) && (n == 0 || (errno != EAGAIN && errno != EINTR))) tree_ended(t, p);
}

/* A stream that takes no more is written to in a later turn; one that broke is seen by near_read. */
static void near_write(struct tcp *t, struct tcp_near *p) {
    while (near_is_open(p) && (p->out_left || health_frame(t, p))) {
        const char *from = (const char *)(&p->out + 1) - p->out_left;
        ssize_t n = send(p->line->fd, from, p->out_left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0) return;
        p->out_left -= (size_t)n;
    }
}

bool control_watch(const struct tcp *t, int fd) {
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    return epoll_ctl(t->events, EPOLL_CTL_ADD, fd, &e) == 0;
}

void eventfd_ring(int fd) {
    ssize_t n = write(fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* at its end it is readable in any case */
}

void control_wake(const struct tcp *t) {
    eventfd_ring(t->control_bell);
}

/* ---- the beat (with the mutex) ---- */

/* The kernel of a stopped process acknowledges what was sent to it; a host that is down or cut off does not. */
static bool near_kernel_answers(const struct tcp *t, const struct tcp_near *p) {
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    if (getsockopt(p->line->fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0) return false;
    return info.tcpi_unacked == 0 || info.tcpi_last_ack_recv / 1e3 < 0.7 * t->link.params.heartbeat;
}

static void near_warn_silent(struct tcp *t, struct tcp_near *p, double silent) {
    char name[NAME_MAX_BYTES];
    if (p->warned) return;
    p->warned = true;
    tcp_name(&t->link.params, p->rank, name);
    log_warn("%s is silent for %.3g s, though its host answers: stopped, or starved by others; it counts as lost after "
             "%.3g s",
             name, silent, PATIENCE * t->link.params.heartbeat);
}

/* Finds the first neighbour that has been silent for too long. */
static void control_judge_silence(struct tcp *t, int64_t now) {
    char how[96];
    double heartbeat = t->link.params.heartbeat;
    for (struct tcp_near *p = t->near; p && t->judging == FINE; p = p->next) {
        double silent = clock_seconds(now - p->heard);
        if (!near_is_open(p) || silent < heartbeat) continue;
        bool answers = near_kernel_answers(t, p);
        double most = answers ? PATIENCE * heartbeat : heartbeat;
        if (silent < most) {
            near_warn_silent(t, p, silent);
            continue;
        }
        snprintf(how, sizeof how, "is silent for %.3g s: %s", most,
                 answers ? "stopped, or starved by others" : "its host is down, or its network is cut");
        tree_gone(t, p);
        health_lost(t, p->rank, ENDED, how);
    }
}

/* Seconds from one beat to the next: soon enough that the neighbours of a rank find it silent at one time. */
static double control_beat_period(const struct tcp *t, int64_t now) {
    double heartbeat = t->link.params.heartbeat, least = heartbeat / 5;
    if (t->judging == SETTLING) return 0.05;
    for (const struct tcp_near *p = t->near; p; p = p->next) {
        double silent = clock_seconds(now - p->heard), left = (p->warned ? PATIENCE : 1) * heartbeat - silent;
        if (near_is_open(p) && left > 0 && left < least) least = left;
    }
    return least;
}

/* A rank that was stopped itself has heard of nobody and may accuse nobody. */
static void control_beat(struct tcp *t, int64_t now) {
    bool stopped = t->beaten && clock_seconds(now - t->beaten) > t->link.params.heartbeat / 2;
    for (struct tcp_near *p = t->near; p && stopped; p = p->next) p->heard = now;
    t->beaten = now;
    if (t->judging != SETTLED) health_tell_others(t, NULL, FRAME_STATE);
    if (t->judging == FINE) control_judge_silence(t, now);
    tree_mend(t);
}

/* ---- the thread ---- */

/* Returns for how many ns nothing is due. What the beat tells is written in the next turn: before it may dial, all else
 * has been. With the mutex. */
static int64_t control_turn(struct tcp *t) {
    for (struct tcp_near *p = t->near; p; p = p->next) near_read(t, p);
    health_settle(t);
    for (struct tcp_near *p = t->near; p; p = p->next) near_write(t, p);
    if (t->closing) pthread_cond_broadcast(&t->changed); /* whoever leaves waits until all is written */
    int64_t now = clock_ns();
    if (now < t->beats) return t->beats - now;
    control_beat(t, now);
    t->beats = now + (int64_t)(control_beat_period(t, now) * 1e9);
    return 0;
}

/* The link inside this host hears of the failure once. */
static void control_announce(struct tcp *t) {
    if (t->announced || t->judging != SETTLED) return;
    t->announced = true;
    if (t->inside) (void)t->inside->ops->fail(t->inside, (enum error)t->verdict.error, t->verdict.reason);
}

static void *control_thread(void *arg) {
    struct tcp *t = arg;
    struct epoll_event e;
    pthread_mutex_lock(&t->mutex);
    while (!t->stopped) {
        int64_t idle = control_turn(t);
        pthread_mutex_unlock(&t->mutex);
        control_announce(t);
        if (idle > 0) (void)epoll_wait(t->events, &e, 1, (int)(idle / 1000000) + 1);
        pthread_mutex_lock(&t->mutex);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

enum error control_open(struct tcp *t) {
    t->events = epoll_create1(EPOLL_CLOEXEC);
    t->control_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->events < 0 || t->control_bell < 0 || !control_watch(t, t->control_bell))
        return FAIL(ERR_IO, "cannot create the control of a group: %s", strerror(errno));
    int err = thread_start(&t->control, control_thread, t);
    t->controlled = err == 0;
    return err ? FAIL(ERR_MEMORY, "cannot start the control thread of a group: %s", strerror(err)) : ERR_NONE;
}

void control_close(struct tcp *t) {
    if (t->controlled) pthread_join(t->control, NULL);
    if (t->events >= 0) close(t->events);
    if (t->control_bell >= 0) close(t->control_bell);
}
