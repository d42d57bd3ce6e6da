/* An all-reduce of your own: a ring.
 *
 * The ranks stand in a circle; each sends to its right and receives from its left, and the buffer is cut in N chunks.
 *
 *     steps s = 0 .. N-2:  send chunk r-s,   receive chunk r-s-1 and add my own to it
 *                          now chunk r+1 is complete at rank r
 *     steps s = 0 .. N-2:  send chunk r+1-s, receive chunk r-s
 *
 * Build and check it:  engine check algorithm.c
 * Use it:              engine run config.yaml --devices cpu:4 --set comm.algorithm=./algorithm.so */
#include "engine_plugin.h"

static int64_t chunk_at(const struct engine_call *c, int k) {
    return engine_chunk(c->count, c->size, k);
}

/* Chunk k, which goes to or comes from a neighbour: -1, the left one, or 1. */
static struct engine_leg chunk(const struct engine_call *c, int neighbour, int k, int landing) {
    int n = c->size;
    k = (k % n + n) % n;
    return engine_leg(c, (c->rank + neighbour + n) % n, chunk_at(c, k), chunk_at(c, k + 1) - chunk_at(c, k), landing);
}

static int all_reduce(struct engine_call *c) {
    int r = c->rank, failed = 0;
    for (int s = 0; s < c->size - 1 && !failed; s++) {
        struct engine_leg out = chunk(c, 1, r - s, ENGINE_COPY), in = chunk(c, -1, r - s - 1, ENGINE_ADD_LEFT);
        failed = c->exchange(c, &out, &in);
    }
    for (int s = 0; s < c->size - 1 && !failed; s++) {
        struct engine_leg out = chunk(c, 1, r + 1 - s, ENGINE_COPY), in = chunk(c, -1, r - s, ENGINE_COPY);
        failed = c->exchange(c, &out, &in);
    }
    return failed;
}

/* Every chunk is sent twice, but for one each time. */
static void plan(int32_t rank, int32_t size, int64_t count, struct engine_plan *out) {
    int64_t first = engine_chunk(count, size, (rank + 1) % size + 1) - engine_chunk(count, size, (rank + 1) % size);
    int next = (rank + 2) % size;
    int64_t second = engine_chunk(count, size, next + 1) - engine_chunk(count, size, next);
    int64_t own = engine_chunk(count, size, rank + 1) - engine_chunk(count, size, rank);
    out->sent = 2 * count - first - second;
    out->received = 2 * count - own - first;
    out->steps = 2 * (size - 1);
}

static const struct engine_algorithm ring = {ENGINE_RING, all_reduce, plan};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION,
    .about = "a ring: 2(N-1) steps, no port hotter than another",
    .algorithm = &ring,
};
