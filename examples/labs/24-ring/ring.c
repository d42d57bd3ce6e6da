/* Lab 24: an all-reduce in a ring. At first this does nothing, and 'engine check ring.c' says so.
 *
 * Each rank has a buffer of c->count elements, and at the end all hold the sum. A rank sends to its right neighbour and
 * receives from its left one, both at once:
 *
 *     struct engine_leg out = chunk(c, 1, k, ENGINE_COPY), in = chunk(c, -1, l, ENGINE_ADD_LEFT);
 *     failed = c->exchange(c, &out, &in);          (ends when both are done; a failure is returned at once)
 *
 * ENGINE_ADD_LEFT adds what comes to what is there; ENGINE_COPY puts it in its place. */
#include "engine_plugin.h"

/* Chunk k, counted around the ring, which goes to or comes from a neighbour: 1, the right one, or -1. */
static inline struct engine_leg chunk(const struct engine_call *c, int neighbour, int k, int landing) {
    int n = c->size;
    k = (k % n + n) % n;
    int64_t first = engine_chunk(c->count, n, k), end = engine_chunk(c->count, n, k + 1);
    return engine_leg(c, (c->rank + neighbour + n) % n, first, end - first, landing);
}

static int all_reduce(struct engine_call *c) {
    int failed = 0;
    (void)c;
    /* TODO, 1: N - 1 exchanges, after which this rank has the whole sum of one chunk. Which chunk leaves in step s, and
     * which one arrives?
     * TODO, 2: N - 1 more, after which it has all of them. */
    return failed;
}

/* Given: what a rank sends and receives in one call, to which the engine holds it. Two chunks are not sent, and two are not
 * received. */
static int64_t length(int64_t count, int n, int k) {
    return engine_chunk(count, n, k % n + 1) - engine_chunk(count, n, k % n);
}
static void plan(int32_t rank, int32_t size, int64_t count, struct engine_plan *out) {
    out->sent = 2 * count - length(count, size, rank + 1) - length(count, size, rank + 2);
    out->received = 2 * count - length(count, size, rank) - length(count, size, rank + 1);
    out->steps = 2 * (size - 1);
}

static const struct engine_algorithm ring = {ENGINE_RING, all_reduce, plan};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "my ring", .algorithm = &ring};
