/* Gradients in one bit (Seide et al. 2014; signSGD with error feedback, Karimireddy et al. 2019, arXiv:1901.09847): of
 * each 256 floats the signs, and one size for all of them, the mean of their magnitudes:
 *
 *     sent_i = mean |x| * sign(x_i)       sign(0) = 1
 *     left_i = x_i - sent_i               added to the next step's gradient
 *
 * The owner of a block adds what it decodes, and codes the sum in the same way (compress_coded.c). 36 bytes for 256
 * floats: a 28th of an all-reduce. */
#include "modes/share/compress.h"

#include <math.h>

enum { BLOCK = 256 };
struct block {
    float size; /* NaN: a float of the block was not finite */
    uint8_t sign[BLOCK / 8];
};

static int64_t onebit_bytes(const struct engine_packet *p, int64_t n) {
    (void)p, (void)n;
    return sizeof(struct block);
}

static float mean_size(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fabs((double)x[i]);
    return (float)(sum / (double)n);
}

static void onebit_encode(const struct engine_packet *p, float *x, int64_t n, void *wire) {
    struct block *to = wire;
    float size = mean_size(x, n);
    (void)p;
    *to = (struct block){.size = isfinite(size) ? size : NAN};
    for (int64_t i = 0; i < n; i++) {
        if (x[i] < 0) to->sign[i / 8] |= (uint8_t)(1 << i % 8);
        x[i] = isfinite(size) ? x[i] - (x[i] < 0 ? -size : size) : 0;
    }
}

static void onebit_add(const struct engine_packet *p, const void *wire, float *sum, int64_t n) {
    const struct block *b = wire;
    (void)p;
    for (int64_t i = 0; i < n; i++) sum[i] += b->sign[i / 8] >> i % 8 & 1 ? -b->size : b->size;
}

static const struct engine_compressor onebit_coder = {
    .block = BLOCK, .feedback = 1, .bytes = onebit_bytes, .encode = onebit_encode, .add = onebit_add};
const struct compress_ops compress_onebit = COMPRESS_CODED(&onebit_coder, true);
