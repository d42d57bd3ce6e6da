/* Lab 25: an all-reduce by a binary tree. At first this does nothing, and 'engine check tree.c' says so.
 *
 *     d = 1: rank 1 sends all to 0, 3 to 2, 5 to 4, ...      which add it
 *     d = 2: rank 2 sends all to 0, 6 to 4, ...              and so on: rank 0 has the sum after log2(N) steps
 *
 * and then the sum goes back by the same way, for N ranks of any number. A rank that is done with the first half waits for
 * the second. c->exchange(c, &out, &in) sends and receives at once; NULL stands for nothing in that direction. */
#include "engine_plugin.h"

/* All of the buffer, to or from a rank. Where the peer is on the right of this rank, what comes is added on the right:
 * ENGINE_ADD_RIGHT. */
static inline struct engine_leg whole(const struct engine_call *c, int peer, int landing) {
    return engine_leg(c, peer, 0, c->count, landing);
}

static int all_reduce(struct engine_call *c) {
    (void)c; /* TODO */
    return 0;
}

static const struct engine_algorithm tree = {ENGINE_TREE, all_reduce, NULL}; /* a plan is welcome */

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "my tree", .algorithm = &tree};
