/* Factors of products, copied to where and how the tiles of gemm.c read them: a row for each k. In
 * PAIRS two rows are one, of elements that are two bf16: the even row's in the lower half. */
#pragma once
#include <stdint.h>

enum packing {
    PACK_FLOATS,
    PACK_ROUNDED, /* floats, rounded to bf16 */
    PACK_PAIRS    /* at levels that multiply them (HAS_PAIRS) */
};
enum { PACK_WIDE = 16 }; /* what 'wide' is a multiple of in pairs */

/* Rows that k rows of a factor become. */
static inline int64_t pack_rows(enum packing how, int64_t k) {
    return how == PACK_PAIRS ? (k + 1) / 2 : k;
}

/* from (k, n), and 'wide' >= n elements for each row, zeros behind the n-th. */
void pack_across(enum packing how, int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide);
/* The same from (n, k); 'work' is scratch of n * pack_rows(k) floats. */
void pack_turned(enum packing how, int64_t k, int64_t n, const float *from, int64_t ld, float *to, int64_t wide,
                 float *work);
/* (rows, k) as it lies, a row's elements being side by side: to (rows, pack_rows(k)). */
void pack_along(enum packing how, int64_t rows, int64_t k, const float *from, int64_t ld, float *to);
/* from (k, m): columns in groups of 'group' (4 or 8; at the end 4, 2 and 1), each group as (rows,
 * group); the group of column c begins at c * pack_rows(k). */
void pack_groups(enum packing how, int64_t k, int64_t m, const float *from, int64_t ld, float *to, int group);
