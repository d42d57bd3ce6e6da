/* Vectors of f32 and of the types of activations: memory read once and written once, sixteen bytes at a time where
 * the addresses allow it. */
#include "engine/base/header.h"
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

template <typename V> static __device__ V tree_of_any(const struct vector_terms &t, int count, int64_t i) {
    enum { DEPTH = 10 }; /* what is left of VECTOR_TERMS at most, and a term */
    V left[DEPTH];
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

enum { LINEAR = 0, TREE_OF_ANY = -1 }; /* else an even tree of so many */
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

/* ---- types of activations ------------------------------------------------------------------- */
/* Eight at a time: sixteen bytes of the narrow type. */
template <typename T> struct alignas(16) eight { T v[8]; };
struct alignas(16) eight_wide {
    float4 low, high;
};

template <typename T> static __global__ void lower_kernel(T *to, const float *from, int64_t eights, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < eights; i += step) {
        float4 a = ((const float4 *)from)[2 * i], b = ((const float4 *)from)[2 * i + 1];
        struct eight<T> out = {
            {
                from_float<T>(a.x), from_float<T>(a.y), from_float<T>(a.z), from_float<T>(a.w), from_float<T>(b.x),
                    from_float<T>(b.y), from_float<T>(b.z), from_float<T>(b.w)
            }
        };
        ((struct eight<T> *)to)[i] = out;
    }
    for (int64_t i = 8 * eights + first; i < n; i += step) to[i] = from_float<T>(from[i]);
}

template <typename T> static __global__ void raise_kernel(float *to, const T *from, int64_t eights, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < eights; i += step) {
        struct eight<T> x = ((const struct eight<T> *)from)[i];
        float4 a = {to_float(x.v[0]), to_float(x.v[1]), to_float(x.v[2]), to_float(x.v[3])};
        float4 b = {to_float(x.v[4]), to_float(x.v[5]), to_float(x.v[6]), to_float(x.v[7])};
        ((float4 *)to)[2 * i] = a, ((float4 *)to)[2 * i + 1] = b;
    }
    for (int64_t i = 8 * eights + first; i < n; i += step) to[i] = to_float(from[i]);
}

template <typename T> static __global__ void add_low_kernel(T *to, const T *from, int64_t eights, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < eights; i += step) {
        struct eight<T> a = ((struct eight<T> *)to)[i], b = ((const struct eight<T> *)from)[i];
        for (int k = 0; k < 8; k++) a.v[k] = from_float<T>(to_float(a.v[k]) + to_float(b.v[k]));
        ((struct eight<T> *)to)[i] = a;
    }
    for (int64_t i = 8 * eights + first; i < n; i += step) to[i] = from_float<T>(to_float(to[i]) + to_float(from[i]));
}

static int64_t eights_of(const void *to, const void *from, int64_t n) {
    return is_aligned(to) && is_aligned(from) ? n / 8 : 0;
}

extern "C" cudaError_t vector_lower(void *to, const float *from, int64_t n, bool half, cudaStream_t stream) {
    int64_t eights = eights_of(to, from, n);
    unsigned blocks = blocks_for(eights ? eights : n);
    if (half)
        LAUNCH(lower_kernel<__half>, blocks, THREADS, 0, stream, (__half *)to, from, eights, n);
    else
        LAUNCH(lower_kernel<__nv_bfloat16>, blocks, THREADS, 0, stream, (__nv_bfloat16 *)to, from, eights, n);
    return cudaGetLastError();
}

extern "C" cudaError_t vector_raise(float *to, const void *from, int64_t n, bool half, cudaStream_t stream) {
    int64_t eights = eights_of(to, from, n);
    unsigned blocks = blocks_for(eights ? eights : n);
    if (half)
        LAUNCH(raise_kernel<__half>, blocks, THREADS, 0, stream, to, (const __half *)from, eights, n);
    else
        LAUNCH(raise_kernel<__nv_bfloat16>, blocks, THREADS, 0, stream, to, (const __nv_bfloat16 *)from, eights, n);
    return cudaGetLastError();
}

extern "C" cudaError_t vector_add_low(void *to, const void *from, int64_t n, bool half, cudaStream_t stream) {
    int64_t eights = eights_of(to, from, n);
    unsigned blocks = blocks_for(eights ? eights : n);
    if (half)
        LAUNCH(add_low_kernel<__half>, blocks, THREADS, 0, stream, (__half *)to, (const __half *)from, eights, n);
    else
        LAUNCH(add_low_kernel<__nv_bfloat16>, blocks, THREADS, 0, stream, (__nv_bfloat16 *)to,
               (const __nv_bfloat16 *)from, eights, n);
    return cudaGetLastError();
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
