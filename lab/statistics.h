/* Whether one way is faster than another, from runs of both. The unit is the run (its median step): steps of one run
 * follow each other's noise. All of it is exact or seeded: the same numbers give the same verdict. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { STATISTICS_RUNS = 64 }; /* of one side, at most */

/* Sorts v. n > 0. quantile: q from 0 to 1, between neighbours by their distance. */
double statistics_quantile(double *v, int n, double q);
double statistics_median(double *v, int n);
/* Leaves v as it is. NaN when there is none, or one that is no number. n <= STATISTICS_RUNS. */
double statistics_median_of(const double *v, int n);

/* Two-sided p of Mann and Whitney's test that a and b come from one distribution: exact, over all ways to deal the
 * n + m values out; equal values share the mean of their ranks. n, m <= STATISTICS_RUNS. */
double statistics_mann_whitney(const double *a, int n, const double *b, int m);

/* Holm's correction: p[i] becomes the least level at which it is refused beside the others. */
void statistics_holm(double *p, int n);

/* The fewest runs a side with which 'pairs' tests together can reach 1 - confidence at all; 0: more than
 * STATISTICS_RUNS. */
int statistics_least_runs(int pairs, double confidence);

struct interval {
    double low, high;
};
/* Of median(a) / median(b), by 10,000 draws with replacement. */
struct interval statistics_ratio(const double *a, int n, const double *b, int m, double confidence, uint64_t seed);

enum verdict {
    VERDICT_SAME,
    VERDICT_FASTER,
    VERDICT_SLOWER,
    VERDICT_INCONCLUSIVE,
    VERDICT_UNTESTED /* too few independent samples for any test */
};
const char *verdict_text(enum verdict v);
struct comparison {          /* of b with a, where less is better */
    double median[2], ratio; /* median(a) / median(b): 2 is twice as fast */
    struct interval interval;
    double p;     /* of this pair alone */
    double p_all; /* among all pairs, by Holm: to be set before the verdict */
};
/* a and b are times. p_all begins as p. */
struct comparison statistics_compare(const double *a, int n, const double *b, int m, double confidence, uint64_t seed);
/* Faster or slower: p_all is below 1 - confidence, and the ratio differs from 1 by more than 'practical'. Same: the
 * whole interval lies within 'practical' of 1. Else more runs, or less noise, would be needed to tell. */
enum verdict statistics_verdict(const struct comparison *c, double confidence, double practical);
