/* Factors of products, copied to where and how the tiles of gemm.c read them: a row for each k. In
 * PAIRS two rows are one, of elements that are two bf16: the even row's in the lower half.
 * TILES are PAIRS for gemm_amx.h: with rows of zeros up to a multiple of 16. */
#pragma once
#include <stdint.h>

enum packing {
    PACK_FLOATS,
    PACK_ROUNDED, /* floats, rounded to bf16 */
    PACK_PAIRS,   /* at levels that multiply them (HAS_PAIRS) */
    PACK_TILES
};
enum { PACK_WIDE = 16 }; /* what 'wide' is a multiple of in pairs */

/* Rows that k rows of a factor become. */
static inline int64_t pack_rows(enum packing how, int64_t k) {
    if (how == PACK_TILES) return (k + 31) / 32 * 16;
    return how == PACK_PAIRS ? (k + 1) / 2 : k;
}

struct pack_source { /* part of a factor: k rows or columns of it, n the other way, its rows 'ld' floats apart */
    enum packing how;
    int64_t k, n;
    const float *from;
    int64_t ld;
};
/* from (k, n), and 'wide' >= n elements for each row, zeros after the n-th. */
void pack_across(struct pack_source s, float *to, int64_t wide);
/* The same from (n, k); 'work' is scratch of n * pack_rows(k) floats. */
void pack_turned(struct pack_source s, float *to, int64_t wide, float *work);
/* from (n, k) as it lies, a row's elements being side by side: to (n, pack_rows(k)). */
void pack_along(struct pack_source s, float *to);
/* from (k, n): columns in groups of 'group' (4 or 8; at the end 4, 2 and 1), each group as (rows,
 * group); the group of column c begins at c * pack_rows(k). As tiles the columns are rows, to (n, pack_rows(k)). 'work'
 * is scratch of PACK_WIDE * pack_rows(k) floats. */
void pack_groups(struct pack_source s, float *to, int group, float *work);
