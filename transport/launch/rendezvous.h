/* Members of a run (ranks, or nodes) meet in a store, find that they are what they should be, and
 * learn of each other. Whoever comes twice, or differs in a fact that must be equal, is refused by
 * name on every member; who waits says for whom, every 5 s from 2 s on. */
#pragma once
#include "transport/store/store.h"

struct fact { /* that must be equal on all: "configuration", "build", "data" */
    const char *name, *value;
};
struct rendezvous {
    struct store *store;
    const char *what;  /* "rank" or "node": begins messages and keys */
    const char *round; /* of several meetings in one store, which: begins keys */
    int index, count;
    const int *names; /* (count) how messages number the members, ascending; NULL: by their index */
    const char *who;  /* "hostB, pid 4711": in messages of the others */
    const struct fact *facts;
    int nfacts;
    const char *text; /* what the others are given of this member */
    double timeout;
    bool keeps; /* the store ends with this member: where the meeting fails, it stays for a second
                   more, in which the others hear why */
};
struct attendant {
    char who[128];
    const char *text;
};
/* Returns when all are there: all[0 .. count), pool's. A member asks once and is answered once, with all members, unless
 * the list of them is too long for an answer, or others are awaited for long. ERR_MISMATCH: two members of one index,
 * or facts that differ, with both named: "node 1 (hostB, pid 4711) has another configuration:
 * 3f2a..., but node 0 (hostA, pid 7) 88c1...". ERR_TIMEOUT: "ranks 2, 5 to 9 of 16 have not come within 60 s". */
MUST_CHECK enum error rendezvous_meet(const struct rendezvous *r, struct pool *pool, struct attendant **all);
