/* Tokens as kernels see them: whole numbers in f32. */
#pragma once
#include "engine/device/cuda/kernel.h"

static __device__ __forceinline__ bool token_is(float token, int64_t vocabulary) {
    return token >= 0 && token < (float)vocabulary && token == floorf(token);
}
