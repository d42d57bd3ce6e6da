/* Vectors for conv_small_kernels.c and conv_wino_kernels.c, and block sizes that fit in the level's registers. */
#pragma once
#include "engine/device/cpu/conv_small.h"
#include "engine/device/cpu/lanes.h"

/* Blocks: ROW_M channels of CONV_VECTORS vectors, DOT_M channels of CONV_DOT_TAPS taps, WIDE_M
 * pixels of one vector, PAIR_M of two, and patches of PATCH vectors. */
#if REGISTERS == 32
enum { ROW_M = 8, DOT_M = 6, WIDE_M = 14, PAIR_M = 12, PATCH = 14 };
#elif defined(__AVX2__)
enum { ROW_M = 4, DOT_M = 3, WIDE_M = 12, PAIR_M = 6, PATCH = 6 };
#else
enum { ROW_M = 3, DOT_M = 2, WIDE_M = 12, PAIR_M = 6, PATCH = 6 };
#endif
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
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

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

/* Three things that compilers do badly with vector extensions alone. */
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
static inline ints load_codes(const uint8_t *p) {
#if defined(__AVX512F__)
    return (ints)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p));
#elif defined(__AVX2__)
    return (ints)_mm256_cvtepu8_epi32(_mm_loadu_si64(p));
#else
    return __builtin_convertvector(*(const bytes *)p, ints);
#endif
}
static inline void store_codes(uint8_t *p, ints v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    __m256i all = (__m256i)v;
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storeu_si64(p, _mm_packus_epi16(words, words));
#else
    *(bytes *)p = __builtin_convertvector(v, bytes);
#endif
}

typedef uint32_t words __attribute__((vector_size(4 * LANES)));
#define INLINE static inline __attribute__((always_inline))

/* A number in all lanes. */
INLINE vec all(float x) {
    return x - (vec){0};
}

/* To the nearest bf16, of two the even one; NaN stays NaN. */
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
INLINE void transpose(vec m[LANES]) {
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

/* Every step-th float, for one of 'step' channels that lie channel-last. */
static inline void channel_read(float *to, const float *from, int step, int n) {
    UNROLL_SOME for (int j = 0; j < n; j++) to[j] = from[(size_t)j * step];
}
static inline void channel_write(float *to, const float *from, int step, int n) {
    UNROLL_SOME for (int j = 0; j < n; j++) to[(size_t)j * step] = from[j];
}

/* Where b takes a's place as a maximum, by pool.c's rule: a NaN takes anything's. */
static inline ints above(vec a, vec b) {
    return (b > a) | (b != b);
}
static inline ints choose(ints which, ints yes, ints no) {
    return (which & yes) | (~which & no);
}

/* The maximum of a window (a b; c d), through ReLU if there is one, and its code. */
static inline vec pool_max(vec a, vec b, vec c, vec d, bool relu, ints *code) {
    ints b_above = above(a, b), d_above = above(c, d);
    vec top = (vec)choose(b_above, (ints)b, (ints)a), bottom = (vec)choose(d_above, (ints)d, (ints)c);
    ints below = above(top, bottom);
    vec most = (vec)choose(below, (ints)bottom, (ints)top);
    ints at = (choose(below, d_above, b_above) & 1) | (below & 2);
    *code = relu ? (at & (most > (vec){})) | (~(most > (vec){}) & CONV_CUT) : at;
    return relu ? larger(most, (vec){}) : most;
}
