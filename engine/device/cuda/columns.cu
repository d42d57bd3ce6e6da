/* The two steps of columns.h.
 *   1. A block has one group's rows of a stripe of columns; each of its warps adds every COLUMN_ROWS-th of them, a pack of
 *      columns a thread, then the warps' sums are added in order.
 *   2. A block has a warp's width of columns; each of its warps adds every FINISH_ROWS-th group, then the halves of
 *      the warps' sums are added, again and again. */
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/columns.h"
#include "engine/device/cuda/pack.h"
#include "engine/device/cuda/reduce.h"

enum { FINISH_ROWS = 32 };

/* ---- 1. rows of a group --------------------------------------------------------------------- */
template <typename T, bool WHOLE>
static __global__ void __launch_bounds__(WARP *COLUMN_ROWS)
    column_partials(const T *x, int64_t rows, int64_t width, int64_t groups, float *partial) {
    enum { N = pack_of<T>::COUNT };
    SHARED(float, sums, [COLUMN_ROWS][WARP * N]);
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t stripe = (int64_t)blockIdx.x * WARP * N, at = stripe + lane * N;
    float sum[N] = {0}, v[N];
    for (int64_t r = blockIdx.y + warp * groups; r < rows && at < width; r += groups * COLUMN_ROWS) {
        pack_load<WHOLE, N>(x + r * width, at, width, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += v[i];
    }
#pragma unroll
    for (int i = 0; i < N; i++) sums[warp][lane * N + i] = sum[i];
    __syncthreads();
    for (int c = (int)threadIdx.x; c < WARP * N && stripe + c < width; c += WARP * COLUMN_ROWS) {
        float all = 0;
        for (int w = 0; w < COLUMN_ROWS; w++) all += sums[w][c];
        partial[blockIdx.y * width + stripe + c] = all;
    }
}

template <typename T>
static cudaError_t partials_of(const void *of, int64_t rows, int64_t width, float *partial, cudaStream_t stream) {
    const T *x = (const T *)of;
    void (*kernel)(const T *, int64_t, int64_t, int64_t, float *) =
        packs_whole<T>(x, width) ? column_partials<T, true> : column_partials<T, false>;
    int64_t groups = column_groups(rows), each = WARP * pack_of<T>::COUNT;
    dim3 blocks((unsigned)((width + each - 1) / each), (unsigned)groups);
    LAUNCH(kernel, blocks, WARP * COLUMN_ROWS, 0, stream, x, rows, width, groups, partial);
    return cudaGetLastError();
}

/* ---- 2. groups ------------------------------------------------------------------------------ */
static __global__ void __launch_bounds__(WARP *FINISH_ROWS)
    column_totals(const float *partial, int64_t groups, int64_t width, float *out0, float *out1, bool add) {
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
    float *out = at < width ? out0 + at : out1 + at - width;
    *out = add ? *out + sums[0][lane] : sums[0][lane];
}

/* ---- launchers ------------------------------------------------------------------------------ */
extern "C" cudaError_t columns_finish(const float *partial, int64_t groups, int64_t width, float *out0, float *out1,
                                      bool add, cudaStream_t stream) {
    int64_t all = out1 ? 2 * width : width;
    LAUNCH(column_totals, (unsigned)((all + WARP - 1) / WARP), WARP * FINISH_ROWS, 0, stream, partial, groups, width,
           out0, out1, add);
    return cudaGetLastError();
}

extern "C" cudaError_t columns_sum(enum element type, const void *x, int64_t rows, int64_t width, float *partial,
                                   float *out, bool add, cudaStream_t stream) {
    cudaError_t e = BY_TYPE(type, partials_of, x, rows, width, partial, stream);
    if (e != cudaSuccess) return e;
    return columns_finish(partial, column_groups(rows), width, out, NULL, add, stream);
}
