/* C = A B in f32: the heart of linear layers. Every element of C is one chain of multiply-adds in
 * order of k, so its bits depend neither on the sizes of C, nor on threads, nor on the instruction
 * level (from AVX2 with FMA upwards). */
#pragma once
#include "engine/device/cpu/cpu.h"

struct gemm { /* matrices are row-major; ld* is the distance of rows */
    int64_t m, n, k;
    const float *a; /* (m, k) */
    int64_t lda;
    const float *b; /* (k, n), or (n, k) when b_transposed */
    int64_t ldb;
    bool b_transposed;
    float *c; /* (m, n), overwritten unless 'add' */
    int64_t ldc;
    bool add; /* go on from the C that is there */
};
/* 'pack' is scratch of gemm_pack_bytes(device), ALIGNMENT-aligned. */
size_t gemm_pack_bytes(const struct device *dev);
void gemm_run(const struct device *dev, const struct gemm *g, void *pack);

/* to (cols, rows) = from (rows, cols) transposed, by one thread. */
void transpose(int64_t rows, int64_t cols, const float *from, int64_t ld_from, float *to,
               int64_t ld_to);
