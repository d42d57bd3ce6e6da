/* What makes sequences, and what reduces them: embedding, position, prepend, select, tokens, mean;
 * plain. */
#include "engine/device/ref/ref.h"

static void zero(float *to, int64_t count) {
    for (int64_t k = 0; k < count; k++) to[k] = 0;
}

static void copy(const float *from, int64_t count, float *to) {
    for (int64_t k = 0; k < count; k++) to[k] = from[k];
}

#define REF_IMPL(what)                                                                                                 \
    static enum error what##_create(struct device *dev, const struct op_desc *d, struct op **out) {                    \
        return op_create_plain(&ref_##what, dev, d, out);                                                              \
    }                                                                                                                  \
    const struct op_impl ref_##what = {                                                                                \
        .name = "ref",                                                                                                 \
        .takes = op_takes_plain,                                                                                       \
        .create = what##_create,                                                                                       \
        .forward = what##_forward,                                                                                     \
        .backward = what##_backward,                                                                                   \
        .free = op_release,                                                                                            \
    };

/* ---- embedding: a token has no gradient ----------------------------------------------------- */
static enum error embedding_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t features = shape_last(&d->y);
    for (int64_t i = 0; i < op_xs(d); i++) {
        TRY(token_check(a->x[0][i], d->embedding.vocabulary));
        copy(a->w[0] + (int64_t)a->x[0][i] * features, features, a->y + i * features);
    }
    return ERR_NONE;
}

static enum error embedding_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t features = shape_last(&d->y);
    if (!a->add_dw) zero(a->dw[0], d->embedding.vocabulary * features);
    for (int64_t i = 0; i < op_xs(d); i++)
        for (int64_t k = 0; k < features; k++) a->dw[0][(int64_t)a->x[0][i] * features + k] += a->dy[i * features + k];
    if (a->dx[0]) zero(a->dx[0], op_xs(d));
    return ERR_NONE;
}

REF_IMPL(embedding)

/* ---- position ------------------------------------------------------------------------------- */
static enum error position_forward(struct op *op, const struct op_args *a) {
    int64_t each = shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc); k++) a->y[k] = a->x[0][k] + a->w[0][k % each];
    return ERR_NONE;
}

static enum error position_backward(struct op *op, const struct op_args *a) {
    int64_t each = shape_count(&op->desc.x);
    for (int64_t k = 0; k < each; k++) {
        double sum = 0;
        for (int64_t i = 0; i < op->desc.n; i++) sum += (double)a->dy[i * each + k];
        a->dw[0][k] = (float)sum;
    }
    if (a->dx[0]) copy(a->dy, op_xs(&op->desc), a->dx[0]);
    return ERR_NONE;
}

REF_IMPL(position)

/* ---- prepend -------------------------------------------------------------------------------- */
static enum error prepend_forward(struct op *op, const struct op_args *a) {
    int64_t x = shape_count(&op->desc.x), features = shape_last(&op->desc.x), y = x + features;
    for (int64_t i = 0; i < op->desc.n; i++) {
        copy(a->w[0], features, a->y + i * y);
        copy(a->x[0] + i * x, x, a->y + i * y + features);
    }
    return ERR_NONE;
}

static enum error prepend_backward(struct op *op, const struct op_args *a) {
    int64_t x = shape_count(&op->desc.x), features = shape_last(&op->desc.x), y = x + features;
    for (int64_t k = 0; k < features; k++) {
        double sum = 0;
        for (int64_t i = 0; i < op->desc.n; i++) sum += (double)a->dy[i * y + k];
        a->dw[0][k] = (float)sum;
    }
    for (int64_t i = 0; i < op->desc.n && a->dx[0]; i++) copy(a->dy + i * y + features, x, a->dx[0] + i * x);
    return ERR_NONE;
}

REF_IMPL(prepend)

/* ---- select --------------------------------------------------------------------------------- */
static enum error select_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t x = shape_count(&d->x), features = shape_last(&d->x);
    for (int64_t i = 0; i < d->n; i++) copy(a->x[0] + i * x + d->select.row * features, features, a->y + i * features);
    return ERR_NONE;
}

static enum error select_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t x = shape_count(&d->x), features = shape_last(&d->x);
    if (a->dx[0]) zero(a->dx[0], op_xs(d));
    for (int64_t i = 0; i < d->n && a->dx[0]; i++)
        copy(a->dy + i * features, features, a->dx[0] + i * x + d->select.row * features);
    return ERR_NONE;
}

REF_IMPL(select)

/* ---- tokens --------------------------------------------------------------------------------- */
/* Where element k of a sample (channel, pixel) lies in (pixel, channel). */
static int64_t turned(const struct op_desc *d, int64_t k) {
    int64_t channels = d->x.dim[0], pixels = d->y.dim[0];
    return k % pixels * channels + k / pixels;
}

static enum error tokens_forward(struct op *op, const struct op_args *a) {
    int64_t each = shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc); k++) a->y[k / each * each + turned(&op->desc, k % each)] = a->x[0][k];
    return ERR_NONE;
}

static enum error tokens_backward(struct op *op, const struct op_args *a) {
    int64_t each = shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++)
        a->dx[0][k] = a->dy[k / each * each + turned(&op->desc, k % each)];
    return ERR_NONE;
}

REF_IMPL(tokens)

/* ---- mean: over 'count' values that are 'stride' apart -------------------------------------- */
struct run {
    int64_t count, stride, first;
};

static struct run run_of(const struct op_desc *d, int64_t k) {
    int64_t each = shape_count(&d->x), out = shape_last(&d->y), count = each / out;
    int64_t first = k / out * each;
    if (d->x.ndim == 2) return (struct run){count, out, first + k % out};
    return (struct run){count, 1, first + k % out * count};
}

static enum error mean_forward(struct op *op, const struct op_args *a) {
    for (int64_t k = 0; k < op_ys(&op->desc); k++) {
        struct run r = run_of(&op->desc, k);
        double sum = 0;
        for (int64_t i = 0; i < r.count; i++) sum += (double)a->x[0][r.first + i * r.stride];
        a->y[k] = (float)(sum / (double)r.count);
    }
    return ERR_NONE;
}

static enum error mean_backward(struct op *op, const struct op_args *a) {
    for (int64_t k = 0; k < op_ys(&op->desc) && a->dx[0]; k++) {
        struct run r = run_of(&op->desc, k);
        for (int64_t i = 0; i < r.count; i++)
            a->dx[0][r.first + i * r.stride] = (float)((double)a->dy[k] / (double)r.count);
    }
    return ERR_NONE;
}

REF_IMPL(mean)
