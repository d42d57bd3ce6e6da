/* What makes sequences and what reduces them. A row, or a stripe of columns, is a warp's. */
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/pack.h"
#include "engine/device/cuda/reduce.h"
#include "engine/device/cuda/sequence_launch.h"
#include "engine/device/cuda/token.h"

enum { WARPS = 8, THREADS = WARP * WARPS };

/* Blocks of WARPS warps each for the work of 'warps' warps; what does not fit is done by grid-stride loops. */
static unsigned blocks_for(int64_t warps) {
    const int64_t most = 1 << 20;
    int64_t blocks = (warps + WARPS - 1) / WARPS;
    return (unsigned)(blocks < most ? blocks : most);
}
static __device__ __forceinline__ int64_t first_warp(void) {
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
}
static __device__ __forceinline__ int64_t all_warps(void) {
    return (int64_t)gridDim.x * WARPS;
}

/* ---- moving rows ---------------------------------------------------------------------------- */
/* Row of x that row r of y comes from; -1: none. */
static __device__ __forceinline__ int64_t source_of(const struct rows_call &a, int64_t r) {
    int64_t p = a.positions;
    switch (a.kind) {
    case ROWS_TOKEN: {
        bool good = token_is(a.token[r], a.vocabulary);
        if (!good && a.fault && threadIdx.x % WARP == 0) atomicCAS(a.fault, 0, a.fault_code);
        return good ? (int64_t)a.token[r] : 0;
    }
    case ROWS_BEHIND_W:
        return r % (p + 1) ? r / (p + 1) * p + r % (p + 1) - 1 : -1;
    case ROWS_WITHOUT_FIRST:
        return r / p * (p + 1) + r % p + 1;
    case ROWS_SELECT:
        return r * p + a.which;
    case ROWS_PLACE:
        return r % p == a.which ? r / p : -1;
    case ROWS_SPREAD:
        return r / p;
    case ROWS_W:
        return -1;
    default:
        return r;
    }
}

/* Row of w that row r of y has a part of; -1: none. */
static __device__ __forceinline__ int64_t addend_of(const struct rows_call &a, int64_t r) {
    if (a.kind == ROWS_ADD) return r % a.positions;
    if (a.kind == ROWS_W) return 0;
    return a.kind == ROWS_BEHIND_W && r % (a.positions + 1) == 0 ? 0 : -1;
}

template <typename X, typename Y, bool WHOLE>
static __device__ __forceinline__ void row_move(const struct rows_call &a, int64_t r) {
    enum { N = pack_of<Y>::COUNT };
    int64_t from = source_of(a, r), add = addend_of(a, r);
    for (int64_t at = threadIdx.x % WARP * N; at < a.width; at += WARP * N) {
        float v[N] = {0}, more[N];
        if (from >= 0) pack_load<WHOLE, N>((const X *)a.x + from * a.width, at, a.width, 0, v);
        if (add >= 0) {
            pack_load<WHOLE, N>(a.w + add * a.width, at, a.width, 0, more);
            for (int i = 0; i < N; i++) v[i] = from >= 0 ? v[i] + more[i] : more[i];
        }
        if (a.kind == ROWS_SPREAD)
            for (int i = 0; i < N; i++) v[i] /= (float)a.positions;
        pack_store<WHOLE, N>((Y *)a.y + r * a.y_ld, at, a.width, v);
    }
}

template <typename X, typename Y, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) rows_kernel(struct rows_call a) {
    for (int64_t r = first_warp(); r < a.count; r += all_warps()) row_move<X, Y, WHOLE>(a, r);
}

template <typename X, typename Y> static cudaError_t rows_of(const struct rows_call *r, cudaStream_t stream) {
    bool whole = packs_whole<Y>(r->x, r->width) && packs_whole<Y>(r->w, r->width) && packs_whole<Y>(r->y, r->width);
    void (*kernel)(struct rows_call) = whole ? rows_kernel<X, Y, true> : rows_kernel<X, Y, false>;
    LAUNCH(kernel, blocks_for(r->count), THREADS, 0, stream, *r);
    return cudaGetLastError();
}

extern "C" cudaError_t rows_move(const struct rows_call *given, cudaStream_t stream) {
    struct rows_call r = *given;
    if (!r.y_ld) r.y_ld = r.width;
    return BY_TYPES(r.from, r.to, rows_of, &r, stream);
}

/* ---- sums over samples: a pack of columns a thread --------------------------------------------- */
template <typename T, bool WHOLE>
static __global__ void __launch_bounds__(THREADS)
    samples_kernel(const T *x, int64_t samples, int64_t ld, int64_t width, float *out) {
    enum { N = pack_of<T>::COUNT };
    int64_t step = (int64_t)gridDim.x * THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; at < width; at += step) {
        float sum[N] = {0}, v[N];
        const T *from = x;
#pragma unroll 4
        for (int64_t i = 0; i < samples; i++, from += ld) {
            pack_load<WHOLE, N>(from, at, width, 0, v);
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += v[k];
        }
        pack_store<WHOLE, N>(out, at, width, sum);
    }
}

template <typename T>
static cudaError_t samples_of(const void *x, int64_t samples, int64_t ld, int64_t width, float *out,
                              cudaStream_t stream) {
    bool whole = packs_whole<T>(x, ld) && packs_whole<T>(out, width);
    void (*kernel)(const T *, int64_t, int64_t, int64_t, float *) =
        whole ? samples_kernel<T, true> : samples_kernel<T, false>;
    unsigned blocks = blocks_for((width + WARP * pack_of<T>::COUNT - 1) / (WARP * pack_of<T>::COUNT));
    LAUNCH(kernel, blocks, THREADS, 0, stream, (const T *)x, samples, ld, width, out);
    return cudaGetLastError();
}

extern "C" cudaError_t samples_sum(enum element from, const void *x, int64_t samples, int64_t ld, int64_t width,
                                   float *out, cudaStream_t stream) {
    return BY_TYPE(from, samples_of, x, samples, ld, width, out, stream);
}

/* ---- means ---------------------------------------------------------------------------------- */
/* A block has a stripe of a sample's columns; each of its warps adds every WARPS-th row, then the warps' sums are
 * added in order. */
template <typename X, typename Y, bool WHOLE>
static __global__ void __launch_bounds__(THREADS)
    mean_rows_kernel(const X *x, int64_t stripes, int64_t positions, int64_t width, Y *y) {
    enum { N = pack_of<Y>::COUNT };
    SHARED(float, sums, [WARPS][WARP * N]);
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t sample = blockIdx.x / stripes, stripe = blockIdx.x % stripes * WARP * N, at = stripe + lane * N;
    float sum[N] = {0}, v[N];
    const X *from = x + (sample * positions + warp) * width;
    for (int64_t p = warp; p < positions && at < width; p += WARPS, from += WARPS * width) {
        pack_load<WHOLE, N>(from, at, width, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += v[i];
    }
    for (int i = 0; i < N; i++) sums[warp][lane * N + i] = sum[i];
    __syncthreads();
    for (int c = (int)threadIdx.x; c < WARP * N && stripe + c < width; c += THREADS) {
        float all = 0;
        for (int w = 0; w < WARPS; w++) all += sums[w][c];
        y[sample * width + stripe + c] = from_float<Y>(all / (float)positions);
    }
}

template <typename X, typename Y>
static cudaError_t mean_rows_of(const void *x, int64_t n, int64_t positions, int64_t width, void *y,
                                cudaStream_t stream) {
    enum { WIDE = WARP * pack_of<Y>::COUNT };
    int64_t stripes = (width + WIDE - 1) / WIDE;
    void (*kernel)(const X *, int64_t, int64_t, int64_t, Y *) =
        packs_whole<Y>(x, width) ? mean_rows_kernel<X, Y, true> : mean_rows_kernel<X, Y, false>;
    LAUNCH(kernel, (unsigned)(n * stripes), THREADS, 0, stream, (const X *)x, stripes, positions, width, (Y *)y);
    return cudaGetLastError();
}

extern "C" cudaError_t mean_of_rows(enum element from, enum element to, const void *x, int64_t n, int64_t positions,
                                    int64_t width, void *y, cudaStream_t stream) {
    return BY_TYPES(from, to, mean_rows_of, x, n, positions, width, y, stream);
}

template <typename X, typename Y>
static __global__ void __launch_bounds__(THREADS) mean_planes_kernel(const X *x, int64_t planes, int64_t area, Y *y) {
    for (int64_t plane = first_warp(); plane < planes; plane += all_warps()) {
        float sum = 0;
        for (int64_t k = threadIdx.x % WARP; k < area; k += WARP) sum += to_float(x[plane * area + k]);
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) y[plane] = from_float<Y>(sum / (float)area);
    }
}

template <typename X, typename Y>
static cudaError_t mean_planes_of(const void *x, int64_t planes, int64_t area, void *y, cudaStream_t stream) {
    LAUNCH((mean_planes_kernel<X, Y>), blocks_for(planes), THREADS, 0, stream, (const X *)x, planes, area, (Y *)y);
    return cudaGetLastError();
}

extern "C" cudaError_t mean_of_planes(enum element from, enum element to, const void *x, int64_t planes, int64_t area,
                                      void *y, cudaStream_t stream) {
    return BY_TYPES(from, to, mean_planes_of, x, planes, area, y, stream);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) spread_kernel(const T *dy, int64_t planes, int64_t area, T *dx) {
    for (int64_t plane = first_warp(); plane < planes; plane += all_warps()) {
        T v = from_float<T>(to_float(dy[plane]) / (float)area);
        for (int64_t k = threadIdx.x % WARP; k < area; k += WARP) dx[plane * area + k] = v;
    }
}

template <typename T>
static cudaError_t spread_of(const void *dy, int64_t planes, int64_t area, void *dx, cudaStream_t stream) {
    LAUNCH(spread_kernel<T>, blocks_for(planes), THREADS, 0, stream, (const T *)dy, planes, area, (T *)dx);
    return cudaGetLastError();
}

extern "C" cudaError_t mean_of_planes_back(enum element type, const void *dy, int64_t planes, int64_t area, void *dx,
                                           cudaStream_t stream) {
    return BY_TYPE(type, spread_of, dy, planes, area, dx, stream);
}
