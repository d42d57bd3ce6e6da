/* The second step of columns.h. A block has a warp's width of columns; each of its warps adds every FINISH_ROWS-th group,
 * then the halves of the warps' sums are added, again and again. */
#include "engine/device/cuda/columns.h"
#include "engine/device/cuda/reduce.h"

enum { FINISH_ROWS = 32 };

static __global__ void __launch_bounds__(WARP *FINISH_ROWS)
    column_totals(const float *partial, int64_t groups, int64_t width, float *out0, float *out1) {
    SHARED(float, sums, [FINISH_ROWS][WARP]);
    int lane = (int)threadIdx.x % WARP, row = (int)threadIdx.x / WARP;
    int64_t stride = out1 ? 2 * width : width, at = (int64_t)blockIdx.x * WARP + lane;
    float sum = 0;
#pragma unroll 4
    for (int64_t g = row; g < groups && at < stride; g += FINISH_ROWS) sum += partial[g * stride + at];
    sums[row][lane] = sum;
    for (int half = FINISH_ROWS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (row < half) sums[row][lane] += sums[row + half][lane];
    }
    if (row || at >= stride) return;
    *(at < width ? out0 + at : out1 + at - width) = sums[0][lane];
}

extern "C" cudaError_t columns_finish(const float *partial, int64_t groups, int64_t width, float *out0, float *out1,
                                      cudaStream_t stream) {
    int64_t all = out1 ? 2 * width : width;
    LAUNCH(column_totals, (unsigned)((all + WARP - 1) / WARP), WARP * FINISH_ROWS, 0, stream, partial, groups, width,
           out0, out1);
    return cudaGetLastError();
}
