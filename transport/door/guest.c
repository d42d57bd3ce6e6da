/* A guest goes round: bytes come, the handshake or the message goes on with them, bytes leave. Each turn is one request
 * to nng, and guest_turn decides on the next one. */
#include "engine/base/clock.h"
#include "transport/door/door_impl.h"

#include <stdlib.h>
#include <string.h>

enum {
    STRANGER_BYTES = DOOR_RAW, /* that a stranger may send, handshake and message */
    MOVE_MS = 30000,           /* for the rest of a message, and for a reply */
    KEEP_BYTES = 64 << 10,
};

static void guest_turn(struct guest *g);

/* ---- leaving ---- */

void guest_leave(struct guest *g) {
    nng_stream_close(g->stream);
    guest_remove(g);
}

void guest_free(struct guest *g) {
    timer_clear(&g->timer);
    nng_aio_free(g->aio);
    if (g->stream) nng_stream_free(g->stream);
    tls_free(g->tls);
    free(g->message);
    free(g);
}

static void guest_keep(struct guest *g) {
    struct stream s = {.s = g->stream};
    if (tls_session(g->tls, s.session) != ERR_NONE) {
        guest_leave(g);
        return;
    }
    g->stream = NULL;
    g->door->ops->keep(g->door->user, g, &s);
    guest_remove(g);
}

/* ---- messages, by their owner ---- */

void *guest_own(struct guest *g) {
    return g->own;
}

uint8_t *guest_message(struct guest *g, size_t *n) {
    *n = g->total;
    return g->message;
}

enum error guest_room(struct guest *g, size_t n) {
    if (n <= g->room) return ERR_NONE;
    uint8_t *more = realloc(g->message, n);
    if (!more) return FAIL(ERR_MEMORY, "no memory for a message of %zu bytes", n);
    g->message = more;
    g->room = n;
    return ERR_NONE;
}

void guest_reply(struct guest *g, enum guest_then then) {
    struct door_head head;
    memcpy(&head, g->message, sizeof head);
    g->replies = true;
    g->done = 0;
    g->total = head.bytes;
    g->then = then;
    guest_turn(g);
}

void guest_refuse(struct guest *g, uint32_t status, const char *what) {
    struct door_head head = door_head(status, sizeof head);
    guest_warn(g, what);
    if (guest_room(g, sizeof head) != ERR_NONE) {
        guest_leave(g);
        return;
    }
    memcpy(g->message, &head, sizeof head);
    guest_reply(g, GUEST_LEAVES);
}

void guest_park(struct guest *g, int64_t when) {
    g->activity = PARKED;
    timer_sleep(&g->timer, g->aio, when);
}

void guest_wake(struct guest *g) {
    nng_aio_cancel(g->aio);
}

/* ---- turns ---- */

/* A stranger has no more time for sending a byte now and then; a guest may be silent between two messages. */
static int64_t guest_time(const struct guest *g) {
    if (!g->known) return g->came + DOOR_SECONDS * 1000000000LL;
    return g->activity == RECEIVES && g->done == 0 ? INT64_MAX : clock_ns() + MOVE_MS * 1000000LL;
}

void guest_receive(struct guest *g) {
    size_t begun = g->tls ? 0 : g->strange;
    nng_iov iov = {.iov_buf = g->raw + begun, .iov_len = sizeof g->raw - begun};
    g->activity = RECEIVES;
    nng_aio_set_iov(g->aio, 1, &iov);
    timer_set(&g->timer, g->aio, guest_time(g));
    nng_stream_recv(g->stream, g->aio);
}

/* false: there is nothing to be sent. */
static bool guest_send(struct guest *g) {
    nng_iov iov = {0};
    if (g->tls) iov.iov_len = tls_pending(g->tls, &iov.iov_buf);
    if (!iov.iov_len) return false;
    g->activity = SENDS;
    nng_aio_set_iov(g->aio, 1, &iov);
    timer_set(&g->timer, g->aio, guest_time(g));
    nng_stream_send(g->stream, g->aio);
    return true;
}

static bool guest_listen(struct guest *g) {
    if (g->room > KEEP_BYTES) { /* big messages are rare */
        free(g->message);
        g->message = NULL;
        g->room = 0;
    }
    g->replies = false;
    g->done = 0;
    g->total = sizeof(struct door_head);
    return guest_room(g, DOOR_STRANGER_MAX) == ERR_NONE;
}

/* The head of a message is there. false: it does not go on. */
static bool guest_head(struct guest *g) {
    struct door_head head;
    memcpy(&head, g->message, sizeof head);
    if (head.magic != DOOR_MAGIC) {
        guest_warn(g, "which sent garbage");
        guest_leave(g);
    } else if (head.version != DOOR_VERSION) {
        guest_refuse(g, DOOR_OTHER, "which speaks another version");
    } else if (head.bytes < sizeof head || head.bytes > (g->known ? g->door->ops->most : DOOR_STRANGER_MAX)) {
        guest_refuse(g, DOOR_BAD, "whose message has an impossible length");
    } else if (guest_room(g, head.bytes) != ERR_NONE) {
        guest_leave(g);
    } else {
        g->total = head.bytes;
        return true;
    }
    return false;
}

/* A whole message is there. The one that it waits for is of a socket that is still its own. */
static void guest_message_there(struct guest *g) {
    if (!g->known && g->door->ours && !remote_is_ours(g->stream)) {
        guest_refuse(g, DOOR_FOREIGN, "which is another user's");
        return;
    }
    guest_known(g);
    g->door->ops->message(g->door->user, g);
}

static void guest_read(struct guest *g) {
    for (;;) {
        int n = tls_read(g->tls, g->message + g->done, g->total - g->done);
        if (n < 0) {
            guest_warn(g, "whose message was changed on the way");
            guest_leave(g);
            return;
        }
        g->done += (size_t)n;
        if (n == 0) break;
        if (g->done < g->total) continue;
        if (g->total == sizeof(struct door_head) && !guest_head(g)) return;
        if (g->done < g->total) continue;
        guest_message_there(g);
        return;
    }
    if (!guest_send(g)) guest_receive(g); /* TLS may have something to say of its own */
}

static void guest_write(struct guest *g) {
    size_t left = g->total - g->done, n = left < TLS_PIECE ? left : TLS_PIECE;
    if (n && tls_write(g->tls, g->message + g->done, n)) {
        g->done += n;
        (void)guest_send(g);
    } else if (n || g->then == GUEST_LEAVES || (g->then == GUEST_STAYS && !guest_listen(g))) {
        guest_leave(g);
    } else if (g->then == GUEST_KEPT) {
        guest_keep(g);
    } else {
        guest_read(g);
    }
}

/* TLS says to the other end what is wrong, as far as that end speaks it. */
static void guest_shake(struct guest *g) {
    enum tls_step step = tls_shake(g->tls);
    g->shaken = step == TLS_OPEN;
    g->refused = step == TLS_REFUSED || step == TLS_GARBAGE;
    if (g->refused) guest_warn(g, step == TLS_GARBAGE ? "which sent garbage" : "which has another token, or none");
    if (g->shaken && *g->door->key) guest_known(g);
    if (guest_send(g)) return;
    if (g->refused)
        guest_leave(g);
    else if (g->shaken)
        guest_read(g);
    else
        guest_receive(g);
}

static void guest_turn(struct guest *g) {
    if (guest_send(g)) return;
    if (g->refused)
        guest_leave(g);
    else if (!g->tls)
        guest_receive(g);
    else if (!g->shaken)
        guest_shake(g);
    else if (g->replies)
        guest_write(g);
    else
        guest_read(g);
}

/* More bytes of the first record. A stranger has no cryptography, which is ten times as big as it, before all of that
 * record is there: who stops within a hello costs little. */
static bool guest_began(struct guest *g) {
    if (g->strange < TLS_RECORD_HEAD || g->strange < TLS_RECORD_HEAD + tls_record_rest(g->raw))
        return g->strange < sizeof g->raw;
    return tls_create(g->door->key, false, &g->tls) == ERR_NONE && guest_listen(g) &&
           tls_put(g->tls, g->raw, g->strange);
}

/* false: the guest has to go. */
static bool guest_moved(struct guest *g) {
    size_t n = nng_aio_count(g->aio);
    if (g->activity == SENDS) {
        tls_sent(g->tls, n);
        return true;
    }
    if (!g->known) g->strange += n;
    if (!g->tls) return guest_began(g);
    return g->strange <= STRANGER_BYTES && tls_put(g->tls, g->raw, n);
}

static void on_guest(void *arg) {
    struct guest *g = arg;
    int rv = nng_aio_result(g->aio);
    timer_clear(&g->timer);
    if (g->activity == PARKED) { /* woken or not, it looks again */
        g->door->ops->woken(g->door->user, g);
        return;
    }
    bool unwanted = guest_is_unwanted(g), good = !rv && !unwanted && guest_moved(g);
    if (good) {
        guest_turn(g);
        return;
    }
    if (!g->known)
        guest_warn(g, rv == NNG_ETIMEDOUT ? "which was silent"
                      : unwanted          ? "which was too slow in a crowd"
                      : rv                ? "which hung up in its hello"
                                          : "which sent too much");
    guest_leave(g);
}

/* ---- coming ---- */

struct guest *guest_create(struct door *d, nng_stream *stream) {
    struct guest *g = calloc(1, sizeof *g + d->ops->guest_own);
    if (!g || nng_aio_alloc(&g->aio, on_guest, g) != 0) {
        free(g);
        nng_stream_free(stream);
        return NULL;
    }
    g->door = d;
    g->stream = stream;
    g->came = clock_ns();
    return g;
}
