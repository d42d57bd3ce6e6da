/* The largest or the mean of each window, a part of the planes for each thread. The loops run along
 * a row of outputs, for one place of the window at a time, so that they vectorise. A maximum keeps
 * where it came from, as an index into its plane of x, for backward. */
#include "engine/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

struct row { /* one place of the window over the outputs [begin, end) of a row; the first reads
                x[at] */
    int64_t begin, end, at, stride;
};

/* Outputs k of 'places' with 0 <= k * stride + off < length. */
static void row_inside(int64_t off, int64_t stride, int64_t length, int64_t places, struct row *r) {
    r->begin = off < 0 ? (-off + stride - 1) / stride : 0;
    r->end = off < length ? (length - 1 - off) / stride + 1 : 0;
    if (r->end > places) r->end = places;
    r->stride = stride;
}

/* The row of outputs 'oy' for window place (ky, kx); false when it lies in the padding. */
static bool row_of(const struct op_desc *d, int64_t oy, int ky, int kx, struct row *r) {
    const struct window *w = &d->pool.window;
    int64_t iy = oy * w->stride[0] + ky - w->pad[0], off = kx - w->pad[1];
    if (iy < 0 || iy >= d->x.dim[1]) return false;
    row_inside(off, w->stride[1], d->x.dim[2], d->y.dim[2], r);
    r->at = iy * d->x.dim[2] + off + r->begin * r->stride;
    return r->begin < r->end;
}

#define INLINE static inline __attribute__((always_inline))

/* ---- rows: stamped for the usual strides, so that the compiler knows them ------------------- */
#define EACH(k)                                                                                                        \
    int64_t k = 0;                                                                                                     \
    k < r->end - r->begin;                                                                                             \
    k++
#define KNOWN_STRIDE(call)                                                                                             \
    switch (r->stride) {                                                                                               \
    case 1:                                                                                                            \
        call(1);                                                                                                       \
        break;                                                                                                         \
    case 2:                                                                                                            \
        call(2);                                                                                                       \
        break;                                                                                                         \
    default:                                                                                                           \
        call(r->stride);                                                                                               \
    }

/* PyTorch's rule: the first of equals, and a NaN takes the place of anything. */
INLINE void row_max(const struct row *r, const float *restrict x, float *restrict y, int32_t *restrict from) {
#define MAX_ROW(s)                                                                                                     \
    for (EACH(k)) {                                                                                                    \
        float v = x[k * (s)], old = y[k];                                                                              \
        bool more = v > old || v != v;                                                                                 \
        y[k] = more ? v : old;                                                                                         \
        from[k] = more ? (int32_t)(r->at + k * (s)) : from[k];                                                         \
    }
    KNOWN_STRIDE(MAX_ROW)
}

/* Adds to outputs y of a row what their place of the window has in x. */
INLINE void row_sum(const struct row *r, const float *restrict x, float *restrict y) {
#define SUM_ROW(s)                                                                                                     \
    for (EACH(k)) y[k] += x[k * (s)];
    KNOWN_STRIDE(SUM_ROW)
}

/* Adds to dx, at the row's place of each window, its share of dy. */
INLINE void row_spread(const struct row *r, float share, const float *restrict dy, float *restrict dx) {
#define SPREAD_ROW(s)                                                                                                  \
    for (EACH(k)) dx[k * (s)] += dy[k] * share;
    KNOWN_STRIDE(SPREAD_ROW)
}

/* ---- planes --------------------------------------------------------------------------------- */
/* Begins a row of maxima, before any place of the window: nothing is less than -inf, which is at the window's first place
 * inside x. */
static void row_begin(const struct op_desc *d, int64_t oy, float *y, int32_t *from) {
    const struct window *w = &d->pool.window;
    int64_t iy = oy * w->stride[0] - w->pad[0];
    for (int64_t k = 0; k < d->y.dim[2]; k++) {
        int64_t ix = k * w->stride[1] - w->pad[1];
        y[k] = -INFINITY;
        from[k] = (int32_t)((iy > 0 ? iy * d->x.dim[2] : 0) + (ix > 0 ? ix : 0));
    }
}

/* y (oh, ow) = the largest of each window of x (h, w); from (oh, ow): where in x it is. */
static void plane_max(const struct op_desc *d, const float *x, float *y, int32_t *from) {
    const struct window *w = &d->pool.window;
    int64_t width = d->y.dim[2];
    for (int64_t oy = 0; oy < d->y.dim[1]; oy++, y += width, from += width) {
        row_begin(d, oy, y, from);
        for (int ky = 0; ky < w->kernel[0]; ky++)
            for (int kx = 0; kx < w->kernel[1]; kx++) {
                struct row r;
                if (row_of(d, oy, ky, kx, &r)) row_max(&r, x + r.at, y + r.begin, from + r.begin);
            }
    }
}

/* y (oh, ow) = the mean of each window of x (h, w), whose padding counts as zeros. */
static void plane_mean(const struct op_desc *d, const float *x, float *y) {
    const struct window *w = &d->pool.window;
    int64_t width = d->y.dim[2];
    float share = 1 / ((float)w->kernel[0] * (float)w->kernel[1]);
    for (int64_t oy = 0; oy < d->y.dim[1]; oy++, y += width) {
        memset(y, 0, (size_t)width * sizeof *y);
        for (int ky = 0; ky < w->kernel[0]; ky++)
            for (int kx = 0; kx < w->kernel[1]; kx++) {
                struct row r;
                if (row_of(d, oy, ky, kx, &r)) row_sum(&r, x + r.at, y + r.begin);
            }
        for (int64_t k = 0; k < width; k++) y[k] *= share;
    }
}

/* Adds to dx (h, w) the share of each window in dy (oh, ow). */
static void plane_mean_backward(const struct op_desc *d, const float *dy, float *dx) {
    const struct window *w = &d->pool.window;
    float share = 1 / ((float)w->kernel[0] * (float)w->kernel[1]);
    for (int64_t oy = 0; oy < d->y.dim[1]; oy++, dy += d->y.dim[2])
        for (int ky = 0; ky < w->kernel[0]; ky++)
            for (int kx = 0; kx < w->kernel[1]; kx++) {
                struct row r;
                if (row_of(d, oy, ky, kx, &r)) row_spread(&r, share, dy + r.begin, dx + r.at);
            }
}

/* ---- the two that models use most ----------------------------------------------------------- */
static bool pool_is_max_2x2(const struct op_desc *d) {
    const struct window *w = &d->pool.window;
    return d->pool.kind == POOL_MAX && w->kernel[0] == 2 && w->kernel[1] == 2 && w->stride[0] == 2 &&
           w->stride[1] == 2 && !w->pad[0] && !w->pad[1];
}

/* plane_max for windows of 2x2 side by side. */
static void plane_max_2x2(const struct op_desc *d, const float *restrict x, float *restrict y, int32_t *restrict from) {
    int32_t wide = (int32_t)d->x.dim[2], width = (int32_t)d->y.dim[2];
    for (int32_t oy = 0; oy < d->y.dim[1]; oy++, x += 2 * wide, y += width, from += width)
        for (int32_t k = 0; k < width; k++) {
            float best = x[2 * k];
            int32_t place = 2 * k;
#define PLACE(p)                                                                                                       \
    do {                                                                                                               \
        bool more = x[p] > best || x[p] != x[p];                                                                       \
        best = more ? x[p] : best;                                                                                     \
        place = more ? (p) : place;                                                                                    \
    } while (0)
            PLACE(2 * k + 1);
            PLACE(2 * k + wide);
            PLACE(2 * k + wide + 1);
            y[k] = best;
            from[k] = 2 * oy * wide + place;
        }
}

static bool pool_is_mean_of_all(const struct op_desc *d) {
    const struct window *w = &d->pool.window;
    return d->pool.kind == POOL_AVG && w->kernel[0] == d->x.dim[1] && w->kernel[1] == d->x.dim[2] && !w->pad[0] &&
           !w->pad[1];
}

/* y (1) = the mean of x (area). */
static void mean_of_all(int64_t area, const float *x, float *y) {
    double sum = 0;
    for (int64_t k = 0; k < area; k++) sum += (double)x[k];
    *y = (float)(sum / (double)area);
}

/* ---- the op: 'from' (n, y) lies in saved, or in scratch when there is no backward ----------- */
static void pool_forward_planes(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t area_x = p->d->x.dim[1] * p->d->x.dim[2], area_y = p->d->y.dim[1] * p->d->y.dim[2];
    int32_t *from = p->a->training ? p->a->saved : p->a->scratch;
    bool small = pool_is_max_2x2(p->d), all = pool_is_mean_of_all(p->d);
    for (int64_t i = begin; i < end; i++) {
        const float *x = p->a->x[0] + i * area_x;
        float *y = p->a->y + i * area_y;
        if (small)
            plane_max_2x2(p->d, x, y, from + i * area_y);
        else if (all)
            mean_of_all(area_x, x, y);
        else if (p->d->pool.kind == POOL_MAX)
            plane_max(p->d, x, y, from + i * area_y);
        else
            plane_mean(p->d, x, y);
    }
}

static void pool_backward_planes(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t area_x = p->d->x.dim[1] * p->d->x.dim[2], area_y = p->d->y.dim[1] * p->d->y.dim[2];
    bool all = pool_is_mean_of_all(p->d);
    for (int64_t i = begin; i < end; i++) {
        const float *dy = p->a->dy + i * area_y;
        const int32_t *from = (const int32_t *)p->a->saved + i * area_y;
        float *dx = p->a->dx[0] + i * area_x, share = *dy / (float)area_x;
        for (int64_t k = 0; k < area_x; k++) dx[k] = all ? share : 0;
        if (p->d->pool.kind == POOL_MAX)
            for (int64_t k = 0; k < area_y; k++) dx[from[k]] += dy[k];
        else if (!all)
            plane_mean_backward(p->d, dy, dx);
    }
}

static enum error pool_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op->desc.n * op->desc.x.dim[0], 1, pool_forward_planes);
}

static enum error pool_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op->desc.n * op->desc.x.dim[0], 1, pool_backward_planes) : ERR_NONE;
}

static bool pool_takes(const struct op_desc *d) {
    return d->x.dim[1] * d->x.dim[2] <= INT32_MAX && op_takes_plain(d);
}

static enum error pool_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    if (d->pool.kind == POOL_MAX) op->saved_bytes = op->scratch_bytes = (size_t)op_ys(d) * sizeof(int32_t);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_pool) = {
    .name = "vector",
    .takes = pool_takes,
    .plan = pool_plan,
    .forward = pool_forward,
    .backward = pool_backward,
};
