/* Sums and maxima of a fixed shape: the same bits on every GPU. All threads of the warp or block call, and all get the
 * result. 'shared' is one value a warp of the block. */
#pragma once
#include "engine/device/cuda/kernel.h"

enum { WARP = 32 };
#define WHOLE_WARP 0xffffffffu

template <typename F> static __device__ __forceinline__ F warp_sum(F v) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(WHOLE_WARP, v, apart);
    return v;
}
static __device__ __forceinline__ float warp_max(float v) { /* not a number is passed over */
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) v = fmaxf(v, __shfl_xor_sync(WHOLE_WARP, v, apart));
    return v;
}

/* Of a block of THREADS in one dimension, whole warps. Every warp adds up what the warps have, for itself. */
template <int THREADS, typename F> static __device__ __forceinline__ F block_sum(F v, F *shared) {
    v = warp_sum(v);
    if constexpr (THREADS == WARP) return v;
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = v;
    __syncthreads();
    v = warp_sum(threadIdx.x % WARP < THREADS / WARP ? shared[threadIdx.x % WARP] : 0);
    __syncthreads(); /* shared may be written again */
    return v;
}
template <int THREADS> static __device__ __forceinline__ float block_max(float v, float *shared) {
    v = warp_max(v);
    if constexpr (THREADS == WARP) return v;
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = v;
    __syncthreads();
    v = warp_max(shared[threadIdx.x % WARP % (THREADS / WARP)]);
    __syncthreads();
    return v;
}
