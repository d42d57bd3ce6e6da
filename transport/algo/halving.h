/* An all-reduce of elements [lo, hi) among a band that this rank belongs to, one term each; averages
 * are divided. halving_doubling.c does it where the band is even, tree.c in any. Both: and the
 * seconds that it takes for a band of n. */
#pragma once
#include "transport/algo/algo.h"

MUST_CHECK enum error halving_all_reduce(struct collective *c, const struct band *band, int64_t lo, int64_t hi);
double halving_cost(const struct terrain *t, int n, double bytes);
MUST_CHECK enum error climbing_all_reduce(struct collective *c, const struct band *band, int64_t lo, int64_t hi);
double climbing_cost(const struct terrain *t, int n, double bytes);
