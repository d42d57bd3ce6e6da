/* Kernels for images, (n, h, w, c) unless said: started on a stream. The type of images is 'value'; weights, sums and
 * their gradients are f32. Pointers to images and to what has one value a channel are 16-byte aligned. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
enum value { VALUE_F32, VALUE_BF16, VALUE_FP16 };
static inline int value_bytes(enum value v) {
    return v == VALUE_F32 ? 4 : 2;
}

/* How (rows, channels) is cut among blocks: a function of the shape alone, so that the order of sums is too. */
struct channels_cut {
    int64_t rows, channels, part; /* part: rows of one */
    int vector;                   /* channels that a thread takes at once: 1, or those of 16 bytes */
    int wide, high, parts;        /* a block is 'high' rows of 'wide' threads */
};
struct channels_cut channels_cut(int64_t rows, int64_t channels, enum value v);
int64_t channels_part_floats(const struct channels_cut *c); /* of the partial sums of two values a channel */

/* ---- conv: filters (out, in, area) in f32 and (out, area, in) in the images' type ---- */
cudaError_t filter_last_launch(enum value v, const float *w, void *to, int64_t out, int64_t in, int64_t area,
                               cudaStream_t stream);
cudaError_t filter_plain_launch(enum value v, const void *from, float *w, int64_t out, int64_t in, int64_t area,
                                cudaStream_t stream);
/* y = act(y + bias); bias may be NULL */
cudaError_t conv_finish_launch(enum value v, const struct channels_cut *c, void *y, const float *bias, bool relu,
                               cudaStream_t stream);
/* dz = dy where y > 0 (dz NULL: y is not looked at, dz is dy); db = its sums (NULL: none), through part. */
cudaError_t conv_gradient_launch(enum value v, const struct channels_cut *c, const void *y, const void *dy, void *dz,
                                 float *part, float *db, cudaStream_t stream);

/* ---- batchnorm: x is of type xv; saved: mean, then 1 / sqrt(var + eps) ---- */
struct norm_launch {
    enum value xv, v;
    struct channels_cut cut;
    const void *x, *dy;
    void *y, *dx;
    const float *w, *b;
    float *dw, *db, *saved, *running[2]; /* running: NULL: left alone */
    float *part, *line;                  /* line: 3 values a channel */
    float eps, momentum;
    bool relu;
};
cudaError_t norm_measure_launch(const struct norm_launch *l, cudaStream_t stream); /* to saved, running */
cudaError_t norm_apply_launch(const struct norm_launch *l, bool training, cudaStream_t stream);
cudaError_t norm_gradient_launch(const struct norm_launch *l, cudaStream_t stream); /* dx NULL: dw and db alone */

/* ---- pool: windows of images with LAYOUT_LAST or LAYOUT_PLAIN ---- */
struct pool_launch {
    enum value xv, v;
    bool last, max;
    int64_t n, c;
    int x[2], y[2], kernel[2], stride[2], pad[2];
};
/* from: which place of its window a maximum came from, one byte each (two where windows have more than 256); NULL:
 * nobody asks. */
cudaError_t pool_forward_launch(const struct pool_launch *l, const void *x, void *y, void *from, cudaStream_t stream);
cudaError_t pool_backward_launch(const struct pool_launch *l, const void *dy, const void *from, void *dx,
                                 cudaStream_t stream);

/* ---- reorder: each of n matrices (rows, columns) of type 'from' turned, into type 'to' ---- */
cudaError_t turn_launch(enum value from_v, const void *from, enum value to_v, void *to, int64_t n, int64_t rows,
                        int64_t columns, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
