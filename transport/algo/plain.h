/* Every collective in the plain way: the one with the data sends it to the one that needs it, and
 * sums are made where they are needed, in the group's order. In place or staged, the needy read the
 * others' buffers; otherwise bytes travel in pipes. The bytes are the same. */
#pragma once
#include "transport/algo/algo.h"

extern const collective_fn plain_run[COLLECTIVES];
double plain_reduce_cost(const struct terrain *t, double bytes);
double plain_broadcast_cost(const struct terrain *t, double bytes);

/* In pipes, among a band of ranks that this one belongs to; rank r's part is [part[r], part[r + 1]),
 * as for the whole group. terms: what these give. */
MUST_CHECK enum error band_reduce_scatter(struct collective *c, const struct band *ranks, const struct band *terms);
MUST_CHECK enum error band_all_gather(struct collective *c, const struct band *ranks);
