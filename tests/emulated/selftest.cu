#include "tests/emulated/selftest.h"

#include "engine/device/cuda/kernel.h"

template <typename T>
static __global__ void __launch_bounds__(256)
    scale(T *__restrict__ to, const T *__restrict__ from, float a, int64_t n) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        to[i] = from_float<T>(a * to_float(__ldg(from + i)));
}

cudaError_t self_scale(float *to, const float *from, float a, int64_t n, cudaStream_t s) {
    int64_t blocks = min((n + 255) / 256, (int64_t)1024);
    LAUNCH(scale<float>, blocks, 256, 0, s, to, from, a, n);
    return cudaGetLastError();
}

static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

static __global__ void block_sum(float *to, const float *from) {
    SHARED(float, part, [32]);
    SHARED(float, total, );
    float x = warp_sum(from[blockIdx.x * blockDim.x + threadIdx.x]);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
        x = warp_sum(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) total = x;
    }
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) to[blockIdx.x] = total;
}

cudaError_t self_block_sum(float *to, const float *from, int threads, int64_t blocks, cudaStream_t s) {
    LAUNCH(block_sum, blocks, threads, 0, s, to, from);
    return cudaGetLastError();
}

static __global__ void warp(unsigned *to) {
    unsigned i = threadIdx.x, all = 0xffffffffu;
    unsigned *mine = to + SELF_WARP * i;
    mine[0] = __shfl_sync(all, i, 5, 8);
    mine[1] = __shfl_up_sync(all, i, 3, 16);
    mine[2] = __shfl_down_sync(all, i, 3, 8);
    mine[3] = __shfl_xor_sync(all, i, 1);
    mine[4] = __ballot_sync(all, i % 3 == 0);
    mine[5] = (unsigned)__any_sync(all, i == 40) * 2 + (unsigned)__all_sync(all, i < 32);
    mine[6] = 0;
    if (i % 2) mine[6] = __shfl_sync(0xaaaaaaaau, i, 7);
    __syncwarp();
    mine[7] = __activemask();
}

cudaError_t self_warp(unsigned *to, cudaStream_t s) {
    LAUNCH(warp, 1, 48, 0, s, to);
    return cudaGetLastError();
}

static __global__ void wide(uint64_t *to) {
    uint64_t x = (uint64_t)threadIdx.x << 40 | threadIdx.x;
    to[2 * threadIdx.x] = __shfl_xor_sync(0xffffffffu, x, 31);
    __nv_bfloat162 y = __floats2bfloat162_rn((float)threadIdx.x, -(float)threadIdx.x);
    y = __shfl_down_sync(0xffffffffu, y, 1);
    to[2 * threadIdx.x + 1] = (uint64_t)__bfloat162float(y.x) << 8 | (uint64_t)-__bfloat162float(y.y);
}

cudaError_t self_wide(uint64_t *to, cudaStream_t s) {
    LAUNCH(wide, 1, 32, 0, s, to);
    return cudaGetLastError();
}

static __global__ void fresh_shared(unsigned *to) {
    SHARED(unsigned, x, [4][8]);
    SHARED_BYTES(more);
    unsigned *also = (unsigned *)more;
    unsigned i = threadIdx.x;
    to[32 * blockIdx.x + i] = x[i / 8][i % 8] & also[i];
    x[i / 8][i % 8] = also[i] = i;
}

cudaError_t self_fresh_shared(unsigned *to, int blocks, cudaStream_t s) {
    LAUNCH(fresh_shared, blocks, 32, 32 * sizeof(unsigned), s, to);
    return cudaGetLastError();
}

static __global__ void dynamic(float *to, int count) {
    SHARED_BYTES(bytes);
    float *x = (float *)bytes;
    if (threadIdx.x == 0) x[0] = 1;
    if (threadIdx.x == 1) x[count - 1] = 2;
    __syncthreads();
    to[threadIdx.x] = x[0] + x[count - 1];
}

cudaError_t self_dynamic(float *to, size_t shared, cudaStream_t s) {
    LAUNCH(dynamic, 1, 2, shared, s, to, (int)(shared / sizeof(float)));
    return cudaGetLastError();
}

cudaError_t self_allow_dynamic(int bytes) {
    return cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

static __global__ void count(int *to) {
    atomicAdd(to, 1);
    int even = __syncthreads_count(threadIdx.x % 2 == 0);
    if (threadIdx.x == 0) atomicMax(to + 1, even);
    if (__syncthreads_or(threadIdx.x == 3) && !__syncthreads_and(threadIdx.x != 3)) atomicAdd(to + 2, 1);
}

cudaError_t self_count(int *to, int blocks, int threads, cudaStream_t s) {
    LAUNCH(count, dim3(1, blocks), dim3(threads / 4, 2, 2), 0, s, to);
    return cudaGetLastError();
}

static __global__ void nothing() {
}

cudaError_t self_launch(int64_t blocks, int threads, cudaStream_t s) {
    LAUNCH(nothing, blocks, threads, 0, s);
    return cudaGetLastError();
}

static __global__ void early_end(int *to) {
    SHARED(int, x, [64]);
    if (threadIdx.x >= 40) return;
    x[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    to[threadIdx.x] = x[39 - threadIdx.x];
}

cudaError_t self_early_end(int *to, cudaStream_t s) {
    LAUNCH(early_end, 1, 64, 0, s, to);
    return cudaGetLastError();
}

static __device__ __noinline__ float much_stack(int depth, float x) {
    volatile float some[1024];
    some[depth % 1024] = x;
    return depth ? much_stack(depth - 1, x) + some[depth % 1024] : x;
}

static __global__ void wrong(enum self_wrong what, float *far) {
    SHARED(int, x, [4]);
    if (what == WRONG_BRANCHES && threadIdx.x < 32)
        __syncthreads();
    else if (what == WRONG_BRANCHES)
        __syncthreads();
    if (what == WRONG_MASK) __syncwarp(1);
    if (what == WRONG_WAIT && threadIdx.x < 8)
        __syncwarp();
    else if (what == WRONG_WAIT)
        __syncthreads();
    int *p = x;
    if (what == WRONG_OVERRUN) p[4 + threadIdx.x] = 1;
    if (what == WRONG_RACE && threadIdx.x % 32 == 0) p[threadIdx.x / 32] = 1;
    if (what == WRONG_RACE) {
        __syncwarp(); /* of the warp, but the other warp's value is read */
        if (threadIdx.x % 32 == 1) p[2 + threadIdx.x / 32] = p[1 - threadIdx.x / 32];
    }
    if (what == WRONG_SAME && threadIdx.x == 7 + blockIdx.x) far[0] = 1; /* in both blocks */
    if (what == WRONG_ADDRESS && threadIdx.x == 5) far[1 << 20] = 1;
    if (what == WRONG_STACK) x[0] = (int)much_stack(1000, 1);
}

cudaError_t self_wrong(enum self_wrong what, float *x, cudaStream_t s) {
    LAUNCH(wrong, 1 + (what == WRONG_SAME), 64, 0, s, what, x);
    return cudaGetLastError();
}
