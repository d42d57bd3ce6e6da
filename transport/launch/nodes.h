/* Several hosts run 'engine run' for one run: node 0 keeps the store, and before ranks are started
 * all nodes meet in it. When ranks are lost they meet again, in another round; a node that was lost
 * with all its processes may come back for it, node 0 too. */
#pragma once
#include "transport/launch/rendezvous.h"

struct nodes_params {
    int index, count;
    int locals;         /* ranks that this node will start */
    const char *master; /* HOST:PORT of node 0; NULL: there is one node, whose ranks need a store */
    const char *token;
    const struct fact *facts;
    int nfacts;
    bool again;     /* a run that has begun without this node may be joined at its next round */
    double timeout; /* of each meeting */
};
/* HOST:PORT of a HOST, HOST:PORT, an IPv6 address, or one in brackets with or without a port. */
MUST_CHECK enum error nodes_master(const char *text, int64_t port, struct pool *pool, const char **out);
/* What token_find gives for spec, removed from the environment; where it gives none, a random secret
 * for one node. ERR_CONFIG: several need one in common. */
MUST_CHECK enum error nodes_token(const char *spec, int count, struct pool *pool, const char **out);
struct nodes;
/* Waits for no one. p is borrowed. */
MUST_CHECK enum error nodes_open(const struct nodes_params *p, struct nodes **out);
void nodes_close(struct nodes *n);

struct nodes_round {
    char name[64];     /* for the ranks' rendezvous */
    int first, world;  /* this node's first rank, ranks in all */
    const char *store; /* URL where the ranks meet */
};
/* All nodes are here, for the first time or once more. out's texts live until the next call. */
MUST_CHECK enum error nodes_meet(struct nodes *n, struct nodes_round *out);
