/* The server of a tcp store: guests, which are connections. A guest sends a request, gets the
 * reply, and sends the next: it goes round through the phases of tcp_impl.h, each of which ends in
 * the callback of its aio. Everything runs in nng's callbacks, and nothing in them waits.
 *
 * Anyone may connect. Until it has proven that it holds the token, a guest is a stranger: its
 * message is short or it has to go, and so it has ten seconds after it came. When there are many
 * strangers the one who came first has to go: an honest one takes milliseconds, and tries again.
 *
 * These are nng's streams, not its REP socket: of that one, version 1.5.2, a connection which is
 * closed while a message arrives on it stays behind half closed, and whoever closes the socket
 * waits for it for ever. Nor can it tell a stranger from a guest before the message is there. */
#include "engine/base/log.h"
#include "transport/store/tcp_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

enum {
    STRANGER_MS = 10000, /* from coming to having proven the token */
    MOVE_MS = 30000,     /* for the rest of a message, and for a reply */
    REST_MS = 50,        /* before accepting again, where that failed */
    KEEP_BYTES = 64 << 10,
};

/* ---- strangers ---- */

void guest_warn(struct guest *g, const char *what) {
    static const double every = 10; /* s */
    struct server *s = g->server;
    int64_t now = clock_ns();
    char from[REMOTE_MAX];
    remote_name(g->stream, from);
    pthread_mutex_lock(&s->lock);
    snprintf(s->turned_away, sizeof s->turned_away, "%s, %s", from, what);
    bool tell = !s->warned || clock_seconds(now - s->warned) >= every;
    int more = s->unwarned;
    s->unwarned = tell ? 0 : more + 1;
    if (tell) s->warned = now;
    pthread_mutex_unlock(&s->lock);
    if (tell && more)
        log_warn("store: turned away %s, %s (and %d before that)", from, what, more);
    else if (tell)
        log_warn("store: turned away %s, %s", from, what);
}

bool server_turned_away(struct server *s, char out[128]) {
    if (!s) return false;
    pthread_mutex_lock(&s->lock);
    snprintf(out, 128, "%s", s->turned_away);
    pthread_mutex_unlock(&s->lock);
    return *out;
}

bool server_sees(struct server *s, uint64_t client) {
    bool sees = false;
    if (!s) return false;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->count; i++) sees = sees || (s->guests[i]->proven && s->guests[i]->client == client);
    pthread_mutex_unlock(&s->lock);
    return sees;
}

void guest_proven(struct guest *g) {
    pthread_mutex_lock(&g->server->lock);
    if (!g->proven) g->server->strangers--;
    g->proven = true;
    g->client = g->h.client;
    pthread_mutex_unlock(&g->server->lock);
}

/* Under the lock. It may be in its callback, where it cannot be reached: that looks itself. */
static void send_away_oldest(struct server *s) {
    struct guest *oldest = NULL;
    for (int i = 0; i < s->count; i++) {
        struct guest *g = s->guests[i];
        if (g->proven || g->unwanted) continue;
        if (!oldest || g->came < oldest->came) oldest = g;
    }
    if (!oldest) return;
    oldest->unwanted = true;
    nng_aio_abort(oldest->aio, NNG_ECONNABORTED);
}

/* ---- guests ---- */

enum error guest_room(struct guest *g, size_t n) {
    if (n <= g->room) return ERR_NONE;
    uint8_t *more = realloc(g->buffer, n);
    if (!more) return FAIL(ERR_MEMORY, "no memory for a message of %zu bytes", n);
    g->buffer = more;
    g->room = n;
    return ERR_NONE;
}

/* The connection ends now, but is freed later: another thread may just be cancelling what has ended
 * here, and use it to the last. */
static void guest_leave(struct guest *g) {
    struct server *s = g->server;
    nng_stream_close(g->stream);
    pthread_mutex_lock(&s->lock);
    if (!s->closing) {
        if (!g->proven) s->strangers--;
        s->guests[g->index] = s->guests[--s->count];
        s->guests[g->index]->index = g->index;
        g->next = s->gone;
        s->gone = g;
    }
    pthread_mutex_unlock(&s->lock);
}

/* Freeing the aio waits until nobody uses it, nor therefore the stream. Not in its own callback. */
static void guest_free(struct guest *g) {
    timer_clear(&g->timer);
    nng_aio_free(g->aio);
    nng_stream_free(g->stream);
    free(g->buffer);
    free(g);
}

static void free_gone(struct server *s) {
    pthread_mutex_lock(&s->lock);
    struct guest *gone = s->gone;
    s->gone = NULL;
    pthread_mutex_unlock(&s->lock);
    for (struct guest *next; gone; gone = next) {
        next = gone->next;
        guest_free(gone);
    }
}

/* A stranger has no more time for sending a byte now and then. */
static int64_t guest_time(const struct guest *g) {
    if (!g->proven) return g->came + STRANGER_MS * 1000000LL;
    return g->phase == READ_START ? INT64_MAX : clock_ns() + MOVE_MS * 1000000LL;
}

/* Goes on with the bytes of this phase. */
static void guest_move(struct guest *g) {
    nng_iov iov = {.iov_buf = g->buffer + g->done, .iov_len = g->total - g->done};
    nng_aio_set_iov(g->aio, 1, &iov);
    timer_set(&g->timer, g->aio, guest_time(g));
    if (g->phase == WRITE)
        nng_stream_send(g->stream, g->aio);
    else
        nng_stream_recv(g->stream, g->aio);
}

static void guest_write(struct guest *g) {
    if (!g->total) {
        guest_leave(g);
        return;
    }
    g->phase = WRITE;
    g->done = 0;
    guest_move(g);
}

static void guest_listen(struct guest *g) {
    if (g->room > KEEP_BYTES) { /* big messages are rare */
        free(g->buffer);
        g->buffer = NULL;
        g->room = 0;
    }
    if (guest_room(g, WIRE_STRANGER_MAX) != ERR_NONE) {
        guest_leave(g);
        return;
    }
    g->phase = READ_START;
    g->done = 0;
    g->total = sizeof(struct wire_start);
    guest_move(g);
}

/* The start of a message is there: is more of it awaited? */
static void guest_start(struct guest *g) {
    struct wire_start start;
    memcpy(&start, g->buffer, sizeof start);
    if (!wire_is_request(&start, g->proven ? WIRE_MAX : WIRE_STRANGER_MAX)) {
        guest_warn(g, "which sent no request");
        guest_leave(g);
    } else if (start.version != WIRE_VERSION) {
        g->h = (struct wire_request){0};
        request_refuse(g, WIRE_OTHER, "which speaks another version");
        guest_write(g);
    } else if (guest_room(g, start.bytes) != ERR_NONE) {
        guest_leave(g);
    } else {
        g->phase = READ_REST;
        g->total = start.bytes;
        guest_move(g);
    }
}

static void guest_next(struct guest *g) {
    switch (g->phase) {
    case READ_START:
        guest_start(g);
        return;
    case READ_REST:
        if (request_take(g, false)) guest_write(g);
        return;
    case PARKED:
        if (request_take(g, true)) guest_write(g);
        return;
    default:
        if (g->leaves)
            guest_leave(g);
        else
            guest_listen(g);
    }
}

static bool is_unwanted(struct guest *g) {
    pthread_mutex_lock(&g->server->lock);
    bool unwanted = g->unwanted;
    pthread_mutex_unlock(&g->server->lock);
    return unwanted;
}

static void on_guest(void *arg) {
    struct guest *g = arg;
    int err = nng_aio_result(g->aio);
    timer_clear(&g->timer);
    if (g->phase == PARKED) { /* woken or not, it looks again */
        guest_next(g);
        return;
    }
    if (err || is_unwanted(g)) {
        guest_leave(g);
        return;
    }
    g->done += nng_aio_count(g->aio);
    if (g->done < g->total)
        guest_move(g);
    else
        guest_next(g);
}

/* ---- accepting ---- */

/* Under the lock. */
static bool guest_join(struct server *s, struct guest *g) {
    if (s->count == GUESTS_MAX) return false;
    g->index = s->count;
    s->guests[s->count++] = g;
    s->strangers++;
    return true;
}

static void guest_enter(struct server *s, nng_stream *stream) {
    struct guest *g = calloc(1, sizeof *g);
    if (!g || nng_aio_alloc(&g->aio, on_guest, g) != 0) {
        free(g);
        nng_stream_free(stream);
        return;
    }
    g->server = s;
    g->stream = stream;
    g->came = clock_ns();
    pthread_mutex_lock(&s->lock);
    bool crowd = s->strangers >= STRANGERS_MAX;
    if (crowd) send_away_oldest(s);
    bool joined = guest_join(s, g);
    pthread_mutex_unlock(&s->lock);
    if (crowd || !joined) guest_warn(g, "in a crowd of connections");
    if (joined)
        guest_listen(g);
    else
        guest_free(g);
}

static void on_accept(void *arg) {
    struct server *s = arg;
    int err = nng_aio_result(s->accept);
    timer_clear(&s->rest);
    if (err == NNG_ECLOSED || err == NNG_ECANCELED) return;
    if (s->resting && err == NNG_ETIMEDOUT) err = 0; /* it has rested */
    free_gone(s);
    if (!err && !s->resting) guest_enter(s, nng_aio_get_output(s->accept, 0));
    s->resting = err != 0;
    if (s->resting)
        timer_sleep(&s->rest, s->accept, clock_ns() + REST_MS * 1000000LL);
    else
        nng_stream_listener_accept(s->listener, s->accept);
}

/* ---- opening and closing ---- */

/* Ranks and strangers take descriptors of this process. More are its right: the lower limit is
 * there for programs that use select. */
static void raise_descriptors(void) {
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == most.rlim_max) return;
    most.rlim_cur = most.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &most);
}

static enum error fail_listen(const struct endpoint *at, int err) {
    char owner[64];
    if (err == NNG_EADDRINVAL)
        return FAIL(ERR_CREATE,
                    "cannot serve a store at %s: this host has no such address\nis this host the "
                    "one of rank 0 or node 0? only that one serves; on others set their own "
                    "number (--node-rank)",
                    at->text);
    if (err != NNG_EADDRINUSE)
        return FAIL(err == NNG_ENOMEM ? ERR_MEMORY : ERR_CREATE, "cannot serve a store at %s: %s", at->text,
                    nng_strerror(err));
    address_owner(atoi(strrchr(at->text, ':') + 1), owner);
    return FAIL(ERR_CREATE,
                "cannot serve a store at %s: the port is taken%s%s\nchoose another port, or 0 for "
                "one that is free",
                at->text, *owner ? " by " : "", owner);
}

static enum error listen_at(struct server *s, const struct endpoint *at, int *port) {
    char url[ENDPOINT_MAX + 8];
    snprintf(url, sizeof url, "tcp://%.*s", ENDPOINT_MAX, at->text);
    int err = nng_stream_listener_alloc(&s->listener, url);
    if (!err) err = nng_stream_listener_set_bool(s->listener, NNG_OPT_TCP_NODELAY, true);
    if (!err) err = nng_stream_listener_set_bool(s->listener, NNG_OPT_TCP_KEEPALIVE, true);
    if (!err) err = nng_stream_listener_listen(s->listener);
    if (!err) err = nng_stream_listener_get_int(s->listener, NNG_OPT_TCP_BOUND_PORT, port);
    if (!err) err = nng_aio_alloc(&s->accept, on_accept, s);
    if (err) return fail_listen(at, err);
    nng_stream_listener_accept(s->listener, s->accept);
    return ERR_NONE;
}

static enum error server_start(struct server *s, const char *token, const struct endpoint *at, int *port) {
    if (getrandom(s->nonce, sizeof s->nonce, 0) != (ssize_t)sizeof s->nonce)
        return FAIL(ERR_CREATE, "no random numbers: %s", strerror(errno));
    secret_key(token ? token : "", s->nonce, sizeof s->nonce, s->key);
    raise_descriptors();
    TRY(table_create(&s->table));
    return listen_at(s, at, port);
}

enum error server_open(const struct store_params *p, const struct endpoint *at, struct server **out, int *port) {
    struct server *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "cannot allocate a store's server");
    snprintf(s->run, sizeof s->run, "%s", p->run ? p->run : "");
    pthread_mutex_init(&s->lock, NULL);
    enum error err = server_start(s, p->token, at, port);
    if (err)
        server_close(s);
    else
        *out = s;
    return err;
}

/* First nobody new comes in, then those within stop, then all is freed. */
void server_close(struct server *s) {
    if (!s) return;
    if (s->listener) nng_stream_listener_close(s->listener);
    if (s->accept) nng_aio_stop(s->accept);
    timer_clear(&s->rest);
    if (s->accept) nng_aio_free(s->accept);
    pthread_mutex_lock(&s->lock);
    s->closing = true; /* who leaves now stays in the list */
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->count; i++) nng_aio_stop(s->guests[i]->aio);
    for (int i = 0; i < s->count; i++) guest_free(s->guests[i]);
    free_gone(s);
    if (s->listener) nng_stream_listener_free(s->listener);
    pthread_mutex_destroy(&s->lock);
    table_free(s->table);
    free(s);
}
