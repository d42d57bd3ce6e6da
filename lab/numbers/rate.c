#include "lab/numbers/rate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void rate_smooth(const double *loss, int n, int reach, double *smooth) {
    for (int i = 0; i < n; i++) {
        double sum = 0, all = 0;
        for (int k = i - reach; k <= i + reach; k++) {
            double weight = 1 + reach - abs(k - i);
            if (k < 0 || k >= n) continue;
            sum += weight * loss[k];
            all += weight;
        }
        smooth[i] = sum / all;
    }
}

/* Of a step, over what is about it; 0 at both ends of the curve. */
static double rate_fall(const double *smooth, int n, int reach, int i) {
    return i < reach || i + reach >= n ? 0 : smooth[i - reach] - smooth[i + reach];
}

static double rate_rounded(double rate) {
    char text[32];
    snprintf(text, sizeof text, "%.1e", rate);
    return strtod(text, NULL);
}

struct rate_found rate_find(const double *rate, const double *loss, const double *smooth, int n, int reach) {
    struct rate_found f = {0};
    double noise = 0;
    for (int i = 0; i < n; i++)
        if (smooth[i] < smooth[f.lowest]) f.lowest = i;
    for (int i = 0; i <= f.lowest; i++) {
        noise += (loss[i] - smooth[i]) * (loss[i] - smooth[i]) / (f.lowest + 1);
        if (rate_fall(smooth, n, reach, i) > rate_fall(smooth, n, reach, f.steepest)) f.steepest = i;
    }
    f.falls = smooth[0] - smooth[f.lowest] > 2 * sqrt(noise) && f.steepest > 0;
    f.turns = f.lowest + reach < n;
    f.rate = rate_rounded(fmin(rate[f.steepest], rate[f.lowest] / 3));
    return f;
}
