/* Attention backward, the queries' half: delta, then dq. A block holds some queries with their dy and walks over the
 * keys and values, as forward does; p comes back from the scores and the row's saved log-sum, and with it
 * ds = p (dy v' - delta), dq = ds k. Every dq has one owner, who sums over the keys in order. */
#include "engine/device/cuda/attention_tile.h"
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/pack.h"

/* p from scores s and the rows' log-sums, and from it and dp = dy v' the ds, which replaces s. */
template <class P>
static __device__ __forceinline__ void scores_backward(float (&s)[P::R][P::C], const float (&dp)[P::R][P::C],
                                                       const float (&lse)[P::R], const float (&delta)[P::R],
                                                       float scale) {
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int j = 0; j < P::C; j++) s[i][j] = P::exp2(fmaf(s[i][j], scale, -lse[i])) * (dp[i][j] - delta[i]);
}

template <class P, int WARPS, int KEYS, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS) attention_queries_kernel(attention_call c) {
    typedef typename P::T T;
    SHARED_BYTES(bytes);
    const int HOLD = P::ROWS * WARPS, STAGE = 2 * KEYS * P::LD;
    T *const q = (T *)bytes, *const dy = q + HOLD * P::LD, *const stages = dy + HOLD * P::LD;
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0),
              tiles = (c.positions + HOLD - 1) / HOLD;
    float *const scratch = (float *)(stages + 2 * STAGE) + warp * P::SCRATCH;
    T *const my_q = q + warp * P::ROWS * P::LD, *const my_dy = dy + warp * P::ROWS * P::LD;
    const int begin = (tiles - 1 - (int)(blockIdx.x % tiles)) * HOLD, top = begin + warp * P::ROWS;
    const attention_head h = attention_head_of(c, blockIdx.x / tiles);
    const T *const from_q = (const T *)c.x + h.in;
    const T *const from_dy = (const T *)c.dy + h.out;
    const int end = c.causal ? min(begin + HOLD, c.positions) : c.positions;
    const int seen = top >= c.positions ? 0 : c.causal ? min(top + P::ROWS, c.positions) : end;
    const float scale = attention_scale_2(c);
    typename P::rows rows_q, rows_dy;
    float dq[P::R][P::CO] = {}, lse[P::R], delta[P::R], part[P::R];
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        int row = top + P::row(lane, i);
        lse[i] = row < c.positions ? c.lse[h.row + row] : 0;
        delta[i] = row < c.positions ? c.delta[h.row + row] : 0;
    }

    tile_load<P, HOLD, WARPS * 32>(q, from_q + begin * h.ld, h.ld, c.positions - begin, c.size, c.aligned);
    tile_load<P, HOLD, WARPS * 32>(dy, from_dy + begin * h.all, h.all, c.positions - begin, c.size, c.aligned);
    stage_load<P, KEYS, WARPS * 32>(stages, c, h, 0);
    cp_async_wait();
    __syncthreads();
    P::hold(rows_q, my_q, lane);
    P::hold(rows_dy, my_dy, lane);
    for (int at = 0; at < end; at += KEYS) {
        const T *const k = stages + at / KEYS % 2 * STAGE, *const v = k + KEYS * P::LD;
        T *const next = stages + (at / KEYS + 1) % 2 * STAGE;
        cp_async_wait();
        __syncthreads(); /* this tile is there, and nobody reads the one before any more */
        if (at + KEYS < end) stage_load<P, KEYS, WARPS * 32>(next, c, h, at + KEYS);
#pragma unroll 1
        for (int sub = 0; sub < KEYS; sub += P::N) {
            const int first = at + sub;
            if (first >= seen) break;
            float s[P::R][P::C], dp[P::R][P::C];
            typename P::factor ds;
            P::nt(s, rows_q, k + sub * P::LD, lane);
            P::nt(dp, rows_dy, v + sub * P::LD, lane);
            scores_backward<P>(s, dp, lse, delta, scale);
            if (first + P::N > c.positions || (c.causal && first + P::N > top + 1))
                scores_hide<P>(s, lane, top, first, c, 0);
            P::pack(ds, s, scratch, lane);
            P::nn(dq, ds, k + sub * P::LD, scratch, lane);
        }
    }
#pragma unroll
    for (int i = 0; i < P::R; i++) part[i] = attention_scale(c);
    rows_store<P>((T *)c.dx + h.in + top * h.ld, h.ld, dq, part, my_q, c.positions - top, c.size, c.aligned);
}

/* Where row i of y's heads, which lie (sample, position, head), is in lse and delta. Divisions of 64 bits would take
 * longer than the row itself. */
template <typename I> static __device__ __forceinline__ int64_t delta_place(const attention_call &c, I i) {
    const I heads = (I)c.heads, positions = (I)c.positions, head = i % heads, place = i / heads;
    return ((int64_t)(place / positions) * c.heads + (int64_t)head) * c.positions + (int64_t)(place % positions);
}

/* Eight lanes a row of a head; a lane has a pack of it at a time, in order. */
template <typename T, bool WHOLE> static __global__ void attention_delta_kernel(attention_call c) {
    const int64_t rows = c.samples * c.heads * c.positions;
    const int N = pack_of<T>::COUNT, lane = threadIdx.x % 8;
    for (int64_t first = (int64_t)blockIdx.x * (blockDim.x / 8); first < rows;
         first += (int64_t)gridDim.x * (blockDim.x / 8)) {
        int64_t i = first + threadIdx.x / 8;
        const T *const y = (const T *)c.y + i * c.size, *const dy = (const T *)c.dy + i * c.size;
        float sum = 0, a[N], b[N];
        for (int col = lane * N; i < rows && col < c.size; col += 8 * N) {
            pack_load<WHOLE, N>(y, col, c.size, 0, a);
            pack_load<WHOLE, N>(dy, col, c.size, 0, b);
#pragma unroll
            for (int e = 0; e < N; e++) sum = fmaf(a[e], b[e], sum);
        }
        sum = row_sum<8>(sum);
        if (lane == 0 && i < rows)
            c.delta[rows <= INT32_MAX ? delta_place<uint32_t>(c, (uint32_t)i) : delta_place<int64_t>(c, i)] = sum;
    }
}

/* ---- which of them --------------------------------------------------------------------------- */
/* The kernel with its launch sizes: as forward, with two arrays of scores of 32 keys each. Beyond size 64 tiles are of 32 keys too, as q and dy leave
 * two blocks no room for more. */
template <class P, int WARPS, int KEYS, int BLOCKS> static attention_kernel queries_kernel(void) {
    const size_t rows = 2 * P::ROWS * WARPS + 4 * KEYS;
    return attention_sized<P, WARPS>(attention_queries_kernel<P, WARPS, KEYS, BLOCKS>,
                                     rows * P::LD * sizeof(typename P::T));
}

template <typename T> static attention_kernel queries_half(int size, int shared) {
    if (size <= 32) return queries_kernel<tensor<T, 32, 2, 32, true>, 4, 64, 2>();
    if (size <= 64) return queries_kernel<tensor<T, 64, 2, 32, true>, 4, 64, 2>();
    if (size <= 96) return queries_kernel<tensor<T, 96, 2, 32, false>, 4, 32, 2>();
    return attention_fitting(shared, queries_kernel<tensor<T, 128, 2, 32, false>, 4, 32, 2>(),
                             queries_kernel<tensor<T, 128, 1, 32, false>, 4, 32, 1>());
}

static attention_kernel queries_of(enum element type, int size, int shared) {
    if (type == ELEMENT_BF16) return queries_half<__nv_bfloat16>(size, shared);
    if (type == ELEMENT_FP16) return queries_half<__half>(size, shared);
    if (size <= 32) return queries_kernel<simt<32, 32>, 4, 32, 2>();
    if (size <= 64) return queries_kernel<simt<64, 32>, 4, 32, 2>();
    return attention_fitting(shared, queries_kernel<simt<128, 32>, 4, 32, 1>(),
                             queries_kernel<simt<128, 16>, 2, 16, 1>());
}

ATTENTION_LAUNCHERS(queries)

template <typename T> static cudaError_t delta_of(const attention_call *c, cudaStream_t s) {
    void (*kernel)(attention_call) = c->aligned ? attention_delta_kernel<T, true> : attention_delta_kernel<T, false>;
    const int64_t blocks = (c->samples * c->heads * c->positions + 31) / 32, most = 1 << 20;
    LAUNCH(kernel, (unsigned)(blocks < most ? blocks : most), 256, 0, s, *c);
    return cudaGetLastError();
}

extern "C" cudaError_t attention_delta_launch(const struct attention_call *c, cudaStream_t s) {
    return BY_TYPE(c->type, delta_of, c, s);
}
