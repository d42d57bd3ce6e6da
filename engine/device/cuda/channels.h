/* What kernels over the channels of (rows, channels) share. A block takes 'wide' vectors of V channels of 'high' rows at
 * a time, so that a warp reads whole lines. Rows are cut into parts: a thread adds its rows of a part in f32, the
 * threads of a column are added pairwise, and the parts in double. */
#pragma once
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/image_launch.h"
#include "engine/device/cuda/pack.h"

static const int CHANNEL_THREADS = 256;

/* of<T, V>(...): V of the cut's type, or one. */
#define BY_CUT(c, of, ...)                                                                                             \
    ((c)->type == ELEMENT_BF16   ? ((c)->vector == 1 ? of<__nv_bfloat16, 1> : of<__nv_bfloat16, 8>)(__VA_ARGS__)       \
     : (c)->type == ELEMENT_FP16 ? ((c)->vector == 1 ? of<__half, 1> : of<__half, 8>)(__VA_ARGS__)                     \
                                 : ((c)->vector == 1 ? of<float, 1> : of<float, 4>)(__VA_ARGS__))

struct column {      /* a thread's */
    int64_t channel; /* the first of V */
    int64_t row;     /* within the block */
    bool inside;
};
static __device__ __forceinline__ struct column column_of(const struct channels_cut &c) {
    struct column k;
    k.channel = ((int64_t)blockIdx.x * c.wide + threadIdx.x % c.wide) * c.vector;
    k.row = threadIdx.x / c.wide;
    k.inside = k.channel < c.channels;
    return k;
}
static inline dim3 columns_grid(const struct channels_cut *c, int64_t rows) {
    int64_t width = (int64_t)c->wide * c->vector;
    return dim3((unsigned)((c->channels + width - 1) / width), (unsigned)rows);
}
/* Blocks above each other for a pass that sums nothing: some rows a thread, so that what a channel's values are read
 * from is read once for them. */
static inline dim3 pass_grid(const struct channels_cut *c) {
    int64_t rows = (c->rows + c->high * 8 - 1) / (c->high * 8);
    return columns_grid(c, rows < 32768 ? rows : 32768);
}

/* part[channel][this block's part] = the sums of the block's threads. */
template <int V>
__device__ __forceinline__ void part_keep(const struct channels_cut &c, const struct column &k, float *sum,
                                          float *shared, float *part) {
    float *mine = shared + threadIdx.x * V;
    __syncthreads(); /* shared may hold the sums before */
#pragma unroll
    for (int i = 0; i < V; i++) mine[i] = sum[i];
    for (int half = c.high / 2; half > 0; half /= 2) {
        __syncthreads();
        if (k.row < half)
            for (int i = 0; i < V; i++) mine[i] += mine[half * c.wide * V + i];
    }
    if (k.row == 0 && k.inside)
        for (int i = 0; i < V; i++) part[(k.channel + i) * c.parts + blockIdx.y] = mine[i];
}

/* A warp adds a channel's parts; every lane gets the sum. */
static __device__ __forceinline__ double parts_sum(const float *part, int parts) {
    double sum = 0;
    for (int i = (int)(threadIdx.x % 32); i < parts; i += 32) sum += (double)part[i];
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, lane);
    return sum;
}
/* For kernels with a warp a channel. */
enum { CHANNELS_A_BLOCK = 8 };
static __device__ __forceinline__ int64_t channel_of_warp(void) {
    return (int64_t)blockIdx.x * CHANNELS_A_BLOCK + threadIdx.x / 32;
}
static inline unsigned warps_grid(const struct channels_cut *c) {
    return (unsigned)((c->channels + CHANNELS_A_BLOCK - 1) / CHANNELS_A_BLOCK);
}
