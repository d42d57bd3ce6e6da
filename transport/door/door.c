#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "transport/door/address.h"
#include "transport/door/door_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    GUESTS_MOST = 8192,
    STRANGERS_MOST = 128,
    REST_MS = 50, /* before accepting again, where that failed */
};

/* ---- who is here ---- */

void guest_warn(struct guest *g, const char *what) {
    static const double every = 10; /* s */
    struct door *d = g->door;
    int64_t now = clock_ns();
    char from[REMOTE_MAX], before[32] = "";
    remote_name(g->stream, from);
    pthread_mutex_lock(&d->lock);
    snprintf(d->turned_away, sizeof d->turned_away, "%s, %s", from, what);
    bool says = !d->warned || clock_seconds(now - d->warned) >= every;
    if (d->unwarned) snprintf(before, sizeof before, " (and %d before that)", d->unwarned);
    d->unwarned = says ? 0 : d->unwarned + 1;
    if (says) d->warned = now;
    pthread_mutex_unlock(&d->lock);
    if (says) log_warn("%s: turned away %s, %s%s", d->ops->what, from, what, before);
}

bool door_turned_away(struct door *d, char out[128]) {
    pthread_mutex_lock(&d->lock);
    snprintf(out, 128, "%s", d->turned_away);
    pthread_mutex_unlock(&d->lock);
    return *out;
}

bool door_guests(struct door *d, bool (*visit)(void *user, struct guest *g), void *user) {
    bool found = false;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->count && !found; i++) found = d->guests[i]->known && visit(user, d->guests[i]);
    pthread_mutex_unlock(&d->lock);
    return found;
}

void guest_known(struct guest *g) {
    pthread_mutex_lock(&g->door->lock);
    if (!g->known) g->door->strangers--;
    g->known = true;
    pthread_mutex_unlock(&g->door->lock);
}

/* Under the lock. It may be in its callback, where it cannot be reached: that looks itself. */
static void send_away_oldest(struct door *d) {
    struct guest *oldest = NULL;
    for (int i = 0; i < d->count; i++) {
        struct guest *g = d->guests[i];
        if (g->known || g->unwanted) continue;
        if (!oldest || g->came < oldest->came) oldest = g;
    }
    if (!oldest) return;
    oldest->unwanted = true;
    nng_aio_abort(oldest->aio, NNG_ECONNABORTED);
}

bool guest_is_unwanted(struct guest *g) {
    pthread_mutex_lock(&g->door->lock);
    bool unwanted = g->unwanted;
    pthread_mutex_unlock(&g->door->lock);
    return unwanted;
}

void guest_remove(struct guest *g) {
    struct door *d = g->door;
    pthread_mutex_lock(&d->lock);
    if (!d->closing) {
        if (!g->known) d->strangers--;
        d->guests[g->index] = d->guests[--d->count];
        d->guests[g->index]->index = g->index;
        g->next = d->gone;
        d->gone = g;
    }
    pthread_mutex_unlock(&d->lock);
}

static void free_gone(struct door *d) {
    pthread_mutex_lock(&d->lock);
    struct guest *gone = d->gone;
    d->gone = NULL;
    pthread_mutex_unlock(&d->lock);
    for (struct guest *next; gone; gone = next) {
        next = gone->next;
        guest_free(gone);
    }
}

/* ---- accepting ---- */

/* Under the lock. */
static bool guest_join(struct door *d, struct guest *g) {
    if (d->count == GUESTS_MOST) return false;
    if (d->count == d->room) {
        int room = d->room ? 2 * d->room : 64;
        struct guest **more = realloc(d->guests, (size_t)room * sizeof *more);
        if (!more) return false;
        d->guests = more;
        d->room = room;
    }
    g->index = d->count;
    d->guests[d->count++] = g;
    d->strangers++;
    return true;
}

static void guest_enter(struct door *d, nng_stream *stream) {
    struct guest *g = guest_create(d, stream);
    if (!g) return;
    pthread_mutex_lock(&d->lock);
    bool crowd = d->strangers >= STRANGERS_MOST;
    if (crowd) send_away_oldest(d);
    bool joined = guest_join(d, g);
    pthread_mutex_unlock(&d->lock);
    if (!joined) guest_warn(g, "which came in a crowd of connections");
    if (joined)
        guest_receive(g);
    else
        guest_free(g);
}

static void on_accept(void *arg) {
    struct door *d = arg;
    int rv = nng_aio_result(d->accept);
    timer_clear(&d->rest);
    if (rv == NNG_ECLOSED || rv == NNG_ECANCELED) return;
    if (d->resting && rv == NNG_ETIMEDOUT) rv = 0; /* it has rested */
    free_gone(d);
    if (!rv && !d->resting) guest_enter(d, nng_aio_get_output(d->accept, 0));
    d->resting = rv != 0;
    if (d->resting)
        timer_sleep(&d->rest, d->accept, clock_ns() + REST_MS * 1000000LL);
    else
        nng_stream_listener_accept(d->listener, d->accept);
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

static enum error fail_listen(const struct door_params *p, int rv) {
    char owner[64];
    if (rv == NNG_EADDRINVAL)
        return FAIL(ERR_CREATE, "cannot serve a %s at %s: this host has no such address%s", p->ops->what, p->at,
                    p->ops->elsewhere);
    if (rv != NNG_EADDRINUSE)
        return FAIL(rv == NNG_ENOMEM ? ERR_MEMORY : ERR_CREATE, "cannot serve a %s at %s: %s", p->ops->what, p->at,
                    nng_strerror(rv));
    address_owner(atoi(strrchr(p->at, ':') + 1), owner);
    return FAIL(ERR_CREATE,
                "cannot serve a %s at %s: the port is taken%s%s\nchoose another port, or 0 for one that is free",
                p->ops->what, p->at, *owner ? " by " : "", owner);
}

static enum error door_listen(struct door *d, const struct door_params *p, int *port) {
    char url[128];
    snprintf(url, sizeof url, "tcp://%.100s", p->at);
    int rv = nng_stream_listener_alloc(&d->listener, url);
    if (!rv) rv = nng_stream_listener_set_bool(d->listener, NNG_OPT_TCP_NODELAY, true);
    if (!rv) rv = nng_stream_listener_set_bool(d->listener, NNG_OPT_TCP_KEEPALIVE, true);
    if (!rv) rv = nng_stream_listener_listen(d->listener);
    if (!rv) rv = nng_stream_listener_get_int(d->listener, NNG_OPT_TCP_BOUND_PORT, port);
    if (!rv) rv = nng_aio_alloc(&d->accept, on_accept, d);
    if (rv) return fail_listen(p, rv);
    nng_stream_listener_accept(d->listener, d->accept);
    return ERR_NONE;
}

enum error door_open(const struct door_params *p, struct door **out, int *port) {
    struct door *d = memory_new(sizeof *d);
    if (!d) return ERR_MEMORY;
    d->ops = p->ops;
    d->user = p->user;
    d->ours = p->ours;
    snprintf(d->key, sizeof d->key, "%s", p->key);
    pthread_mutex_init(&d->lock, NULL);
    raise_descriptors();
    enum error err = door_listen(d, p, port);
    if (err)
        door_close(d);
    else
        *out = d;
    return err;
}

/* First nobody new comes in, then those within stop, then all is freed. */
void door_close(struct door *d) {
    if (!d) return;
    if (d->listener) nng_stream_listener_close(d->listener);
    if (d->accept) nng_aio_stop(d->accept);
    timer_clear(&d->rest);
    if (d->accept) nng_aio_free(d->accept);
    pthread_mutex_lock(&d->lock);
    d->closing = true; /* who leaves now stays in the list */
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->count; i++) nng_aio_stop(d->guests[i]->aio);
    for (int i = 0; i < d->count; i++) guest_free(d->guests[i]);
    free_gone(d);
    if (d->listener) nng_stream_listener_free(d->listener);
    pthread_mutex_destroy(&d->lock);
    explicit_bzero(d->key, sizeof d->key);
    free(d->guests);
    memory_free(d);
}
