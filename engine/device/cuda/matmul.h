/* One product of matrices through cuBLASLt, planned once. As there, matrices lie column by column: a row-major
 * (rows, cols) of C is a (cols, rows) here.
 *   d (m, n) = act(a (m, k) b (k, n) + bias) [+ d or what joins] */
#pragma once
#include "engine/device/cuda/cuda.h"

struct matmul_product {
    int64_t m, n, k;
    bool a_turned, b_turned;  /* a lies as (k, m), b as (n, k) */
    int64_t a_ld, b_ld, d_ld; /* from column to column, as they lie; 0: there are no gaps */
    enum precision precision; /* of the factors, and so of their type */
    bool d_f32;               /* d is f32; else of the type of activations */
    cublasLtEpilogue_t
        epilogue;   /* DEFAULT, BIAS, RELU(_BIAS), GELU(_BIAS), GELU_AUX(_BIAS); BGRADA, BGRADB: 'bias' becomes
                                    the sums over k of a, of b */
    int64_t aux_ld; /* of the matrix of what GELU reads, for those with AUX */
};
struct matmul {
    struct matmul_product product;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};
struct matmul_args { /* all aligned to MATMUL_ALIGNMENT */
    const void *a, *b, *bias;
    void *d, *aux;
    bool add;           /* to what d holds */
    const void *joined; /* of d's shape: is added before the activation; NULL: nothing is */
};
enum { MATMUL_ALIGNMENT = 16 };

/* ERR_CONFIG when cuBLASLt knows no way; m is then as matmul_fini leaves it. */
MUST_CHECK enum error matmul_init(struct matmul *m, struct cuda *c, const struct matmul_product *p);
void matmul_fini(struct matmul *m); /* a zeroed one is fine */
/* Computes the product, on LANE_COMPUTE. */
MUST_CHECK enum error matmul_run(struct matmul *m, struct cuda *c, const struct matmul_args *a);
