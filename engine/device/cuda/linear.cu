/* What surrounds the products of linear ops: an activation and its slope, with sums of columns (see columns.cu). */
#include "engine/device/cuda/activation.h"
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/columns.h"
#include "engine/device/cuda/linear_launch.h"
#include "engine/device/cuda/pack.h"
#include "engine/device/cuda/reduce.h"

enum { THREADS = WARP * COLUMN_ROWS };
static const int64_t BLOCKS_MOST = 1 << 20;

/* ---- forward: a pack a thread --------------------------------------------------------------- */
template <typename T, int ACT, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) finish_kernel(struct linear_finish f) {
    enum { N = pack_of<T>::COUNT };
    int64_t across = (f.cols + N - 1) / N, count = f.rows * across;
    float z[N];
    for (int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x; k < count; k += (int64_t)gridDim.x * THREADS) {
        int64_t row = k / across, at = k % across * N;
        T *y = (T *)f.y + row * f.cols;
        pack_load<WHOLE, N>(y, at, f.cols, 0, z);
        if (f.before) pack_store<WHOLE, N>((T *)f.before + row * f.before_ld, at, f.cols, z);
        for (int i = 0; i < N; i++) z[i] = value_of<ACT>(z[i]);
        pack_store<WHOLE, N>(y, at, f.cols, z);
    }
}

template <typename T, int ACT> static cudaError_t finish_of(const struct linear_finish *f, cudaStream_t stream) {
    bool whole = packs_whole<T>(f->y, f->cols) && packs_whole<T>(f->before, f->before_ld);
    void (*kernel)(struct linear_finish) = whole ? finish_kernel<T, ACT, true> : finish_kernel<T, ACT, false>;
    int64_t packs = f->rows * ((f->cols + pack_of<T>::COUNT - 1) / pack_of<T>::COUNT);
    int64_t blocks = (packs + THREADS - 1) / THREADS;
    LAUNCH(kernel, (unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST), THREADS, 0, stream, *f);
    return cudaGetLastError();
}

template <typename T> static cudaError_t finish_act(const struct linear_finish *f, cudaStream_t stream) {
    return f->act == ACT_RELU ? finish_of<T, ACT_RELU>(f, stream) : finish_of<T, ACT_GELU_TANH>(f, stream);
}

extern "C" cudaError_t linear_finish(const struct linear_finish *f, cudaStream_t stream) {
    return BY_TYPE(f->type, finish_act, f, stream);
}

/* ---- backward: a block has the rows g, g + groups, ... of a stripe of columns ----------------- */
template <int N>
static __device__ __forceinline__ void group_partial(const struct linear_behind &b, float sums[COLUMN_ROWS][WARP * N]) {
    int64_t stripe = (int64_t)blockIdx.x * WARP * N;
    for (int c = (int)threadIdx.x; c < WARP * N && stripe + c < b.cols; c += THREADS) {
        float all = 0;
        for (int w = 0; w < COLUMN_ROWS; w++) all += sums[w][c];
        b.partial[blockIdx.y * b.cols + stripe + c] = all;
    }
}

template <typename T, int ACT, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) behind_kernel(struct linear_behind b) {
    enum { N = pack_of<T>::COUNT };
    SHARED(float, sums, [COLUMN_ROWS][WARP * N]);
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t at = ((int64_t)blockIdx.x * WARP + lane) * N, groups = gridDim.y;
    float sum[N] = {0}, dz[N], gate[N];
    for (int64_t row = blockIdx.y + warp * groups; row < b.rows && at < b.cols; row += groups * COLUMN_ROWS) {
        pack_load<WHOLE, N>((const T *)b.dy + row * b.dy_ld, at, b.cols, 0, dz);
        if constexpr (ACT != ACT_NONE) pack_load<WHOLE, N>((const T *)b.gate + row * b.gate_ld, at, b.cols, 0, gate);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (ACT != ACT_NONE) dz[i] *= slope_of<ACT>(gate[i]);
            sum[i] += dz[i];
        }
        if constexpr (ACT != ACT_NONE) pack_store<WHOLE, N>((T *)b.dz + row * b.cols, at, b.cols, dz);
    }
    if (!b.partial) return;
#pragma unroll
    for (int i = 0; i < N; i++) sums[warp][lane * N + i] = sum[i];
    __syncthreads();
    group_partial<N>(b, sums);
}

template <typename T, int ACT> static cudaError_t behind_of(const struct linear_behind *b, cudaStream_t stream) {
    enum { WIDE = WARP * pack_of<T>::COUNT };
    bool whole = packs_whole<T>(b->dy, b->dy_ld) &&
                 (ACT == ACT_NONE || (packs_whole<T>(b->gate, b->gate_ld) && packs_whole<T>(b->dz, b->cols)));
    void (*kernel)(struct linear_behind) = whole ? behind_kernel<T, ACT, true> : behind_kernel<T, ACT, false>;
    dim3 blocks((unsigned)((b->cols + WIDE - 1) / WIDE), (unsigned)column_groups(b->rows));
    LAUNCH(kernel, blocks, THREADS, 0, stream, *b);
    return cudaGetLastError();
}

template <typename T> static cudaError_t behind_act(const struct linear_behind *b, cudaStream_t stream) {
    if (b->act == ACT_NONE) return behind_of<T, ACT_NONE>(b, stream);
    return b->act == ACT_RELU ? behind_of<T, ACT_RELU>(b, stream) : behind_of<T, ACT_GELU_TANH>(b, stream);
}

extern "C" cudaError_t linear_behind(const struct linear_behind *b, cudaStream_t stream) {
    return BY_TYPE(b->type, behind_act, b, stream);
}
