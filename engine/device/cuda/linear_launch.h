/* What surrounds the products of linear ops. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/launch.h"

/* Behind a product: y (rows, cols) = act(y). */
struct linear_finish {
    enum element type;
    enum activation act; /* ACT_RELU, ACT_GELU_TANH */
    int64_t rows, cols;
    void *y;
    void *before;      /* what act reads is kept here, unless NULL */
    int64_t before_ld; /* from row to row of it */
};
LAUNCHER cudaError_t linear_finish(const struct linear_finish *f, cudaStream_t stream);

/* Before the products of backward: dz (rows, cols) = dy times the slope of act, unless that is none; and, for columns_finish, the
 * column_groups(rows) partial sums of its columns. */
struct linear_behind {
    enum element type;
    enum activation act; /* ACT_NONE, ACT_RELU, ACT_GELU_TANH */
    int64_t rows, cols;
    const void *dy;
    int64_t dy_ld;    /* from row to row, as is gate_ld */
    const void *gate; /* relu: what it wrote; gelu: what it read */
    int64_t gate_ld;
    void *dz;
    float *partial; /* or NULL */
};
LAUNCHER cudaError_t linear_behind(const struct linear_behind *b, cudaStream_t stream);
