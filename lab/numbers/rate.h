/* What a short run in which the learning rate grows says of it: the losses of its steps, each at a higher rate. */
#pragma once
#include <stdbool.h>

struct rate_found {
    int steepest, lowest; /* the steps where the smoothed loss falls fastest, and where it is lowest */
    bool falls;           /* by more than its noise; else the rest means nothing */
    bool turns;           /* it rises after the lowest: that is not the end of the curve */
    double rate;          /* the proposal, of two digits */
};
/* smooth (n): the means of the losses, those next to a step weighing most; 'reach' steps to either side have a part. */
void rate_smooth(const double *loss, int n, int reach, double *smooth);
/* rate and loss are (n), n at least 1, and smooth is of this reach. The proposal is the rate of the fastest fall, or a third of
 * the lowest loss's, whichever is smaller. */
struct rate_found rate_find(const double *rate, const double *loss, const double *smooth, int n, int reach);
