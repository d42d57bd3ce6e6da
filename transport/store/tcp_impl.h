/* The interface between the parts of a tcp store. */
#pragma once
#include "transport/base/remote.h"
#include "transport/base/timer.h"
#include "transport/store/address.h"
#include "transport/store/table.h"
#include "transport/store/wire.h"

#include <nng/nng.h>
#include <pthread.h>

struct server;
/* Serves a store on that endpoint; *port is the one that was taken. */
MUST_CHECK enum error server_open(const struct store_params *p, const struct endpoint *at, struct server **out,
                                  int *port);
void server_close(struct server *s);
bool server_turned_away(struct server *s, char out[128]);
bool server_sees(struct server *s, uint64_t client);

/* ---- the inside of the server ---- */

enum guest_phase {
    READ_START, /* of a message */
    READ_REST,
    WRITE,  /* the reply */
    PARKED, /* until the key comes, or the time is over */
};
struct guest { /* a connection */
    struct server *server;
    nng_aio *aio;
    struct timer timer;
    nng_stream *stream;
    enum guest_phase phase;
    uint8_t *buffer; /* the message, then the reply to it */
    size_t room, done, total;
    struct wire_request h; /* what q says lies in the buffer */
    struct request q;
    bool leaves; /* after the reply */
    int64_t came;
    /* The server's lock protects the following members. */
    bool proven, unwanted, parked;
    uint64_t client;    /* that has proven the secret here */
    int index;          /* in the server's guests */
    struct guest *next; /* in those that are gone */
};
struct client { /* the last change that one has made */
    uint64_t id, number;
    struct store_answer last; /* without its value */
    uint64_t used;            /* by the clock of changes */
};
enum {
    GUESTS_MAX = 4096,
    STRANGERS_MAX = 128, /* guests that have proven nothing */
    CLIENTS_MAX = 4096,
};
struct server {
    nng_stream_listener *listener;
    nng_aio *accept;
    struct timer rest;
    bool resting; /* the accept aio sleeps, since the process is out of descriptors */
    char key[SECRET_SIZE], run[STORE_KEY_MAX + 1];
    uint8_t nonce[WIRE_NONCE];
    pthread_mutex_t lock;             /* of what follows */
    struct guest *guests[GUESTS_MAX]; /* in no order */
    int count, strangers;
    struct guest *gone; /* have left, and wait to be freed */
    bool closing;
    struct store_table *table;
    struct client clients[CLIENTS_MAX];
    int nclients;
    uint64_t changes;
    int64_t warned; /* when; 0: never */
    int unwarned;   /* since then */
    char turned_away[128];
};

/* Takes the request in the guest's buffer; slept: again, after it was parked. true: a reply of 'total' bytes is there
 * instead. false: the guest was parked, and may already be another thread's. */
bool request_take(struct guest *g, bool slept);
/* Puts a reply of that status, without an answer, into the buffer; what: the warning. */
void request_refuse(struct guest *g, uint32_t status, const char *what);
/* Room for n bytes, what was there stays. */
MUST_CHECK enum error guest_room(struct guest *g, size_t n);
void guest_proven(struct guest *g);
/* Warns that someone did what nobody should, "10.0.0.2:41234, which has another token"; at most one
 * line in ten seconds. */
void guest_warn(struct guest *g, const char *what);
