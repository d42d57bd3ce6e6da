/* Vectors of f32 and of the types of activations: memory read once and written once, sixteen bytes at a time where
 * the addresses allow it. */
#include "engine/base/header.h"
#include "engine/device/cuda/pack.h"
#include "engine/device/cuda/squares.h"
#include "engine/device/cuda/vector_launch.h"

enum { THREADS = 256 };
static const int64_t BLOCKS_MOST = 1 << 20; /* each then takes several turns */

static unsigned blocks_for(int64_t turns) {
    int64_t blocks = (turns + THREADS - 1) / THREADS;
    return (unsigned)(blocks < 1 ? 1 : blocks > BLOCKS_MOST ? BLOCKS_MOST : blocks);
}

static bool is_aligned(const void *p) {
    return (uintptr_t)p % 16 == 0;
}

/* ---- sums ----------------------------------------------------------------------------------- */
static __device__ __forceinline__ void add(float &a, float b) {
    a += b;
}
static __device__ __forceinline__ void add(float4 &a, float4 b) {
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
}

/* An even tree, of a count that the compiler knows: all terms in registers. */
template <int COUNT, typename V> static __device__ __forceinline__ V tree(const struct vector_terms &t, int64_t i) {
    V v[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++) v[k] = ((const V *)t.term[k])[i];
#pragma unroll
    for (int apart = 1; apart < COUNT; apart *= 2)
#pragma unroll
        for (int k = 0; k < COUNT; k += 2 * apart) add(v[k], v[k + apart]);
    return v[0];
}

template <typename V, typename T> static __device__ V tree_of_any(const T &t, int count, int64_t i) {
    V left[VECTOR_DEPTH];
    for (int k = 0, depth = 0; k < count; k++) {
        left[depth++] = ((const V *)t.term[k])[i];
        for (int n = t.adds[k]; n > 0; n--, depth--) add(left[depth - 2], left[depth - 1]);
    }
    return left[0];
}

template <typename V> static __device__ __forceinline__ V linear(const struct vector_terms &t, int count, int64_t i) {
    V v = ((const V *)t.term[0])[i];
#pragma unroll 4
    for (int k = 1; k < count; k++) add(v, ((const V *)t.term[k])[i]);
    return v;
}

enum { LINEAR = 0, TREE_OF_ANY = -1 }; /* else the count of an even tree */
template <int COUNT, typename V>
static __device__ __forceinline__ V sum_at(const struct vector_terms &t, int count, int64_t i) {
    if constexpr (COUNT == LINEAR)
        return linear<V>(t, count, i);
    else if constexpr (COUNT == TREE_OF_ANY)
        return tree_of_any<V>(t, count, i);
    else
        return tree<COUNT, V>(t, i);
}

/* The first 'quads' fours of floats as fours, the rest one by one. 'to' may be a term: a thread reads what it
 * writes, and nobody else does. */
template <int COUNT>
static __global__ void sum_kernel(float *to, struct vector_terms t, int count, int64_t quads, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < quads; i += step) ((float4 *)to)[i] = sum_at<COUNT, float4>(t, count, i);
    for (int64_t i = 4 * quads + first; i < n; i += step) to[i] = sum_at<COUNT, float>(t, count, i);
}

extern "C" cudaError_t vector_sum(float *to, const struct vector_terms *terms, int count, int64_t n,
                                  cudaStream_t stream) {
    bool aligned = is_aligned(to), chain = true, even = true;
    for (int k = 0; k < count; k++) {
        aligned = aligned && is_aligned(terms->term[k]);
        chain = chain && terms->adds[k] == (k > 0);
        even = even && terms->adds[k] == __builtin_ctz((unsigned)k + 1);
    }
    int64_t quads = aligned ? n / 4 : 0;
    unsigned blocks = blocks_for(aligned ? quads + 3 : n);
    struct vector_terms t = *terms;
    if (chain)
        LAUNCH(sum_kernel<LINEAR>, blocks, THREADS, 0, stream, to, t, count, quads, n);
    else if (even && count == 4)
        LAUNCH(sum_kernel<4>, blocks, THREADS, 0, stream, to, t, count, quads, n);
    else if (even && count == 8)
        LAUNCH(sum_kernel<8>, blocks, THREADS, 0, stream, to, t, count, quads, n);
    else if (even && count == 16)
        LAUNCH(sum_kernel<16>, blocks, THREADS, 0, stream, to, t, count, quads, n);
    else
        LAUNCH(sum_kernel<TREE_OF_ANY>, blocks, THREADS, 0, stream, to, t, count, quads, n);
    return cudaGetLastError();
}

static __global__ void sum_table_kernel(float *to, struct vector_table t, int count, int64_t quads, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < quads; i += step) ((float4 *)to)[i] = tree_of_any<float4>(t, count, i);
    for (int64_t i = 4 * quads + first; i < n; i += step) to[i] = tree_of_any<float>(t, count, i);
}

extern "C" cudaError_t vector_sum_table(float *to, struct vector_table terms, int count, bool aligned, int64_t n,
                                        cudaStream_t stream) {
    int64_t quads = aligned ? n / 4 : 0;
    LAUNCH(sum_table_kernel, blocks_for(aligned ? quads + 3 : n), THREADS, 0, stream, to, terms, count, quads, n);
    return cudaGetLastError();
}

/* ---- types of activations ------------------------------------------------------------------- */
enum { EIGHT = 8 }; /* elements at a time: sixteen bytes of the narrow type */

/* to = from, or to + from. */
template <typename F, typename T, bool ADD>
static __global__ void cast_kernel(T *to, const F *from, int64_t eights, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = EIGHT * first; i < EIGHT * eights; i += EIGHT * step) {
        float v[EIGHT], sum[EIGHT] = {0};
        load<F, EIGHT>(from + i, v);
        if constexpr (ADD) load<T, EIGHT>(to + i, sum);
#pragma unroll
        for (int k = 0; k < EIGHT && ADD; k++) v[k] = sum[k] + v[k];
        store<T, EIGHT>(to + i, v);
    }
#pragma unroll 1 /* at most seven, or a vector that is not aligned */
    for (int64_t i = EIGHT * eights + first; i < n; i += step)
        to[i] = from_float<T>(ADD ? to_float(to[i]) + to_float(from[i]) : to_float(from[i]));
}

template <typename F, typename T, bool ADD>
static cudaError_t cast(void *to, const void *from, int64_t n, cudaStream_t stream) {
    int64_t eights = is_aligned(to) && is_aligned(from) ? n / EIGHT : 0;
    auto *kernel = cast_kernel<F, T, ADD>;
    LAUNCH(kernel, blocks_for(eights ? eights : n), THREADS, 0, stream, (T *)to, (const F *)from, eights, n);
    return cudaGetLastError();
}

extern "C" cudaError_t vector_lower(void *to, const float *from, int64_t n, bool half, cudaStream_t stream) {
    return (half ? cast<float, __half, false> : cast<float, __nv_bfloat16, false>)(to, from, n, stream);
}

extern "C" cudaError_t vector_raise(float *to, const void *from, int64_t n, bool half, cudaStream_t stream) {
    return (half ? cast<__half, float, false> : cast<__nv_bfloat16, float, false>)(to, from, n, stream);
}

extern "C" cudaError_t vector_add_low(void *to, const void *from, int64_t n, bool half, cudaStream_t stream) {
    return (half ? cast<__half, __half, true> : cast<__nv_bfloat16, __nv_bfloat16, true>)(to, from, n, stream);
}

/* ---- sums of squares, and the header --------------------------------------------------------- */
static __global__ void partials_kernel(const float *g, int64_t n, double *partial) {
    int lane = (int)(threadIdx.x % SQUARE_LANES);
    int64_t warps = (int64_t)gridDim.x * (blockDim.x / SQUARE_LANES);
    int64_t block = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / SQUARE_LANES;
    for (; block * NORM_BLOCK < n; block += warps) {
        int64_t left = n - block * NORM_BLOCK;
        double sum = lane_squares(g + block * NORM_BLOCK, left < NORM_BLOCK ? left : NORM_BLOCK, lane);
        sum = lanes_sum(sum);
        if (lane == 0) partial[block] = sum;
    }
}

extern "C" cudaError_t vector_partials(const float *g, int64_t n, double *partial, cudaStream_t stream) {
    int64_t blocks = (n + NORM_BLOCK - 1) / NORM_BLOCK;
    LAUNCH(partials_kernel, blocks_for(blocks * SQUARE_LANES), THREADS, 0, stream, g, n, partial);
    return cudaGetLastError();
}

static __global__ void head_kernel(float *header, const double *sums, float scale, float samples, float stop) {
    float v = 0;
    if (threadIdx.x == HEADER_LOSS) v = (float)(sums[0] * (double)scale);
    if (threadIdx.x == HEADER_CORRECT) v = (float)sums[1];
    if (threadIdx.x == HEADER_SAMPLES) v = samples;
    if (threadIdx.x == HEADER_STOP) v = stop;
    header[threadIdx.x] = v;
}

extern "C" cudaError_t vector_head(float *header, const double *sums, float scale, float samples, float stop,
                                   cudaStream_t stream) {
    LAUNCH(head_kernel, 1, HEADER_FLOATS, 0, stream, header, sums, scale, samples, stop);
    return cudaGetLastError();
}
