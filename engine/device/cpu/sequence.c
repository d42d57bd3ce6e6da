/* What makes sequences, and what reduces them: embedding, position, prepend, select, tokens, mean.
 * Threads have parts of the rows, of the samples or of the features; sums over samples are taken in
 * their order, by whoever has the feature. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/gemm.h"

#include <string.h>

enum { GRAIN = 16384 }; /* floats that are worth a thread */

static int64_t features_of(const struct cpu_pass *p) {
    return shape_last(&p->d->y);
}

/* Units of 'floats' that are worth a thread. */
static int64_t grain_of_floats(int64_t floats) {
    return (GRAIN + floats - 1) / floats;
}

static size_t row_bytes(int64_t floats) {
    return (size_t)floats * sizeof(float);
}

#define CPU_SEQUENCE(what)                                                                                             \
    const struct op_impl CPU_NAME(cpu_##what) = {                                                                      \
        .name = "vector",                                                                                              \
        .forward = what##_forward,                                                                                     \
        .backward = what##_backward,                                                                                   \
    };

/* ---- kernels -------------------------------------------------------------------------------- */
static void floats_add_to(int64_t n, const float *restrict from, float *restrict to) {
    for (int64_t k = 0; k < n; k++) to[k] += from[k];
}

static void floats_sum(int64_t n, const float *restrict x0, const float *restrict x1, float *restrict y) {
    for (int64_t k = 0; k < n; k++) y[k] = x0[k] + x1[k];
}

static void row_scale(int64_t n, float by, const float *from, float *to) {
    for (int64_t k = 0; k < n; k++) to[k] = from[k] * by;
}

/* to (n) = the sum over samples of n floats each, 'ld' apart. */
static void samples_sum(int64_t samples, int64_t ld, int64_t n, const float *from, float *to) {
    memcpy(to, from, row_bytes(n));
    for (int64_t i = 1; i < samples; i++) floats_add_to(n, from + i * ld, to);
}

/* The sum of n floats in a row, in LANES partial sums. */
static float row_sum(int64_t n, const float *x) {
    enum { LANES = 16 };
    float part[LANES] = {0}, sum = 0;
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int lane = 0; lane < LANES; lane++) part[lane] += x[k + lane];
    for (int lane = 0; k + lane < n; lane++) part[lane] += x[k + lane];
    for (int lane = 0; lane < LANES; lane++) sum += part[lane];
    return sum;
}

/* ---- embedding: backward has a part of the features for each thread, so that rows are added in
 * order ---------------------------------------------------------------------------------------- */
static void embedding_rows(const struct cpu_pass *p, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        memcpy(p->a->y + i * features_of(p), p->a->w[0] + (int64_t)p->a->x[0][i] * features_of(p),
               row_bytes(features_of(p)));
}

static enum error embedding_forward(struct op *op, const struct op_args *a) {
    int64_t rows = op_xs(&op->desc);
    for (int64_t i = 0; i < rows; i++) TRY(token_check(a->x[0][i], op->desc.embedding.vocabulary));
    return cpu_run(op, a, rows, grain_of_floats(shape_last(&op->desc.y)), embedding_rows);
}

static void embedding_clear(const struct cpu_pass *p, int64_t begin, int64_t end) {
    memset(p->a->dw[0] + begin, 0, row_bytes(end - begin));
}

static void embedding_features(const struct cpu_pass *p, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < op_xs(p->d); i++) {
        float *dw = p->a->dw[0] + (int64_t)p->a->x[0][i] * features_of(p);
        floats_add_to(end - begin, p->a->dy + i * features_of(p) + begin, dw + begin);
    }
}

static enum error embedding_backward(struct op *op, const struct op_args *a) {
    int64_t features = shape_last(&op->desc.y);
    if (!a->add_dw) cpu_run(op, a, op->desc.embedding.vocabulary * features, GRAIN, embedding_clear);
    cpu_run(op, a, features, 2 * ALIGN_FLOATS, embedding_features);
    if (a->dx[0]) memset(a->dx[0], 0, row_bytes(op_xs(&op->desc)));
    return ERR_NONE;
}

CPU_SEQUENCE(embedding)

/* ---- position ------------------------------------------------------------------------------- */
static void position_samples(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t each = shape_count(&p->d->x);
    for (int64_t i = begin; i < end; i++) floats_sum(each, p->a->x[0] + i * each, p->a->w[0], p->a->y + i * each);
}

static void position_sums(const struct cpu_pass *p, int64_t begin, int64_t end) {
    samples_sum(p->d->n, shape_count(&p->d->x), end - begin, p->a->dy + begin, p->a->dw[0] + begin);
}

static enum error position_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op->desc.n, grain_of_floats(shape_count(&op->desc.x)), position_samples);
}

static enum error position_backward(struct op *op, const struct op_args *a) {
    cpu_run(op, a, shape_count(&op->desc.x), grain_of_floats(op->desc.n), position_sums);
    if (a->dx[0]) memcpy(a->dx[0], a->dy, row_bytes(op_xs(&op->desc)));
    return ERR_NONE;
}

CPU_SEQUENCE(position)

/* ---- prepend -------------------------------------------------------------------------------- */
static void prepend_samples(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t x = shape_count(&p->d->x), y = x + features_of(p);
    for (int64_t i = begin; i < end; i++) {
        memcpy(p->a->y + i * y, p->a->w[0], row_bytes(features_of(p)));
        memcpy(p->a->y + i * y + features_of(p), p->a->x[0] + i * x, row_bytes(x));
    }
}

static void prepend_back(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t x = shape_count(&p->d->x), y = x + features_of(p);
    for (int64_t i = begin; i < end; i++) memcpy(p->a->dx[0] + i * x, p->a->dy + i * y + features_of(p), row_bytes(x));
}

static enum error prepend_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op->desc.n, grain_of_floats(shape_count(&op->desc.x)), prepend_samples);
}

static enum error prepend_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    samples_sum(d->n, shape_count(&d->y), shape_last(&d->y), a->dy, a->dw[0]);
    return a->dx[0] ? cpu_run(op, a, d->n, grain_of_floats(shape_count(&d->x)), prepend_back) : ERR_NONE;
}

CPU_SEQUENCE(prepend)

/* ---- select --------------------------------------------------------------------------------- */
static void select_back(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t x = shape_count(&p->d->x), at = p->d->select.row * features_of(p);
    memset(p->a->dx[0] + begin * x, 0, row_bytes((end - begin) * x));
    for (int64_t i = begin; i < end; i++)
        memcpy(p->a->dx[0] + i * x + at, p->a->dy + i * features_of(p), row_bytes(features_of(p)));
}

static enum error select_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t x = shape_count(&d->x), features = shape_last(&d->y);
    for (int64_t i = 0; i < d->n; i++)
        memcpy(a->y + i * features, a->x[0] + i * x + d->select.row * features, row_bytes(features));
    return ERR_NONE;
}

static enum error select_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op->desc.n, grain_of_floats(shape_count(&op->desc.x)), select_back) : ERR_NONE;
}

CPU_SEQUENCE(select)

/* ---- tokens --------------------------------------------------------------------------------- */
static void tokens_samples(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t pixels = p->d->y.dim[0], each = pixels * features_of(p);
    for (int64_t i = begin; i < end; i++)
        transpose(features_of(p), pixels, p->a->x[0] + i * each, pixels, p->a->y + i * each, features_of(p));
}

static void tokens_back(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t pixels = p->d->y.dim[0], each = pixels * features_of(p);
    for (int64_t i = begin; i < end; i++)
        transpose(pixels, features_of(p), p->a->dy + i * each, features_of(p), p->a->dx[0] + i * each, pixels);
}

static enum error tokens_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op->desc.n, grain_of_floats(shape_count(&op->desc.x)), tokens_samples);
}

static enum error tokens_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op->desc.n, grain_of_floats(shape_count(&op->desc.x)), tokens_back) : ERR_NONE;
}

CPU_SEQUENCE(tokens)

/* ---- mean: of each row of an image's channel, or over the rows of a sequence ---------------- */
static int64_t mean_count(const struct cpu_pass *p) {
    return shape_count(&p->d->x) / features_of(p);
}

static void mean_sample(const struct cpu_pass *p, const float *x, float *y) {
    int64_t count = mean_count(p);
    if (p->d->x.ndim == 2) {
        samples_sum(count, features_of(p), features_of(p), x, y);
        row_scale(features_of(p), 1 / (float)count, y, y);
    } else {
        for (int64_t c = 0; c < features_of(p); c++) y[c] = row_sum(count, x + c * count) * (1 / (float)count);
    }
}

static void mean_sample_back(const struct cpu_pass *p, const float *dy, float *dx) {
    int64_t count = mean_count(p);
    if (p->d->x.ndim == 2) {
        for (int64_t i = 0; i < count; i++) row_scale(features_of(p), 1 / (float)count, dy, dx + i * features_of(p));
    } else {
        for (int64_t c = 0; c < features_of(p); c++)
            for (int64_t k = 0; k < count; k++) dx[c * count + k] = dy[c] * (1 / (float)count);
    }
}

static void mean_samples(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t x = shape_count(&p->d->x);
    for (int64_t i = begin; i < end; i++) mean_sample(p, p->a->x[0] + i * x, p->a->y + i * features_of(p));
}

static void mean_back(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t x = shape_count(&p->d->x);
    for (int64_t i = begin; i < end; i++) mean_sample_back(p, p->a->dy + i * features_of(p), p->a->dx[0] + i * x);
}

static enum error mean_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op->desc.n, grain_of_floats(shape_count(&op->desc.x)), mean_samples);
}

static enum error mean_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op->desc.n, grain_of_floats(shape_count(&op->desc.x)), mean_back) : ERR_NONE;
}

CPU_SEQUENCE(mean)
