/* Algorithm "direct": every rank sums its own slice of the buffer, straight from where the peers hold it.
 *
 * In place, two phases for any number N of ranks:
 *     1. the ranks meet: all buffers are ready. Rank r reads slice r of every buffer, adds in the
 * group's order, and writes the sum to slice r of every buffer. Only rank r touches the slices r.
 *     2. the ranks meet again: all slices are written.
 * Each rank reads (N-1)/N K bytes from its peers and writes (N-1)/N K bytes to them, K being the
 * size of the buffer: what a ring moves, in 2 steps and not 2(N-1), and each foreign line is
 * fetched once. Where ranks give T terms in all, it reads (T-1)/N K bytes, or less by its own.
 *
 * Buffers that peers cannot reach are taken through memory that they can, piece by piece (lent.c).
 *
 * Small messages, one phase: each rank lays a copy where all can read it, the ranks meet, and each sums everything
 * itself. That reads (N-1) K bytes, but nobody waits twice. The next call takes other slots, so nobody waits for
 * readers.
 *
 * Without memory that peers can reach, the same in pipes: each rank sends every peer that peer's slice, sums its own,
 * and sends the sum to all: 2(N-1)/N K bytes each way. A slice is summed from pieces of all terms, which must fit into
 * the scratch: slices of P pieces take (P+1)(N-1) steps. */
#include "transport/algo/plain.h"

#include <math.h>

/* The sum of this rank's slice, written to the first n of 'to'. */
static enum error direct_sum_slice(struct collective *c, char *const *to, int n) {
    collective_sum(c, collective_cut(c, c->rank), collective_cut(c, c->rank + 1), to, n);
    return collective_finish(c);
}

static enum error direct_all_reduce(struct collective *c) {
    if (!c->staged && !c->in_place) {
        TRY(plain_move(c, KIND_REDUCE_SCATTER));
        return plain_move(c, KIND_ALL_GATHER);
    }
    collective_count_ideal(c, KIND_ALL_REDUCE);
    if (!c->staged) return direct_sum_slice(c, (char *const *)c->at, c->size);
    collective_sum(c, 0, c->sum.count, &c->buf, 1);
    return ERR_NONE;
}

/* In place, every rank works for the root: it reads its slice of those that give, and writes the sum to the root's. */
enum error direct_reduce(struct collective *c) {
    if (c->staged || !c->in_place) return plain_move(c, KIND_REDUCE);
    int64_t own = collective_cut(c, c->rank + 1) - collective_cut(c, c->rank), others = c->hi - c->lo - own;
    bool root = c->rank == c->root;
    int mine = own_terms(c);
    collective_count(c, mine * others + (root ? 0 : own), (c->band->n - mine) * own + (root ? others : 0));
    return direct_sum_slice(c, (char *const *)&c->at[c->root], 1);
}

static double direct_cost(const struct terrain *t, double bytes) {
    double slice = bytes / t->places->size, pieces = ceil(slice / (double)t->part_bytes);
    int peers = t->places->size - 1, terms = t->places->terms - 1;
    return peers * (pieces + 1) * t->alpha + slice * (terms * (t->beta + t->gamma) + peers * t->beta);
}

const struct algo_ops algo_direct = {
    .name = "direct",
    .why = "each rank sums its own slice straight from the peers' buffers",
    .orders = {[ORDER_TREE] = true, [ORDER_RING] = true},
    .several = true,
    .small_at_once = true,
    .run = {[KIND_ALL_REDUCE] = direct_all_reduce, [KIND_REDUCE] = direct_reduce},
    .cost =
        {[KIND_ALL_REDUCE] = direct_cost, [KIND_REDUCE] = plain_reduce_cost, [KIND_BROADCAST] = plain_broadcast_cost},
};
