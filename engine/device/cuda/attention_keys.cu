/* Attention backward, the keys' half: dk and dv. A block holds some keys with their values and walks over the queries
 * and their dy. All is transposed: s' = k q', so that p' and ds' come out of the registers as left factors, and
 *   dv = p' dy,  dp' = v dy',  ds' = p' (dp' - delta),  dk = ds' q.
 * Every dk and dv has one owner, who sums over the queries in order. Queries that are not there are zeros with zero
 * log-sum and delta: they add nothing. */
#include "engine/device/cuda/attention_tile.h"

/* s' becomes p'. 'top' is the warp's first key, 'first' the first query of s. */
template <class P>
static __device__ __forceinline__ void scores_power(float (&s)[P::R][P::C], const float *lse, int lane, float scale) {
#pragma unroll
    for (int j = 0; j < P::C; j++) {
        float shift = lse[P::col(lane, j)];
#pragma unroll
        for (int i = 0; i < P::R; i++) s[i][j] = P::exp2(fmaf(s[i][j], scale, -shift));
    }
}

template <class P>
static __device__ __forceinline__ void scores_hide_earlier(float (&s)[P::R][P::C], int lane, int top, int first) {
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int j = 0; j < P::C; j++)
            if (top + P::row(lane, i) > first + P::col(lane, j)) s[i][j] = 0;
}

template <class P>
static __device__ __forceinline__ void scores_slope(float (&s)[P::R][P::C], const float (&dp)[P::R][P::C],
                                                    const float *delta, int lane) {
#pragma unroll
    for (int j = 0; j < P::C; j++) {
        float mean = delta[P::col(lane, j)];
#pragma unroll
        for (int i = 0; i < P::R; i++) s[i][j] *= dp[i][j] - mean;
    }
}

/* A tile of queries: their q, dy, log-sums and deltas. */
template <class P, int QUERIES> struct query_tile {
    typename P::T q[QUERIES * P::LD], dy[QUERIES * P::LD];
    float lse[QUERIES], delta[QUERIES];
};

template <class P, int QUERIES, int THREADS>
static __device__ __forceinline__ void queries_load(query_tile<P, QUERIES> *t, const attention_head &h, int at,
                                                    const attention_call &c) {
    typedef typename P::T T;
    const int left = c.positions - at, i = threadIdx.x % QUERIES;
    const T *const q = (const T *)c.x + h.in + at * h.ld, *const dy = (const T *)c.dy + h.out + at * h.all;
    const float *const lse = c.lse + h.row, *const delta = c.delta + h.row;
    tile_load<P, QUERIES, THREADS>(t->q, q, h.ld, left, c.size, c.aligned);
    tile_load<P, QUERIES, THREADS>(t->dy, dy, h.all, left, c.size, c.aligned);
    if (threadIdx.x < QUERIES)
        cp_async_4(&t->lse[i], lse + at + i, i < left);
    else if (threadIdx.x < 2 * QUERIES)
        cp_async_4(&t->delta[i], delta + at + i, i < left);
}

template <class P, int WARPS, int QUERIES, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS) attention_keys_kernel(attention_call c) {
    typedef typename P::T T;
    SHARED_BYTES(bytes);
    const int HOLD = P::ROWS * WARPS, THREADS = WARPS * 32;
    T *const k = (T *)bytes, *const v = k + HOLD * P::LD;
    query_tile<P, QUERIES> *const stages = (query_tile<P, QUERIES> *)(v + HOLD * P::LD);
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0),
              tiles = (c.positions + HOLD - 1) / HOLD;
    float *const scratch = (float *)(stages + 2) + warp * P::SCRATCH;
    T *const my_k = k + warp * P::ROWS * P::LD, *const my_v = v + warp * P::ROWS * P::LD;
    const int hold = (int)(blockIdx.x % tiles) * HOLD, top = hold + warp * P::ROWS;
    const attention_head h = attention_head_of(c, blockIdx.x / tiles);
    const T *const from_k = (const T *)c.x + h.in + h.all, *const from_v = from_k + h.all;
    T *const to_k = (T *)c.dx + h.in + h.all + top * h.ld, *const to_v = to_k + h.all;
    /* the tile of the first query that sees the block's first key */
    const int begin = c.causal ? hold / QUERIES * QUERIES : 0, left = c.positions - hold;
    const float scale = attention_scale_2(c);
    typename P::rows rows_k, rows_v;
    float dk[P::R][P::CO] = {}, dv[P::R][P::CO] = {}, part[P::R];

    tile_load<P, HOLD, THREADS>(k, from_k + hold * h.ld, h.ld, left, c.size, c.aligned);
    tile_load<P, HOLD, THREADS>(v, from_v + hold * h.ld, h.ld, left, c.size, c.aligned);
    queries_load<P, QUERIES, THREADS>(&stages[begin / QUERIES % 2], h, begin, c);
    cp_async_wait();
    __syncthreads();
    P::hold(rows_k, my_k, lane);
    P::hold(rows_v, my_v, lane);
    for (int at = begin; at < c.positions; at += QUERIES) {
        const query_tile<P, QUERIES> *const t = &stages[at / QUERIES % 2];
        cp_async_wait();
        __syncthreads(); /* this tile is there, and nobody reads the one before any more */
        if (at + QUERIES < c.positions)
            queries_load<P, QUERIES, THREADS>(&stages[(at / QUERIES + 1) % 2], h, at + QUERIES, c);
#pragma unroll 1
        for (int sub = 0; sub < QUERIES; sub += P::N) {
            const int first = at + sub;
            if (first >= c.positions || top >= c.positions) break;
            if (c.causal && first + P::N <= top) continue; /* before all of the warp's keys */
            float s[P::R][P::C], dp[P::R][P::C];
            typename P::factor f;
            P::nt(s, rows_k, t->q + sub * P::LD, lane);
            scores_power<P>(s, t->lse + sub, lane, scale);
            if (c.causal && first < top + P::ROWS - 1) scores_hide_earlier<P>(s, lane, top, first);
            P::pack(f, s, scratch, lane);
            P::nn(dv, f, t->dy + sub * P::LD, scratch, lane);
            P::nt(dp, rows_v, t->dy + sub * P::LD, lane);
            scores_slope<P>(s, dp, t->delta + sub, lane);
            P::pack(f, s, scratch, lane);
            P::nn(dk, f, t->q + sub * P::LD, scratch, lane);
        }
    }
#pragma unroll
    for (int i = 0; i < P::R; i++) part[i] = attention_scale(c);
    rows_store<P>(to_k, h.ld, dk, part, my_k, c.positions - top, c.size, c.aligned);
#pragma unroll
    for (int i = 0; i < P::R; i++) part[i] = 1;
    rows_store<P>(to_v, h.ld, dv, part, my_v, c.positions - top, c.size, c.aligned);
}

/* ---- which of them --------------------------------------------------------------------------- */
/* dk and dv take 2 D registers of 255 for two pieces a warp: from size 96 on there is room for one alone, and the
 * eight warps of one block make up for it. */
template <class P, int WARPS, int QUERIES, int BLOCKS> static attention_kernel keys_kernel(void) {
    const size_t rows = 2 * P::ROWS * WARPS;
    return attention_sized<P, WARPS>(attention_keys_kernel<P, WARPS, QUERIES, BLOCKS>,
                                     rows * P::LD * sizeof(typename P::T) + 2 * sizeof(query_tile<P, QUERIES>));
}

template <typename T> static attention_kernel keys_half(int size, int shared) {
    if (size <= 32) return keys_kernel<tensor<T, 32, 2, 32, true>, 4, 64, 2>();
    if (size <= 64) return keys_kernel<tensor<T, 64, 2, 32, false>, 4, 64, 2>();
    if (size <= 96)
        return attention_fitting(shared, keys_kernel<tensor<T, 96, 1, 32, false>, 8, 64, 1>(),
                                 keys_kernel<tensor<T, 96, 1, 32, false>, 8, 32, 1>());
    return attention_fitting(shared, keys_kernel<tensor<T, 128, 1, 32, false>, 8, 64, 1>(),
                             keys_kernel<tensor<T, 128, 1, 32, false>, 4, 32, 1>());
}

static attention_kernel keys_of(enum element type, int size, int shared) {
    if (type == ELEMENT_BF16) return keys_half<__nv_bfloat16>(size, shared);
    if (type == ELEMENT_FP16) return keys_half<__half>(size, shared);
    if (size <= 32) return keys_kernel<simt<32, 32>, 4, 32, 2>();
    if (size <= 64) return keys_kernel<simt<64, 32>, 4, 32, 2>();
    return attention_fitting(shared, keys_kernel<simt<128, 32>, 4, 32, 1>(), keys_kernel<simt<128, 16>, 2, 16, 1>());
}

ATTENTION_LAUNCHERS(keys)
