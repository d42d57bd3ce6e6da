/* Batchnorm of blocked images (batchnorm.c has the formulas), a part of the blocks of channels for
 * each thread. A vector is the 16 channels of a place, so every channel's sum goes over samples and
 * places in order: bits depend neither on threads nor on the instruction level.
 *
 * All passes wait for memory. Both moments come from one, in double, where the square of the mean
 * can be taken from the mean of squares; the second pass of a block runs backwards, over what is
 * still in the cache; and where y > 0 is found from x, as forward found it, without reading y. */
#include "engine/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { B = LAYOUT_BLOCK, HALF = B / 2 };
typedef float floats __attribute__((vector_size(HALF * sizeof(float))));
typedef float loose __attribute__((vector_size(HALF * sizeof(float)), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(HALF * sizeof(float))));
typedef double doubles __attribute__((vector_size(HALF * sizeof(double))));
#define INLINE static inline __attribute__((always_inline))

static int64_t area_of(const struct op_desc *d) {
    return d->x.dim[1] * d->x.dim[2];
}

/* What is done to x, for each of a block's channels. */
struct line {
    float mean[B], scale[B], shift[B]; /* y = (x - mean) scale + shift */
    float less[B], slope[B];           /* dx = scale (dz - less - (x - mean) slope) */
};
struct sums {
    double first[B], second[B];
};

/* Not functions: what returns a vector that is wider than the level's has another ABI. */
#define LOAD(p) (*(const loose *)(p))
#define STORE(p, v) (*(loose *)(p) = (v))

/* ---- a plane of 'area' places --------------------------------------------------------------- */
/* Adds x and its squares. */
static void plane_moments(int64_t area, const float *x, struct sums *sums) {
    doubles sum[2], squares[2];
    memcpy(sum, sums->first, sizeof sum);
    memcpy(squares, sums->second, sizeof squares);
    for (int64_t k = 0; k < area; k++)
        for (int h = 0; h < 2; h++) {
            doubles v = __builtin_convertvector(LOAD(x + k * B + h * HALF), doubles);
            sum[h] += v;
            squares[h] += v * v;
        }
    memcpy(sums->first, sum, sizeof sum);
    memcpy(sums->second, squares, sizeof squares);
}

/* Lines of a block in registers: [0] for its first channels, [1] for the others. */
struct near {
    floats mean[2], scale[2], shift[2], less[2], slope[2];
};

/* Loads a line into registers. */
INLINE void near_set(struct near *near, const struct line *l) {
    for (int h = 0; h < 2; h++) {
        near->mean[h] = LOAD(l->mean + h * HALF);
        near->scale[h] = LOAD(l->scale + h * HALF);
        near->shift[h] = LOAD(l->shift + h * HALF);
        near->less[h] = LOAD(l->less + h * HALF);
        near->slope[h] = LOAD(l->slope + h * HALF);
    }
}

/* y (area, B) = (x - mean) scale + shift of each lane, at least 0 with ReLU. */
static void plane_apply(int64_t area, const float *restrict x, const struct line *l, bool relu, float *restrict y) {
    const floats zero = {0};
    const ints none = {0}, always = relu ? none : ~none;
    struct near r;
    near_set(&r, l);
    for (int64_t k = 0; k < area * B; k += B)
        for (int h = 0; h < 2; h++) {
            floats v = (LOAD(x + k + h * HALF) - r.mean[h]) * r.scale[h] + r.shift[h];
            ints keep = ~(zero > v) | always; /* NaN stays */
            STORE(y + k + h * HALF, (floats)((ints)v & keep));
        }
}

/* dz: dy where forward's y is above zero. */
#define MASKED(off, h, dy) (floats)((ints)(dy) & (((off)*r.scale[h] + r.shift[h] > zero) | always))

INLINE void add_gradients(int64_t area, const float *x, const float *dy, const struct line *l, bool relu,
                          struct sums *sums) {
    const floats zero = {0};
    const ints none = {0}, always = relu ? none : ~none;
    struct near r;
    near_set(&r, l);
    doubles first[2], second[2];
    memcpy(first, sums->first, sizeof first);
    memcpy(second, sums->second, sizeof second);
    for (int64_t k = 0; k < area * B; k += B)
        for (int h = 0; h < 2; h++) {
            floats off = LOAD(x + k + h * HALF) - r.mean[h];
            floats dz = MASKED(off, h, LOAD(dy + k + h * HALF));
            doubles g = __builtin_convertvector(dz, doubles);
            first[h] += g;
            second[h] += g * __builtin_convertvector(off, doubles);
        }
    memcpy(sums->first, first, sizeof first);
    memcpy(sums->second, second, sizeof second);
}

/* Adds dz and dz (x - mean). */
static void plane_gradient_sums(int64_t area, const float *x, const float *dy, const struct line *l, bool relu,
                                struct sums *sums) {
    if (relu)
        add_gradients(area, x, dy, l, true, sums);
    else
        add_gradients(area, x, dy, l, false, sums);
}

/* dx (area, B) of x and dy, by the line; see plane_gradient_sums for dz. */
INLINE void give_gradient(int64_t area, const float *restrict x, const float *restrict dy, const struct line *l,
                          bool relu, float *restrict dx) {
    const floats zero = {0};
    const ints none = {0}, always = relu ? none : ~none;
    struct near r;
    near_set(&r, l);
    for (int64_t k = 0; k < area * B; k += B)
        for (int h = 0; h < 2; h++) {
            floats off = LOAD(x + k + h * HALF) - r.mean[h];
            floats dz = MASKED(off, h, LOAD(dy + k + h * HALF));
            STORE(dx + k + h * HALF, r.scale[h] * (dz - r.less[h] - off * r.slope[h]));
        }
}

/* dx of a plane from x and dy; l: the numbers of its channels; relu: dy counts only where the output, computed again, is above 0. */
static void plane_gradient(int64_t area, const float *x, const float *dy, const struct line *l, bool relu, float *dx) {
    if (relu)
        give_gradient(area, x, dy, l, true, dx);
    else
        give_gradient(area, x, dy, l, false, dx);
}

/* ---- a block of channels -------------------------------------------------------------------- */
static int64_t plane_at(const struct cpu_pass *p, int64_t i, int64_t block) {
    return (i * (p->d->x.dim[0] / B) + block) * area_of(p->d) * B;
}

/* The line of channel c, the block's 'lane'; saves what backward needs of it. */
static void line_set(const struct cpu_pass *p, int64_t c, int lane, double mean, double var, struct line *l) {
    const struct op_args *a = p->a;
    float r = (float)(1 / sqrt(var + (double)p->d->norm.eps));
    float *saved = a->saved;
    if (a->training) saved[2 * c] = (float)mean, saved[2 * c + 1] = r;
    l->mean[lane] = (float)mean;
    l->scale[lane] = a->w[0][c] * r;
    l->shift[lane] = a->w[1][c];
}

static void line_of_batch(const struct cpu_pass *p, int64_t block, struct line *l) {
    const struct op_args *a = p->a;
    float momentum = p->d->norm.momentum;
    double count = (double)(p->d->n * area_of(p->d));
    struct sums sums = {0};
    for (int64_t i = 0; i < p->d->n && !norm_applying(a); i++)
        plane_moments(area_of(p->d), a->x[0] + plane_at(p, i, block), &sums);
    for (int lane = 0; lane < B; lane++) {
        int64_t c = block * B + lane;
        double mean = sums.first[lane] / count;
        double var = sums.second[lane] / count - mean * mean;
        var = var < 0 ? 0 : var; /* rounding alone can make it so */
        if (norm_applying(a)) norm_take(a, c, &mean, &var, &count);
        if (norm_measuring(a)) {
            norm_keep(a, c, mean, var * count);
            continue;
        }
        if (a->update_buffers) {
            a->buffer[0][c] = norm_follow(a->buffer[0][c], mean, momentum);
            a->buffer[1][c] = norm_follow(a->buffer[1][c], var * count / (count - 1), momentum);
        }
        line_set(p, c, lane, mean, var, l);
    }
}

static void line_of_run(const struct cpu_pass *p, int64_t block, struct line *l) {
    for (int lane = 0; lane < B; lane++) {
        int64_t c = block * B + lane;
        line_set(p, c, lane, (double)p->a->buffer[0][c], (double)p->a->buffer[1][c], l);
    }
}

static void forward_blocks(const struct cpu_pass *p, int64_t begin, int64_t end) {
    bool relu = p->d->act == ACT_RELU;
    for (int64_t block = begin; block < end; block++) {
        struct line l = {0};
        if (p->a->training)
            line_of_batch(p, block, &l);
        else
            line_of_run(p, block, &l);
        for (int64_t i = norm_measuring(p->a) ? 0 : p->d->n; i-- > 0;) {
            int64_t at = plane_at(p, i, block);
            plane_apply(area_of(p->d), p->a->x[0] + at, &l, relu, p->a->y + at);
        }
    }
}

/* Forward's line from what it saved; then, from the sums, the gradients of its parameters. */
static void line_of_saved(const struct cpu_pass *p, int64_t block, struct line *l) {
    const float *saved = p->a->saved;
    for (int lane = 0; lane < B; lane++) {
        int64_t c = block * B + lane;
        l->mean[lane] = saved[2 * c];
        l->scale[lane] = p->a->w[0][c] * saved[2 * c + 1];
        l->shift[lane] = p->a->w[1][c];
    }
}

static void line_finish(const struct cpu_pass *p, int64_t block, const struct sums *sums, struct line *l) {
    const float *saved = p->a->saved;
    double count = (double)(p->d->n * area_of(p->d));
    for (int lane = 0; lane < B; lane++) {
        int64_t c = block * B + lane;
        double r = (double)saved[2 * c + 1], first = sums->first[lane], second = sums->second[lane];
        if (norm_applying(p->a)) {
            norm_take(p->a, c, &first, &second, &count);
        } else {
            p->a->dw[1][c] = (float)first;
            p->a->dw[0][c] = (float)(second * r);
        }
        if (norm_measuring(p->a)) norm_keep(p->a, c, first, second);
        l->less[lane] = (float)(first / count);
        l->slope[lane] = (float)(second * r * r / count);
    }
}

static void backward_blocks(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_args *a = p->a;
    bool relu = p->d->act == ACT_RELU;
    for (int64_t block = begin; block < end; block++) {
        struct line l = {0};
        struct sums sums = {0};
        line_of_saved(p, block, &l);
        for (int64_t i = 0; i < p->d->n && !norm_applying(a); i++) {
            int64_t at = plane_at(p, i, block);
            plane_gradient_sums(area_of(p->d), a->x[0] + at, a->dy + at, &l, relu, &sums);
        }
        line_finish(p, block, &sums, &l);
        for (int64_t i = a->dx[0] && !norm_measuring(a) ? p->d->n : 0; i-- > 0;) {
            int64_t at = plane_at(p, i, block);
            plane_gradient(area_of(p->d), a->x[0] + at, a->dy + at, &l, relu, a->dx[0] + at);
        }
    }
}

/* ---- the op --------------------------------------------------------------------------------- */
static enum error blocked_norm_forward(struct op *op, const struct op_args *a) {
    TRY(norm_check_count(a, op->desc.n * area_of(&op->desc)));
    return cpu_run(op, a, op->desc.x.dim[0] / B, 1, forward_blocks);
}

static enum error blocked_norm_backward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op->desc.x.dim[0] / B, 1, backward_blocks);
}

static bool blocked_norm_takes(const struct op_desc *d) {
    return d->x_layout == LAYOUT_BLOCKED && d->y_layout == LAYOUT_BLOCKED && act_is_fused(d->act);
}

static enum error blocked_norm_plan(struct op *op) {
    op->saved_bytes = (size_t)op->desc.x.dim[0] * 2 * sizeof(float);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_batchnorm_blocked) = {
    .name = "blocked",
    .takes = blocked_norm_takes,
    .plan = blocked_norm_plan,
    .forward = blocked_norm_forward,
    .backward = blocked_norm_backward,
};
