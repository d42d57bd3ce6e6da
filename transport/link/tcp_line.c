/* The streams of the lanes, which are opened when they are first used.
 *
 * A stream carries the messages of one lane in one direction, from the rank that has dialed it. Whoever first sends to
 * a peer on a lane dials the peer's port, which takes the stream in by itself, in callbacks, and gives it to the
 * receiver's group, or keeps it until that group is opened. So opening a stream waits for no rank: a sender waits for a
 * port, never for a thread, and a receiver waits for a stream exactly where it would wait for its first bytes, which
 * come when the same rank begins the same exchange. Hence no circle of waiting can arise that the bytes alone would not
 * make, and a small message leaves before its receiver is there, the first one, too.
 *
 * A dialer whose hello has taken too long begins anew, and its first stream may have come all the same, perhaps after
 * the next one. It ends without a byte, and the one that was dialed last has the place: a stream on which nothing has
 * come is believed neither in its end nor in its being the only one. */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "transport/link/tcp_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* The one who dialed sends in direction 'D'. */
static enum error seals_open(const struct tcp *t, struct tcp_line *l, const struct hello *h) {
    const struct stream *s = &l->stream;
    bool control = h->kind == CONTROL;
    enum seal_kind seals = control ? t->control_seals : t->seals;
    if (control || s->dialed) TRY(sealer_open(&l->out, seals, &h->ciphers, s->session, s->dialed ? 'D' : 'L', false));
    if (control || !s->dialed) TRY(sealer_open(&l->in, seals, &h->ciphers, s->session, s->dialed ? 'L' : 'D', true));
    return ERR_NONE;
}

static void line_free(struct tcp_line *line) {
    nng_stream_free(line->stream.s);
    sealer_close(&line->out);
    sealer_close(&line->in);
    memory_free(line);
}

static void line_end(const struct tcp_line *line) {
    if (line->kind != CONTROL && line->fd >= 0) shutdown(line->fd, SHUT_RDWR);
}

enum error line_open(struct tcp *t, const struct stream *s, const struct hello *h, struct tcp_line **out) {
    struct tcp_line *l = *out = memory_new(sizeof *l);
    if (!l) {
        nng_stream_free(s->s);
        return ERR_MEMORY;
    }
    l->stream = *s;
    l->kind = h->kind;
    l->dialed = h->dialed;
    if (stream_descriptor(s->s, &l->fd) != ERR_NONE) l->fd = -1;
    enum error err = seals_open(t, l, h);
    if (err) {
        line_free(l);
        return err;
    }
    pthread_mutex_lock(&t->mutex);
    if (t->judging != FINE) line_end(l);
    l->next = t->lines;
    t->lines = l;
    pthread_mutex_unlock(&t->mutex);
    return ERR_NONE;
}

void lines_end(struct tcp *t) {
    for (const struct tcp_line *l = t->lines; l; l = l->next) line_end(l);
    for (int i = 0; i < ALL_LANES; i++)
        if (t->lane[i].bell >= 0) eventfd_ring(t->lane[i].bell);
}

/* ---- sending ---- */

/* In slices, between which the lane's thread looks around as it does while bytes do not move. */
static enum error line_dial(struct tcp *t, int lane, const struct hello *h, struct stream *out) {
    const struct link_params *p = &t->link.params;
    enum { LONGEST = 8 };
    int64_t slice = 1000000000, deadline = clock_after(p->timeout);
    for (;; slice *= slice < LONGEST * 1000000000LL ? 2 : 1) {
        if (t->peers[h->to].left) return tcp_broken(t, lane, (int)h->to);
        int64_t end = clock_ns() + slice;
        enum error err = tcp_dial(p, h, end < deadline ? end : deadline, out);
        if (!err) return ERR_NONE;
        if (err != ERR_TIMEOUT || clock_ns() >= deadline) return link_fail_own(&t->link, err);
        TRY(tcp_watch(t, lane));
    }
}

enum error line_to(struct tcp *t, int lane, int peer, struct tcp_line **out) {
    struct tcp_line *_Atomic *at = &t->peers[peer].to[lane_way(lane)];
    struct stream s;
    *out = atomic_load(at);
    if (*out) return ERR_NONE;
    struct hello h = hello_of(&t->link.params, peer, (uint32_t)lane_way(lane));
    TRY(line_dial(t, lane, &h, &s));
    enum error err = line_open(t, &s, &h, out);
    if (err) return link_fail_own(&t->link, err);
    atomic_store(at, *out);
    return ERR_NONE;
}

/* ---- receiving ---- */

enum { THE_BELL = RANKS_MOST };

/* who: a rank, or THE_BELL. */
static bool arrivals_watch(const struct tcp *t, int fd, uint32_t who) {
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = who};
    return epoll_ctl(t->arrivals, EPOLL_CTL_ADD, fd, &e) == 0;
}

/* Another line takes its place, or none. With the mutex. */
static void line_replace(const struct tcp *t, int from, uint32_t way, struct tcp_line *line) {
    const struct tcp_line *old = atomic_exchange(&t->peers[from].from[way], line);
    if (way != MAIL_WAY) return;
    if (old) (void)epoll_ctl(t->arrivals, EPOLL_CTL_DEL, old->fd, NULL);
    if (line) (void)arrivals_watch(t, line->fd, (uint32_t)from);
}

void line_came(struct tcp *t, int from, uint32_t way, struct tcp_line *line) {
    const struct tcp_line *old = atomic_load(&t->peers[from].from[way]);
    if (old && (old->used || old->dialed > line->dialed)) return;
    line_replace(t, from, way, line);
    if (way != MAIL_WAY) eventfd_ring(t->lane[way].bell);
}

struct tcp_line *line_from(struct tcp *t, int lane, int peer) {
    return atomic_load(&t->peers[peer].from[lane_way(lane)]);
}

bool line_drop(struct tcp *t, int lane, int peer, int fd) {
    pthread_mutex_lock(&t->mutex);
    const struct tcp_line *line = line_from(t, lane, peer);
    bool current = line && line->fd == fd, used = current && line->used;
    if (current && !used) line_replace(t, peer, (uint32_t)lane_way(lane), NULL);
    pthread_mutex_unlock(&t->mutex);
    return !used;
}

/* ---- messages from anybody ---- */

/* A stream that has ended between two messages is no fault: control tells whether the rank has left or died. */
static bool arrival_is_there(struct tcp *t, int from) {
    char byte;
    const struct tcp_line *line = line_from(t, LANE_IN, from);
    ssize_t n = recv(line->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return n > 0;
    pthread_mutex_lock(&t->mutex);
    if (line == line_from(t, LANE_IN, from)) line_replace(t, from, MAIL_WAY, NULL); /* else another has come */
    pthread_mutex_unlock(&t->mutex);
    return false;
}

/* The kernel lets those take turns that have something. */
enum error tcp_arrival(struct link *l, int *peer) {
    struct tcp *t = tcp_of(l);
    struct epoll_event e;
    uint64_t pokes;
    *peer = -1;
    TRY(tcp_failure(l));
    if (epoll_wait(t->arrivals, &e, 1, -1) < 1) return ERR_NONE; /* a signal */
    if (e.data.u32 != THE_BELL)
        *peer = arrival_is_there(t, (int)e.data.u32) ? (int)e.data.u32 : -1;
    else if (read(t->lane[LANE_IN].bell, &pokes, sizeof pokes) < 0 && errno != EAGAIN)
        return tcp_fail(l, ERR_IO, "the eventfd of the messages cannot be read");
    return tcp_failure(l);
}

void tcp_poke(struct link *l) {
    eventfd_ring(tcp_of(l)->lane[LANE_IN].bell);
}

/* Its stream ends when it dies, too; then control tells. */
bool tcp_left(struct link *l, int rank) {
    struct tcp_peer *p = &tcp_of(l)->peers[rank];
    int64_t left = p->left;
    return left && clock_ns() - left > LEFT_FOR_GOOD && !atomic_load(&p->from[MAIL_WAY]);
}

/* ---- opening and closing ---- */

enum error lines_open(struct tcp *t) {
    bool mail = t->link.params.mail, good = true;
    for (int i = 0; i < ALL_LANES; i++)
        if (i < LANES || (i == LANE_IN && mail))
            good = good && (t->lane[i].bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0;
    if (good && mail) {
        t->arrivals = epoll_create1(EPOLL_CLOEXEC);
        good = arrivals_watch(t, t->lane[LANE_IN].bell, THE_BELL);
    }
    return good ? ERR_NONE : FAIL(ERR_IO, "cannot create the lanes of a group: %s", strerror(errno));
}

void lines_close(struct tcp *t) {
    for (struct tcp_line *l = t->lines, *next; l; l = next) {
        next = l->next;
        line_free(l);
    }
    for (int i = 0; i < ALL_LANES; i++)
        if (t->lane[i].bell >= 0) close(t->lane[i].bell);
    if (t->arrivals >= 0) close(t->arrivals);
}
