/* A station is where the process of one rank meets the others before it has a group: it finds out
 * who they are and where, and prepares what group_open needs. */
#pragma once
#include "transport/group.h"
#include "transport/launch/rendezvous.h"

struct station_params {
    int rank, size;
    int locals;       /* without a master: how many share meeting_fd */
    int meeting_fd;   /* of this host's ranks, inherited from who started them; -1: none */
    const char *link; /* a name of links.def, or "auto": what fits where the ranks are */
    /* NULL: the ranks share meeting_fd and that is all they need. */
    const char *master;              /* URL of the store where they meet */
    bool serve;                      /* this process keeps the store */
    const char *token, *run, *round; /* see store.h and rendezvous.h */
    /* Ranks that give the same may share memory; NULL: those of one kernel, with the same processes
     * and network in sight. */
    const char *node;
    const char *interface; /* NULL: loopback where all are on one host, else what reaches master */
    const struct fact *facts;
    int nfacts;
    double timeout;
};
/* The environment variables that the starter of ranks sets, besides those of token.h. */
#define ROUND_VARIABLE "ENGINE_ROUND"
#define NODE_VARIABLE "ENGINE_NODE"
const char *station_variable(const char *name); /* NULL: it is not set, or empty */
/* The values from the starter of this process: master (NULL: the ranks share all they need), token, round and node. */
MUST_CHECK enum error station_told(struct pool *pool, struct station_params *out);
struct station;
MUST_CHECK enum error station_open(const struct station_params *p, struct station **out);
void station_close(struct station *s);
/* rank, size, link, meeting, roster, port and id are filled; the rest is for the caller. */
const struct group_params *station_group(const struct station *s);
struct store *station_store(const struct station *s); /* NULL: they needed none */
