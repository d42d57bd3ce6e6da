/* Activations for kernels: a value and its slope. */
#pragma once
#include "engine/device/cuda/kernel.h"
#include "engine/device/ops.h"

static __device__ __forceinline__ float quotient(float a,
                                                 float b) { /* to two units of the last place */
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

template <int ACT> static __device__ __forceinline__ float value_of(float x) {
    if constexpr (ACT == ACT_RELU) return x < 0 ? 0 : x; /* not a number stays so */
    if constexpr (ACT == ACT_GELU) return x * normal(x);
    if constexpr (ACT == ACT_GELU_TANH) return x * sigmoid(gelu_inner(x));
    if constexpr (ACT == ACT_SILU) return x * sigmoid(x);
    if constexpr (ACT == ACT_SIGMOID) return sigmoid(x);
    if constexpr (ACT == ACT_TANH) return tanhf(x);
    return x;
}

template <int ACT> static __device__ __forceinline__ float slope_of(float x) {
    if constexpr (ACT == ACT_RELU) return x > 0 ? 1 : 0;
    if constexpr (ACT == ACT_GELU) return normal(x) + x * 0.39894228f * expf(-0.5f * x * x);
    if constexpr (ACT == ACT_GELU_TANH) {
        float s = sigmoid(gelu_inner(x));
        return s + x * s * (1 - s) * 1.5957691f * (1 + 0.134145f * x * x);
    }
    if constexpr (ACT == ACT_TANH) {
        float t = tanhf(x);
        return 1 - t * t;
    }
    float s = sigmoid(x);
    if constexpr (ACT == ACT_SIGMOID) return s * (1 - s);
    if constexpr (ACT == ACT_SILU) return s * (1 + x * (1 - s));
    return 1;
}
