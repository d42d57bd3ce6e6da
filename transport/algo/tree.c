/* Algorithm "tree": sums climb a binomial tree and the result climbs back down. The tree is that of
 * ORDER_TREE: with m places left and h = ceil(m/2), place p takes in what place p + h has summed,
 * until place 0 is alone.
 *
 *     N = 5, up:    3 -> 0, 4 -> 1     (h = 3)      down:  0 -> 1        (h = 1)
 *                   2 -> 0             (h = 2)             0 -> 2        (h = 2)
 *                   1 -> 0             (h = 1)             0 -> 3, 1 -> 4 (h = 3)
 *
 * All-reduce of K bytes: 2 ceil(log2 N) steps of whole buffers. Place 0 receives and sends
 * ceil(log2 N) K bytes, a leaf K: for small messages and for many ranks, where steps count and
 * bytes do not. What is taken in is added as it comes.
 *
 * Reduce and broadcast are its halves. A broadcast's tree is turned so that the root stands at 0. A
 * reduce may not touch the buffers that it sums, so it climbs in the scratch, piece by piece; the
 * pieces follow each other up the tree. */
#include "transport/algo/plain.h"

#include <string.h>

/* The first m of the band sum what they hold in data; the sum is at the first of all. */
static enum error climb(struct collective *c, const struct band *band, int m, char *data, int64_t n) {
    int h = (m + 1) / 2, me = band->me;
    if (m == 1) return ERR_NONE;
    if (me >= h) return collective_send(c, band->rank[me - h], data, n);
    if (me + h < m) TRY(collective_receive(c, band->rank[me + h], data, n, LAND_RIGHT));
    return climb(c, band, h, data, n);
}

/* What the first of the band holds reaches the first m. */
static enum error descend(struct collective *c, const struct band *band, int m) {
    int h = (m + 1) / 2, me = band->me;
    if (m == 1) return ERR_NONE;
    if (me >= h) return collective_receive(c, band->rank[me - h], c->buf, c->sum.count, LAND_COPY);
    TRY(descend(c, band, h));
    return me + h < m ? collective_send(c, band->rank[me + h], c->buf, c->sum.count) : ERR_NONE;
}

static enum error tree_all_reduce(struct collective *c) {
    const struct band all = collective_band(c);
    TRY(climb(c, &all, all.n, c->buf, c->sum.count));
    if (all.me == 0) sum_complete(&c->sum, c->sum.count, c->buf);
    return descend(c, &all, all.n);
}

static enum error tree_broadcast(struct collective *c) {
    struct band all = {.n = c->size, .me = (c->rank - c->root + c->size) % c->size};
    for (int i = 0; i < all.n; i++) all.rank[i] = (c->root + i) % c->size;
    return descend(c, &all, all.n);
}

/* n elements from data on: up the tree, and from its top to the root. */
static enum error reduce_piece(struct collective *c, const struct band *band, char *data, int64_t n) {
    char *sum = c->scratch;
    int top = band->rank[0];
    if (band->me >= 0) {
        memcpy(sum, data, bytes_of(c, n));
        TRY(climb(c, band, band->n, sum, n));
    }
    if (band->me == 0) {
        sum_complete(&c->sum, n, sum);
        if (c->rank != c->root) return collective_send(c, c->root, sum, n);
        memcpy(data, sum, bytes_of(c, n));
    } else if (c->rank == c->root) {
        return collective_receive(c, top, data, n, LAND_COPY);
    }
    return ERR_NONE;
}

static enum error tree_reduce(struct collective *c) {
    const struct band band = collective_band(c);
    int64_t piece = (int64_t)(c->part_bytes / dtype_size(c->sum.type));
    for (int64_t lo = 0; lo < c->sum.count; lo += piece) {
        int64_t left = c->sum.count - lo;
        TRY(reduce_piece(c, &band, element(c, c->buf, lo), left < piece ? left : piece));
    }
    return ERR_NONE;
}

/* ---- what it costs ---- */

static int steps_of(const struct terrain *t) {
    int steps = 0;
    while (1 << steps < t->places->size) steps++;
    return steps;
}

static double broadcast_cost(const struct terrain *t, double bytes) {
    return steps_of(t) * (t->alpha + bytes * t->beta);
}

static double reduce_cost(const struct terrain *t, double bytes) {
    return steps_of(t) * (t->alpha + bytes * (t->beta > t->gamma ? t->beta : t->gamma));
}

static double all_reduce_cost(const struct terrain *t, double bytes) {
    return reduce_cost(t, bytes) + broadcast_cost(t, bytes);
}

const struct algo_ops algo_tree = {
    .name = "tree",
    .why = "2 log2 N steps of whole buffers, up and down a binomial tree",
    .orders = {[ORDER_TREE] = true},
    .run = {[KIND_ALL_REDUCE] = tree_all_reduce, [KIND_REDUCE] = tree_reduce, [KIND_BROADCAST] = tree_broadcast},
    .cost = {[KIND_ALL_REDUCE] = all_reduce_cost, [KIND_REDUCE] = reduce_cost, [KIND_BROADCAST] = broadcast_cost},
};
