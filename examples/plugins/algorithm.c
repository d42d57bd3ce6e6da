/* An all-reduce of your own: rank 0 adds.
 *
 *     rank 0    receives the terms of 1, 2, 3, ... in turn, adds each to its own, and sends the sum to all
 *     others    send their terms, and receive the sum
 *
 * Two messages for most ranks, but 2(N-1) for rank 0, through whose port all bytes go. The order of addition is
 * ((0+1)+2)+3, which is neither the tree's nor the ring's.
 *
 * Build and check it:  engine check algorithm.c
 * Use it:              engine run config.yaml --devices cpu:4 --set comm.algorithm=./algorithm.so */
#include "engine_plugin.h"

/* All of the buffer, to a rank or from it. */
static struct engine_leg whole(const struct engine_call *c, int peer, int landing) {
    return engine_leg(c, peer, 0, c->count, landing);
}

static int all_reduce(struct engine_call *c) {
    int first = c->rank == 0 ? 1 : 0, last = c->rank == 0 ? c->size - 1 : 0, failed = 0;
    for (int peer = first; peer <= last && !failed; peer++) {
        struct engine_leg out = whole(c, peer, ENGINE_COPY), in = whole(c, peer, ENGINE_ADD_RIGHT);
        failed = c->exchange(c, c->rank == 0 ? NULL : &out, c->rank == 0 ? &in : NULL);
    }
    for (int peer = first; peer <= last && !failed; peer++) {
        struct engine_leg out = whole(c, peer, ENGINE_COPY), in = whole(c, peer, ENGINE_COPY);
        failed = c->exchange(c, c->rank == 0 ? &out : NULL, c->rank == 0 ? NULL : &in);
    }
    return failed;
}

static void plan(int32_t rank, int32_t size, int64_t count, struct engine_plan *out) {
    int64_t peers = rank == 0 ? size - 1 : 1;
    *out = (struct engine_plan){.sent = peers * count, .received = peers * count, .steps = 2 * peers};
}

static const struct engine_algorithm by_rank_0 = {ENGINE_OWN, all_reduce, plan};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION,
    .about = "rank 0 adds: 2 messages for the others, 2(N-1) for rank 0",
    .algorithm = &by_rank_0,
};
