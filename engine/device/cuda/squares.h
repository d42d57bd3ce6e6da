/* A sum of squares by one warp, with the bits of squares_sum: 32 sums in double, float i to sum i mod 32,
 * then the halves added. The square of a float is exact in double, so one rounding a step whatever the compiler
 * makes of it. */
#pragma once
#include "engine/base/rule.h"
#include "engine/device/cuda/kernel.h"

enum { SQUARE_LANES = 32 };

/* Lane 0 gets the sum of all lanes' v. All 32 take part. */
static __device__ __forceinline__ double lanes_sum(double v) {
    for (int half = SQUARE_LANES / 2; half > 0; half /= 2) v += __shfl_down_sync(0xffffffffu, v, (unsigned)half);
    return v;
}

/* This lane's part of x[0..n). Loads run ahead of the additions, which must follow one another. */
static __device__ __forceinline__ double lane_squares(const float *x, int64_t n, int lane) {
    enum { AHEAD = 8 };
    double sum = 0;
    int64_t i = lane;
    for (; i + (AHEAD - 1) * SQUARE_LANES < n; i += AHEAD * SQUARE_LANES) {
        float v[AHEAD];
        for (int k = 0; k < AHEAD; k++) v[k] = x[i + k * SQUARE_LANES];
        for (int k = 0; k < AHEAD; k++) sum += (double)v[k] * (double)v[k];
    }
    for (; i < n; i += SQUARE_LANES) sum += (double)x[i] * (double)x[i];
    return sum;
}
