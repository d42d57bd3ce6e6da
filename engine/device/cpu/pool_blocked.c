/* The largest or the mean of each window of blocked images, and the mean of whole ones: pool.c's
 * rules, with the 16 channels of a place as a vector, planes of 16 channels shared out to the
 * threads. A maximum keeps which place of its window it came from; in backward each place of the
 * window takes the gradients that came from it. */
#include "engine/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { B = LAYOUT_BLOCK, HALF = B / 2 };
typedef float floats __attribute__((vector_size(HALF * sizeof(float))));
typedef float loose __attribute__((vector_size(HALF * sizeof(float)), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(HALF * sizeof(double))));
typedef int32_t ints __attribute__((vector_size(HALF * sizeof(float))));
typedef int32_t loose_ints __attribute__((vector_size(HALF * sizeof(float)), aligned(4), may_alias));

/* Not functions: what returns a vector that is wider than the level's has another ABI. */
#define LOAD(p) (*(const loose *)(p))
#define STORE(p, v) (*(loose *)(p) = (v))

/* The window of an output: its places [y0, y1) x [x0, x1) inside the image, which are its rows from
 * 'row' and columns from 'col'. */
struct place {
    int y0, y1, x0, x1;
    int64_t row, col;
};

/* Which of a window's 'kernel' places lie in [0, length), the first place being at 'first'. */
static inline void window_cut(int64_t first, int kernel, int64_t length, int *begin, int *end) {
    *begin = first < 0 ? (int)-first : 0;
    *end = first + kernel > length ? (int)(length - first) : kernel;
}

static inline __attribute__((always_inline)) struct place place_of(const struct op_desc *d, int64_t oy, int64_t ox) {
    const struct window *w = &d->pool.window;
    struct place p = {.row = oy * w->stride[0] - w->pad[0], .col = ox * w->stride[1] - w->pad[1]};
    window_cut(p.row, w->kernel[0], d->x.dim[1], &p.y0, &p.y1);
    window_cut(p.col, w->kernel[1], d->x.dim[2], &p.x0, &p.x1);
    return p;
}

/* The offset of place (ky, kx) of a window in a plane of x. */
static inline int64_t place_at(const struct op_desc *d, const struct place *p, int ky, int kx) {
    return ((p->row + ky) * d->x.dim[2] + p->col + kx) * B;
}

#define EACH_OUTPUT(oy, ox)                                                                                            \
    for (int64_t oy = 0; oy < d->y.dim[1]; oy++)                                                                       \
        for (int64_t ox = 0; ox < d->y.dim[2]; ox++)
#define EACH_PLACE(p, ky, kx)                                                                                          \
    for (int ky = (p).y0; ky < (p).y1; ky++)                                                                           \
        for (int kx = (p).x0; kx < (p).x1; kx++)

/* ---- planes --------------------------------------------------------------------------------- */
/* PyTorch's rule: the first of equals, and a NaN takes the place of anything. */
static void block_window_max(const struct op_desc *d, const float *x, float *y, int32_t *from) {
    const ints none = {0};
    EACH_OUTPUT(oy, ox) {
        struct place p = place_of(d, oy, ox);
        floats best[2] = {{0}, {0}};
        ints source[2] = {{0}, {0}};
        for (int h = 0; h < 2; h++) {
            best[h] -= INFINITY;
            source[h] += (p.y0 * d->pool.window.kernel[1] + p.x0);
        }
        EACH_PLACE(p, ky, kx) {
            const float *at = x + place_at(d, &p, ky, kx);
            ints here = none + (ky * d->pool.window.kernel[1] + kx);
            for (int h = 0; h < 2; h++) {
                floats v = LOAD(at + h * HALF);
                ints more = (v > best[h]) | (v != v);
                best[h] = (floats)(((ints)v & more) | ((ints)best[h] & ~more));
                source[h] = (here & more) | (source[h] & ~more);
            }
        }
        for (int h = 0; h < 2; h++, y += HALF, from += HALF) {
            STORE(y, best[h]);
            *(loose_ints *)from = source[h];
        }
    }
}

/* Adds dy (oh, ow, B) to dx (h, w, B), lane by lane at the place of the window that 'from' (oh, ow, B) names. */
static void plane_max_backward(const struct op_desc *d, const float *dy, const int32_t *from, float *dx) {
    EACH_OUTPUT(oy, ox) {
        struct place p = place_of(d, oy, ox);
        EACH_PLACE(p, ky, kx) {
            float *to = dx + place_at(d, &p, ky, kx);
            int32_t here = ky * d->pool.window.kernel[1] + kx;
            for (int h = 0; h < B; h += HALF) {
                ints mine = *(const loose_ints *)(from + h) == here;
                STORE(to + h, LOAD(to + h) + (floats)((ints)LOAD(dy + h) & mine));
            }
        }
        dy += B, from += B;
    }
}

static float share_of(const struct op_desc *d) {
    return 1 / ((float)d->pool.window.kernel[0] * (float)d->pool.window.kernel[1]);
}

/* y (oh, ow, B) = the mean of each window of x (h, w, B), whose padding counts as zeros. */
static void block_window_mean(const struct op_desc *d, const float *x, float *y) {
    float share = share_of(d);
    EACH_OUTPUT(oy, ox) {
        struct place p = place_of(d, oy, ox);
        doubles sum[2] = {{0}, {0}};
        EACH_PLACE(p, ky, kx) {
            const float *at = x + place_at(d, &p, ky, kx);
            for (int h = 0; h < 2; h++) sum[h] += __builtin_convertvector(*(const loose *)(at + h * HALF), doubles);
        }
        for (int h = 0; h < 2; h++) *(loose *)(y + h * HALF) = __builtin_convertvector(sum[h] * (double)share, loose);
        y += B;
    }
}

/* Adds to dx (h, w, B) the share of each window in dy (oh, ow, B). */
static void block_window_mean_backward(const struct op_desc *d, const float *dy, float *dx) {
    float share = share_of(d);
    EACH_OUTPUT(oy, ox) {
        struct place p = place_of(d, oy, ox);
        EACH_PLACE(p, ky, kx) {
            float *to = dx + place_at(d, &p, ky, kx);
            for (int h = 0; h < B; h += HALF) STORE(to + h, LOAD(to + h) + LOAD(dy + h) * share);
        }
        dy += B;
    }
}

/* Floats of a plane of 16 channels. */
static int64_t plane_floats(const struct shape *s) {
    return s->dim[1] * s->dim[2] * B;
}

/* ---- pool: 'from' (n, y) lies in saved, or in scratch when there is no backward ------------- */
static void blocked_pool_forward_planes(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t area_x = plane_floats(&p->d->x), area_y = plane_floats(&p->d->y);
    int32_t *from = p->a->training ? p->a->saved : p->a->scratch;
    for (int64_t i = begin; i < end; i++) {
        const float *x = p->a->x[0] + i * area_x;
        float *y = p->a->y + i * area_y;
        if (p->d->pool.kind == POOL_MAX)
            block_window_max(p->d, x, y, from + i * area_y);
        else
            block_window_mean(p->d, x, y);
    }
}

static void blocked_pool_backward_planes(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t area_x = plane_floats(&p->d->x), area_y = plane_floats(&p->d->y);
    const int32_t *from = p->a->saved;
    for (int64_t i = begin; i < end; i++) {
        const float *dy = p->a->dy + i * area_y;
        float *dx = p->a->dx[0] + i * area_x;
        memset(dx, 0, (size_t)area_x * sizeof *dx);
        if (p->d->pool.kind == POOL_MAX)
            plane_max_backward(p->d, dy, from + i * area_y, dx);
        else
            block_window_mean_backward(p->d, dy, dx);
    }
}

static enum error planes_run(struct op *op, const struct op_args *a, cpu_part_fn *planes) {
    return cpu_run(op, a, op->desc.n * (op->desc.x.dim[0] / B), 1, planes);
}

static enum error blocked_pool_forward(struct op *op, const struct op_args *a) {
    return planes_run(op, a, blocked_pool_forward_planes);
}

static enum error blocked_pool_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? planes_run(op, a, blocked_pool_backward_planes) : ERR_NONE;
}

static bool blocked_pool_takes(const struct op_desc *d) {
    return d->x_layout == LAYOUT_BLOCKED && d->y_layout == LAYOUT_BLOCKED && d->act == ACT_NONE;
}

static enum error blocked_pool_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    if (d->pool.kind == POOL_MAX) op->saved_bytes = op->scratch_bytes = (size_t)op_ys(d) * sizeof(int32_t);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_pool_blocked) = {
    .name = "blocked",
    .takes = blocked_pool_takes,
    .plan = blocked_pool_plan,
    .forward = blocked_pool_forward,
    .backward = blocked_pool_backward,
};

/* ---- mean of whole images: y is (channels) -------------------------------------------------- */
/* y (B) = the mean over the places of x (places, B). */
static void plane_mean(int64_t floats_of_plane, const float *x, float *y) {
    doubles sum[2] = {{0}, {0}};
    double places = (double)(floats_of_plane / B);
    for (int64_t k = 0; k < floats_of_plane; k += B)
        for (int h = 0; h < 2; h++) sum[h] += __builtin_convertvector(*(const loose *)(x + k + h * HALF), doubles);
    for (int h = 0; h < 2; h++) *(loose *)(y + h * HALF) = __builtin_convertvector(sum[h] / places, loose);
}

/* dx (places, B) = dy (B) / places. */
static void plane_mean_backward(int64_t floats_of_plane, const float *dy, float *dx) {
    floats part[2];
    for (int h = 0; h < 2; h++) part[h] = LOAD(dy + h * HALF) / (float)(floats_of_plane / B);
    for (int64_t k = 0; k < floats_of_plane; k += B)
        for (int h = 0; h < 2; h++) STORE(dx + k + h * HALF, part[h]);
}

static void image_mean_planes(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t area_x = plane_floats(&p->d->x);
    for (int64_t i = begin; i < end; i++) plane_mean(area_x, p->a->x[0] + i * area_x, p->a->y + i * B);
}

static void image_mean_backward_planes(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t area_x = plane_floats(&p->d->x);
    for (int64_t i = begin; i < end; i++) plane_mean_backward(area_x, p->a->dy + i * B, p->a->dx[0] + i * area_x);
}

static enum error image_mean_forward(struct op *op, const struct op_args *a) {
    return planes_run(op, a, image_mean_planes);
}

static enum error image_mean_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? planes_run(op, a, image_mean_backward_planes) : ERR_NONE;
}

static bool image_mean_takes(const struct op_desc *d) {
    return d->x_layout == LAYOUT_BLOCKED && d->y_layout == LAYOUT_PLAIN && d->act == ACT_NONE;
}

const struct op_impl CPU_NAME(cpu_mean_blocked) = {
    .name = "blocked",
    .takes = image_mean_takes,
    .forward = image_mean_forward,
    .backward = image_mean_backward,
};
