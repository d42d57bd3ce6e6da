/* groupnorm of (n, area, channels), either direction. A block has one group of one sample. 'wide' of its threads, a power
 * of two, lie along the group's channels, the others along its places, so that a thread adds one channel at a time. With
 * h = (x - mean) r, g = dy w, m the floats of a group:
 *   y  = h w + shift
 *   dw = sum over samples and places of dy h, db = sum of dy: a sample's part here, the samples by columns_finish
 *   dx = r (g - sum(g) / m - h sum(g h) / m), both sums from those parts: sum(g h) = sum over channels of w dw */
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/columns.h"
#include "engine/device/cuda/norm_launch.h"
#include "engine/device/cuda/reduce.h"

enum { THREADS = 256 };

struct norm_group {             /* as a thread has it */
    int64_t first;              /* of its channels */
    int64_t each;               /* channels of a group */
    int64_t sample, begin, end; /* elements of the sample: of the group's first channel, and after the last */
    int wide;
    float count;
};
static __device__ __forceinline__ norm_group group_of(const norm_call &c) {
    const unsigned groups = (unsigned)c.groups; /* division of 64 bits is a call, which takes a frame */
    norm_group g;
    g.each = (unsigned)c.width / groups;
    g.first = blockIdx.x % groups * g.each;
    g.sample = blockIdx.x / groups;
    g.begin = g.sample * c.area * c.width + g.first;
    g.end = (g.sample + 1) * c.area * c.width;
    for (g.wide = 1; g.wide < g.each && g.wide < THREADS;) g.wide *= 2;
    g.count = (float)(g.each * c.area);
    return g;
}
/* As often for each thread of the block: k may lie beyond the group's channels, and then has no places. */
#define CHANNELS(k)                                                                                                    \
    int64_t k = threadIdx.x % g.wide;                                                                                  \
    k < g.each + threadIdx.x % g.wide;                                                                                 \
    k += g.wide
#define PLACES(k, at)                                                                                                  \
    int64_t at = g.begin + threadIdx.x / g.wide * c.width + k;                                                         \
    k < g.each &&at < g.end;                                                                                           \
    at += THREADS / g.wide * c.width

template <typename X, typename T> static __global__ void __launch_bounds__(THREADS) group_forward(norm_call c) {
    SHARED(float, shared, [THREADS / WARP]);
    const X *x = (const X *)c.x;
    const norm_group g = group_of(c);
    float mean = 0, squares = 0;
    for (CHANNELS(k))
        for (PLACES(k, at)) mean += to_float(x[at]);
    mean = block_sum<THREADS>(mean, shared) / g.count;
    for (CHANNELS(k))
        for (PLACES(k, at)) squares += (to_float(x[at]) - mean) * (to_float(x[at]) - mean);
    float r = rsqrtf(block_sum<THREADS>(squares, shared) / g.count + c.eps);
    if (threadIdx.x == 0 && c.moments) c.moments[2 * blockIdx.x] = mean, c.moments[2 * blockIdx.x + 1] = r;
    for (CHANNELS(k)) {
        bool affine = c.w && k < g.each;
        float scale = affine ? r * c.w[g.first + k] : r, shift = affine ? c.shift[g.first + k] : 0;
        for (PLACES(k, at)) ((T *)c.y)[at] = from_float<T>((to_float(x[at]) - mean) * scale + shift);
    }
}

/* The sum of the threads of a channel, for all of them. */
static __device__ __forceinline__ float channel_sum(const norm_group &g, float v, float *shared) {
    shared[threadIdx.x] = v;
    for (int apart = THREADS / 2; apart >= g.wide; apart /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < apart) shared[threadIdx.x] += shared[threadIdx.x + apart];
    }
    __syncthreads();
    v = shared[threadIdx.x % g.wide];
    __syncthreads(); /* shared may be written again */
    return v;
}

template <typename X, typename T> static __global__ void __launch_bounds__(THREADS) group_backward(norm_call c) {
    SHARED(float, shared, [THREADS]);
    const X *x = (const X *)c.x;
    const T *dy = (const T *)c.dy;
    const norm_group g = group_of(c);
    float mean = c.moments[2 * blockIdx.x], r = c.moments[2 * blockIdx.x + 1], sum = 0, slope = 0;
    for (CHANNELS(k)) {
        float dw = 0, db = 0;
        for (PLACES(k, at)) dw += to_float(dy[at]) * (to_float(x[at]) - mean) * r, db += to_float(dy[at]);
        dw = channel_sum(g, dw, shared), db = channel_sum(g, db, shared);
        if ((int)threadIdx.x >= g.wide || k >= g.each) continue;
        float w = c.w ? c.w[g.first + k] : 1, *part = c.partial + 2 * g.sample * c.width + g.first + k;
        sum += w * db, slope += w * dw;
        if (c.w) part[0] = dw, part[c.width] = db;
    }
    sum = block_sum<THREADS>(sum, shared) / g.count, slope = block_sum<THREADS>(slope, shared) / g.count;
    if (!c.dx) return;
    for (CHANNELS(k)) {
        float w = c.w && k < g.each ? c.w[g.first + k] : 1;
        for (PLACES(k, at))
            ((T *)c.dx)[at] = from_float<T>(r * (to_float(dy[at]) * w - sum - (to_float(x[at]) - mean) * r * slope));
    }
}

template <typename X, typename T> static cudaError_t launch_of(const norm_call *c, bool forward, cudaStream_t stream) {
    void (*kernel)(norm_call) = forward ? group_forward<X, T> : group_backward<X, T>;
    LAUNCH(kernel, (unsigned)(c->rows * c->groups), THREADS, 0, stream, *c);
    return cudaGetLastError();
}

extern "C" cudaError_t group_forward_launch(const norm_call *c, cudaStream_t stream) {
    return BY_TYPES(c->x_type, c->type, launch_of, c, true, stream);
}

extern "C" cudaError_t group_backward_launch(const norm_call *c, cudaStream_t stream) {
    cudaError_t e = BY_TYPES(c->x_type, c->type, launch_of, c, false, stream);
    if (e != cudaSuccess || !c->w) return e;
    return columns_finish(c->partial, c->rows, c->width, c->dw, c->db, stream);
}
