/* The inside of a door: its list of guests (door.c), and what a guest does (guest.c). */
#pragma once
#include "transport/base/secret.h"
#include "transport/door/door.h"

#include <pthread.h>

enum { DOOR_RAW = 8192 /* bytes received at once */ };
enum activity { RECEIVES, SENDS, PARKED };
struct guest { /* a connection */
    struct door *door;
    nng_aio *aio;
    struct timer timer;
    nng_stream *stream;
    struct tls *tls; /* NULL: its first record is not all there */
    enum activity activity;
    bool shaken;  /* the handshake is over */
    bool replies; /* the message is a reply, of which 'done' bytes are in the hands of tls */
    bool refused; /* the last bytes leave, then the guest */
    enum guest_then then;
    uint8_t *message;
    size_t room, done, total;
    size_t strange; /* bytes received as a stranger */
    int64_t came;
    /* The door's lock protects the following members. */
    bool known, unwanted; /* known: no stranger */
    int index;            /* in the door's guests; -1: in none */
    struct guest *next;   /* in those that are gone */
    uint8_t raw[DOOR_RAW];
    _Alignas(16) uint8_t own[];
};
struct door {
    const struct door_ops *ops;
    void *user;
    char key[SECRET_SIZE];
    bool ours;
    nng_stream_listener *listener;
    nng_aio *accept;
    struct timer rest;
    bool resting;          /* the accept aio sleeps, since the process is out of descriptors */
    pthread_mutex_t lock;  /* of what follows */
    struct guest **guests; /* in no order */
    int count, room, strangers;
    struct guest *gone; /* have left, and wait to be freed */
    bool closing;
    int64_t warned; /* when; 0: never */
    int unwarned;   /* since then */
    char turned_away[128];
};

/* ---- door.c ---- */
void guest_warn(struct guest *g, const char *what);
/* It has proven itself: it is no stranger any more. */
void guest_known(struct guest *g);
bool guest_is_unwanted(struct guest *g);
/* Out of the door's list. The guest is freed later: another thread may just be cancelling what has ended here, and use
 * it to the last. */
void guest_remove(struct guest *g);

/* ---- guest.c ---- */
/* NULL: no memory; the stream is freed. */
struct guest *guest_create(struct door *d, nng_stream *stream);
/* Listens; from here on its callback has it. */
void guest_receive(struct guest *g);
/* Waits until nobody uses the guest, nor therefore its stream. Not in its own callback. */
void guest_free(struct guest *g);
