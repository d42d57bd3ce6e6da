#include "lab/predict/cost.h"

#include <math.h>
#include <stdio.h>

/* Least squares of t(N) / t(1) = 1 - p (1 - 1/N), where t(1) may have to be fitted too: t is a line over 1/N, and p
 * its slope's share of its value at N = 1. */
double scaling_amdahl(const int *n, const double *t, int count) {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < count; i++) {
        double weight = 1 / (t[i] * t[i]), at = 1.0 / n[i];
        w += weight, x += weight * at, y += weight * t[i];
        xx += weight * at * at, xy += weight * at * t[i];
    }
    double det = w * xx - x * x;
    if (!(det > 1e-12 * w * xx)) return (double)NAN;
    double slope = (w * xy - x * y) / det, serial = (y - slope * x) / w;
    double alone = slope + serial; /* what one device would take; below zero no share of it is divided */
    return alone > 0 ? slope / alone : -INFINITY;
}

const char *scaling_share_text(double p, char out[32]) {
    if (isnan(p)) return "-";
    if (p < 0) return "none: slower";
    if (p > 1) return "more than all";
    snprintf(out, 32, "%.1f %%", 100 * p);
    return out;
}

double scaling_gustafson(const int *n, const double *t, int count) {
    double alone = (double)NAN, over = 0, under = 0;
    for (int i = 0; i < count; i++)
        if (n[i] == 1) alone = t[i];
    for (int i = 0; i < count; i++) {
        double others = n[i] - 1, lost = n[i] - n[i] * alone / t[i];
        over += others * lost, under += others * others;
    }
    return under > 0 ? 1 - over / under : (double)NAN;
}

double scaling_karp_flatt(double speed_up, int n) {
    return (1 / speed_up - 1.0 / n) / (1 - 1.0 / n);
}
