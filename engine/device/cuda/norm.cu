/* layernorm and rmsnorm, forward. A row is a warp's, which holds it in registers: memory is read once. Longer rows are a
 * block's, which reads them three times: what it reads again lies in the processor's own cache. */
#include "engine/device/cuda/norm_row.h"

enum { THREADS = 256 };

static __device__ __forceinline__ void moments_keep(const norm_call &c, int64_t row, float mean, float r) {
    if (!c.moments) return;
    c.moments[2 * row] = mean;
    c.moments[2 * row + 1] = r;
}

/* A pack of y: v = (v - mean) r w + shift */
template <int N, bool WHOLE>
static __device__ __forceinline__ void pack_norm(const norm_call &c, int64_t at, float mean, float r, float *v) {
    float w[N], shift[N];
    pack_load<WHOLE, N>(c.w, at, c.width, 0, w);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = (v[i] - mean) * r * w[i];
    if (!c.shift) return;
    pack_load<WHOLE, N>(c.shift, at, c.width, 0, shift);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] += shift[i];
}

/* ---- a row a warp --------------------------------------------------------------------------- */
template <typename T, int ITEMS, bool WHOLE>
static __global__ void __launch_bounds__(WARP *NORM_ROWS) norm_warps(norm_call c) {
    using split = row_split<T, ITEMS>;
    int64_t row = (int64_t)blockIdx.x * NORM_ROWS + threadIdx.x / WARP;
    if (row >= c.rows) return; /* a whole warp */
    float v[ITEMS], mean = 0, squares = 0;
    row_load<T, ITEMS, WHOLE>((const T *)c.x + row * c.width, c.width, v);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) mean += v[i];
    mean = c.centred ? warp_sum(mean) / (float)c.width : 0;
#pragma unroll
    for (int j = 0; j < split::PACKS; j++)
#pragma unroll
        for (int i = 0; i < split::N; i++) {
            float off = v[j * split::N + i] - mean;
            squares += in_row<WHOLE>(split::at(j), i, c.width) ? off * off : 0;
        }
    float r = rsqrtf(warp_sum(squares) / (float)c.width + c.eps);
    if (threadIdx.x % WARP == 0) moments_keep(c, row, mean, r);
#pragma unroll
    for (int j = 0; j < split::PACKS; j++) {
        float *part = v + j * split::N;
        if (split::at(j) >= c.width) break;
        pack_norm<split::N, WHOLE>(c, split::at(j), mean, r, part);
        pack_store<WHOLE, split::N>((T *)c.y + row * c.width, split::at(j), c.width, part);
    }
}

/* ---- a row a block -------------------------------------------------------------------------- */
template <typename X, typename T, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) norm_blocks(norm_call c) {
    enum { N = pack_of<T>::COUNT };
    SHARED(float, shared, [THREADS / WARP]);
    int64_t row = blockIdx.x, first = (int64_t)threadIdx.x * N;
    const X *x = (const X *)c.x + row * c.width;
    float v[N], mean = 0, squares = 0;
    for (int64_t at = first; at < c.width && c.centred; at += THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) mean += v[i];
    }
    mean = block_sum<THREADS>(mean, shared) / (float)c.width;
    for (int64_t at = first; at < c.width; at += THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, mean, v);
#pragma unroll
        for (int i = 0; i < N; i++) squares += (v[i] - mean) * (v[i] - mean);
    }
    float r = rsqrtf(block_sum<THREADS>(squares, shared) / (float)c.width + c.eps);
    if (threadIdx.x == 0) moments_keep(c, row, mean, r);
    for (int64_t at = first; at < c.width; at += THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, 0, v);
        pack_norm<N, WHOLE>(c, at, mean, r, v);
        pack_store<WHOLE, N>((T *)c.y + row * c.width, at, c.width, v);
    }
}

/* ---- launchers ------------------------------------------------------------------------------ */
template <typename X, typename T> static cudaError_t forward_of(const norm_call *c, cudaStream_t stream) {
    bool whole = packs_whole<T>(c->x, c->width) && packs_whole<T>(c->y, c->width);
    void (*kernel)(norm_call) = norm_blocks<X, T, false>;
    if (sizeof(X) == sizeof(T) && c->width <= NORM_WARP_MOST) {
        kernel = KERNEL_FOR_WIDTH(norm_warps, T, whole, c->width);
        LAUNCH(kernel, (unsigned)((c->rows + NORM_ROWS - 1) / NORM_ROWS), WARP * NORM_ROWS, 0, stream, *c);
    } else {
        if (whole) kernel = norm_blocks<X, T, true>;
        LAUNCH(kernel, (unsigned)c->rows, THREADS, 0, stream, *c);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t norm_forward_launch(const norm_call *c, cudaStream_t stream) {
    return BY_TYPES(c->x_type, c->type, forward_of, c, stream);
}
