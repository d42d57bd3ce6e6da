/* Small matrix products of attention: all that is read and written stays in the caches, and only
 * whole tiles are asked for. Every element of C is one chain of fused multiply-adds in order of k,
 * so its bits depend neither on how a product is cut into blocks, nor on the instruction level (from
 * AVX2 with FMA upwards). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { PRODUCT_ROWS = 8, PRODUCT_COLUMNS = 16 };
struct product {     /* C (m, n) = A (m, k) B (k, n), or C += with 'add' */
    int64_t m, n, k; /* m in whole PRODUCT_ROWS, n in whole PRODUCT_COLUMNS */
    const float *a;  /* element (i, p) is a[i * a_row + p * a_step] */
    int64_t a_row, a_step;
    const float *b; /* rows are ldb apart */
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add;
};
void block_product(const struct product *p);
