/* Vector kernels that several ops share; each runs on the calling thread. No two arguments overlap
 * unless said. */
#pragma once
#include "engine/base/rng.h"
#include "engine/device/ops.h"

/* Each activation, by enum activation: y = act(x), x and y may be the same; dx = dy act'(x), from x or from y as by_y
 * says, dx and dy may be the same. */
struct act_kernel {
    void (*forward)(int64_t n, const float *x, float alpha, float *y);
    void (*backward)(int64_t n, const float *x_or_y, const float *dy, float alpha, float *dx);
    bool by_y;
};
extern const struct act_kernel act_kernels[];
static inline void kernel_relu_backward(int64_t n, const float *y, const float *dy, float *dx) {
    act_kernels[ACT_RELU].backward(n, y, dy, 0, dx);
}
/* y = act(x0 + x1). */
void kernel_add(int64_t n, const float *x0, const float *x1, enum activation act, float *y);
/* sums (cols) = the sum of the rows of x (rows, cols), whose distance is ld, in order of rows. */
void kernel_column_sums(int64_t rows, int64_t cols, const float *x, int64_t ld, float *sums);

/* mask[e] = whether element e of sample 'id' stays: word e % 4 of the words at (id, base | e / 4),
 * as a uniform number, is at least p. */
void kernel_dropout_mask(struct rng_key key, uint64_t id, uint64_t base, float p, int64_t n, uint8_t *mask);
/* y = mask ? x * scale : 0; x and y may be the same. */
void kernel_mask_scale(int64_t n, const uint8_t *mask, float scale, const float *x, float *y);

/* y = softmax(x) of one row, in two passes over memory; 'tops' is scratch of SOFTMAX_TOPS(n) floats.
 * Gives log(sum of e^(x - max)), and where max is first. */
#define SOFTMAX_TOPS(n) ((n) / SOFTMAX_BLOCK + 1)
enum { SOFTMAX_BLOCK = 2048 };
double kernel_softmax(int64_t n, const float *x, float *y, float *tops, int64_t *best);
