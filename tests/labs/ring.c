/* A solution of lab 24, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

enum { RIGHT, ROUND_TOO_FEW, NO_SECOND_HALF, NEGATIVE_PEER, RECEIVES_FIRST, OTHER_WAY_ROUND, ONE_WAY_AT_A_TIME };
#ifndef WRONG
#define WRONG RIGHT
#endif

static struct engine_leg chunk(const struct engine_call *c, int neighbour, int k, int landing) {
    int n = c->size;
    if (WRONG == OTHER_WAY_ROUND) k = 2 * c->rank - k, neighbour = -neighbour;
    k = (k % n + n) % n;
    int64_t first = engine_chunk(c->count, n, k), end = engine_chunk(c->count, n, k + 1);
    return engine_leg(c, WRONG == NEGATIVE_PEER ? (c->rank + neighbour) % n : (c->rank + neighbour + n) % n, first,
                      end - first, landing);
}

static int both(struct engine_call *c, struct engine_leg out, struct engine_leg in) {
    if (WRONG != RECEIVES_FIRST && WRONG != ONE_WAY_AT_A_TIME) return c->exchange(c, &out, &in);
    int first = WRONG == ONE_WAY_AT_A_TIME && c->rank % 2 == 0;
    int failed = c->exchange(c, first ? &out : 0, first ? 0 : &in);
    return failed ? failed : c->exchange(c, first ? 0 : &out, first ? &in : 0);
}

static int all_reduce(struct engine_call *c) {
    int r = c->rank, n = c->size, failed = 0;
    for (int s = 0; s < n - 1 - (WRONG == ROUND_TOO_FEW && n > 2) && !failed; s++)
        failed = both(c, chunk(c, 1, r - s, ENGINE_COPY), chunk(c, -1, r - s - 1, ENGINE_ADD_LEFT));
    for (int s = 0; s < n - 1 && !failed && WRONG != NO_SECOND_HALF; s++)
        failed = both(c, chunk(c, 1, r + 1 - s, ENGINE_COPY), chunk(c, -1, r - s, ENGINE_COPY));
    return failed;
}

static int64_t length(int64_t count, int n, int k) {
    return engine_chunk(count, n, k % n + 1) - engine_chunk(count, n, k % n);
}
static void plan(int32_t rank, int32_t size, int64_t count, struct engine_plan *out) {
    out->sent = 2 * count - length(count, size, rank + 1) - length(count, size, rank + 2);
    out->received = 2 * count - length(count, size, rank) - length(count, size, rank + 1);
    out->steps = 2 * (size - 1);
}

static const struct engine_algorithm ring = {ENGINE_RING, all_reduce, WRONG == RIGHT ? plan : 0};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .algorithm = &ring};
