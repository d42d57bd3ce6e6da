/* The gradient's norm and the factor that clips it. A block's sum of squares is a pure function of
 * its floats: 32 sums in double, float i to sum i mod 32 (the square of a float is exact in
 * double), then the halves added. The blocks are added in their order. So it does not matter who
 * sums which block, nor how wide its vectors are. */
#include "engine/optim/optim.h"

#include "engine/base/vector.h"
#include <assert.h>
#include <math.h>

enum { SUMS = 32 };

VECTORISED static double sum_of_squares(const float *g, int64_t n) {
    double sum[SUMS] = {0};
    int64_t whole = n / SUMS * SUMS;
    for (int64_t i = 0; i < whole; i += SUMS)
        for (int k = 0; k < SUMS; k++) sum[k] += (double)g[i + k] * (double)g[i + k];
    for (int64_t i = whole; i < n; i++) sum[i - whole] += (double)g[i] * (double)g[i];
    for (int half = SUMS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) sum[k] += sum[k + half];
    return sum[0];
}

double squares_sum(const float *x, int64_t n) {
    return sum_of_squares(x, n);
}

void clip_partials(const float *g, int64_t begin, int64_t end, double *partial) {
    assert(begin % NORM_BLOCK == 0);
    for (int64_t i = begin; i < end; i += NORM_BLOCK)
        partial[i / NORM_BLOCK] =
            sum_of_squares(g + i, end - i < NORM_BLOCK ? end - i : NORM_BLOCK);
}

float clip_scale(const double *partial, int64_t blocks, double most, double *norm) {
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) sum += partial[i];
    *norm = sqrt(sum);
    double scale = most / (*norm + 1e-6);
    return (float)(scale > 1 ? 1
                             : scale); /* not a number stays so: the caller sees it in the norm */
}
