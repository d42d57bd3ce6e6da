/* y = act((x - mean) / sqrt(var + eps) w0 + w1) per channel, a part of the channels for each
 * thread.
 *
 * A channel of a batch is n runs ("planes") of h * w floats. Its sums are taken in double in 16
 * lanes, which are added at the end: bits depend neither on threads nor on the instruction level.
 * Planes of one float (after a linear layer) are turned first into one plane of n floats for each
 * channel.
 *
 *   forward    mean, then var from x - mean; y = x * scale + shift, masked
 *   backward   with dz = dy where y > 0, h = (x - mean) r, r = 1 / sqrt(var + eps), m = n * h * w:
 *              dw1 = sum dz, dw0 = sum dz h, dx = w0 r (dz - dw1 / m - h dw0 / m) */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/gemm.h"

#include <math.h>

struct batchnorm {
    struct op op;
    int64_t channels;
    struct planes { /* of each channel, after turning */
        int64_t count, area, stride;
    } planes;
    bool turned;
};

struct pass { /* the tensors as planes */
    const struct batchnorm *b;
    const struct op_args *a;
    const float *x, *y, *dy;
    float *to, *dx; /* forward writes y to here */
};

/* ---- one channel: kernels ------------------------------------------------------------------- */
enum { LANES = 16 };

/* The sum of part (LANES), in order. */
static double lanes_sum(const double *part) {
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += part[lane];
    return sum;
}

/* Runs 'with(at, count)' for runs of LANES elements, and fewer at the end of a plane. */
#define FOR_LANES(p, with)                                                                                             \
    for (int64_t i_ = 0; i_ < (p)->count; i_++) {                                                                      \
        int64_t at_ = i_ * (p)->stride, end_ = at_ + (p)->area;                                                        \
        for (; at_ + LANES <= end_; at_ += LANES) with(at_, LANES);                                                    \
        with(at_, end_ - at_);                                                                                         \
    }

/* The sum of a channel's planes in x. */
static double planes_sum(const struct planes *p, const float *x) {
    double part[LANES] = {0};
#define SUM(at, count)                                                                                                 \
    for (int lane = 0; lane < (count); lane++) part[lane] += (double)x[(at) + lane]
    FOR_LANES(p, SUM)
    return lanes_sum(part);
}

/* The sum of (x - mean)^2 over a channel's planes. */
static double planes_squares(const struct planes *p, const float *x, float mean) {
    double part[LANES] = {0};
#define SQUARE(at, count)                                                                                              \
    for (int lane = 0; lane < (count); lane++) {                                                                       \
        double off = (double)x[(at) + lane] - (double)mean;                                                            \
        part[lane] += off * off;                                                                                       \
    }
    FOR_LANES(p, SQUARE)
    return lanes_sum(part);
}

/* y = scale (x - mean) + shift, or dx = scale (dz - shift - (x - mean) slope) */
struct line {
    float mean, scale, shift, slope;
};

/* y is at least 'least'. */
static void planes_apply(const struct planes *p, struct line l, float least, const float *restrict x,
                         float *restrict y) {
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = i * p->stride; k < i * p->stride + p->area; k++) {
            float v = (x[k] - l.mean) * l.scale + l.shift;
            y[k] = least > v ? least : v;
        }
}

/* dz of n elements in a row, the gradient before the activation: dy itself, or a copy of it (y is NULL when there is
 * none). A strip at a time, so that the loops of the sums have nothing to decide and vectorise. */
enum { STRIP = 256 };

static inline const float *strip_of(int64_t n, const float *y, const float *dy, float *copy) {
    if (!y) return dy;
    for (int64_t k = 0; k < n; k++) {
        float g = dy[k];
        copy[k] = y[k] > 0 ? g : 0;
    }
    return copy;
}

/* sums: of dz, and of dz (x - mean). */
static void planes_gradient_sums(const struct planes *p, const float *x, float mean, const float *y, const float *dy,
                                 double sums[2]) {
    double part0[LANES] = {0}, part1[LANES] = {0};
    float copy[STRIP];
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t j = 0; j < p->area; j += STRIP) {
            int64_t first = i * p->stride + j;
            struct planes strip = {.count = 1, .area = p->area - j < STRIP ? p->area - j : STRIP};
            const float *xs = x + first;
            const float *dz = strip_of(strip.area, y ? y + first : NULL, dy + first, copy);
#define PRODUCT(at, count)                                                                                             \
    for (int lane = 0; lane < (count); lane++) {                                                                       \
        double g = (double)dz[(at) + lane];                                                                            \
        part0[lane] += g;                                                                                              \
        part1[lane] += g * ((double)xs[(at) + lane] - (double)mean);                                                   \
    }
            FOR_LANES(&strip, PRODUCT)
        }
    sums[0] = lanes_sum(part0);
    sums[1] = lanes_sum(part1);
}

/* dx of a channel's planes, by the second formula of struct line; y NULL: there is no ReLU. */
static void planes_gradient(const struct planes *p, struct line l, const float *restrict x, const float *restrict y,
                            const float *restrict dy, float *restrict dx) {
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = i * p->stride; k < i * p->stride + p->area; k++) {
            float g = dy[k], dz = y && !(y[k] > 0) ? 0 : g;
            dx[k] = l.scale * (dz - l.shift - (x[k] - l.mean) * l.slope);
        }
}

/* ---- one channel ---------------------------------------------------------------------------- */
struct moments {
    double mean, var; /* of the batch, biased; or the running ones */
};

/* The moments of channel c: the running ones or the batch's, which it adds to these. */
static struct moments moments_of(const struct pass *p, int64_t c) {
    const struct batchnorm *b = p->b;
    const struct op_args *a = p->a;
    if (!a->training) return (struct moments){(double)a->buffer[0][c], (double)a->buffer[1][c]};
    const float *x = p->x + c * b->planes.area;
    double count = (double)(b->planes.count * b->planes.area);
    struct moments m;
    if (norm_applying(a)) {
        norm_take(a, c, &m.mean, &m.var, &count);
    } else {
        m.mean = planes_sum(&b->planes, x) / count;
        m.var = planes_squares(&b->planes, x, (float)m.mean) / count;
    }
    if (norm_measuring(a))
        norm_keep(a, c, m.mean, m.var * count);
    else if (a->update_buffers) {
        float momentum = b->op.desc.norm.momentum;
        a->buffer[0][c] = norm_follow(a->buffer[0][c], m.mean, momentum);
        a->buffer[1][c] = norm_follow(a->buffer[1][c], m.var * count / (count - 1), momentum);
    }
    return m;
}

static void batchnorm_forward_channels(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct batchnorm *b = p->b;
    float *saved = p->a->saved, least = b->op.desc.act == ACT_RELU ? 0 : -INFINITY;
    for (int64_t c = begin; c < end; c++) {
        int64_t at = c * b->planes.area;
        struct moments m = moments_of(p, c);
        if (norm_measuring(p->a)) continue;
        float r = (float)(1 / sqrt(m.var + (double)b->op.desc.norm.eps));
        if (p->a->training) saved[2 * c] = (float)m.mean, saved[2 * c + 1] = r;
        const struct line l = {.mean = (float)m.mean, .scale = p->a->w[0][c] * r, .shift = p->a->w[1][c]};
        planes_apply(&b->planes, l, least, p->x + at, p->to + at);
    }
}

static void batchnorm_backward_channels(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct batchnorm *b = p->b;
    const float *saved = p->a->saved;
    double count = (double)(b->planes.count * b->planes.area);
    for (int64_t c = begin; c < end; c++) {
        int64_t at = c * b->planes.area;
        float mean = saved[2 * c], r = saved[2 * c + 1];
        const float *y = b->op.desc.act == ACT_RELU ? p->y + at : NULL;
        double sums[2], all = count;
        if (norm_applying(p->a)) {
            norm_take(p->a, c, &sums[0], &sums[1], &all);
        } else {
            planes_gradient_sums(&b->planes, p->x + at, mean, y, p->dy + at, sums);
            p->a->dw[1][c] = (float)sums[0];
            p->a->dw[0][c] = (float)(sums[1] * (double)r);
        }
        if (norm_measuring(p->a)) norm_keep(p->a, c, sums[0], sums[1]);
        if (!p->dx || norm_measuring(p->a)) continue;
        struct line l = {.mean = mean,
                         .scale = p->a->w[0][c] * r,
                         .shift = (float)(sums[0] / all),
                         .slope = (float)(sums[1] * (double)r * (double)r / all)};
        planes_gradient(&b->planes, l, p->x + at, y, p->dy + at, p->dx + at);
    }
}

/* ---- the op: scratch holds turned x, y, dy and dx ------------------------------------------- */
static float *turned_copy(const struct batchnorm *b, const struct op_args *a, int which) {
    return (float *)a->scratch + which * align_floats(op_xs(&b->op.desc));
}

/* (n, channels) -> (channels, n) */
static const float *channels_first(const struct batchnorm *b, const struct op_args *a, int which, const float *from) {
    int64_t n = b->op.desc.n;
    transpose(n, b->channels, from, b->channels, turned_copy(b, a, which), n);
    return turned_copy(b, a, which);
}

static void turn_back(const struct batchnorm *b, const float *from, float *to) {
    int64_t n = b->op.desc.n;
    transpose(b->channels, n, from, n, to, b->channels);
}

static enum error batchnorm_forward(struct op *op, const struct op_args *a) {
    const struct batchnorm *b = (const struct batchnorm *)op;
    TRY(norm_check_count(a, b->planes.count * b->planes.area));
    struct pass p = {.b = b, .a = a, .x = a->x[0], .to = a->y};
    if (b->turned) p.x = channels_first(b, a, 0, a->x[0]), p.to = turned_copy(b, a, 1);
    cpu_parallel(op->dev, b->channels, 1, batchnorm_forward_channels, &p);
    if (b->turned) turn_back(b, p.to, a->y);
    return ERR_NONE;
}

static enum error batchnorm_backward(struct op *op, const struct op_args *a) {
    const struct batchnorm *b = (const struct batchnorm *)op;
    struct pass p = {.b = b, .a = a, .x = a->x[0], .y = a->y, .dy = a->dy, .dx = a->dx[0]};
    if (b->turned) {
        p.x = channels_first(b, a, 0, a->x[0]);
        p.y = channels_first(b, a, 1, a->y);
        p.dy = channels_first(b, a, 2, a->dy);
        if (p.dx) p.dx = turned_copy(b, a, 3);
    }
    cpu_parallel(op->dev, b->channels, 1, batchnorm_backward_channels, &p);
    if (b->turned && p.dx) turn_back(b, p.dx, a->dx[0]);
    return ERR_NONE;
}

static enum error batchnorm_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct batchnorm *b = (struct batchnorm *)op;
    int64_t each = shape_count(&d->x);
    b->channels = d->x.dim[0];
    b->turned = each == b->channels && d->n > 1;
    b->planes = (struct planes){.count = d->n, .area = each / b->channels, .stride = each};
    if (b->turned) b->planes = (struct planes){.count = 1, .area = d->n, .stride = 0};
    b->op.saved_bytes = (size_t)b->channels * 2 * sizeof(float);
    b->op.scratch_bytes = b->turned ? 4 * sizeof(float) * (size_t)align_floats(op_xs(d)) : 0;
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_batchnorm) = {
    .name = "vector",
    .size = sizeof(struct batchnorm),
    .plan = batchnorm_plan,
    .forward = batchnorm_forward,
    .backward = batchnorm_backward,
};
