/* Gradients in 8 bits: of each 256 the largest, divided by 127, is the scale; the others are rounded to whole multiples
 * of it. The owner of a block adds what it decodes, and rounds the sum with a scale of its own (compress_coded.c). 260
 * bytes for 256 floats: a little above a quarter of an all-reduce. */
#include "engine/base/half.h"
#include "engine/base/vector.h"
#include "modes/share/compress.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 };
struct block {
    float scale;
    int8_t q[BLOCK];
};

/* The largest magnitude's bits, which are ordered as the magnitudes are, with NaN above all. */
VECTORISED static uint32_t largest(const float *x, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = bits_of(x[i]) & 0x7fffffff;
        most = u > most ? u : most;
    }
    return most;
}

/* x becomes what is lost. */
VECTORISED static void round_block(float *restrict x, int64_t n, float scale, float inverse, int8_t *restrict q) {
    for (int64_t i = 0; i < n; i++) {
        float whole = rintf(x[i] * inverse);
        q[i] = (int8_t)whole;
        x[i] -= whole * scale;
    }
}

VECTORISED static void block_add(const struct block *b, float *restrict x, int64_t n) {
    float scale = b->scale;
    for (int64_t i = 0; i < n; i++) x[i] += scale * (float)b->q[i];
}

static int64_t int8_bytes(const struct engine_packet *p, int64_t n) {
    (void)p, (void)n;
    return sizeof(struct block);
}

/* A block that is not finite becomes one that is NaN throughout, as the sum then is. */
static void int8_encode(const struct engine_packet *p, float *x, int64_t n, void *wire) {
    struct block *to = wire;
    uint32_t most = largest(x, n);
    bool finite = most < 0x7f800000;
    (void)p;
    to->scale = finite ? float_of(most) / 127 : NAN;
    float inverse = finite && to->scale > 0 ? 1 / to->scale : 0;
    if (isinf(inverse)) to->scale = inverse = 0; /* below what has an inverse: it waits */
    memset(to->q, 0, sizeof to->q);
    if (finite) round_block(x, n, to->scale, inverse, to->q);
}

static void int8_add(const struct engine_packet *p, const void *wire, float *sum, int64_t n) {
    (void)p;
    block_add(wire, sum, n);
}

static const struct engine_compressor int8_coder = {
    .block = BLOCK, .feedback = 1, .bytes = int8_bytes, .encode = int8_encode, .add = int8_add};
const struct compress_ops compress_int8 = COMPRESS_CODED(&int8_coder, true);
