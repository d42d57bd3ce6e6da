/* Launchers of loss.cu. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/launch.h"

struct loss_row {           /* what forward finds out about a row; right: 1 if its first largest output is the label */
    float loss, right, top; /* top: as op_args.top counts, where it is asked for */
};
struct softmax_row { /* y = e^(x - top) part; weight: of the row's loss, where targets are soft */
    float top, part, weight;
};
struct loss_call {
    bool forward;               /* finds the sums, and dx where that is not NULL; else dx alone */
    enum element x_type, type;  /* of x (f32 where it is data); of y and dx */
    int64_t rows, width, pitch; /* pitch: from row to row of x and dx */
    const void *x;
    void *y;               /* cross-entropy: softmax(x); NULL: nobody asks for it */
    void *dx;              /* in forward it may be x */
    const int32_t *labels; /* (rows); NULL: none */
    const int32_t *others; /* as op_args: (rows), with shares (rows / rows_each); NULL: none */
    const float *shares, *class_weights;
    int64_t rows_each;        /* of a sample */
    float smoothing;          /* cross-entropy */
    bool soft;                /* cross-entropy: others, class_weights or smoothing are there */
    const float *target;      /* mse, bce without labels: (rows, width) */
    struct softmax_row *kept; /* cross-entropy: (rows) for backward; NULL: nothing is kept */
    struct loss_row *found;   /* (rows) */
    double *sums;             /* sums[0] += found's losses / loss_share, sums[1] += found's rights / right_share */
    double *top;              /* += found's tops; NULL: nobody asks */
    double loss_share, right_share;
    float scale;       /* of the gradient of a row's loss (cross-entropy), of x - target (mse), of y - target (bce) */
    int *fault, wrong; /* *fault = wrong where a label is not one of the classes, if *fault is 0 */
};
LAUNCHER cudaError_t cross_entropy_launch(const struct loss_call *c, cudaStream_t stream);
LAUNCHER cudaError_t mse_launch(const struct loss_call *c, cudaStream_t stream);
LAUNCHER cudaError_t bce_launch(const struct loss_call *c, cudaStream_t stream);
