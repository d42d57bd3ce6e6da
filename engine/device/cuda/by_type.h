/* From the types that a launcher is given to its template. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/kernel.h"

/* of<T>(...): of activations; of<X, T>(...): of x, which is f32 or theirs, before them. */
#define BY_TYPE(type, of, ...)                                                                                         \
    ((type) == ELEMENT_BF16   ? of<__nv_bfloat16>(__VA_ARGS__)                                                         \
     : (type) == ELEMENT_FP16 ? of<__half>(__VA_ARGS__)                                                                \
                              : of<float>(__VA_ARGS__))
#define BY_TYPES(x_type, type, of, ...)                                                                                \
    ((x_type) == (type)       ? ((type) == ELEMENT_BF16   ? of<__nv_bfloat16, __nv_bfloat16>(__VA_ARGS__)              \
                                 : (type) == ELEMENT_FP16 ? of<__half, __half>(__VA_ARGS__)                            \
                                                          : of<float, float>(__VA_ARGS__))                             \
     : (type) == ELEMENT_BF16 ? of<float, __nv_bfloat16>(__VA_ARGS__)                                                  \
                              : of<float, __half>(__VA_ARGS__))
