/* Algorithm "ring": the ranks stand in a circle, each sends to its right and receives from its left, and the buffer is
 * cut in N chunks (order_chunk).
 *
 *     reduce-scatter, steps s = 0 .. N-2:  send chunk r-s, receive chunk r-s-1 and add my own to it
 *         N = 4, who sends which:   s = 0    0 -c0-> 1 -c1-> 2 -c2-> 3 -c3-> 0
 *                                   s = 1    0 -c3-> 1 -c0-> 2 -c1-> 3 -c2-> 0
 *                                   s = 2    0 -c2-> 1 -c3-> 2 -c0-> 3 -c1-> 0
 *         chunk c has now passed the ranks c, c+1, ..., c+N-1 and is complete at rank c-1:
 *         rank r holds chunk r+1
 *     all-gather, steps s = 0 .. N-2:      send chunk r+1-s, receive chunk r-s
 *
 * 2(N-1) steps; each rank sends and receives 2(N-1)/N K bytes, whatever N is: no port is hotter than another. Chunk c
 * is added in the order c, c+1, ...: that is ORDER_RING, and a ring can add in no other. Chunks are not cut further
 * here: the pipe hands pieces over, and they are added as they come. */
#include "transport/algo/algo.h"

static int ring_wrap(const struct collective *c, int r) {
    return (r % c->size + c->size) % c->size;
}

static struct leg ring_leg(const struct collective *c, int peer, int chunk, enum landing how) {
    chunk = ring_wrap(c, chunk);
    int64_t lo = order_chunk(c->sum.count, c->size, chunk);
    int64_t hi = order_chunk(c->sum.count, c->size, chunk + 1);
    return (struct leg){ring_wrap(c, peer), element(c, c->buf, lo), hi - lo, how};
}

static enum error ring_all_reduce(struct collective *c) {
    int r = c->rank;
    for (int s = 0; s < c->size - 1; s++)
        TRY(collective_exchange(c, ring_leg(c, r + 1, r - s, LAND_COPY), ring_leg(c, r - 1, r - s - 1, LAND_LEFT)));
    struct leg done = ring_leg(c, r, r + 1, LAND_COPY);
    sum_complete(&c->sum, done.elements, done.data);
    for (int s = 0; s < c->size - 1; s++)
        TRY(collective_exchange(c, ring_leg(c, r + 1, r + 1 - s, LAND_COPY), ring_leg(c, r - 1, r - s, LAND_COPY)));
    return ERR_NONE;
}

static double ring_cost(const struct terrain *t, double bytes) {
    int others = t->places->size - 1;
    double chunk = bytes / t->places->size, adding = t->beta > t->gamma ? t->beta : t->gamma;
    return others * (2 * t->alpha + chunk * (adding + t->beta));
}

const struct algo_ops algo_ring = {
    .name = "ring",
    .why = "2(N-1) steps around a circle, no port hotter than another",
    .orders = {[ORDER_RING] = true},
    .run = {[KIND_ALL_REDUCE] = ring_all_reduce},
    .cost = {[KIND_ALL_REDUCE] = ring_cost},
};
