/* Vectors of floats at every level: what convolutions and the packing of factors do with them. */
#pragma once
#include "engine/device/cpu/lanes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if LANES == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define COUNT 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#elif LANES == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define COUNT 0, 1, 2, 3, 4, 5, 6, 7
#else
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define COUNT 0, 1, 2, 3
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_anywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float few __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

static inline vec load(const float *p) {
    return *(const vec_anywhere *)p;
}
static inline void store(float *p, vec v) {
    *(vec_anywhere *)p = v;
}

/* a * b + c, rounded once where the instruction set can. */
static inline vec fused(vec a, vec b, vec c) {
    return MULTIPLY_ADD(c, a, b);
}

static inline vec larger(vec a, vec b) { /* b > a ? b : a */
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)b, (__m512)a);
#elif defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)b, (__m256)a);
#else
    ints above = b > a;
    return (vec)((above & (ints)b) | (~above & (ints)a));
#endif
}

typedef uint32_t words __attribute__((vector_size(4 * LANES)));
#define INLINE static inline __attribute__((always_inline))

/* A number in all lanes. */
INLINE vec all(float x) {
    return x - (vec){0};
}

/* v rounded to the nearest bf16, to the even one of two; NaN stays NaN. */
INLINE vec rounded(vec v) {
    words bits = (words)v, number = (words)(v == v);
    words near = bits + 0x7fff + (bits >> 16 & 1);
    return (vec)(((near & number) | (bits & ~number)) & 0xffff0000);
}

/* Two bf16 in each lane, the first in the lower half. */
INLINE vec pairs_of(vec first, vec second) {
#if defined(__AVX512BF16__)
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vec)_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
#else
    return (vec)((words)rounded(first) >> 16 | (words)rounded(second));
#endif
}

/* The same of neighbours in two vectors that follow each other. */
INLINE vec pairs_along(vec begin, vec end) {
#if defined(__AVX512BF16__)
    return (vec)_mm512_cvtne2ps_pbh((__m512)end, (__m512)begin);
#else
    return pairs_of(__builtin_shufflevector(begin, end, EVEN), __builtin_shufflevector(begin, end, ODD));
#endif
}

/* sum + both products of each lane. */
INLINE vec pairs_added(vec sum, vec a, vec b) {
#if defined(__AVX512BF16__)
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum = fused((vec)((words)a << 16), (vec)((words)b << 16), sum);
    return fused((vec)((words)a & 0xffff0000), (vec)((words)b & 0xffff0000), sum);
#endif
}

/* Row i, lane j <-> row j, lane i: each round moves the highest bit of the row's number to the end
 * of the lane's, and the lane's highest to the end of the row's. */
INLINE void lanes_turn(vec m[LANES]) {
    UNROLL for (int round = 1; round < LANES; round *= 2) {
        vec from[LANES];
        UNROLL for (int i = 0; i < LANES; i++) from[i] = m[i];
        UNROLL for (int i = 0; i < LANES / 2; i++) {
            m[2 * i] = __builtin_shufflevector(from[i], from[i + LANES / 2], LOW);
            m[2 * i + 1] = __builtin_shufflevector(from[i], from[i + LANES / 2], HIGH);
        }
    }
}

/* 'count' floats, at most a vector, the others zero. */
INLINE vec few_load(const float *p, const int count) {
#if defined(__AVX512F__)
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1 << count) - 1), p);
#else
    if (count == LANES) return load(p);
    vec v = {0};
    UNROLL for (int k = 0; k < count; k++) v[k] = p[k];
    return v;
#endif
}

INLINE void few_store(float *p, vec v, const int count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1 << count) - 1), (__m512)v);
#else
    if (count == LANES) return store(p, v);
    UNROLL for (int k = 0; k < count; k++) p[k] = v[k];
#endif
}

/* Exactly n floats: rows are too short for memcpy's calls. The last piece overlaps another. */
static inline void row_move(float *to, const float *from, int n) {
    int j = 0;
    if (n >= LANES) {
        for (; j < n - LANES; j += LANES) store(to + j, load(from + j));
        store(to + n - LANES, load(from + n - LANES));
    } else if (n >= 4) {
        for (; j < n - 4; j += 4) *(few *)(to + j) = *(const few *)(from + j);
        *(few *)(to + n - 4) = *(const few *)(from + n - 4);
    } else {
        for (; j < n; j++) to[j] = from[j];
    }
}
