/* Whether one way is better than another, from runs of both. The unit is the run (its median step, its accuracy): steps
 * of one run follow each other's noise. All of it is exact: the same numbers give the same verdict.
 *
 * Two sides differ by a shift, and the test, the estimate and the interval are three views of one statistic, so that
 * they cannot contradict each other: where runs come in pairs (one run of each side in each repeat, or each seed),
 * Wilcoxon's signed ranks of the pairs' differences, the median of their averages two by two (Hodges and Lehmann), and
 * the averages that the test does not refuse; else the ranks of Mann and Whitney, the median of all differences of a run
 * of A and a run of B, and those that it does not refuse. */
#pragma once
#include "engine/base/quantile.h"

#include <stdbool.h>

enum { STATISTICS_RUNS = 64 }; /* of one side, at most */

/* Sorts v. n > 0. */
double statistics_median(double *v, int n);
/* Leaves v as it is. NaN when there is none, or one that is no number; infinity is more than any. n <= STATISTICS_RUNS. */
double statistics_median_of(const double *v, int n);

struct shift {
    double estimate;  /* NaN: no values */
    double low, high; /* NaN: so few values have no interval of this confidence */
    double p;         /* two-sided, exact, of no shift; 1 where there is nothing to test */
};
/* The shift of d[i], each a run of A less the run of B that belongs to it. Equal differences share their ranks, and those of 0 have no
 * sign. */
struct shift statistics_paired(const double *d, int n, double confidence);
/* The effect of a over b, whose runs are not paired. */
struct shift statistics_unpaired(const double *a, int n, const double *b, int m, double confidence);

/* Holm's correction: p[i] becomes the least level at which it is refused beside the others. */
void statistics_holm(double *p, int n);

/* Whether n runs a side can reach 1 - confidence at all in the strictest of that number of tests. */
bool statistics_can_tell(int n, bool paired, int tests, double confidence);
/* The fewest runs a side that can; 0: more than STATISTICS_RUNS. */
int statistics_least_runs(int tests, bool paired, double confidence);

/* The chance that n runs a side distinguish a shift from none, in the strictest of that number of tests, where differences are normal
 * with this spread. An approximation: Student's t at
 * the level that the ranks can reach, and their efficiency of 3 / pi beside it. */
double statistics_power(double shift, double spread, int n, bool paired, int tests, double confidence);
/* How far a run of A less one of B varies, as standard deviations: of any two, and of two that belong together. */
struct noise {
    double groups, pairs; /* pairs: NaN where none belong together */
};
struct questions {
    int asked; /* p is corrected for all of them, and they decide whether runs are compared in pairs */
    double confidence;
};
/* The fewest runs a side with that chance, each number in pairs where it would be; 0: more than STATISTICS_RUNS. */
int statistics_needed(double shift, const struct noise *noise, double chance, const struct questions *q);

enum scale {
    SCALE_RATIO,     /* A divided by B: times, bytes, losses */
    SCALE_DIFFERENCE /* A less B: shares such as accuracy */
};
enum verdict {
    VERDICT_SAME,
    VERDICT_FASTER,
    VERDICT_SLOWER,
    VERDICT_INCONCLUSIVE,
    VERDICT_UNTESTED /* too few independent samples for any test */
};
const char *verdict_text(enum verdict v);
struct comparison { /* of b with a, where less is better: above 1, or above 0, b is the better one */
    enum scale scale;
    bool paired;
    double estimate, low, high; /* on that scale: 0 and infinity where one side has none at all; NaN as above */
    double p;                   /* of this question alone */
    double p_all;               /* among all of them, by Holm: to be set before the verdict */
    double error; /* the standard error of what all values share, such as one validation set: it is in neither p nor the
                     interval, and is to be set before the verdict; NaN: there is none, or it is not known */
    double
        choice; /* likewise of what was tuned: that the side may have a better try than the one that was chosen. Without it
                      there is no verdict of faster or slower */
};
/* The mean square of what the choice of one of n tries may have missed: shift[i] are their scores (less is better), noise[i]
 * is the deviation of the difference between this try and the chosen one. A try that seems worse by d is better by a normal
 * error less d; the largest of these counts. */
double statistics_missed(const double *shift, const double *noise, int n, int chosen);
/* paired: a[i] belongs to b[i], and n is m. An infinite value is worse than any other. p_all begins as p. */
struct comparison statistics_compare(const double *a, int n, const double *b, int m, enum scale scale, bool paired,
                                     double confidence);
/* The deviation of one of a less one of b, of any two or of those in pairs; of logarithms for ratios. NaN of one value. */
double statistics_spread(const double *a, int n, const double *b, int m, enum scale scale, bool paired);
/* A difference that counts, as a shift: 2 % of a ratio is log(1.02). */
double statistics_shift(enum scale scale, double practical);
/* Same: the whole interval, widened by both errors, lies within 'practical' of no difference. Faster or slower: else, where
 * p_all is at most 1 - confidence, and the interval, widened by that of the choice, excludes no difference. Inconclusive: neither; more runs, or less noise, would be needed to tell. */
enum verdict statistics_verdict(const struct comparison *c, double confidence, double practical);
/* Whether p_all and the widened interval both exclude 'no difference', however small the difference is. */
bool statistics_differs(const struct comparison *c, double confidence);
