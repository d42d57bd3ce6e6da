/* Kernels for images, (n, h, w, c) unless said: started on a stream. Images are of an element type; weights, sums and
 * their gradients are f32. Pointers to images and to what has one value a channel are 16-byte aligned. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/launch.h"

/* How (rows, channels) is cut among blocks: a function of the shape alone, so that the order of sums is too. */
struct channels_cut {
    enum element type;
    int64_t rows, channels, part; /* part: rows of one */
    int vector;                   /* channels that a thread takes at once: 1, or those of 16 bytes */
    int wide, high, parts;        /* a block is 'high' rows of 'wide' threads */
};

/* ---- conv ---- */
/* y = act(y + bias); bias may be NULL */
LAUNCHER cudaError_t conv_finish_launch(const struct channels_cut *c, void *y, const float *bias, bool relu,
                                        cudaStream_t stream);
/* dz = dy where y > 0 (dz NULL: y is not looked at, dz is dy); db = its sums (NULL: none), through part. */
struct conv_gradient {
    const void *y, *dy;
    void *dz;
    float *part, *db;
};
LAUNCHER cudaError_t conv_gradient_launch(const struct channels_cut *c, const struct conv_gradient *g,
                                          cudaStream_t stream);

/* ---- batchnorm: x is of type x_type; saved: mean, then 1 / sqrt(var + eps) ---- */
struct norm_launch {
    enum element x_type;
    struct channels_cut cut;
    const void *x, *joined, *dy; /* joined: added before relu; NULL: nothing is */
    void *y, *dx, *djoined;      /* djoined may be dy */
    const float *w, *b;
    float *dw, *db, *saved, *running[2]; /* running: NULL: left alone */
    float *part, *line;                  /* line: 3 values a channel */
    float eps, momentum;
    bool relu;
};
LAUNCHER cudaError_t norm_measure_launch(const struct norm_launch *l, cudaStream_t stream); /* to saved, running */
LAUNCHER cudaError_t norm_apply_launch(const struct norm_launch *l, bool training, cudaStream_t stream);
LAUNCHER cudaError_t norm_gradient_launch(const struct norm_launch *l,
                                          cudaStream_t stream); /* dx NULL: dw and db alone */

/* ---- pool: windows of images with LAYOUT_LAST or LAYOUT_PLAIN ---- */
struct pool_launch {
    enum element x_type, type;
    bool last, max;
    int64_t n, c;
    int x[2], y[2], kernel[2], stride[2], pad[2];
    const void *in; /* x, or dy */
    void *out;      /* y, or dx */
    void *from;     /* which place of its window a maximum came from, one byte each (two where windows have more than
                       256); NULL: nobody asks */
};
LAUNCHER cudaError_t pool_forward_launch(const struct pool_launch *l, cudaStream_t stream);
LAUNCHER cudaError_t pool_backward_launch(const struct pool_launch *l, cudaStream_t stream);

/* ---- matrices (n, rows, columns), each turned ---- */
struct turn {
    enum element from_type, to_type; /* the same, or one of them f32 */
    const void *from;
    void *to;
    int64_t n, rows, columns;
};
LAUNCHER cudaError_t turn_launch(const struct turn *t, cudaStream_t stream);
