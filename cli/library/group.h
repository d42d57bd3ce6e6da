/* A group of the public C interface: what its files share. */
#pragma once
#include "engine/engine.h"
#include "transport/flight/flight.h"
#include "transport/group.h"

struct engine_group {
    struct group *group;
    struct station *station; /* NULL: of a subgroup */
    struct pool *pool;
    int64_t *part, *from; /* (size + 1), for calls in parts */
    char choice[256];
    struct group_flight *flight; /* NULL: nothing is recorded */
    int splits;                  /* so far */
    bool aborted;
};
