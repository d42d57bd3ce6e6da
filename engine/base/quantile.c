#include "engine/base/quantile.h"

#include <assert.h>
#include <stdlib.h>

int numbers_ascend(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile_of(double *v, int64_t n, double q) {
    assert(n > 0);
    qsort(v, (size_t)n, sizeof *v, numbers_ascend);
    double at = q * (double)(n - 1);
    int64_t below = (int64_t)at;
    if (below >= n - 1) return v[n - 1];
    return v[below] + (at - (double)below) * (v[below + 1] - v[below]);
}
