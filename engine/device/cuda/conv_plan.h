/* Convolutions as plans of cuDNN. A plan belongs to a shape, and ops of one shape on one device share it. Images are
 * (n, h, w, c), filters (out, kh, kw, in / groups), all of one type; products are summed in f32. */
#pragma once
#include "engine/device/cuda/cuda.h"

enum conv_pass { CONV_FORWARD, CONV_DATA, CONV_FILTER, CONV_PASSES };
/* Zeroed before it is filled: two are compared byte by byte. */
struct conv_shape {
    int64_t n, groups, x[3], y[3]; /* channels, height, width */
    int64_t kernel[2], stride[2], pad[2];
    cudnnDataType_t type;
    int32_t exact; /* f32 whose factors are not rounded */
    int32_t bias;  /* of forward: one a channel is added */
};
struct conv_plan;

/* The first of cuDNN's proposals that gives the same bits every time, computes as 'exact' says and wants no more
 * to work in than CONV_SPACE bytes, or than the images take. ERR_CONFIG: there is none. Slow. */
MUST_CHECK enum error conv_plan_get(struct cuda *c, enum conv_pass pass, const struct conv_shape *s,
                                    struct conv_plan **out);
void conv_plan_put(struct conv_plan *p); /* NULL is fine */
size_t conv_plan_space(const struct conv_plan *p);
struct conv_about { /* which of cuDNN's engines it is, what cuDNN notes of it, and the bytes that it works in */
    int64_t engine, space;
    unsigned notes; /* bits of cudnnBackendNumericalNote_t */
};
void conv_plan_about(const struct conv_plan *p, struct conv_about *out);
enum { CONV_SPACE = 256 << 20 };

/* x, filter and y (of a gradient: dx, dw and dy in their places), and the bias. All are 16-byte aligned. */
enum conv_tensor { CONV_X, CONV_W, CONV_Y, CONV_BIAS, CONV_TENSORS };
/* How one op runs a plan: cuDNN's own note of where the tensors lie, made again only when they lie elsewhere. Zeroed
 * at first. */
struct conv_run {
    cudnnBackendDescriptor_t pack;
    void *at[CONV_TENSORS], *space;
};
MUST_CHECK enum error conv_run(struct conv_run *r, const struct conv_plan *p, void *const at[CONV_TENSORS],
                               void *space);
void conv_run_fini(struct conv_run *r);
