#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/base/thread.h"
#include "transport/door/door_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { GUESTS_MOST = 8192, STRANGERS_MOST = 128 };
static const int64_t REST_NS = 50000000; /* before accepting again, where that failed */

/* ---- who is here ---- */

void guest_warn(struct guest *g, const char *what) {
    static const double every = 10; /* s */
    struct door *d = g->door;
    int64_t now = clock_ns();
    char from[ENDPOINT_MAX], before[32] = "";
    remote_name(g->talk.fd, from);
    snprintf(d->turned_away, sizeof d->turned_away, "%s, %s", from, what);
    bool says = !d->warned || clock_seconds(now - d->warned) >= every;
    if (d->unwarned) snprintf(before, sizeof before, " (and %d before that)", d->unwarned);
    d->unwarned = says ? 0 : d->unwarned + 1;
    if (!says) return;
    d->warned = now;
    log_warn("%s: turned away %s, %s%s", d->ops->what, from, what, before);
}

void door_lock(struct door *d) {
    pthread_mutex_lock(&d->lock);
}

void door_unlock(struct door *d) {
    pthread_mutex_unlock(&d->lock);
}

bool door_turned_away(struct door *d, char out[128]) {
    door_lock(d);
    snprintf(out, 128, "%s", d->turned_away);
    door_unlock(d);
    return *out;
}

bool door_guests(struct door *d, bool (*visit)(void *user, struct guest *g), void *user) {
    bool found = false;
    for (int i = 0; i < d->count && !found; i++)
        found = d->guests[i]->known && d->guests[i]->phase != GONE && visit(user, d->guests[i]);
    return found;
}

static void send_away_oldest(struct door *d) {
    struct guest *oldest = NULL;
    for (int i = 0; i < d->count; i++) {
        struct guest *g = d->guests[i];
        if (!g->known && g->phase != GONE && (!oldest || g->came < oldest->came)) oldest = g;
    }
    if (!oldest) return;
    guest_warn(oldest, "which was too slow in a crowd");
    guest_leave(oldest);
}

/* ---- accepting ---- */

static bool guest_join(struct door *d, struct guest *g) {
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = g};
    if (d->count == GUESTS_MOST) return false;
    if (d->count == d->room) {
        int room = d->room ? 2 * d->room : 64;
        struct guest **more = realloc(d->guests, (size_t)room * sizeof *more);
        if (!more) return false;
        d->guests = more;
        d->room = room;
    }
    if (epoll_ctl(d->events, EPOLL_CTL_ADD, g->talk.fd, &e) != 0) return false;
    d->guests[d->count++] = g;
    d->strangers++;
    return true;
}

static void guest_enter(struct door *d, int fd) {
    struct guest *g = guest_create(d, fd);
    if (!g) return;
    if (d->strangers >= STRANGERS_MOST) send_away_oldest(d);
    if (guest_join(d, g)) return;
    guest_warn(g, "which came in a crowd of connections");
    guest_free(g);
}

/* A few at once, so that those within get their turns, too. */
static void door_accept(struct door *d, int64_t now) {
    enum { AT_ONCE = 64 };
    d->rests = now;
    for (int i = 0; i < AT_ONCE && d->rests == now; i++) {
        int fd = accept4(d->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            guest_enter(d, fd);
        else if (errno != EINTR && errno != ECONNABORTED)
            d->rests = errno == EAGAIN ? INT64_MAX : now + REST_NS;
    }
}

/* ---- the thread ---- */

/* Guests whose time is over go on, and those that are gone are freed: only here, since what is yet to be looked at may
 * name them. Gives when the next look is due. */
static int64_t door_look(struct door *d) {
    int64_t now = clock_ns(), next;
    if (d->rests <= now) door_accept(d, now);
    for (int i = 0; i < d->count; i++)
        if (d->guests[i]->due <= now) guest_due(d->guests[i]);
    next = d->rests;
    for (int i = 0; i < d->count; i++) {
        struct guest *g = d->guests[i];
        if (g->phase == GONE) {
            d->guests[i--] = d->guests[--d->count];
            guest_free(g);
        } else if (g->due < next) {
            next = g->due;
        }
    }
    return next;
}

static void *door_main(void *arg) {
    enum { EVENTS = 64 };
    struct door *d = arg;
    struct epoll_event e[EVENTS];
    door_lock(d);
    while (!d->closing) {
        int wait = clock_ms_until(door_look(d));
        door_unlock(d);
        int n = epoll_wait(d->events, e, EVENTS, wait);
        door_lock(d);
        for (int i = 0; i < n && !d->closing; i++) {
            struct guest *g = e[i].data.ptr;
            if (!g) {
                door_accept(d, clock_ns());
                continue;
            }
            g->ended = g->ended || e[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
            guest_turn(g);
        }
    }
    door_unlock(d);
    return NULL;
}

/* ---- opening and closing ---- */

/* Ranks and strangers take descriptors of this process. More are its right: the lower limit is there for programs that
 * use select. */
static void raise_descriptors(void) {
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == most.rlim_max) return;
    most.rlim_cur = most.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &most);
}

static enum error fail_listen(const struct door_ops *ops, const struct endpoint *at, int why) {
    char owner[64];
    if (why == EADDRNOTAVAIL)
        return FAIL(ERR_CREATE, "cannot serve a %s at %s: this host has no such address%s", ops->what, at->text,
                    ops->elsewhere);
    if (why != EADDRINUSE)
        return FAIL(why == ENOMEM ? ERR_MEMORY : ERR_CREATE, "cannot serve a %s at %s: %s", ops->what, at->text,
                    strerror(why));
    address_owner(at->port, owner);
    return FAIL(ERR_CREATE,
                "cannot serve a %s at %s: the port is taken%s%s\nchoose another port, or 0 for one that is free",
                ops->what, at->text, *owner ? " by " : "", owner);
}

static enum error door_listen(struct door *d, struct endpoint *at) {
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};
    int on = 1, why = 0;
    d->fd = endpoint_socket(at);
    d->events = epoll_create1(EPOLL_CLOEXEC);
    if (d->fd < 0 || d->events < 0 || setsockopt(d->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(d->fd, (struct sockaddr *)&at->at, endpoint_bytes(at)) != 0 || listen(d->fd, SOMAXCONN) != 0 ||
        epoll_ctl(d->events, EPOLL_CTL_ADD, d->fd, &e) != 0)
        why = errno;
    if (!why && !endpoint_of(d->fd, false, at)) why = errno;
    if (!why) why = thread_start(&d->thread, door_main, d);
    d->runs = !why;
    return why ? fail_listen(d->ops, at, why) : ERR_NONE;
}

enum error door_open(const struct door_params *p, struct endpoint *at, struct door **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct door), &memory));
    struct door *d = memory;
    d->ops = p->ops;
    d->user = p->user;
    d->ours = p->ours;
    d->rests = INT64_MAX;
    snprintf(d->key, sizeof d->key, "%s", p->key);
    pthread_mutex_init(&d->lock, NULL);
    raise_descriptors();
    enum error err = door_listen(d, at);
    if (err)
        door_close(d);
    else
        *out = d;
    return err;
}

/* A listening socket that is shut down wakes who waits for it. */
void door_close(struct door *d) {
    if (!d) return;
    door_lock(d);
    d->closing = true;
    door_unlock(d);
    if (d->runs) {
        (void)shutdown(d->fd, SHUT_RDWR);
        pthread_join(d->thread, NULL);
    }
    for (int i = 0; i < d->count; i++) guest_free(d->guests[i]);
    if (d->fd >= 0) close(d->fd);
    if (d->events >= 0) close(d->events);
    pthread_mutex_destroy(&d->lock);
    explicit_bzero(d->key, sizeof d->key);
    free(d->guests);
    memory_free(d);
}
