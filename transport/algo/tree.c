/* Algorithm "tree": sums climb the tree of ORDER_TREE and the result climbs back down. The first place of a subtree
 * holds its sum: it takes in what the first of its right half has summed.
 *
 *     N = 5, up:    1 -> 0, 3 -> 2                  down:  0 -> 4
 *                   2 -> 0                                 0 -> 2
 *                   4 -> 0                                 0 -> 1, 2 -> 3
 *
 * All-reduce of K bytes: 2 ceil(log2 N) steps of whole buffers. Place 0 receives and sends ceil(log2 N) K bytes, a leaf
 * K: for small messages and for many ranks, where steps count and bytes do not. What is taken in is added as it comes.
 *
 * Reduce and broadcast are its halves. A broadcast's tree is turned so that the root stands at 0. A reduce may not
 * touch the buffers that it sums, so it climbs in the scratch, piece by piece; the pieces follow each other up the
 * tree. */
#include "transport/algo/plain.h"

#include <string.h>

/* Where the right half of the subtree of members [lo, hi) begins. */
static int tree_middle(const struct band *b, int lo, int hi) {
    unsigned across = (unsigned)(b->leaf[lo] ^ b->leaf[hi - 1]);
    int bit = 1 << (31 - __builtin_clz(across)), k = lo + 1;
    while (!((b->leaf[k] ^ b->leaf[lo]) & bit)) k++;
    return k;
}

/* Members [lo, hi) sum what they hold in data; the sum is at the first of them. */
static enum error tree_climb(struct collective *c, const struct band *b, int lo, int hi, char *data, int64_t n) {
    if (hi - lo == 1) return ERR_NONE;
    int k = tree_middle(b, lo, hi);
    TRY(b->me < k ? tree_climb(c, b, lo, k, data, n) : tree_climb(c, b, k, hi, data, n));
    if (b->me == k) return collective_send(c, b->rank[lo], data, n);
    return b->me == lo ? collective_receive(c, b->rank[k], data, n, LAND_RIGHT) : ERR_NONE;
}

/* What the first of members [lo, hi) holds in data reaches all of them. */
static enum error tree_descend(struct collective *c, const struct band *b, int lo, int hi, char *data, int64_t n) {
    if (hi - lo == 1) return ERR_NONE;
    int k = tree_middle(b, lo, hi);
    if (b->me == lo) TRY(collective_send(c, b->rank[k], data, n));
    if (b->me == k) TRY(collective_receive(c, b->rank[lo], data, n, LAND_COPY));
    return b->me < k ? tree_descend(c, b, lo, k, data, n) : tree_descend(c, b, k, hi, data, n);
}

enum error climbing_all_reduce(struct collective *c, const struct band *b, int64_t lo, int64_t hi) {
    char *data = element(c, c->buf, lo);
    TRY(tree_climb(c, b, 0, b->n, data, hi - lo));
    if (b->me == 0) sum_complete(&c->sum, hi - lo, data);
    return tree_descend(c, b, 0, b->n, data, hi - lo);
}

static enum error tree_all_reduce(struct collective *c) {
    return climbing_all_reduce(c, c->band, 0, c->sum.count);
}

static enum error tree_broadcast(struct collective *c) {
    struct band all = c->lists->turned;
    for (int i = 0; i < c->size; i++) all.rank[i] = (c->root + i) % c->size;
    all.me = (c->rank - c->root + c->size) % c->size;
    return tree_descend(c, &all, 0, all.n, c->buf, c->sum.count);
}

/* n elements from data on: up the tree, and from its top to the root. */
static enum error tree_reduce_piece(struct collective *c, const struct band *band, char *data, int64_t n) {
    char *sum = c->scratch;
    int top = band->rank[0];
    if (band->me >= 0) {
        memcpy(sum, data, bytes_of(c, n));
        TRY(tree_climb(c, band, 0, band->n, sum, n));
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
    int64_t piece = (int64_t)(c->part_bytes / dtype_size(c->sum.type));
    for (int64_t lo = 0; lo < c->sum.count; lo += piece) {
        int64_t left = c->sum.count - lo;
        TRY(tree_reduce_piece(c, c->band, element(c, c->buf, lo), left < piece ? left : piece));
    }
    return ERR_NONE;
}

/* ---- what it costs ---- */

static int tree_steps(int n) {
    int steps = 0;
    while (1 << steps < n) steps++;
    return steps;
}

static double tree_broadcast_cost(const struct terrain *t, double bytes) {
    return tree_steps(t->places->size) * (t->alpha + bytes * t->beta);
}

static double tree_reduce_cost(const struct terrain *t, double bytes) {
    return tree_steps(t->places->size) * (t->alpha + bytes * (t->beta > t->gamma ? t->beta : t->gamma));
}

double climbing_cost(const struct terrain *t, int n, double bytes) {
    double adding = t->beta > t->gamma ? t->beta : t->gamma;
    return tree_steps(n) * (2 * t->alpha + bytes * (adding + t->beta));
}

static double tree_all_reduce_cost(const struct terrain *t, double bytes) {
    return climbing_cost(t, t->places->size, bytes);
}

const struct algo_ops algo_tree = {
    .name = "tree",
    .why = "2 log2 N steps of whole buffers, up and down a binomial tree",
    .orders = {[ORDER_TREE] = true},
    .run = {[KIND_ALL_REDUCE] = tree_all_reduce, [KIND_REDUCE] = tree_reduce, [KIND_BROADCAST] = tree_broadcast},
    .cost = {[KIND_ALL_REDUCE] = tree_all_reduce_cost,
             [KIND_REDUCE] = tree_reduce_cost,
             [KIND_BROADCAST] = tree_broadcast_cost},
};
