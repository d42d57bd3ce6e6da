/* A row in the registers of a warp: what norm.cu and norm_back.cu share. */
#pragma once
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/norm_launch.h"
#include "engine/device/cuda/pack.h"
#include "engine/device/cuda/reduce.h"

/* ITEMS floats of a row, those of packs lane, lane + 32, ... */
template <typename T, int ITEMS> struct row_split {
    enum { N = pack_of<T>::COUNT, PACKS = ITEMS / N };
    static __device__ __forceinline__ int64_t at(int pack) {
        return (int64_t)(pack * WARP + (int)threadIdx.x % WARP) * N;
    }
};
/* Whether item i of the pack at 'at' is one of the row's. */
template <bool WHOLE> static __device__ __forceinline__ bool in_row(int64_t at, int i, int64_t width) {
    return at + (WHOLE ? 0 : i) < width;
}

/* Beyond the row's end it is 0. */
template <typename T, int ITEMS, bool WHOLE>
static __device__ __forceinline__ void row_load(const T *row, int64_t width, float *v) {
    using split = row_split<T, ITEMS>;
#pragma unroll
    for (int j = 0; j < split::PACKS; j++) {
        if (split::at(j) < width)
            pack_load<WHOLE, split::N>(row, split::at(j), width, 0, v + j * split::N);
        else
#pragma unroll
            for (int i = 0; i < split::N; i++) v[j * split::N + i] = 0;
    }
}

/* The kernel for a width: KERNEL<T, items, whole> with the fewest items that hold a row. */
#define KERNEL_FOR_WIDTH(KERNEL, T, whole, width)                                                                      \
    (!(whole)               ? KERNEL<T, 32, false>                                                                     \
     : (width) <= WARP * 8  ? KERNEL<T, 8, true>                                                                       \
     : (width) <= WARP * 16 ? KERNEL<T, 16, true>                                                                      \
     : (width) <= WARP * 24 ? KERNEL<T, 24, true>                                                                      \
                            : KERNEL<T, 32, true>)
