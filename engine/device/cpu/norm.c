/* layernorm and rmsnorm of each row, a part of the rows for each thread; ref/norm.c has the
 * formulas. rmsnorm is layernorm with 0 for the mean.
 *
 * A row's sums have LANES partial sums, which are added at the end. dw0 and dw1 are sums over all
 * rows: those of a block of BLOCK rows are summed in order in scratch, and the blocks' sums are
 * added in order at the end. Blocks do not depend on threads, so no bit does. */
#include "engine/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { LANES = 32, BLOCK = 32 };

struct row {
    int64_t n;
    float mean, r; /* r = 1 / sqrt(var + eps) */
};

/* ---- kernels -------------------------------------------------------------------------------- */
/* The sum of part (LANES), added in pairs; part is used up. */
static inline __attribute__((always_inline)) float lanes_sum(float *part) {
    for (int lane = 0; lane < 16; lane++) part[lane] += part[lane + 16];
    for (int lane = 0; lane < 8; lane++) part[lane] += part[lane + 8];
    for (int lane = 0; lane < 4; lane++) part[lane] += part[lane + 4];
    return (part[0] + part[1]) + (part[2] + part[3]);
}

/* The mean of x (n). */
static float row_mean(int64_t n, const float *x) {
    float part[LANES] = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int lane = 0; lane < LANES; lane++) part[lane] += x[k + lane];
    for (int lane = 0; k + lane < n; lane++) part[lane] += x[k + lane];
    return lanes_sum(part) / (float)n;
}

/* The mean of (x - mean)^2 over x (n). */
static float row_variance(int64_t n, const float *x, float mean) {
    float part[LANES] = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            float off = x[k + lane] - mean;
            part[lane] += off * off;
        }
    for (int lane = 0; k + lane < n; lane++) {
        float off = x[k + lane] - mean;
        part[lane] += off * off;
    }
    return lanes_sum(part) / (float)n;
}

/* y (n) = (x - mean) r w + b; b NULL: none. */
static void row_apply(struct row row, const float *restrict x, const float *restrict w, const float *restrict b,
                      float *restrict y) {
    for (int64_t k = 0; k < row.n && b; k++) y[k] = (x[k] - row.mean) * row.r * w[k] + b[k];
    for (int64_t k = 0; k < row.n && !b; k++) y[k] = (x[k] - row.mean) * row.r * w[k];
}

/* means: of g = dy w, and of g h, h = (x - mean) r. */
static void gradient_means(struct row row, const float *x, const float *w, const float *dy, float means[2]) {
    float part0[LANES] = {0}, part1[LANES] = {0};
    int64_t k = 0;
    for (; k + LANES <= row.n; k += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            float g = dy[k + lane] * w[k + lane];
            part0[lane] += g;
            part1[lane] += g * (x[k + lane] - row.mean);
        }
    for (int lane = 0; k + lane < row.n; lane++) {
        float g = dy[k + lane] * w[k + lane];
        part0[lane] += g;
        part1[lane] += g * (x[k + lane] - row.mean);
    }
    means[0] = lanes_sum(part0) / (float)row.n;
    means[1] = lanes_sum(part1) / (float)row.n * row.r;
}

static void row_gradient(struct row row, const float means[2], const float *restrict x, const float *restrict w,
                         const float *restrict dy, float *restrict dx) {
    float mean = means[0], slope = means[1];
    for (int64_t k = 0; k < row.n; k++) {
        float h = (x[k] - row.mean) * row.r;
        dx[k] = row.r * (dy[k] * w[k] - mean - h * slope);
    }
}

/* dw += dy h, db += dy */
static void row_add(struct row row, const float *restrict x, const float *restrict dy, float *restrict dw,
                    float *restrict db) {
    for (int64_t k = 0; k < row.n; k++) {
        dw[k] += dy[k] * ((x[k] - row.mean) * row.r);
        db[k] += dy[k];
    }
}

/* to (n) = the sum over blocks of from (blocks, ld), in order. */
static void blocks_sum(int64_t n, int64_t blocks, int64_t ld, const float *restrict from, float *restrict to) {
    for (int64_t k = 0; k < n; k++) to[k] = from[k];
    for (int64_t i = 1; i < blocks; i++)
        for (int64_t k = 0; k < n; k++) to[k] += from[i * ld + k];
}

/* ---- the op: saved is (rows) of (mean, r); scratch (blocks) of (dw, db) ---------------------- */
static struct row row_of(const struct op_desc *d, const float *x) {
    struct row row = {.n = shape_last(&d->x)};
    if (d->kind == OP_LAYERNORM) row.mean = row_mean(row.n, x);
    row.r = 1 / sqrtf(row_variance(row.n, x, row.mean) + d->norm.eps);
    return row;
}

static void forward_rows(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_desc *d = p->d;
    const float *bias = d->norm.bias ? p->a->w[1] : NULL;
    float *saved = p->a->saved;
    for (int64_t i = begin; i < end; i++) {
        const float *x = p->a->x[0] + i * shape_last(&d->x);
        struct row row = row_of(d, x);
        if (p->a->training) saved[2 * i] = row.mean, saved[2 * i + 1] = row.r;
        row_apply(row, x, p->a->w[0], bias, p->a->y + i * row.n);
    }
}

static void backward_row(const struct cpu_pass *p, int64_t i, float *dw) {
    const struct op_args *a = p->a;
    const float *saved = a->saved;
    struct row row = {shape_last(&p->d->x), saved[2 * i], saved[2 * i + 1]};
    const float *x = a->x[0] + i * row.n, *dy = a->dy + i * row.n;
    float means[2];
    row_add(row, x, dy, dw, dw + align_floats(row.n));
    if (!a->dx[0]) return;
    gradient_means(row, x, a->w[0], dy, means);
    if (p->d->kind == OP_RMSNORM) means[0] = 0;
    row_gradient(row, means, x, a->w[0], dy, a->dx[0] + i * row.n);
}

static void norm_backward_blocks(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t rows = op_rows(p->d), wide = align_floats(shape_last(&p->d->x));
    for (int64_t b = begin; b < end; b++) {
        float *dw = (float *)p->a->scratch + b * 2 * wide;
        memset(dw, 0, (size_t)(2 * wide) * sizeof *dw);
        for (int64_t i = b * BLOCK; i < (b + 1) * BLOCK && i < rows; i++) backward_row(p, i, dw);
    }
}

/* Blocks of BLOCK rows in the batch, the last of which may be shorter. */
static int64_t blocks_of(const struct op_desc *d) {
    return (op_rows(d) + BLOCK - 1) / BLOCK;
}

static void sum_features(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_desc *d = p->d;
    int64_t wide = align_floats(shape_last(&d->x));
    for (int i = 0; i < 1 + d->norm.bias; i++)
        blocks_sum(end - begin, blocks_of(d), 2 * wide, (const float *)p->a->scratch + i * wide + begin,
                   p->a->dw[i] + begin);
}

static enum error norm_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op_rows(&op->desc), BLOCK, forward_rows);
}

static enum error norm_backward(struct op *op, const struct op_args *a) {
    cpu_run(op, a, blocks_of(&op->desc), 1, norm_backward_blocks);
    return cpu_run(op, a, shape_last(&op->desc.x), 8 * LANES, sum_features);
}

static enum error norm_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    int64_t wide = align_floats(shape_last(&d->x));
    op->saved_bytes = (size_t)op_rows(d) * 2 * sizeof(float);
    op->scratch_bytes = (size_t)(blocks_of(d) * 2 * wide) * sizeof(float);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_layernorm) = {
    .name = "vector",
    .plan = norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
};
const struct op_impl CPU_NAME(cpu_rmsnorm) = {
    .name = "vector",
    .plan = norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
};
