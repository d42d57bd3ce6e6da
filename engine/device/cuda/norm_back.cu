/* layernorm and rmsnorm, backward. With h = (x - mean) r, g = dy w, n the row's length:
 *   dx = r (g - sum(g) / n - h sum(g h) / n), rmsnorm without sum(g)
 *   dw = sum over rows of dy h, db = sum over rows of dy
 * Rows that a warp holds: each warp goes through its own rows and adds their part of dw and db up in registers, so
 * that x and dy are read once; a block's warps are added in order, and the blocks by columns_finish.
 * Longer rows: dw and db by a pass over x and dy, then dx by a block a row.
 * Where dx is dy itself and is added to, a thread has read each element of dy before it writes it. */
#include "engine/device/cuda/columns.h"
#include "engine/device/cuda/norm_row.h"

enum { THREADS = 256 };

struct row_sums {
    float g, gh;
};

/* v += what is there, where dx is added to. */
template <bool WHOLE, int N, typename T>
static __device__ __forceinline__ void dx_add(const norm_call &c, int64_t row, int64_t at, float *v) {
    float there[N];
    if (!c.add) return;
    pack_load<WHOLE, N>((const T *)c.dx + row * c.width, at, c.width, 0, there);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] += there[i];
}

/* ---- a row a warp --------------------------------------------------------------------------- */
/* v = dy and h = x become g and h; dw and db have the row's part added. Gives the row's sums of g and g h. */
template <typename T, int ITEMS, bool WHOLE>
static __device__ __forceinline__ row_sums row_gradients(const norm_call &c, int64_t row, float r, float *v, float *h,
                                                         float *dw, float *db) {
    using split = row_split<T, ITEMS>;
    float mean = c.moments[2 * row], w[split::N];
    row_sums s = {0, 0};
#pragma unroll
    for (int j = 0; j < split::PACKS; j++) {
        if (split::at(j) >= c.width) break;
        pack_load<WHOLE, split::N>(c.w, split::at(j), c.width, 0, w);
#pragma unroll
        for (int i = 0; i < split::N; i++) {
            int k = j * split::N + i;
            h[k] = (h[k] - mean) * r;
            dw[k] += v[k] * h[k]; /* 0 beyond the row's end, as dy is */
            db[k] += v[k];
            v[k] *= w[i];
            s.g += v[k];
            s.gh += v[k] * h[k];
        }
    }
    s.g = c.centred ? warp_sum(s.g) / (float)c.width : 0;
    s.gh = warp_sum(s.gh) / (float)c.width;
    return s;
}

/* The block's warps' sums of dw or db, in order, to its place in 'partial'. */
template <typename T, int ITEMS>
static __device__ __forceinline__ void warps_add(const float *v, float *sums, float *partial, int64_t width) {
    using split = row_split<T, ITEMS>;
    for (int warp = 0; warp < NORM_ROWS; warp++) {
        if ((int)threadIdx.x / WARP == warp)
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                int64_t at = split::at(k / split::N) + k % split::N;
                sums[at] = warp ? sums[at] + v[k] : v[k];
            }
        __syncthreads();
    }
    for (int64_t at = threadIdx.x; at < width; at += WARP * NORM_ROWS) partial[at] = sums[at];
    __syncthreads(); /* before 'sums' is written again */
}

template <typename T, int ITEMS, bool WHOLE>
static __global__ void __launch_bounds__(WARP *NORM_ROWS) norm_back_warps(norm_call c) {
    using split = row_split<T, ITEMS>;
    SHARED(float, sums, [WARP * ITEMS]);
    float dw[ITEMS] = {0}, db[ITEMS] = {0}, v[ITEMS], h[ITEMS];
    for (int64_t row = (int64_t)blockIdx.x * NORM_ROWS + threadIdx.x / WARP; row < c.rows;
         row += (int64_t)gridDim.x * NORM_ROWS) {
        float r = c.moments[2 * row + 1];
        row_load<T, ITEMS, WHOLE>((const T *)c.x + row * c.width, c.width, h);
        row_load<T, ITEMS, WHOLE>((const T *)c.dy + row * c.width, c.width, v);
        row_sums s = row_gradients<T, ITEMS, WHOLE>(c, row, r, v, h, dw, db);
#pragma unroll
        for (int j = 0; j < split::PACKS; j++) {
            float *part = v + j * split::N;
            if (split::at(j) >= c.width || !c.dx) break;
#pragma unroll
            for (int i = 0; i < split::N; i++) part[i] = r * (part[i] - s.g - h[j * split::N + i] * s.gh);
            dx_add<WHOLE, split::N, T>(c, row, split::at(j), part);
            pack_store<WHOLE, split::N>((T *)c.dx + row * c.width, split::at(j), c.width, part);
        }
    }
    float *partial = c.partial + blockIdx.x * (c.db ? 2 * c.width : c.width);
    warps_add<T, ITEMS>(dw, sums, partial, c.width);
    if (c.db) warps_add<T, ITEMS>(db, sums, partial + c.width, c.width);
}

/* ---- a row a block -------------------------------------------------------------------------- */
template <typename T, bool WHOLE> static __global__ void __launch_bounds__(THREADS) norm_back_blocks(norm_call c) {
    enum { N = pack_of<T>::COUNT };
    SHARED(float, shared, [THREADS / WARP]);
    int64_t row = blockIdx.x, first = (int64_t)threadIdx.x * N;
    const T *x = (const T *)c.x + row * c.width, *dy = (const T *)c.dy + row * c.width;
    float mean = c.moments[2 * row], r = c.moments[2 * row + 1], h[N], g[N], w[N];
    row_sums s = {0, 0};
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t at = first; at < c.width; at += THREADS * N) {
            pack_load<WHOLE, N>(x, at, c.width, 0, h);
            pack_load<WHOLE, N>(dy, at, c.width, 0, g);
            pack_load<WHOLE, N>(c.w, at, c.width, 0, w);
#pragma unroll
            for (int i = 0; i < N; i++) {
                h[i] = (h[i] - mean) * r;
                g[i] *= w[i];
                if (pass == 0)
                    s.g += g[i], s.gh += g[i] * h[i];
                else
                    g[i] = r * (g[i] - s.g - h[i] * s.gh);
            }
            if (pass) dx_add<WHOLE, N, T>(c, row, at, g);
            if (pass) pack_store<WHOLE, N>((T *)c.dx + row * c.width, at, c.width, g);
        }
        if (pass) break;
        s.g = c.centred ? block_sum<THREADS>(s.g, shared) / (float)c.width : 0;
        s.gh = block_sum<THREADS>(s.gh, shared) / (float)c.width;
    }
}

/* dw and db of a group of rows, a column a thread. */
template <typename X, typename T> static __global__ void __launch_bounds__(THREADS) norm_back_columns(norm_call c) {
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= c.width) return;
    float dw = 0, db = 0;
#pragma unroll 4
    for (int64_t row = blockIdx.y; row < c.rows; row += gridDim.y) {
        float dy = to_float(((const T *)c.dy)[row * c.width + at]);
        float x = to_float(((const X *)c.x)[row * c.width + at]);
        dw += dy * (x - c.moments[2 * row]) * c.moments[2 * row + 1];
        db += dy;
    }
    float *partial = c.partial + blockIdx.y * (c.db ? 2 * c.width : c.width);
    partial[at] = dw;
    if (c.db) partial[c.width + at] = db;
}

/* ---- launchers ------------------------------------------------------------------------------ */
template <typename X, typename T> static cudaError_t backward_of(const norm_call *c, cudaStream_t stream) {
    int64_t groups = norm_groups(c->rows);
    bool whole = packs_whole<T>(c->x, c->width) && packs_whole<T>(c->dy, c->width) && packs_whole<T>(c->dx, c->width);
    void (*kernel)(norm_call) = norm_back_columns<X, T>;
    if (sizeof(X) == sizeof(T) && c->width <= NORM_WARP_MOST) {
        kernel = KERNEL_FOR_WIDTH(norm_back_warps, T, whole, c->width);
        LAUNCH(kernel, (unsigned)groups, WARP * NORM_ROWS, 0, stream, *c);
    } else {
        dim3 blocks((unsigned)((c->width + THREADS - 1) / THREADS), (unsigned)groups);
        LAUNCH(kernel, blocks, THREADS, 0, stream, *c);
        kernel = whole ? norm_back_blocks<T, true> : norm_back_blocks<T, false>;
        if (c->dx) LAUNCH(kernel, (unsigned)c->rows, THREADS, 0, stream, *c);
    }
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess) return e;
    return columns_finish(c->partial, groups, c->width, c->dw, c->db, stream);
}

extern "C" cudaError_t norm_backward_launch(const norm_call *c, cudaStream_t stream) {
    return BY_TYPES(c->x_type, c->type, backward_of, c, stream);
}
