/* Several hosts run 'engine run' for one run: node 0 keeps the store, and before ranks are started all nodes meet in
 * it. When ranks are lost they meet again, in another round; a node that was lost with all its processes may come back
 * for it, node 0 too. Where fewer devices are enough, the nodes that are left meet without it; but node 0 has to be
 * among them. One that comes back, or comes for the first time into a run that may have more nodes, waits until they
 * meet to take it in. */
#pragma once
#include "transport/launch/rendezvous.h"

struct nodes_params {
    int index;
    /* How many nodes there may be. They begin when nodes_max have come, or when nodes_min have and no other has come for
     * three seconds; of those that are left after a loss nodes_min are enough. nodes_min 0: all are needed. */
    int nodes_min, nodes_max;
    int locals;               /* ranks that this node will start */
    int servers, all_servers; /* of them, and of all nodes' ranks, those that have no device. None may be lost */
    const char *master;       /* HOST:PORT of node 0; NULL: there is one node, whose ranks need a store */
    const char *token;
    const struct fact *facts;
    int nfacts;
    bool again;       /* a run that has begun without this node may be joined at its next round */
    double timeout;   /* of each meeting */
    bool needs_first; /* ranks cannot go on without those of node 0 */
    int least;        /* ranks that are enough to go on when others are lost; 0: all are needed */
    double patience;  /* how long node 0 waits for a node that may be lost (with least), and any node for its ranks to
                        end, once those of others have */
};
/* Checks that 'left' devices can continue without these ranks, of which the first 'servers' are none's. ERR_PEER: they
 * cannot. */
MUST_CHECK enum error nodes_suffice(int left, int least, const int *lost, int nlost, int servers);
/* HOST:PORT of a HOST, HOST:PORT, an IPv6 address, or one in brackets with or without a port. */
MUST_CHECK enum error nodes_master(const char *text, int64_t port, struct pool *pool, const char **out);
/* What token_find gives for spec, "" only for one node. ERR_CONFIG: several need one in common. */
MUST_CHECK enum error nodes_secret(const char *spec, int count, struct pool *pool, const char **out);
/* That, removed from the environment, or a random secret. */
MUST_CHECK enum error nodes_token(const char *spec, int count, struct pool *pool, const char **out);
struct nodes;
/* Waits for no one. p is borrowed. */
MUST_CHECK enum error nodes_open(const struct nodes_params *p, struct nodes **out);
void nodes_close(struct nodes *n);

struct nodes_loss {  /* why they meet again */
    int locals;      /* ranks that this node can still start; 0: it leaves, with ERR_PEER */
    const int *lost; /* in the round before: of this node; on node 0 afterwards of all, until the next call */
    int nlost;
    bool restarts; /* node 0: where too few are left, all start again */
    bool joins;    /* nothing was lost: nodes that have come back are taken in */
};
struct nodes_round {
    char name[64];     /* for the ranks' rendezvous */
    int first, world;  /* this node's first rank, ranks in all */
    int first_server;  /* servers of all nodes are the first ranks: this node's first one */
    int locals;        /* ranks that this node is to start */
    int nodes;         /* of the round */
    int began;         /* ranks in all of the first round */
    bool whole;        /* after a loss too few were left, so that each node starts all of its ranks again */
    bool partial;      /* a node of the round has lost some of its devices */
    bool fewer;        /* there are fewer nodes than there may be */
    const char *store; /* URL where the ranks meet */
};
/* All nodes are here, for the first time or (loss NULL) once more; with a loss, those that are left. out's texts live
 * until the next call. ERR_PEER: too few are left. */
MUST_CHECK enum error nodes_meet(struct nodes *n, struct nodes_loss *loss, struct nodes_round *out);
/* The ranks of this node have failed: the others hear of it. n NULL, here and below: there is one node. */
void nodes_tell_failure(struct nodes *n);
/* Whether the ranks of the others have failed or ended some time ago, so that those of this node hang, which still run. */
bool nodes_are_over(struct nodes *n);
/* Whether nodes that have come back wait to join, according to the store (NULL: none does). */
bool nodes_wait(struct store *s);
