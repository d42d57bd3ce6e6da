/* What attention.c asks of the kernels. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/launch.h"

enum { ATTENTION_SIZE_MOST = 128 }; /* of a head */
enum { ATTENTION_ROWS_LEAST = 32 }; /* of a head in one block of any kernel */

struct attention_call {
    enum element type; /* of x, y, dy, dx */
    const void *x;     /* (samples, positions, 3 heads size): rows (q, k, v) */
    void *y;           /* (samples, positions, heads size) */
    const void *dy;    /* as y */
    void *dx;          /* as x */
    float *lse;        /* (samples, heads, positions): log2 of the sum of e^score of each query */
    float *delta;      /* the same shape: sum of dy y */
    int64_t samples;
    int positions, heads, size;
    int shared; /* bytes of shared memory that the GPU gives a block: larger tiles where there is more */
    bool causal;
    bool aligned; /* every row of a head begins on a multiple of 16 bytes */
};

/* Once for each GPU, type and size, before the first of the others. */
LAUNCHER cudaError_t attention_forward_prepare(enum element type, int size, int shared);
LAUNCHER cudaError_t attention_queries_prepare(enum element type, int size, int shared);
LAUNCHER cudaError_t attention_keys_prepare(enum element type, int size, int shared);
/* Bytes of shared memory that a block of each takes on such a GPU. */
LAUNCHER size_t attention_forward_bytes(enum element type, int size, int shared);
LAUNCHER size_t attention_queries_bytes(enum element type, int size, int shared);
LAUNCHER size_t attention_keys_bytes(enum element type, int size, int shared);

LAUNCHER cudaError_t attention_forward_launch(const struct attention_call *c, cudaStream_t s); /* y, lse */
LAUNCHER cudaError_t attention_delta_launch(const struct attention_call *c, cudaStream_t s);   /* delta */
LAUNCHER cudaError_t attention_queries_launch(const struct attention_call *c, cudaStream_t s); /* dq of dx */
/* dk, dv of dx */
LAUNCHER cudaError_t attention_keys_launch(const struct attention_call *c, cudaStream_t s);
