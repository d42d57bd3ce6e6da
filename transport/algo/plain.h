/* What algorithms take from each other. */
#pragma once
#include "transport/algo/algo.h"

/* Every collective in the plain way: the one with the data sends it to the one that needs it, and sums are made where
 * they are needed, in the group's order. In place or staged, the needy read the others' buffers; otherwise bytes travel
 * in pipes. The bytes are the same. */
MUST_CHECK enum error plain_move(struct collective *c, enum kind kind);
double plain_reduce_cost(const struct terrain *t, double bytes);
double plain_broadcast_cost(const struct terrain *t, double bytes);

/* Both in pipes, among a band of ranks that this one belongs to: a reduce or a reduce_scatter of the terms that these
 * give, and any kind that does not add. */
MUST_CHECK enum error band_sum(struct collective *c, enum kind kind, const struct band *ranks,
                               const struct band *terms);
MUST_CHECK enum error band_spread(struct collective *c, enum kind kind, const struct band *ranks);
/* This rank's [lo, hi) (at own_place) = the sum of the band's terms, at lists->in. A band that is not all that give makes only a part
 * of the sum, which is not divided yet. */
void band_add(struct collective *c, const struct band *band, int64_t lo, int64_t hi);
/* Whether all of their buffers can be read and written by this rank. */
bool band_is_in_reach(const struct collective *c, const struct band *ranks);
MUST_CHECK enum error direct_reduce(struct collective *c); /* of "direct", which "hierarchical" shares */

/* An all-reduce of elements [lo, hi) among a band that this rank belongs to, one term each; averages are divided.
 * halving_doubling.c does it where the band is even, tree.c in any. Both: and the seconds that it takes for a band of n. */
MUST_CHECK enum error halving_all_reduce(struct collective *c, const struct band *band, int64_t lo, int64_t hi);
double halving_cost(const struct terrain *t, int n, double bytes);
MUST_CHECK enum error climbing_all_reduce(struct collective *c, const struct band *band, int64_t lo, int64_t hi);
double climbing_cost(const struct terrain *t, int n, double bytes);
