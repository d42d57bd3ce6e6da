/* Launchers of norm.cu, norm_back.cu and groupnorm.cu. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/launch.h"

/* Rows up to this long are held in the registers of one warp. */
enum { NORM_WARP_MOST = 1024 };
/* Backward: how many blocks share the rows. Which rows are whose depends on their number alone. */
enum { NORM_GROUPS = 384, NORM_ROWS = 4 };
static inline int64_t norm_groups(int64_t rows) {
    int64_t groups = (rows + NORM_ROWS - 1) / NORM_ROWS;
    return groups < NORM_GROUPS ? groups : (int64_t)NORM_GROUPS;
}

struct norm_call {
    enum element x_type, type; /* of x (f32 where it is data); of y, dy and dx */
    int64_t rows, width;
    int64_t area, groups; /* groupnorm alone: a row is a sample of (area, width), w, shift, dw and db may be NULL,
                             moments are (rows, groups, 2) and partial (rows, 2, width) */
    float eps;
    bool centred; /* layernorm; else rmsnorm, whose mean is 0 */
    const void *x, *dy;
    void *y, *dx;           /* dx: NULL when nobody asks for it */
    bool add;               /* dx is added to; it may be dy */
    const float *w, *shift; /* shift: NULL without bias */
    float *moments;         /* (rows, 2): mean, 1 / sqrt(var + eps); NULL: not kept */
    float *dw, *db;         /* db: NULL without bias */
    float *partial;         /* (groups, 2, width); without bias (groups, width) */
};
LAUNCHER cudaError_t norm_forward_launch(const struct norm_call *c, cudaStream_t stream);
LAUNCHER cudaError_t norm_backward_launch(const struct norm_call *c, cudaStream_t stream);
LAUNCHER cudaError_t group_forward_launch(const struct norm_call *c, cudaStream_t stream);
LAUNCHER cudaError_t group_backward_launch(const struct norm_call *c, cudaStream_t stream);
