/* Packing of gemm's factors: copies, transposes, and bf16 two by two. */
#include "engine/device/cpu/gemm_pack.h"
#include "engine/device/cpu/gemm.h"
#include "engine/device/cpu/layout.h"
#include "engine/device/cpu/vectors.h"

#include <string.h>

/* ---- transposes ----------------------------------------------------------------------------- */
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/* to (4, 4) = from (4, 4) turned; rows are ld_from and ld_to floats apart. */
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
static inline int vector_part(int64_t n) {
    return n < 0 ? 0 : n < LANES ? (int)n : LANES;
}

/* Columns [0, n), at most a vector, of an even and an odd row (NULL: zeros) as pairs; zeros after them. */
INLINE vec rows_paired(const float *even, const float *odd, int64_t n) {
    const int some = vector_part(n);
    return pairs_of(few_load(even, some), odd ? few_load(odd, some) : (vec){0});
}

/* to ((k + 1) / 2, wide) = from (k, n) in bf16, each two rows of a column as one pair; zeros after column n. */
static void rows_as_pairs(int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide) {
    for (int64_t p = 0; p < k; p += 2, to += wide)
        for (int64_t j = 0; j < wide; j += LANES) {
            const float *even = from + p * ld + j;
            store(to + j, rows_paired(even, p + 1 < k ? even + ld : NULL, n - j));
        }
}

/* to (rows, (k + 1) / 2) = from (rows, k) in bf16, each two neighbours of a row as one pair. */
static void neighbours_as_pairs(int64_t rows, int64_t k, const float *from, int64_t ld, float *to, int64_t ld_to) {
    for (int64_t i = 0; i < rows; i++, from += ld, to += ld_to)
        for (int64_t p = 0; p < k; p += 2 * LANES) {
            const float *at = from + p;
            __builtin_prefetch(at + AHEAD * ld);
            __builtin_prefetch(at + AHEAD * ld + LANES);
            vec begin = few_load(at, vector_part(k - p)), end = few_load(at + LANES, vector_part(k - p - LANES));
            few_store(to + p / 2, pairs_along(begin, end), vector_part((k - p + 1) / 2));
        }
}

/* Columns [0, m), m a multiple of 16, in groups of 'group', which the compiler knows. */
INLINE void groups_of_pairs(int64_t k, int64_t m, const float *from, int64_t ld, float *to, const int group) {
    const int some = LANES < group ? LANES : group;
    int64_t rows = (k + 1) / 2;
    for (int64_t p = 0; p < rows; p++, from += 2 * ld)
        for (int64_t c = 0; c < m; c += LANES) {
            __builtin_prefetch(from + AHEAD * ld + c);
            __builtin_prefetch(from + (AHEAD + 1) * ld + c);
            vec pairs = rows_paired(from + c, 2 * p + 1 < k ? from + ld + c : NULL, LANES);
            for (int64_t g = c; g < c + LANES; g += some)
                memcpy(to + g / group * group * rows + p * group + g % group, (float *)&pairs + (g - c),
                       (size_t)some * sizeof *to);
        }
}

/* ---- floats --------------------------------------------------------------------------------- */
/* to (k, wide) = from (k, n), rows ld floats apart; zeros after column n. */
static void floats_across(int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide) {
    if (n < wide) memset(to, 0, (size_t)(k * wide) * sizeof *to);
    for (int64_t p = 0; p < k; p++) {
        for (int64_t j = 0; j < n; j += 16) __builtin_prefetch(from + (p + AHEAD) * ld + j);
        memcpy(to + p * wide, from + p * ld, (size_t)n * sizeof *to);
    }
}

/* Columns [0, m), m a multiple of 16, in groups of 'group', which the compiler knows. */
INLINE void floats_groups(int64_t k, int64_t m, const float *from, int64_t ld, float *to, int group) {
    for (int64_t p = 0; p < k; p++, from += ld)
        for (int64_t c = 0; c < m; c += 16) {
            __builtin_prefetch(from + AHEAD * ld + c);
            for (int g = 0; g < 16; g += group)
                memcpy(to + (c + g) * k + p * group, from + c + g, (size_t)group * sizeof *to);
        }
}

/* ---- either --------------------------------------------------------------------------------- */
static bool pack_is_paired(enum packing how) {
    return how == PACK_PAIRS || how == PACK_TILES;
}

/* Rows of k, and zeros after the k-th element of each. */
static void pairs_along_rows(struct pack_source s, float *to) {
    int64_t all = pack_rows(s.how, s.k), there = pack_rows(PACK_PAIRS, s.k);
    neighbours_as_pairs(s.n, s.k, s.from, s.ld, to, all);
    for (int64_t i = 0; i < s.n && there < all; i++)
        memset(to + i * all + there, 0, (size_t)(all - there) * sizeof *to);
}

void pack_across(struct pack_source s, float *to, int64_t wide) {
    int64_t all = pack_rows(s.how, s.k), there = pack_rows(PACK_PAIRS, s.k);
    if (pack_is_paired(s.how))
        rows_as_pairs(s.k, s.n, s.from, s.ld, to, wide);
    else
        floats_across(s.k, s.n, s.from, s.ld, to, wide);
    if (s.how == PACK_ROUNDED) bf16_round_all(s.k * wide, to, to);
    if (s.how == PACK_TILES) memset(to + there * wide, 0, (size_t)((all - there) * wide) * sizeof *to);
}

void pack_turned(struct pack_source s, float *to, int64_t wide, float *work) {
    int64_t rows = pack_rows(s.how, s.k);
    if (s.n < wide) memset(to, 0, (size_t)(rows * wide) * sizeof *to);
    if (pack_is_paired(s.how)) pairs_along_rows(s, work), s.from = work, s.ld = rows;
    transpose(s.n, rows, s.from, s.ld, to, wide);
    if (s.how == PACK_ROUNDED) bf16_round_all(rows * wide, to, to);
}

void pack_along(struct pack_source s, float *to) {
    if (pack_is_paired(s.how))
        pairs_along_rows(s, to);
    else
        floats_across(s.n, s.k, s.from, s.ld, to, s.k);
    if (s.how == PACK_ROUNDED) bf16_round_all(s.n * s.k, to, to);
}

/* to: the columns of the source as rows, one after the other; work holds rows that become pairs first. */
static void columns_as_rows(struct pack_source s, float *to, float *work) {
    int64_t rows = pack_rows(PACK_TILES, s.k);
    for (int64_t c = 0; c < s.n; c += PACK_WIDE) {
        int64_t some = s.n - c < PACK_WIDE ? s.n - c : PACK_WIDE;
        pack_across((struct pack_source){PACK_TILES, s.k, some, s.from + c, s.ld}, work, PACK_WIDE);
        transpose(rows, some, work, PACK_WIDE, to + c * rows, rows);
    }
}

/* The columns from 'first' on, fewer than 16: packed side by side first, then dealt to groups. */
static void groups_rest(struct pack_source s, int64_t first, float *to, int group) {
    for (int64_t p = 0, rows = pack_rows(s.how, s.k); p < rows; p++) {
        _Alignas(64) float row[PACK_WIDE];
        int64_t step = s.how == PACK_PAIRS ? 2 : 1, some = s.k - step * p < step ? 1 : step;
        const float *from = s.from + step * p * s.ld + first;
        pack_across((struct pack_source){s.how, some, s.n - first, from, s.ld}, row, PACK_WIDE);
        for (int64_t c = first, size = group; c < s.n; c += size) {
            while (c + size > s.n) size /= 2;
            memcpy(to + c * rows + p * size, row + c - first, (size_t)size * sizeof *to);
        }
    }
}

void pack_groups(struct pack_source s, float *to, int group, float *work) {
    if (s.how == PACK_TILES) return columns_as_rows(s, to, work);
    enum { STRIP = 64 }; /* groups that are written side by side share sets of the cache */
    int64_t rows = pack_rows(s.how, s.k), whole = s.n / 16 * 16;
    for (int64_t c = 0; c < whole; c += STRIP) {
        int64_t some = whole - c < STRIP ? whole - c : STRIP;
        if (s.how == PACK_PAIRS && group == 8)
            groups_of_pairs(s.k, some, s.from + c, s.ld, to + c * rows, 8);
        else if (s.how == PACK_PAIRS)
            groups_of_pairs(s.k, some, s.from + c, s.ld, to + c * rows, 4);
        else if (group == 8)
            floats_groups(s.k, some, s.from + c, s.ld, to + c * rows, 8);
        else
            floats_groups(s.k, some, s.from + c, s.ld, to + c * rows, 4);
    }
    if (s.how == PACK_ROUNDED) bf16_round_all(whole * rows, to, to);
    if (whole < s.n) groups_rest(s, whole, to, group);
}
