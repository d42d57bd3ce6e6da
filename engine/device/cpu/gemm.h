/* C = A B: the heart of linear layers. In f32 every element of C is one chain of multiply-adds in
 * order of k, so its bits depend neither on the sizes of C, nor on threads, nor on the instruction
 * level (from AVX2 with FMA upwards). In bf16 the factors are rounded first; where the machine has
 * an instruction for that, a link of the chain adds the products of two neighbours in k. */
#pragma once
#include "engine/device/cpu/cpu.h"

struct gemm { /* matrices are row-major; ld* is the distance of rows */
    int64_t m, n, k;
    const float *a; /* (m, k), or (k, m) when a_transposed */
    int64_t lda;
    bool a_transposed;
    const float *b; /* (k, n), or (n, k) when b_transposed */
    int64_t ldb;
    bool b_transposed;
    float *c; /* (m, n), overwritten unless 'add' */
    int64_t ldc;
    bool add; /* go on from the C that is there */
    /* C is the tree's sum of a product for each segment, whose rows of k begin at segments->begin[i] * each. NULL: k is
     * one. With neither 'add' nor 'done'. */
    const struct segments *segments;
    int64_t each;
    enum precision precision;
    /* Called, unless NULL, for parts of C as they are done, while they are still in a near cache;
     * on any of the device's threads. */
    void (*done)(void *ctx, int64_t row, int64_t rows, int64_t column, int64_t columns);
    void *ctx;
};
/* 'pack' is scratch of gemm_pack_bytes(device, rows), ALIGNMENT-aligned. rows: the largest k of a product with segments,
 * 0 if none has them. */
size_t gemm_pack_bytes(const struct device *dev, int64_t rows);
void gemm_run(const struct device *dev, const struct gemm *g, void *pack);

/* to (cols, rows) = from (rows, cols) transposed, by one thread. */
void transpose(int64_t rows, int64_t cols, const float *from, int64_t ld_from, float *to, int64_t ld_to);
