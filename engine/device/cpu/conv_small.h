/* Convolutions of few channels, with their ReLU and 2x2 max-pool: what conv_small.c plans and
 * conv_small_kernels.c computes. */
#pragma once
#include "engine/device/cpu/cpu.h"

enum {
    CONV_SIDE_MAX = 7, /* of a kernel */
    CONV_IN_MAX = 16,
    CONV_OUT_MAX = 32,
    CONV_CUT = 4, /* a code: 0..3 is the place of a window's maximum, row-major; CUT: ReLU cut it */

    CONV_LANES_MAX = 16,
    CONV_SUMS = 16,    /* partial sums of a pixel dot, at every instruction set */
    CONV_VECTORS = 3,  /* that one block of pixel lanes makes of each channel */
    CONV_DOT_TAPS = 4, /* that one block of pixel dots makes */
};

/* A convolution of flat planes: out[m][p] = init[m] + sum over t of w[t][m] in[p + offset[t]]. */
struct conv_flat {
    int taps, channels;
    int band;     /* rows of output made at a time, so that they are still in cache when used */
    int out_step; /* floats from one channel of the band to the next */
    int offset[CONV_OUT_MAX * CONV_SIDE_MAX * CONV_SIDE_MAX];
};

/* Everything about an op that does not change. Steps and sizes are in floats. */
struct conv_plan {
    int c, h, w;    /* x */
    int oc, oh, ow; /* the convolution's own output */
    int yh, yw;     /* y: the same, or half of it after the pool */
    int kh, kw, ph, pw;
    bool relu, pool, first;
    bool round;         /* factors to bf16 */
    bool channel_lanes; /* forward: lanes are output channels, not pixels */
    bool sparse;        /* backward: visit only the pixels that max-pool chose */

    int pitch;                          /* of the rows of every flat plane: w + pw */
    int rows;                           /* of the convolution's own output that y depends on */
    int positions;                      /* in a flat plane, from the first of these rows' pixels to the last */
    int x_plane, dy_plane;              /* from one channel to the next, borders and slack included */
    int dy_origin;                      /* of the gradient's first pixel in its plane */
    int y_plane;                        /* of codes and of copies of y and dy: with a vector's slack */
    int oc_step;                        /* oc in whole vectors: from one tap's weights to the next */
    int slack;                          /* at the end of every buffer */
    int row_vectors;                    /* sparse: how many hold kw * c floats */
    int dw_taps;                        /* not sparse: taps in whole blocks */
    struct conv_flat forward, backward; /* y from x; dx from dy */

    /* Weights and init (at init_at), packed for a pass: 'shared' floats. A workspace, of 'work' floats: x and dy, zero up
     * to own_at before the first sample; sums of a part; then what is written before it is read. Sums, of 'sums' floats:
     * of dw, and, at db_at, of db. */
    size_t init_at, shared, work, sums;
    size_t x_at, dy_at, own_at, out_at, copy_at, codes_at;
    size_t x_size, db_at;
};

/* The kernels. 'shared' holds the weights as conv_small.c packs them for the pass; 'work' is a workspace, whose planes of
 * x and dy were zero before its first sample of the pass.
 * forward: one sample's y, and its codes (oc * y_plane bytes) when there is a pool. backward: one sample's dx, unless
 * the plan is of a first layer; adds dw and db to 'sums'. */
void conv_small_forward(const struct conv_plan *p, const float *shared, float *work, const float *x, float *y,
                        uint8_t *codes);
struct conv_sample { /* of a backward pass: x and dx are (c, h, w), y and dy (oc, yh, yw); codes: NULL without a pool */
    const float *x, *y, *dy;
    const uint8_t *codes;
    float *dx; /* NULL: of a first layer */
};
void conv_small_backward(const struct conv_plan *p, const float *shared, float *work, float *sums,
                         const struct conv_sample *s);
