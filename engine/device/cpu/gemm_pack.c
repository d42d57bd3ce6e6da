/* Packing of gemm's factors: copies, transposes, and bf16 two by two. */
#include "engine/device/cpu/gemm_pack.h"
#include "engine/device/cpu/gemm.h"
#include "engine/device/cpu/layout.h"

#include <stdbool.h>
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* ---- transposes ----------------------------------------------------------------------------- */
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

static void transpose_4x4(const float *from, int64_t ld_from, float *to, int64_t ld_to) {
    four a = *(const four *)from, b = *(const four *)(from + ld_from);
    four c = *(const four *)(from + 2 * ld_from), d = *(const four *)(from + 3 * ld_from);
    four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(four *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(four *)(to + ld_to) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(four *)(to + 2 * ld_to) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(four *)(to + 3 * ld_to) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

void transpose(int64_t rows, int64_t cols, const float *from, int64_t ld_from, float *to, int64_t ld_to) {
    enum { BLOCK = 16 }; /* a cache line each way */
    int64_t whole_rows = rows & ~(int64_t)3, whole_cols = cols & ~(int64_t)3;
    for (int64_t c0 = 0; c0 < whole_cols; c0 += BLOCK)
        for (int64_t r = 0; r < whole_rows; r += 4)
            for (int64_t c = c0; c < c0 + BLOCK && c < whole_cols; c += 4)
                transpose_4x4(from + r * ld_from + c, ld_from, to + c * ld_to + r, ld_to);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; c++) to[c * ld_to + r] = from[r * ld_from + c];
}

/* Rows from which a copy comes next are asked for before it gets there: few of them are long enough
 * for the machine to guess. */
enum { AHEAD = 16 };

/* ---- pairs ---------------------------------------------------------------------------------- */
#if defined(__AVX512BF16__)

/* Columns [0, n), n <= 16, of an even and an odd row (NULL: zeros) as pairs; zeros behind. */
static inline __attribute__((always_inline)) __m512i pairs_of(const float *even, const float *odd, int64_t n) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __mmask16 some = (__mmask16)((1u << n) - 1);
    __m512 low = _mm512_maskz_loadu_ps(some, even);
    __m512 high = odd ? _mm512_maskz_loadu_ps(some, odd) : _mm512_setzero_ps();
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

static void pairs_across(int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide) {
    for (int64_t p = 0; p < k; p += 2, to += wide)
        for (int64_t j = 0; j < wide; j += 16) {
            const float *even = from + p * ld + j, *odd = p + 1 < k ? even + ld : NULL;
            int64_t some = n - j < 0 ? 0 : n - j < 16 ? n - j : 16;
            _mm512_store_si512(to + j, pairs_of(even, odd, some));
        }
}

static void pairs_along(int64_t rows, int64_t k, const float *from, int64_t ld, float *to) {
    for (int64_t i = 0; i < rows; i++, from += ld, to += (k + 1) / 2)
        for (int64_t p = 0; p < k; p += 32) {
            int64_t rest = k - p < 32 ? k - p : 32;
            uint32_t some = rest < 32 ? (1u << rest) - 1 : UINT32_MAX;
            __builtin_prefetch(from + AHEAD * ld + p);
            __builtin_prefetch(from + AHEAD * ld + p + 16);
            __m512 low = _mm512_maskz_loadu_ps((__mmask16)some, from + p);
            __m512 high = _mm512_maskz_loadu_ps((__mmask16)(some >> 16), from + p + 16);
            __mmask16 pairs = (__mmask16)((1u << ((rest + 1) / 2)) - 1);
            _mm512_mask_storeu_epi32(to + p / 2, pairs, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
}

/* Columns [0, m), m a multiple of 16, in groups of 8. */
static void pairs_groups(int64_t k, int64_t m, const float *from, int64_t ld, float *to) {
    int64_t rows = (k + 1) / 2;
    for (int64_t p = 0; p < rows; p++, from += 2 * ld)
        for (int64_t c = 0; c < m; c += 16) {
            __builtin_prefetch(from + AHEAD * ld + c);
            __builtin_prefetch(from + (AHEAD + 1) * ld + c);
            __m512i pairs = pairs_of(from + c, 2 * p + 1 < k ? from + ld + c : NULL, 16);
            float *group = to + c * rows + p * 8;
            _mm256_storeu_si256((__m256i *)(void *)group, _mm512_castsi512_si256(pairs));
            _mm256_storeu_si256((__m256i *)(void *)(group + 8 * rows), _mm512_extracti64x4_epi64(pairs, 1));
        }
}
#else /* never run: the level has no PACK_PAIRS */
static void pairs_across(int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide) {
    (void)k, (void)n, (void)from, (void)ld, (void)to, (void)wide;
}
static void pairs_along(int64_t rows, int64_t k, const float *from, int64_t ld, float *to) {
    (void)rows, (void)k, (void)from, (void)ld, (void)to;
}
static void pairs_groups(int64_t k, int64_t m, const float *from, int64_t ld, float *to) {
    (void)k, (void)m, (void)from, (void)ld, (void)to;
}
#endif

/* ---- floats --------------------------------------------------------------------------------- */
static void floats_across(int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide) {
    if (n < wide) memset(to, 0, (size_t)(k * wide) * sizeof *to);
    for (int64_t p = 0; p < k; p++) {
        for (int64_t j = 0; j < n; j += 16) __builtin_prefetch(from + (p + AHEAD) * ld + j);
        memcpy(to + p * wide, from + p * ld, (size_t)n * sizeof *to);
    }
}

/* Columns [0, m), m a multiple of 16, in groups of 'group', which the compiler knows. */
static inline __attribute__((always_inline)) void floats_groups(int64_t k, int64_t m, const float *from, int64_t ld,
                                                                float *to, int group) {
    for (int64_t p = 0; p < k; p++, from += ld)
        for (int64_t c = 0; c < m; c += 16) {
            __builtin_prefetch(from + AHEAD * ld + c);
            for (int g = 0; g < 16; g += group)
                memcpy(to + (c + g) * k + p * group, from + c + g, (size_t)group * sizeof *to);
        }
}

/* ---- either --------------------------------------------------------------------------------- */
void pack_across(enum packing how, int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide) {
    if (how == PACK_PAIRS)
        pairs_across(k, n, from, ld, to, wide);
    else
        floats_across(k, n, from, ld, to, wide);
    if (how == PACK_ROUNDED) bf16_round_all(k * wide, to, to);
}

void pack_turned(enum packing how, int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide,
                 float *work) {
    int64_t rows = pack_rows(how, k);
    if (n < wide) memset(to, 0, (size_t)(rows * wide) * sizeof *to);
    if (how == PACK_PAIRS) pairs_along(n, k, from, ld, work), from = work, ld = rows;
    transpose(n, rows, from, ld, to, wide);
    if (how == PACK_ROUNDED) bf16_round_all(rows * wide, to, to);
}

void pack_along(enum packing how, int64_t rows, int64_t k, const float *from, int64_t ld, float *to) {
    if (how == PACK_PAIRS)
        pairs_along(rows, k, from, ld, to);
    else
        floats_across(rows, k, from, ld, to, k);
    if (how == PACK_ROUNDED) bf16_round_all(rows * k, to, to);
}

/* The last columns, fewer than 16: packed side by side first, then dealt to groups. */
static void groups_rest(enum packing how, int64_t k, int64_t m, const float *from, int64_t ld, float *to, int group) {
    for (int64_t p = 0, rows = pack_rows(how, k); p < rows; p++) {
        _Alignas(64) float row[PACK_WIDE];
        int64_t step = how == PACK_PAIRS ? 2 : 1, some = k - step * p < step ? 1 : step;
        pack_across(how, some, m, from + step * p * ld, ld, row, PACK_WIDE);
        for (int64_t c = 0, size = group; c < m; c += size) {
            while (c + size > m) size /= 2;
            memcpy(to + c * rows + p * size, row + c, (size_t)size * sizeof *to);
        }
    }
}

void pack_groups(enum packing how, int64_t k, int64_t m, const float *from, int64_t ld, float *to, int group) {
    enum { STRIP = 64 }; /* groups that are written side by side share sets of the cache */
    int64_t rows = pack_rows(how, k), whole = m / 16 * 16;
    for (int64_t c = 0; c < whole; c += STRIP) {
        int64_t some = whole - c < STRIP ? whole - c : STRIP;
        if (how == PACK_PAIRS)
            pairs_groups(k, some, from + c, ld, to + c * rows);
        else if (group == 8)
            floats_groups(k, some, from + c, ld, to + c * rows, 8);
        else
            floats_groups(k, some, from + c, ld, to + c * rows, 4);
    }
    if (how == PACK_ROUNDED) bf16_round_all(whole * rows, to, to);
    if (whole < m) groups_rest(how, k, m - whole, from + whole, ld, to + whole * rows, group);
}
