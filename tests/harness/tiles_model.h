/* The instructions of engine/device/cpu/amx.h in plain C, as Intel's manual describes them. Each thread has its own
 * tiles, which are there between TILES_CONFIGURE and TILES_RELEASE alone. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct model_tile {
    unsigned char row[16][64];
    int rows, bytes; /* of a row */
};
static _Thread_local struct model_tile model_tiles[8];
static _Thread_local int model_configured;

/* What a processor would answer with an invalid instruction. */
static inline void model_must(bool valid) {
    if (!valid) abort();
}

static inline void model_configure(const void *config) {
    unsigned char c[64];
    memcpy(c, config, sizeof c);
    model_must(c[0] == 1 && c[1] == 0 && !model_configured);
    memset(model_tiles, 0, sizeof model_tiles);
    for (int t = 0; t < 16; t++) {
        int rows = c[48 + t], wide = c[16 + 2 * t] + 256 * c[17 + 2 * t];
        model_must(t < 8 ? rows >= 1 && rows <= 16 && wide >= 4 && wide <= 64 && wide % 4 == 0
                         : rows == 0 && wide == 0);
        if (t < 8) model_tiles[t].rows = rows, model_tiles[t].bytes = wide;
    }
    model_configured = 1;
}

static inline struct model_tile *model_tile(int t) {
    model_must(model_configured && t >= 0 && t < 8);
    return &model_tiles[t];
}

static inline void model_zero(int t) {
    memset(model_tile(t)->row, 0, sizeof model_tile(t)->row);
}

/* What is beyond the rows and columns of a tile becomes zero. */
static inline void model_load(int t, const void *from, int64_t stride) {
    struct model_tile *to = model_tile(t);
    model_zero(t);
    for (int r = 0; r < to->rows; r++) memcpy(to->row[r], (const char *)from + r * stride, (size_t)to->bytes);
}

static inline void model_store(int t, void *to, int64_t stride) {
    const struct model_tile *from = model_tile(t);
    for (int r = 0; r < from->rows; r++) memcpy((char *)to + r * stride, from->row[r], (size_t)from->bytes);
}

static inline float model_float(const struct model_tile *t, int row, int column) {
    float v;
    memcpy(&v, t->row[row] + 4 * column, sizeof v);
    return v;
}

/* One of the two bf16 of an element; denormals are zero. */
static inline float model_half(const struct model_tile *t, int row, int column, int half) {
    uint32_t bits;
    float v;
    memcpy(&bits, t->row[row] + 4 * column, sizeof bits);
    bits = half ? bits & 0xffff0000u : bits << 16;
    memcpy(&v, &bits, sizeof v);
    return fpclassify(v) == FP_SUBNORMAL ? copysignf(0, v) : v;
}

static inline float model_flushed(float v) {
    return fpclassify(v) == FP_SUBNORMAL ? copysignf(0, v) : v;
}

/* Even and odd terms are two chains of fused multiply-adds. */
static inline void model_dot(int to, int left, int right) {
    const struct model_tile *a_tile = model_tile(left), *b_tile = model_tile(right), *c_tile = model_tile(to);
    model_must(a_tile->rows == c_tile->rows && a_tile->bytes == 4 * b_tile->rows && b_tile->bytes == c_tile->bytes);
    for (int m = 0; m < c_tile->rows; m++)
        for (int n = 0; n < c_tile->bytes / 4; n++) {
            float sum[2] = {0}, c = model_float(model_tile(to), m, n);
            for (int k = 0; k < b_tile->rows; k++)
                for (int h = 0; h < 2; h++) {
                    float a = model_half(model_tile(left), m, k, h), b = model_half(model_tile(right), k, n, h);
                    sum[h] = model_flushed(fmaf(a, b, sum[h]));
                }
            c = model_flushed(c + model_flushed(sum[0] + sum[1]));
            memcpy(model_tile(to)->row[m] + 4 * n, &c, sizeof c);
        }
}

#define TILES_CONFIGURE(config) model_configure(config)
#define TILES_RELEASE() (model_must(model_configured), model_configured = 0)
#define TILE_ZERO(t) model_zero(t)
#define TILE_LOAD(t, from, stride) model_load(t, from, stride)
#define TILE_STORE(t, to, stride) model_store(t, to, stride)
#define TILE_DOT(c, a, b) model_dot(c, a, b)
