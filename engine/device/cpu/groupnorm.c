/* groupnorm of images, plain or blocked, a part of the samples for each thread; ref/groupnorm.c has the formulas.
 *
 * A sample is pieces of memory: a channel, or a block of channels side by side. The sums of a piece have LANES partial
 * sums in double, in order of memory: of a block each is a channel's, else they are added. Sums of channels make those
 * of groups, and their sums over samples dw, in order. So bits depend neither on threads nor on the instruction level. */
#include "engine/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { LANES = LAYOUT_BLOCK };

struct pass {
    const struct op_desc *d;
    const struct op_args *a;
    int64_t channels, per_group, area;
    bool blocked;
    double *sums; /* (n, channels, 2): of a and a b; after backward of dy and dy h */
    float *saved; /* (n, groups, 2): mean, r */
};
/* What is done to a piece, by lane. */
struct line {
    float mean[LANES];
    float scale[LANES], shift[LANES]; /* y = (x - mean) scale + shift, dx = dy scale - (x - mean) slope + shift */
    float slope[LANES];
};

/* ---- a piece of n floats ---------------------------------------------------------------------- */
static void piece_sums(int64_t n, const float *restrict a, const float *restrict b, double out[2][LANES]) {
    double first[LANES] = {0}, second[LANES] = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            first[lane] += (double)a[k + lane];
            second[lane] += (double)a[k + lane] * (double)b[k + lane];
        }
    for (int lane = 0; k + lane < n; lane++) {
        first[lane] += (double)a[k + lane];
        second[lane] += (double)a[k + lane] * (double)b[k + lane];
    }
    memcpy(out[0], first, sizeof first);
    memcpy(out[1], second, sizeof second);
}

static void piece_apply(int64_t n, const struct line *l, const float *restrict x, float *restrict y) {
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int lane = 0; lane < LANES; lane++)
            y[k + lane] = (x[k + lane] - l->mean[lane]) * l->scale[lane] + l->shift[lane];
    for (int lane = 0; k + lane < n; lane++)
        y[k + lane] = (x[k + lane] - l->mean[lane]) * l->scale[lane] + l->shift[lane];
}

static void piece_gradient(int64_t n, const struct line *l, const float *restrict x, const float *restrict dy,
                           float *restrict dx) {
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int lane = 0; lane < LANES; lane++)
            dx[k + lane] =
                dy[k + lane] * l->scale[lane] - (x[k + lane] - l->mean[lane]) * l->slope[lane] + l->shift[lane];
    for (int lane = 0; k + lane < n; lane++)
        dx[k + lane] = dy[k + lane] * l->scale[lane] - (x[k + lane] - l->mean[lane]) * l->slope[lane] + l->shift[lane];
}

/* ---- a sample --------------------------------------------------------------------------------- */
/* sums (channels, 2) = the sums over places of a and of a b. */
static void sample_sums(const struct pass *p, const float *a, const float *b, double *sums) {
    int64_t step = p->blocked ? LANES : 1;
    for (int64_t c = 0; c < p->channels; c += step) {
        double part[2][LANES];
        piece_sums(step * p->area, a + c * p->area, b + c * p->area, part);
        for (int which = 0; which < 2; which++) {
            for (int64_t lane = 0; lane < step && p->blocked; lane++) sums[2 * (c + lane) + which] = part[which][lane];
            for (int half = LANES / 2; half > 0 && !p->blocked; half /= 2)
                for (int lane = 0; lane < half; lane++) part[which][lane] += part[which][lane + half];
            if (!p->blocked) sums[2 * c + which] = part[which][0];
        }
    }
}

static void sample_forward(const struct pass *p, const float *x, double *sums, float *saved) {
    double count = (double)(p->per_group * p->area);
    sample_sums(p, x, x, sums);
    for (int64_t g = 0; g < p->d->own.whole; g++) {
        double first = 0, second = 0;
        for (int64_t c = g * p->per_group; c < (g + 1) * p->per_group; c++)
            first += sums[2 * c], second += sums[2 * c + 1];
        double mean = first / count, var = second / count - mean * mean;
        saved[2 * g] = (float)mean;
        saved[2 * g + 1] = (float)(1 / sqrt((var < 0 ? 0 : var) + (double)p->d->norm.eps));
    }
}

/* Turns sums of dy and dy x into those of dy and dy h, and gives of each group the means of g and of g h. */
static void sample_backward(const struct pass *p, const float *saved, double *sums, double *means) {
    double count = (double)(p->per_group * p->area);
    for (int64_t g = 0; g < p->d->own.whole; g++) {
        double sum = 0, slope = 0;
        for (int64_t c = g * p->per_group; c < (g + 1) * p->per_group; c++) {
            double w = p->d->norm.bias ? (double)p->a->w[0][c] : 1;
            sums[2 * c + 1] = (sums[2 * c + 1] - sums[2 * c] * (double)saved[2 * g]) * (double)saved[2 * g + 1];
            sum += sums[2 * c] * w;
            slope += sums[2 * c + 1] * w;
        }
        means[2 * g] = sum / count;
        means[2 * g + 1] = slope / count;
    }
}

/* The line of channel c and of those after it in its piece. means: of the sample's groups; NULL: forward. */
static struct line line_of(const struct pass *p, int64_t c, const float *saved, const double *means) {
    struct line l;
    for (int lane = 0; lane < LANES; lane++) {
        int64_t channel = c + (p->blocked ? lane : 0), g = channel / p->per_group;
        float w = p->d->norm.bias ? p->a->w[0][channel] : 1, b = p->d->norm.bias ? p->a->w[1][channel] : 0;
        float r = saved[2 * g + 1];
        l.mean[lane] = saved[2 * g];
        l.scale[lane] = r * w;
        l.shift[lane] = means ? -r * (float)means[2 * g] : b;
        l.slope[lane] = means ? r * r * (float)means[2 * g + 1] : 0;
    }
    return l;
}

/* ---- the op ----------------------------------------------------------------------------------- */
static struct pass pass_of(const struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t channels = d->x.dim[0], area = d->x.dim[1] * d->x.dim[2];
    return (struct pass){d,          a,       channels, channels / d->own.whole, area, d->x_layout == LAYOUT_BLOCKED,
                         a->scratch, a->saved};
}

static void groupnorm_forward_samples(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    int64_t step = p->blocked ? LANES : 1, groups = p->d->own.whole;
    for (int64_t i = begin; i < end; i++) {
        const float *x = p->a->x[0] + i * p->channels * p->area;
        float *y = p->a->y + i * p->channels * p->area, *saved = p->saved + 2 * i * groups;
        sample_forward(p, x, p->sums + 2 * i * p->channels, saved);
        for (int64_t c = 0; c < p->channels; c += step) {
            struct line l = line_of(p, c, saved, NULL);
            piece_apply(step * p->area, &l, x + c * p->area, y + c * p->area);
        }
    }
}

static void groupnorm_backward_samples(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    int64_t step = p->blocked ? LANES : 1, groups = p->d->own.whole;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * p->channels * p->area;
        const float *x = p->a->x[0] + at, *dy = p->a->dy + at, *saved = p->saved + 2 * i * groups;
        double *sums = p->sums + 2 * i * p->channels, *means = p->sums + 2 * (p->d->n * p->channels + i * groups);
        sample_sums(p, dy, x, sums);
        sample_backward(p, saved, sums, means);
        for (int64_t c = 0; c < p->channels && p->a->dx[0]; c += step) {
            struct line l = line_of(p, c, saved, means);
            piece_gradient(step * p->area, &l, x + c * p->area, dy + c * p->area, p->a->dx[0] + at + c * p->area);
        }
    }
}

/* What is saved is in scratch where nothing reads it later. */
static enum error groupnorm_forward(struct op *op, const struct op_args *a) {
    struct pass p = pass_of(op, a);
    if (!a->training) p.saved = (float *)(p.sums + 2 * p.d->n * p.channels);
    cpu_parallel(op->dev, p.d->n, 1, groupnorm_forward_samples, &p);
    return ERR_NONE;
}

static enum error groupnorm_backward(struct op *op, const struct op_args *a) {
    struct pass p = pass_of(op, a);
    cpu_parallel(op->dev, p.d->n, 1, groupnorm_backward_samples, &p);
    for (int64_t c = 0; c < p.channels && p.d->norm.bias; c++) {
        double dw = 0, db = 0;
        for (int64_t i = 0; i < p.d->n; i++) {
            db += p.sums[2 * (i * p.channels + c)];
            dw += p.sums[2 * (i * p.channels + c) + 1];
        }
        a->dw[0][c] = (float)dw, a->dw[1][c] = (float)db;
    }
    return ERR_NONE;
}

static bool groupnorm_takes(const struct op_desc *d) {
    return d->x.ndim == 3 && d->x_layout == d->y_layout && d->x_layout != LAYOUT_LAST && d->act == ACT_NONE;
}

static enum error groupnorm_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->saved_bytes = (size_t)(2 * d->n * d->own.whole) * sizeof(float);
    op->scratch_bytes = (size_t)(2 * d->n * (d->x.dim[0] + d->own.whole)) * sizeof(double);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_groupnorm) = {
    .name = "vector",
    .takes = groupnorm_takes,
    .plan = groupnorm_plan,
    .forward = groupnorm_forward,
    .backward = groupnorm_backward,
};
