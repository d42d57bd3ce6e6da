/* Lab 25: an all-reduce by recursive halving and doubling. At first this does nothing, and 'engine check halving.c' says so.
 *
 * Of N = 2^k ranks, rank r meets rank r ^ d for d = 1, 2, 4, ...: each sends the half of its range that the other keeps,
 * and adds what comes to the half that it keeps itself:
 *
 *     8 elements, rank 0:   d = 1: [0,8) -> keeps [0,4)     d = 2: -> keeps [0,2)     d = 4: -> keeps [0,1), which is summed
 *     and back, d = 4, 2, 1: each sends what it has and receives what the other has
 *
 * With another number of ranks, P being the largest power of two below N: first the ranks 1, 3, 5, ... below 2 (N - P) send
 * all that they have to the rank on their left, and wait for the sum; the P others do the above. */
#include "engine_plugin.h"

static int all_reduce(struct engine_call *c) {
    (void)c; /* TODO; engine_leg(c, peer, first, count, landing) is the leg of elements [first, first + count) */
    return 0;
}

static const struct engine_algorithm halving = {ENGINE_OWN, all_reduce, NULL}; /* a plan is welcome */

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "my halving and doubling", .algorithm = &halving};
