/* Several hosts run 'engine run' for one run: node 0 keeps the store, and before ranks are started
 * all nodes meet in it. When ranks are lost they meet again, in another round; a node that was lost
 * with all its processes may come back for it, node 0 too. */
#pragma once
#include "transport/launch/rendezvous.h"

struct nodes_params {
    int index, count;
    int locals;         /* ranks that this node will start */
    const char *master; /* HOST:PORT of node 0 */
    const char *token;
    const struct fact *facts;
    int nfacts;
    bool again;     /* a run that has begun without this node may be joined at its next round */
    double timeout; /* of each meeting */
};
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
