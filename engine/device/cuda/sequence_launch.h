/* What makes sequences and what reduces them: moving rows, means, sums over samples. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/launch.h"

enum rows_kind {                     /* where row r of y comes from; P: positions of a sample */
                 ROWS_SAME,          /* row r */
                 ROWS_TOKEN,         /* the row of x that token r names */
                 ROWS_ADD,           /* row r + row r % P of w */
                 ROWS_W,             /* the only row of w */
                 ROWS_BEHIND_W,      /* y has P + 1 positions: w, then the sample's rows */
                 ROWS_WITHOUT_FIRST, /* x has P + 1: all but its first */
                 ROWS_SELECT,        /* y has one row a sample: row 'which' */
                 ROWS_PLACE,         /* x has one row a sample: it is row 'which' of P, the others are 0 */
                 ROWS_SPREAD         /* x has one row a sample: each of the P has it, divided by P */
};
struct rows_call {
    enum rows_kind kind;
    enum element from, to; /* of x and of y */
    int64_t count, width;  /* rows of y, their length */
    int64_t positions, which;
    const void *x;
    const float *w;
    void *y;
    int64_t y_ld;       /* from row to row of it; 0: width */
    const float *token; /* 'fault' becomes fault_code, unless it is something already, at one that is none of 0, 1,
                           ..., vocabulary - 1, which counts as 0; NULL: it is not reported */
    int64_t vocabulary;
    int *fault, fault_code;
};
LAUNCHER cudaError_t rows_move(const struct rows_call *r, cudaStream_t stream);

/* out (width) = the sum over samples, in their order, of x (samples, ld), f32. */
LAUNCHER cudaError_t samples_sum(enum element from, const void *x, int64_t samples, int64_t ld, int64_t width,
                                 float *out, cudaStream_t stream);
/* y (n, width) = mean over the positions of x (n, positions, width) */
LAUNCHER cudaError_t mean_of_rows(enum element from, enum element to, const void *x, int64_t n, int64_t positions,
                                  int64_t width, void *y, cudaStream_t stream);
/* y (planes) = mean of each of x (planes, area); and back: each of dx (planes, area) = dy (planes) / area */
LAUNCHER cudaError_t mean_of_planes(enum element from, enum element to, const void *x, int64_t planes, int64_t area,
                                    void *y, cudaStream_t stream);
LAUNCHER cudaError_t mean_of_planes_back(enum element type, const void *dy, int64_t planes, int64_t area, void *dx,
                                         cudaStream_t stream);

/* dw (vocabulary, width) f32 = the sums of dy's rows of each token, in order; add: to what it holds. */
struct embedding_back {
    enum element type; /* of dy */
    int64_t rows, width, vocabulary;
    const float *token;
    const void *dy;
    float *dw;
    bool add;
    void *scratch; /* embedding_back_bytes */
};
enum { EMBEDDING_ROWS_MOST = 1 << 30 };
LAUNCHER size_t embedding_back_bytes(int64_t rows, int64_t vocabulary);
LAUNCHER cudaError_t embedding_back(const struct embedding_back *e, cudaStream_t stream);
