/* Vector kernels that several ops share; each runs on the calling thread. No two arguments overlap unless said. */
#pragma once
#include "engine/device/ops.h"

/* y (rows, cols) = act(y + bias (cols)); bias may be NULL. */
void kernel_bias_act(int64_t rows, int64_t cols, const float *bias, enum activation act, float *y);
/* y = max(x, 0), NaN stays NaN; x and y may be the same. */
void kernel_relu(int64_t n, const float *x, float *y);
/* dx = dy where y > 0, else 0; dx and dy may be the same. */
void kernel_relu_backward(int64_t n, const float *y, const float *dy, float *dx);
/* y = x0 + x1, behind act. */
void kernel_add(int64_t n, const float *x0, const float *x1, enum activation act, float *y);
/* sums (cols) = the sum of the rows of x (rows, cols), whose distance is ld, in order of rows. */
void kernel_column_sums(int64_t rows, int64_t cols, const float *x, int64_t ld, float *sums);
