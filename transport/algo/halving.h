/* Recursive halving and doubling among some of the ranks: see halving_doubling.c. */
#pragma once
#include "transport/algo/algo.h"

/* An all-reduce of elements [lo, hi) among a band that this rank belongs to; average is divided. */
MUST_CHECK enum error halving_all_reduce(struct collective *c, const struct band *band, int64_t lo, int64_t hi);
/* Seconds that it takes for a band of n. */
double halving_cost(const struct terrain *t, int n, double bytes);
