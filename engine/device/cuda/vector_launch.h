/* vector.cu: starting its kernels. All return what the launch did; nothing waits. */
#pragma once
#include "engine/device/cuda/launch.h"

/* VECTOR_TERMS: as many as a launch takes along. VECTOR_DEPTH: LEAVES_DEPTH. */
enum { VECTOR_TERMS = 256, VECTOR_DEPTH = 14 };
struct vector_terms {
    const float *term[VECTOR_TERMS];
    uint8_t adds[VECTOR_TERMS]; /* leaves_adds */
};
/* More of them, each list (count), in the GPU's memory. */
struct vector_table {
    const float *const *term;
    const uint8_t *adds;
};
/* to[i] = the terms' sum. */
LAUNCHER cudaError_t vector_sum(float *to, const struct vector_terms *terms, int count, int64_t n, cudaStream_t stream);
LAUNCHER cudaError_t vector_sum_table(float *to, struct vector_table terms, int count, bool aligned, int64_t n,
                                      cudaStream_t stream);
/* To and from the types of activations; half: IEEE's, else bf16. */
LAUNCHER cudaError_t vector_lower(void *to, const float *from, int64_t n, bool half, cudaStream_t stream);
LAUNCHER cudaError_t vector_raise(float *to, const void *from, int64_t n, bool half, cudaStream_t stream);
/* to[i] += from[i] of such a type. */
LAUNCHER cudaError_t vector_add_low(void *to, const void *from, int64_t n, bool half, cudaStream_t stream);
/* partial[b] = the sum of squares of block b of g[0..n). */
LAUNCHER cudaError_t vector_partials(const float *g, int64_t n, double *partial, cudaStream_t stream);
/* The header of an arena; what is not given here is zero. */
LAUNCHER cudaError_t vector_head(float *header, const double *sums, float scale, float samples, float stop,
                                 cudaStream_t stream);
