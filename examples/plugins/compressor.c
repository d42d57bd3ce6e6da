/* Gradients of your own: four bits a value.
 *
 * Of each block of 256 values the largest magnitude, divided by 'levels', is the scale; each value is rounded to a whole
 * multiple of it, from -7 to 7, and two of them share a byte. What rounding has lost stays in x, and is added to the
 * gradient of the next step. 132 bytes for 256 floats: a 7.8th of them.
 *
 * Build and check it:  engine check compressor.c
 * Use it:              engine run config.yaml --devices cpu:4 --set comm.compress=./compressor.so */
#include "engine_plugin.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 };
struct code {
    float scale; /* not a number: a value of the block was not finite */
    uint8_t pair[BLOCK / 2];
};

static const struct engine_parameter parameters[] = {{"levels", 7, "steps from zero to the largest value, at most 7"},
                                                     {NULL, 0, NULL}};

static int64_t bytes(const struct engine_packet *p, int64_t n) {
    (void)p, (void)n;
    return sizeof(struct code);
}

static float largest(const float *x, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return NAN;
        if (fabsf(x[i]) > most) most = fabsf(x[i]);
    }
    return most;
}

static void encode(const struct engine_packet *p, float *x, int64_t n, void *wire) {
    struct code *to = wire;
    float scale = largest(x, n) / (float)p->parameter[0], inverse = 1 / scale;
    memset(to, 0, sizeof *to);
    to->scale = scale;
    if (!isfinite(inverse)) inverse = 0; /* zeros, or a value that is not finite */
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] * inverse;
        int whole = y > -7.5f && y < 7.5f ? (int)(y + 8.5f) - 8 : 0; /* rounded: what is cut off is above 0 */
        to->pair[i / 2] |= (uint8_t)((whole + 8) << 4 * (i % 2));
        x[i] -= (float)whole * scale;
    }
}

static void add(const struct engine_packet *p, const void *wire, float *sum, int64_t n) {
    const struct code *from = wire;
    (void)p;
    for (int64_t i = 0; i < n; i++) sum[i] += from->scale * (float)((from->pair[i / 2] >> 4 * (i % 2) & 15) - 8);
}

static const struct engine_compressor four_bits = {
    .block = BLOCK, .feedback = 1, .bytes = bytes, .encode = encode, .add = add};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION,
    .about = "four bits a value, with a scale for each 256",
    .parameters = parameters,
    .compressor = &four_bits,
};
