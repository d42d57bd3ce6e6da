/* What every .cu file begins with. A kernel is started by LAUNCH alone and has its shared memory from the two macros
 * below, so that the same source can be compiled for the host and tested there, thread by thread. */
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#ifndef LAUNCH
#define LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                     \
    kernel<<<(blocks), (threads), (shared_bytes), (stream)>>>(__VA_ARGS__)
/* SHARED(float, tile, [32][33]); SHARED_BYTES(buffer): unsigned char buffer[shared_bytes], 16-byte aligned. */
#define SHARED(type, name, dims) __shared__ type name dims
#define SHARED_BYTES(name) extern __shared__ __align__(16) unsigned char name[]
#endif

/* The type of activations: float, __nv_bfloat16, __half. Arithmetic is f32. */
static __device__ __forceinline__ float to_float(float x) {
    return x;
}
static __device__ __forceinline__ float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static __device__ __forceinline__ float to_float(__half x) {
    return __half2float(x);
}
template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}
