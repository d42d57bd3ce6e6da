/* Activations for kernels: a value and its slope. */
#pragma once
#include "engine/device/cuda/kernel.h"
#include "engine/device/ops.h"

static __device__ __forceinline__ float quotient(float a, float b) { /* to two units of the last place */
#ifdef __CUDACC__
    return __fdividef(a, b); /* 0 where b is above 2^126: all that is divided here tends to it */
#else
    return a / b;
#endif
}
static __device__ __forceinline__ float sigmoid(float x) {
    return quotient(1, 1 + expf(-x));
}
static __device__ __forceinline__ float normal(float x) {
    return 0.5f * (1 + erff(x * 0.70710678f));
}
/* Twice what gelu's approximation puts into tanh: (1 + tanh u) / 2 = sigmoid(2u). */
static __device__ __forceinline__ float gelu_inner(float x) {
    return 1.5957691f * (x + 0.044715f * x * x * x);
}

static __device__ __forceinline__ float gelu_tanh_slope(float x) {
    float s = sigmoid(gelu_inner(x));
    return s + x * s * (1 - s) * 1.5957691f * (1 + 0.134145f * x * x);
}
static __device__ __forceinline__ float silu_slope(float x) {
    float s = sigmoid(x);
    return s * (1 + x * (1 - s));
}
static __device__ __forceinline__ float sigmoid_slope(float x) {
    float s = sigmoid(x);
    return s * (1 - s);
}
static __device__ __forceinline__ float tanh_slope(float x) {
    float t = tanhf(x);
    return 1 - t * t;
}

template <int ACT> static __device__ __forceinline__ float value_of(float x, float alpha = 0) {
#define GPU(NAME, value, slope)                                                                                        \
    if constexpr (ACT == ACT_##NAME) return value;
#include "engine/device/activations.def"
    return x;
}

template <int ACT> static __device__ __forceinline__ float slope_of(float x, float alpha = 0) {
#define GPU(NAME, value, slope)                                                                                        \
    if constexpr (ACT == ACT_##NAME) return slope;
#include "engine/device/activations.def"
    return 1;
}
