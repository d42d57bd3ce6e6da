/* A guest goes round: it comes, the handshake goes on, a message comes, the reply leaves. A turn takes steps until bytes
 * have to be awaited, or room for them. */
#include "engine/base/clock.h"
#include "transport/door/door_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    STRANGER_BYTES = 8192, /* that a stranger may send, handshake and message */
    KEEP_BYTES = 64 << 10,
};
static const int64_t MOVE_NS = 30000000000; /* for the rest of a message, and for a reply */

/* ---- coming and leaving ---- */

struct guest *guest_create(struct door *d, int fd) {
    struct guest *g = calloc(1, sizeof *g + d->ops->guest_own);
    if (!g) {
        close(fd);
        return NULL;
    }
    g->door = d;
    g->talk.fd = fd;
    g->talk.most = STRANGER_BYTES;
    g->came = clock_ns();
    g->due = g->came + DOOR_SECONDS * 1000000000LL;
    return g;
}

void guest_leave(struct guest *g) {
    if (!g->known) g->door->strangers--;
    talk_end(&g->talk);
    g->phase = GONE;
    g->due = INT64_MAX;
}

void guest_free(struct guest *g) {
    talk_free(&g->talk);
    free(g);
}

static void guest_known(struct guest *g) {
    if (!g->known) g->door->strangers--;
    g->known = true;
    g->talk.most = SIZE_MAX;
}

static void guest_keep(struct guest *g) {
    struct stream s;
    if (talk_keep(&g->talk, &s) == ERR_NONE) {
        (void)epoll_ctl(g->door->events, EPOLL_CTL_DEL, s.fd, NULL);
        g->door->ops->keep(g->door->user, g, &s);
    }
    guest_leave(g);
}

/* It does not go on, for now (EAGAIN) or for ever. */
static bool guest_stop(struct guest *g, int err) {
    if (err == EAGAIN) return false;
    if (err == EBADMSG)
        guest_warn(g, "whose message was changed on the way");
    else if (!g->known)
        guest_warn(g, err == EMSGSIZE ? "which sent too much" : "which hung up in its hello");
    guest_leave(g);
    return false;
}

/* ---- messages, by their owner ---- */

void *guest_own(struct guest *g) {
    return g->own;
}

uint8_t *guest_message(struct guest *g, size_t *n) {
    *n = g->talk.total;
    return g->talk.message;
}

uint8_t *guest_room(struct guest *g, size_t n) {
    return talk_room(&g->talk, n);
}

void guest_reply(struct guest *g, enum guest_then then) {
    struct door_head head;
    memcpy(&head, g->talk.message, sizeof head);
    g->phase = REPLIES;
    g->talk.done = 0;
    g->talk.total = head.bytes;
    g->then = then;
}

void guest_refuse(struct guest *g, uint32_t status, const char *what) {
    struct door_head head = door_head(status, sizeof head);
    guest_warn(g, what);
    memcpy(g->talk.message, &head, sizeof head); /* it has room for a stranger's message at least */
    guest_reply(g, GUEST_LEAVES);
}

void guest_park(struct guest *g, int64_t when) {
    g->phase = PARKED;
    g->due = when;
}

void guest_wake(struct guest *g) {
    if (g->phase == PARKED) g->due = 0;
}

/* ---- steps: false where there is nothing more to be done now ---- */

static bool guest_listen(struct guest *g) {
    if (g->talk.room > KEEP_BYTES) { /* big messages are rare */
        free(g->talk.message);
        g->talk.message = NULL;
        g->talk.room = 0;
    }
    g->talk.done = 0;
    g->talk.total = sizeof(struct door_head);
    return talk_room(&g->talk, DOOR_STRANGER_MAX) != NULL;
}

/* A stranger has no cryptography, which is ten times as big as it, before all of its first record is there: who stops
 * within a hello costs little. */
static bool guest_come(struct guest *g) {
    uint8_t first[STRANGER_BYTES];
    ssize_t n = recv(g->talk.fd, first, sizeof first, MSG_PEEK);
    if (n <= 0) return guest_stop(g, n ? errno : ECONNRESET);
    size_t record = TLS_RECORD_HEAD + (n < TLS_RECORD_HEAD ? 0 : tls_record_rest(first));
    if (record > sizeof first) return guest_stop(g, EMSGSIZE);
    if ((size_t)n < record) return guest_stop(g, g->ended ? ECONNRESET : EAGAIN);
    g->phase = SHAKES;
    bool good = talk_begin(&g->talk, g->talk.fd, g->door->key, false) == ERR_NONE && guest_listen(g);
    if (!good) guest_leave(g);
    return good;
}

/* TLS has said to the other end what is wrong, as far as that end speaks it. */
static bool guest_shake(struct guest *g) {
    uint8_t rest[STRANGER_BYTES];
    int err = talk_shake(&g->talk);
    if (err && err != EKEYREJECTED && err != EPROTO) return guest_stop(g, err);
    g->phase = err ? REPLIES : LISTENS;
    if (!err && *g->door->key) guest_known(g);
    if (!err) return true;
    guest_warn(g, err == EPROTO ? "which sent garbage" : "which has another token, or none");
    (void)!recv(g->talk.fd, rest, sizeof rest, 0); /* a stream that is closed with unread bytes may lose those sent */
    g->talk.done = g->talk.total;
    g->then = GUEST_LEAVES;
    return true;
}

/* The head of a message is there. */
static void guest_read_head(struct guest *g) {
    struct door_head head;
    memcpy(&head, g->talk.message, sizeof head);
    if (head.magic != DOOR_MAGIC) {
        guest_warn(g, "which sent garbage");
        guest_leave(g);
    } else if (head.version != DOOR_VERSION) {
        guest_refuse(g, DOOR_OTHER, "which speaks another version");
    } else if (head.bytes < sizeof head || head.bytes > (g->known ? g->door->ops->most : DOOR_STRANGER_MAX)) {
        guest_refuse(g, DOOR_BAD, "whose message has an impossible length");
    } else if (!talk_room(&g->talk, head.bytes)) {
        guest_leave(g);
    } else {
        g->talk.total = head.bytes;
    }
}

/* The one that its sender waits for is of a socket that is still its own. */
static bool guest_read(struct guest *g) {
    int err = talk_read(&g->talk);
    if (err) return guest_stop(g, err);
    if (g->talk.total == sizeof(struct door_head)) guest_read_head(g);
    if (g->phase != LISTENS || g->talk.done < g->talk.total) return true;
    if (!g->known && g->door->ours && !remote_is_ours(g->talk.fd)) {
        guest_refuse(g, DOOR_FOREIGN, "which is another user's");
        return true;
    }
    guest_known(g);
    g->door->ops->message(g->door->user, g);
    return true;
}

static bool guest_write(struct guest *g) {
    int err = talk_write(&g->talk);
    if (err) return guest_stop(g, err);
    bool stays = g->then == GUEST_STAYS && guest_listen(g);
    g->phase = LISTENS;
    if (g->then == GUEST_KEPT)
        guest_keep(g);
    else if (!stays)
        guest_leave(g);
    return stays;
}

static bool guest_step(struct guest *g) {
    switch (g->phase) {
    case COMES:
        return guest_come(g);
    case SHAKES:
        return guest_shake(g);
    case LISTENS:
        return guest_read(g);
    case REPLIES:
        return guest_write(g);
    case PARKED:
        return guest_stop(g, g->ended ? ECONNRESET : EAGAIN);
    default:
        return false;
    }
}

/* A stranger has no more time for sending a byte now and then; a guest may be silent between two messages. */
void guest_turn(struct guest *g) {
    while (guest_step(g)) {
    }
    bool idle = g->phase == LISTENS && g->talk.done == 0;
    if (g->known && g->phase < PARKED) g->due = idle ? INT64_MAX : clock_ns() + MOVE_NS;
}

void guest_due(struct guest *g) {
    if (g->phase == PARKED) { /* woken or not, it looks again */
        g->door->ops->woken(g->door->user, g);
        guest_turn(g);
        return;
    }
    if (!g->known) guest_warn(g, "which was silent");
    guest_leave(g);
}
