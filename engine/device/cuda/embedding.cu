/* The gradient of an embedding: each token's rows of dy, added in their order.
 *
 * Which rows are a token's is found by sorting (token, row) pairs by token, stably, so that rows stay in order: a radix
 * sort of DIGITS values at a time, whose every step is a function of the tokens alone:
 *   count    how often each digit is in each tile of TILE pairs
 *   scan     where the tile's pairs of that digit begin: all of smaller digits, and of that digit in tiles before
 *   scatter  a pair goes after those of its tile and digit before it
 * Then 'bounds' finds where each token begins and ends, and 'add' gives each row of dw to a block: a short list is
 * added by one warp for a stripe of columns, a long one by all, each having every WARPS-th row. */
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/pack.h"
#include "engine/device/cuda/reduce.h"
#include "engine/device/cuda/sequence_launch.h"
#include "engine/device/cuda/token.h"

enum { TILE = 256, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, SCANNERS = 1024, WARPS = 8, THREADS = WARPS * WARP };

/* ---- what is in scratch ------------------------------------------------------------------------ */
struct sorting {
    int *key[2], *row[2]; /* a pass reads one of them and writes the other */
    int *count;           /* (DIGITS, tiles) */
    int *begin, *end;     /* (vocabulary); both 0: no rows */
};

static int64_t tiles_of(int64_t rows) {
    return (rows + TILE - 1) / TILE;
}

extern "C" size_t embedding_back_bytes(int64_t rows, int64_t vocabulary) {
    return (size_t)(4 * rows + DIGITS * tiles_of(rows) + 2 * vocabulary) * sizeof(int);
}

static struct sorting lay_out(const struct embedding_back *e) {
    struct sorting s;
    int *at = (int *)e->scratch;
    for (int i = 0; i < 2; i++, at += 2 * e->rows) s.key[i] = at, s.row[i] = at + e->rows;
    s.count = at;
    s.begin = at + DIGITS * tiles_of(e->rows);
    s.end = s.begin + e->vocabulary;
    return s;
}

/* ---- sorting --------------------------------------------------------------------------------- */
static __global__ void __launch_bounds__(TILE)
    begin_kernel(const float *token, int64_t rows, int64_t vocabulary, int *key, int *row) {
    int64_t k = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (k >= rows) return;
    key[k] = token_is(token[k], vocabulary) ? (int)token[k] : 0;
    row[k] = (int)k;
}

static __global__ void __launch_bounds__(TILE) count_kernel(const int *key, int64_t rows, int shift, int *count) {
    SHARED(int, here, [DIGITS]);
    int64_t k = (int64_t)blockIdx.x * TILE + threadIdx.x;
    here[threadIdx.x] = 0;
    __syncthreads();
    if (k < rows) atomicAdd(&here[key[k] >> shift & (DIGITS - 1)], 1);
    __syncthreads();
    count[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = here[threadIdx.x];
}

/* The sum of what the threads before this one have, in a block of SCANNERS. */
static __device__ __forceinline__ int sum_before(int mine, int *shared) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, sum = mine;
    for (int apart = 1; apart < WARP; apart *= 2) {
        int other = __shfl_up_sync(WHOLE_WARP, sum, apart);
        if (lane >= apart) sum += other;
    }
    if (lane == WARP - 1) shared[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++) sum += shared[w];
    return sum - mine;
}

/* One block: each count becomes the sum of those before it. */
static __global__ void __launch_bounds__(SCANNERS) scan_kernel(int *count, int64_t n) {
    SHARED(int, sums, [SCANNERS / WARP]);
    int64_t each = (n + SCANNERS - 1) / SCANNERS, begin = threadIdx.x * each, end = min(begin + each, n);
    int sum = 0;
    for (int64_t k = begin; k < end; k++) sum += count[k];
    sum = sum_before(sum, sums);
    for (int64_t k = begin; k < end; k++) {
        int mine = count[k];
        count[k] = sum;
        sum += mine;
    }
}

static __global__ void __launch_bounds__(TILE) scatter_kernel(const int *key, const int *row, int64_t rows, int shift,
                                                              const int *count, int *to_key, int *to_row) {
    SHARED(int, digits, [TILE]);
    int64_t k = (int64_t)blockIdx.x * TILE + threadIdx.x;
    int mine = k < rows ? key[k] : 0, digit = mine >> shift & (DIGITS - 1), before = 0;
    digits[threadIdx.x] = digit;
    __syncthreads();
    for (int i = 0; i < (int)threadIdx.x; i++) before += digits[i] == digit;
    if (k >= rows) return;
    int to = count[(int64_t)digit * gridDim.x + blockIdx.x] + before;
    to_key[to] = mine;
    to_row[to] = row[k];
}

/* begin and end are zero. */
static __global__ void __launch_bounds__(TILE) bounds_kernel(const int *key, int64_t rows, int *begin, int *end) {
    int64_t k = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (k >= rows) return;
    int mine = key[k];
    if (k == 0 || key[k - 1] != mine) begin[mine] = (int)k;
    if (k == rows - 1 || key[k + 1] != mine) end[mine] = (int)k + 1;
}

/* Leaves the sorted pairs in s->key[0], s->row[0]. */
static cudaError_t sort(const struct embedding_back *e, struct sorting *s, cudaStream_t stream) {
    unsigned tiles = (unsigned)tiles_of(e->rows);
    LAUNCH(begin_kernel, tiles, TILE, 0, stream, e->token, e->rows, e->vocabulary, s->key[0], s->row[0]);
    for (int shift = 0; (e->vocabulary - 1) >> shift > 0; shift += DIGIT_BITS) {
        LAUNCH(count_kernel, tiles, TILE, 0, stream, s->key[0], e->rows, shift, s->count);
        LAUNCH(scan_kernel, 1, SCANNERS, 0, stream, s->count, (int64_t)tiles * DIGITS);
        LAUNCH(scatter_kernel, tiles, TILE, 0, stream, s->key[0], s->row[0], e->rows, shift, s->count, s->key[1],
               s->row[1]);
        int *key = s->key[0], *row = s->row[0];
        s->key[0] = s->key[1], s->row[0] = s->row[1];
        s->key[1] = key, s->row[1] = row;
    }
    return cudaGetLastError();
}

/* ---- adding ---------------------------------------------------------------------------------- */
template <typename T, bool WHOLE, int N>
static __device__ __forceinline__ void add_rows(const struct embedding_back &e, const int *row, int begin, int end,
                                                int step, int64_t at, float sum[N]) {
    float v[N];
#pragma unroll 4
    for (int p = begin; p < end; p += step) {
        pack_load<WHOLE, N>((const T *)e.dy + row[p] * e.width, at, e.width, 0, v);
        for (int i = 0; i < N; i++) sum[i] += v[i];
    }
}

/* A warp has every WARPS-th stripe. */
template <typename T, bool WHOLE>
static __device__ __forceinline__ void add_short(const struct embedding_back &e, const int *row, int begin, int end,
                                                 float *dw) {
    enum { N = pack_of<T>::COUNT };
    for (int64_t at = (int64_t)threadIdx.x * N; at < e.width; at += THREADS * N) {
        float sum[N] = {0};
        if (e.add) pack_load<WHOLE, N>(dw, at, e.width, 0, sum);
        add_rows<T, WHOLE, N>(e, row, begin, end, 1, at, sum);
        pack_store<WHOLE, N>(dw, at, e.width, sum);
    }
}

/* A warp has every WARPS-th row. */
template <typename T, bool WHOLE, int N>
static __device__ __forceinline__ void add_long(const struct embedding_back &e, const int *row, int begin, int end,
                                                float *dw, float sums[WARPS][WARP * N]) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    for (int64_t stripe = 0; stripe < e.width; stripe += WARP * N) {
        float sum[N] = {0};
        if (stripe + lane * N < e.width)
            add_rows<T, WHOLE, N>(e, row, begin + warp, end, WARPS, stripe + lane * N, sum);
        for (int i = 0; i < N; i++) sums[warp][lane * N + i] = sum[i];
        __syncthreads();
        for (int c = (int)threadIdx.x; c < WARP * N && stripe + c < e.width; c += THREADS) {
            float all = e.add ? dw[stripe + c] : 0;
            for (int w = 0; w < WARPS; w++) all += sums[w][c];
            dw[stripe + c] = all;
        }
        __syncthreads();
    }
}

template <typename T, bool WHOLE>
static __global__ void __launch_bounds__(THREADS)
    add_kernel(struct embedding_back e, const int *row, const int *begin, const int *end) {
    enum { N = pack_of<T>::COUNT, SHORT = 2 * WARPS };
    SHARED(float, sums, [WARPS][WARP * N]);
    for (int64_t t = blockIdx.x; t < e.vocabulary; t += gridDim.x) {
        int first = begin[t], last = end[t];
        if (first == last && e.add) continue;
        if (last - first <= SHORT)
            add_short<T, WHOLE>(e, row, first, last, e.dw + t * e.width);
        else
            add_long<T, WHOLE, N>(e, row, first, last, e.dw + t * e.width, sums);
    }
}

template <typename T>
static cudaError_t add_of(const struct embedding_back *e, const struct sorting *s, cudaStream_t stream) {
    const int64_t most = 1 << 20;
    bool whole = packs_whole<T>(e->dy, e->width) && packs_whole<T>(e->dw, e->width);
    void (*kernel)(struct embedding_back, const int *, const int *, const int *) =
        whole ? add_kernel<T, true> : add_kernel<T, false>;
    unsigned blocks = (unsigned)(e->vocabulary < most ? e->vocabulary : most);
    LAUNCH(kernel, blocks, THREADS, 0, stream, *e, s->row[0], s->begin, s->end);
    return cudaGetLastError();
}

extern "C" cudaError_t embedding_back(const struct embedding_back *e, cudaStream_t stream) {
    struct sorting s = lay_out(e);
    cudaError_t err = cudaMemsetAsync(s.begin, 0, 2 * (size_t)e->vocabulary * sizeof(int), stream);
    if (err == cudaSuccess) err = sort(e, &s, stream);
    if (err != cudaSuccess) return err;
    LAUNCH(bounds_kernel, (unsigned)tiles_of(e->rows), TILE, 0, stream, s.key[0], e->rows, s.begin, s.end);
    return BY_TYPE(e->type, add_of, e, &s, stream);
}
