/* Sixteen bytes of activations at a time, as f32. Which thread has which elements depends on the sizes alone: where a
 * row is not aligned the same elements are read one by one, and the bits of a sum are the same. */
#pragma once
#include "engine/device/cuda/kernel.h"

/* How many of T there are in a pack. */
template <typename T> struct pack_of {
    enum { COUNT = 16 / sizeof(T) };
};
template <typename X, int N> struct alignas(sizeof(X) * N < 16 ? sizeof(X) * N : 16) pack { X of[N]; };
template <typename X, int N> static __device__ __forceinline__ void load(const X *p, float *v) {
    const pack<X, N> whole = *(const pack<X, N> *)p;
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = to_float(whole.of[i]);
}
template <typename X, int N> static __device__ __forceinline__ void store(X *p, const float *v) {
    pack<X, N> whole;
#pragma unroll
    for (int i = 0; i < N; i++) whole.of[i] = from_float<X>(v[i]);
    *(pack<X, N> *)p = whole;
}

/* v = row[at, at + N). WHOLE: the row's packs are aligned, and this one lies in its memory; else what is at 'end' and after it is 'pad'. */
template <bool WHOLE, int N, typename X>
static __device__ __forceinline__ void pack_load(const X *row, int64_t at, int64_t end, float pad, float *v) {
    if constexpr (WHOLE)
        load<X, N>(row + at, v);
    else
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = at + i < end ? to_float(row[at + i]) : pad;
}

/* Puts 'pad' after the first 'count' of v: the last pack of a row whose memory is longer. */
template <int N> static __device__ __forceinline__ void pack_end(float *v, int64_t count, float pad) {
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i >= count) v[i] = pad;
}

template <bool WHOLE, int N, typename X>
static __device__ __forceinline__ void pack_store(X *row, int64_t at, int64_t end, const float *v) {
    if constexpr (WHOLE)
        store<X, N>(row + at, v);
    else
#pragma unroll
        for (int i = 0; i < N; i++)
            if (at + i < end) row[at + i] = from_float<X>(v[i]);
}

/* Whether the packs of rows of that width, which begin at p, are aligned: launchers choose WHOLE by it. NULL is. */
template <typename T> static inline bool packs_whole(const void *p, int64_t width) {
    return (uintptr_t)p % 16 == 0 && width % pack_of<T>::COUNT == 0;
}
