#include "engine/base/vector.h"

#include <assert.h>

VECTORISED static void add_each(float *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

void floats_add(float *to, const float *from, int64_t n) {
    add_each(to, from, n);
}

VECTORISED static void scale_each(float *x, float by, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

void floats_scale(float *x, float by, int64_t n) {
    scale_each(x, by, n);
}

enum { SUMS = 32 };

/* Becomes a part of each of the two sums below, so that a square reads its float once. */
__attribute__((always_inline)) static inline double sum_by_lanes(const float *a, const float *b, int64_t n) {
    double sum[SUMS] = {0};
    int64_t whole = n / SUMS * SUMS;
    for (int64_t i = 0; i < whole; i += SUMS)
        for (int k = 0; k < SUMS; k++) sum[k] += (double)a[i + k] * (double)b[i + k];
    for (int64_t i = whole; i < n; i++) sum[i - whole] += (double)a[i] * (double)b[i];
    for (int half = SUMS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) sum[k] += sum[k + half];
    return sum[0];
}

VECTORISED static double sum_of_squares(const float *x, int64_t n) {
    return sum_by_lanes(x, x, n);
}

double squares_sum(const float *x, int64_t n) {
    return sum_of_squares(x, n);
}

VECTORISED static double sum_of_products(const float *a, const float *b, int64_t n) {
    return sum_by_lanes(a, b, n);
}

double products_sum(const float *a, const float *b, int64_t n) {
    return sum_of_products(a, b, n);
}

void squares_partials(const float *g, int64_t begin, int64_t end, double *partial) {
    assert(begin % NORM_BLOCK == 0 || begin == end);
    for (int64_t i = begin; i < end; i += NORM_BLOCK)
        partial[i / NORM_BLOCK] = squares_sum(g + i, end - i < NORM_BLOCK ? end - i : NORM_BLOCK);
}
