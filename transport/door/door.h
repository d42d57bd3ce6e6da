/* A door: a listening socket of this process, and all that comes in by it: clients of a store, nodes, and ranks.
 *
 * Whoever connects is a guest. It proves in TLS (tls.h) that it holds the door's key; where there is no key, the
 * door's owner may demand that it is a process of this user on this host. Then it sends messages, each a head and the
 * bytes that it announces, and the owner answers each. All of it runs in nng's callbacks, and nothing in them waits.
 *
 * Until a guest has proven itself it is a stranger: it has ten seconds from when it came, its messages are short, and
 * when there are many strangers the one who came first has to go: an honest one takes milliseconds, and tries again.
 *
 * These are nng's streams, not its REP socket: of that one, version 1.5.2, a connection which is closed while a message
 * arrives on it stays behind half closed, and whoever closes the socket waits for it for ever. Nor can it tell a
 * stranger from a guest before the message is there. */
#pragma once
#include "transport/base/timer.h"
#include "transport/door/remote.h"
#include "transport/door/tls.h"

#include <nng/nng.h>

enum {
    DOOR_VERSION = 9,
    DOOR_STRANGER_MAX = 512, /* bytes of a stranger's message */
    DOOR_SECONDS = 10,       /* a stranger's time */
};
#define DOOR_MAGIC 0x73676e45u /* "Engs" */
/* Begins each message, in both directions; the same in every version. Numbers are in the host's order: the magic of a
 * host of the other order is garbage. */
struct door_head {
    uint32_t magic, version;
    uint32_t bytes; /* of the message, with this head */
    uint32_t kind;  /* of a request: a kind of its owner; of a reply: 0 or more of its owner, or as below */
};
/* Why there is no reply, beyond all of the owners' kinds: the version is another; the message makes no sense; there is no
 * key, and the guest is another user's or another host's. */
enum door_status { DOOR_OTHER = 1 << 16, DOOR_BAD, DOOR_FOREIGN };
static inline struct door_head door_head(uint32_t kind, size_t bytes) {
    return (struct door_head){DOOR_MAGIC, DOOR_VERSION, (uint32_t)bytes, kind};
}

struct door;
struct guest;
struct stream { /* that a door has let in, or that has been dialed: its bytes are the owner's from here on */
    nng_stream *s;
    bool dialed; /* by this process */
    uint8_t session[SHA256_BYTES];
};
struct door_ops {
    /* "store", as in "cannot serve a store at ..."; and, where the address is not this host's, what to look at. */
    const char *what, *elsewhere;
    size_t most;      /* bytes of a message of a guest that is no stranger */
    size_t guest_own; /* bytes of the owner in each guest, zeroed at first */
    /* A message is there, or a guest that was parked wakes. Ends with guest_reply, _refuse, _park or _leave. */
    void (*message)(void *user, struct guest *g);
    void (*woken)(void *user, struct guest *g); /* NULL: none is parked */
    /* After a reply that keeps: the stream is the owner's. NULL: none is kept. */
    void (*keep)(void *user, struct guest *g, const struct stream *s);
};
struct door_params {
    const struct door_ops *ops;
    void *user;
    const char *at;  /* "127.0.0.1:29500", "[::1]:0" */
    const char *key; /* text; "": there is none */
    bool ours;       /* where there is no key: only processes of this user on this host come in */
};
/* *port is the one that was taken. */
MUST_CHECK enum error door_open(const struct door_params *p, struct door **out, int *port);
/* No callback runs any more when it returns. */
void door_close(struct door *d);
/* Whom the door has turned away last, and why: "10.0.0.2:41234, which has another token"; false: nobody. */
bool door_turned_away(struct door *d, char out[128]);
/* Calls 'visit' for every guest that is no stranger, until it returns true, which is what this returns then. The
 * owner's bytes of a guest are its own to protect. */
bool door_guests(struct door *d, bool (*visit)(void *user, struct guest *g), void *user);

/* ---- guests: for the owner, in its callbacks ---- */
void *guest_own(struct guest *g);
/* The message, from its head on, and its bytes. Room makes more of it, for a reply to be written there. */
uint8_t *guest_message(struct guest *g, size_t *n);
MUST_CHECK enum error guest_room(struct guest *g, size_t n);
enum guest_then { GUEST_STAYS, GUEST_LEAVES, GUEST_KEPT };
/* What lies in the message's place is the reply. */
void guest_reply(struct guest *g, enum guest_then then);
/* A reply without content, of a door_status, after which the guest leaves; what: "which has another token": a warning,
 * at most one line in ten seconds. */
void guest_refuse(struct guest *g, uint32_t status, const char *what);
/* The guest sleeps until 'when' (clock_ns) or guest_wake. Another thread may have it already when this returns. */
void guest_park(struct guest *g, int64_t when);
void guest_wake(struct guest *g); /* any thread, also while it is not parked; the owner keeps it from leaving */
void guest_leave(struct guest *g);
