/* The algorithms of transport/algo and dp's exchanges, message by message over a simulated network, with senders,
 * receivers and order as their essays say. Times are those of the ranks' communication lanes. */
#pragma once
#include "lab/predict/network.h"

struct exchange {
    struct network net;
    int size;      /* devices, and the servers that only serve: the last */
    int servers;   /* that only serve */
    int owners;    /* as in struct sharing */
    double *at;    /* of each rank: when it can go on; callers move it forward */
    double *after; /* within a round */
    double *was;   /* some rounds ago */
    struct message *round;
    int terms, own;                 /* as places has them */
    double gamma;                   /* seconds a byte added */
    bool near;                      /* ranks of a host reach each other's memory */
    int locals;                     /* as places.locals */
    bool plain;                     /* every message by itself, though rounds repeat: to check the other against */
    const struct algo_ops *plugged; /* of SCHEME_OWN: set by whoever has opened this */
    struct own_rehearsal *rehearsals;
    double own_bytes; /* that all ranks have sent by it */
};
MUST_CHECK enum error exchange_open(const struct network_plan *p, bool near, int leaves, struct exchange *out);
void exchange_close(struct exchange *e);

/* The sum of 'bytes' on all ranks. s: RING, TREE, HALVING, HIERARCHICAL, DIRECT, or STAR with rank 0 the server. */
MUST_CHECK enum error exchange_all_reduce(struct exchange *e, enum scheme s, double bytes);
/* SCHEME_OWN (exchange_own.c). */
MUST_CHECK enum error exchange_own(struct exchange *e, double bytes);
void exchange_own_close(struct exchange *e);
/* dp: to one server, and from it; where every rank serves its part, to the owners and from them. */
void exchange_reduce(struct exchange *e, int root, double bytes);
void exchange_broadcast(struct exchange *e, int root, double bytes);
MUST_CHECK enum error exchange_reduce_scatter(struct exchange *e, double bytes);
MUST_CHECK enum error exchange_all_gather(struct exchange *e, double bytes);
/* Ranks 1, 2, 4, ... apart swap all that they have, and add (modes/share/adasum.c). */
void exchange_swaps(struct exchange *e, double bytes);
/* Each rank and one beside it, another one in every other meeting (modes/share/neighbour.c). */
void exchange_neighbours(struct exchange *e, int64_t meeting, double bytes);
