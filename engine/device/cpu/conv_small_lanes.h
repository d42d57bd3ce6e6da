/* What conv_small_kernels.c does with vectors of channels and of codes, and block sizes that fit in the level's registers. */
#pragma once
#include "engine/device/cpu/conv_small.h"
#include "engine/device/cpu/vectors.h"

/* Blocks: ROW_M channels of CONV_VECTORS vectors, DOT_M channels of CONV_DOT_TAPS taps, WIDE_M
 * pixels of one vector, PAIR_M of two, and patches of PATCH vectors. */
#if REGISTERS == 32
enum { ROW_M = 8, DOT_M = 6, WIDE_M = 14, PAIR_M = 12, PATCH = 14 };
#elif defined(__AVX2__)
enum { ROW_M = 4, DOT_M = 3, WIDE_M = 12, PAIR_M = 6, PATCH = 6 };
#else
enum { ROW_M = 3, DOT_M = 2, WIDE_M = 12, PAIR_M = 6, PATCH = 6 };
#endif
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

/* Two things that compilers do badly with vector extensions alone. */
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
    __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storeu_si64(p, _mm_packus_epi16(halves, halves));
#else
    *(bytes *)p = __builtin_convertvector(v, bytes);
#endif
}

/* Every step-th float, for one of 'step' channels that lie channel-last. */
static inline void channel_read(float *to, const float *from, int step, int n) {
    UNROLL_SOME for (int j = 0; j < n; j++) to[j] = from[(size_t)j * step];
}
static inline void channel_write(float *to, const float *from, int step, int n) {
    UNROLL_SOME for (int j = 0; j < n; j++) to[(size_t)j * step] = from[j];
}

/* All bits in the lanes where b replaces a as the maximum, by pool.c's rule: a NaN replaces anything. */
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
