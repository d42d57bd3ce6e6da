/* Nodes inside: those of a round, and how node 0 chooses those of the next one. */
#pragma once
#include "transport/launch/nodes.h"
#include <string.h>

enum { LOOK_NS = 50000000, HEAR_NS = 1000000000 };  /* between two looks at the store; for others to hear of the end */
enum { FIRST_S = 2, TELL_S = 5 };                   /* until the first word of who is awaited, and between two */
enum { LOCALS_MAX = 1 << 16, WORLD_MAX = 1 << 20 }; /* of what others say */
struct present {                                    /* a node of the round that this one was in last */
    int index, locals, servers;                     /* servers: of the locals */
    int first, first_server;                        /* ranks */
    bool gone;
    unsigned long long member; /* of the store */
    char who[128];
};
struct nodes {
    const struct nodes_params *p;
    struct pool *pool; /* of the round */
    struct store *store;
    char url[320];
    uint32_t instance;
    int rounds;
    int began, world;    /* ranks of the first round, of the last one */
    char last[64];       /* round that this node was in */
    char older[64];      /* the one before that */
    int64_t over;        /* since when the last one is known to be over elsewhere; 0: it is not */
    bool failed;         /* the ranks here have failed, and the others can hear it */
    int count, own;      /* of the nodes below; which this one is */
    struct present at[]; /* room for two of each node: one that is lost, and the one that comes in its place */
};

/* Whether the number of nodes is not fixed. */
static inline bool nodes_flexible(const struct nodes *n) {
    return n->p->nodes_min > 0 && n->p->nodes_min < n->p->nodes_max;
}

#define NODES_COME "come/" /* begins the keys of those that wait to be taken in */
#define NODES_END "end "   /* stands where a round's name would, and the reason after it */
static inline bool nodes_end(const char *text) {
    return !strncmp(text, NODES_END, strlen(NODES_END));
}

/* Node 0: what stands after the name of the next round, or why there is none ("end ..."). Where nothing is fixed it
 * waits for those that are to come. loss as for nodes_meet. */
MUST_CHECK enum error nodes_choose(struct nodes *n, struct nodes_loss *loss, const char **list);
