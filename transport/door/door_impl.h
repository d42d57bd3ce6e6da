/* The inside of a door: its list of guests (door.c), and what a guest does (guest.c). */
#pragma once
#include "transport/base/secret.h"
#include "transport/door/door.h"

#include <pthread.h>

enum phase { COMES, SHAKES, LISTENS, REPLIES, PARKED, GONE };
struct guest { /* a connection */
    struct door *door;
    enum phase phase;
    bool known;           /* no stranger */
    bool ended;           /* the other end has hung up: nothing comes after what is there */
    enum guest_then then; /* of REPLIES */
    int64_t came, due;    /* due: when its time is over, or it wakes; INT64_MAX: never */
    struct talk talk;
    _Alignas(16) uint8_t own[];
};
struct door {
    const struct door_ops *ops;
    void *user;
    char key[SECRET_SIZE];
    bool ours;
    int fd, events; /* the listening socket, and an epoll; -1: none */
    pthread_t thread;
    bool runs;            /* the thread does */
    pthread_mutex_t lock; /* of what follows, and of the guests; the thread has it but while it waits */
    bool closing;
    int64_t rests; /* until when nobody is let in, since the process is out of descriptors; INT64_MAX: it does not */
    struct guest **guests; /* in no order */
    int count, room, strangers;
    int64_t warned; /* when; 0: never */
    int unwarned;   /* since then */
    char turned_away[128];
};

/* ---- door.c ---- */
void guest_warn(struct guest *g, const char *what);

/* ---- guest.c ---- */
/* NULL: no memory; the descriptor is closed. */
struct guest *guest_create(struct door *d, int fd);
/* Lets it go on until bytes have to come or to leave. */
void guest_turn(struct guest *g);
/* Its time is over. */
void guest_due(struct guest *g);
void guest_free(struct guest *g);
