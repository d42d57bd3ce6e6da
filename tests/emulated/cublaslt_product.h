/* A product of matrices that lie by columns: the work behind the emulated cuBLASLt. */
#pragma once
#include <library_types.h>
#include <stdbool.h>
#include <stdint.h>

struct matrix {
    cudaDataType_t type; /* CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F */
    int64_t rows, cols, ld, apart;
    int32_t batch; /* matrices, 'apart' elements from one to the next */
};
struct product_job {
    struct matrix a, b, d;
    bool a_turned, b_turned, tf32;
    int64_t k, aux_ld;
    uint32_t epilogue;
    float alpha, beta;
    const void *from_a, *from_b, *from_c;
    void *to, *bias, *aux; /* bias and aux are of d's type */
};
/* d = act(alpha a b + beta c + bias), or bias = the sums of a's rows, or of b's columns, of a struct product_job. Sums are f32. */
void product_run(void *job);
