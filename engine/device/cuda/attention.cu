/* Attention forward, as FlashAttention does it: a block holds some queries of a head and walks over the keys. Scores
 * of a tile live in registers; a row's largest score so far and its sum of powers follow along, and what has been
 * summed of y is scaled down when a larger score turns up. Memory: one float a row beside y. */
#include "engine/device/cuda/attention_tile.h"

/* s becomes 2^(scale s - scale most), and o and sum what they would be under the new 'most'. Each lane's sum is of
 * its own columns. */
template <class P>
static __device__ __forceinline__ void softmax_step(float (&s)[P::R][P::C], float (&o)[P::R][P::CO],
                                                    float (&most)[P::R], float (&sum)[P::R], float scale) {
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        float now = most[i];
#pragma unroll
        for (int j = 0; j < P::C; j++) now = fmaxf(now, s[i][j]);
        now = row_max<P::LANES>(now);
        float less = P::exp2((most[i] - now) * scale), shift = now * scale;
        most[i] = now;
        sum[i] *= less;
#pragma unroll
        for (int j = 0; j < P::C; j++) {
            s[i][j] = P::exp2(fmaf(s[i][j], scale, -shift));
            sum[i] += s[i][j];
        }
#pragma unroll
        for (int j = 0; j < P::CO; j++) o[i][j] *= less;
    }
}

template <class P, int WARPS, int KEYS, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS) attention_forward_kernel(attention_call c) {
    typedef typename P::T T;
    SHARED_BYTES(bytes);
    const int HOLD = P::ROWS * WARPS, STAGE = 2 * KEYS * P::LD;
    T *const q = (T *)bytes, *const stages = q + HOLD * P::LD;
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0),
              tiles = (c.positions + HOLD - 1) / HOLD;
    float *const scratch = (float *)(stages + 2 * STAGE) + warp * P::SCRATCH;
    T *const mine = q + warp * P::ROWS * P::LD;
    /* the blocks with most keys first: the last to end are short */
    const int begin = (tiles - 1 - (int)(blockIdx.x % tiles)) * HOLD, top = begin + warp * P::ROWS;
    const attention_head h = attention_head_of(c, blockIdx.x / tiles);
    const T *const from_q = (const T *)c.x + h.in;
    /* keys that the block's last query sees, and the warp's */
    const int end = c.causal ? min(begin + HOLD, c.positions) : c.positions;
    const int seen = top >= c.positions ? 0 : c.causal ? min(top + P::ROWS, c.positions) : end;
    const float scale = attention_scale_2(c);
    typename P::rows rows;
    float o[P::R][P::CO] = {}, most[P::R], sum[P::R] = {};
#pragma unroll
    for (int i = 0; i < P::R; i++) most[i] = -INFINITY;

    tile_load<P, HOLD, WARPS * 32>(q, from_q + begin * h.ld, h.ld, c.positions - begin, c.size, c.aligned);
    stage_load<P, KEYS, WARPS * 32>(stages, c, h, 0);
    cp_async_wait();
    __syncthreads();
    P::hold(rows, mine, lane);
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
            float s[P::R][P::C];
            typename P::factor p;
            P::nt(s, rows, k + sub * P::LD, lane);
            if (first + P::N > c.positions || (c.causal && first + P::N > top + 1))
                scores_hide<P>(s, lane, top, first, c, -INFINITY);
            softmax_step<P>(s, o, most, sum, scale);
            P::pack(p, s, scratch, lane);
            P::nn(o, p, v + sub * P::LD, scratch, lane);
        }
    }
    float part[P::R];
#pragma unroll
    for (int i = 0; i < P::R; i++) {
        float all = row_sum<P::LANES>(sum[i]);
        int row = top + P::row(lane, i);
        part[i] = 1 / all;
        if (lane % P::LANES == 0 && row < c.positions && c.lse) c.lse[h.row + row] = fmaf(most[i], scale, log2f(all));
    }
    rows_store<P>((T *)c.y + h.out + top * h.all, h.all, o, part, mine, c.positions - top, c.size, c.aligned);
}

/* ---- which of them --------------------------------------------------------------------------- */
/* Every fragment of keys that a warp reads serves its two 16-row pieces: with one, shared memory would be the limit.
 * Registers decide the rest: at most 255, so that two blocks share a multiprocessor. Up to size 64 there is room for
 * the scores of 64 keys and for the queries; beyond, for those of 32. */
template <class P, int WARPS, int KEYS, int BLOCKS> static attention_kernel forward_kernel(void) {
    const size_t rows = P::ROWS * WARPS + 4 * KEYS;
    return attention_sized<P, WARPS>(attention_forward_kernel<P, WARPS, KEYS, BLOCKS>,
                                     rows * P::LD * sizeof(typename P::T));
}

template <typename T> static attention_kernel forward_half(int size, int shared) {
    if (size <= 32) return forward_kernel<tensor<T, 32, 2, 64, true>, 4, 64, 3>();
    if (size <= 64) return forward_kernel<tensor<T, 64, 2, 64, true>, 4, 64, 2>();
    if (size <= 96) return forward_kernel<tensor<T, 96, 2, 32, false>, 4, 64, 2>();
    return attention_fitting(shared, forward_kernel<tensor<T, 128, 2, 32, false>, 4, 64, 2>(),
                             forward_kernel<tensor<T, 128, 2, 32, false>, 4, 32, 1>());
}

static attention_kernel forward_of(enum element type, int size, int shared) {
    if (type == ELEMENT_BF16) return forward_half<__nv_bfloat16>(size, shared);
    if (type == ELEMENT_FP16) return forward_half<__half>(size, shared);
    if (size <= 32) return forward_kernel<simt<32, 32>, 4, 32, 3>();
    if (size <= 64) return forward_kernel<simt<64, 32>, 4, 32, 2>();
    return attention_fitting(shared, forward_kernel<simt<128, 32>, 4, 32, 2>(),
                             forward_kernel<simt<128, 16>, 4, 16, 1>());
}

ATTENTION_LAUNCHERS(forward)
