/* layernorm and rmsnorm of each row, plain. With h = (x - mean) r, r = 1 / sqrt(var + eps), n the
 * row's length, g = dy w0:
 *   y   = h w0 + w1
 *   dw0 = sum over rows of dy h, dw1 = sum over rows of dy
 *   dx  = r (g - sum(g) / n - h sum(g h) / n)
 * rmsnorm is the same with 0 for the mean, so that sum(g) / n is not taken off either. */
#include "engine/device/ref/ref.h"

#include <math.h>

struct moments {
    double mean, r;
};

static struct moments moments_of(const struct op_desc *d, const float *x) {
    int64_t n = shape_last(&d->x);
    double mean = 0, squares = 0;
    for (int64_t k = 0; k < n && d->kind == OP_LAYERNORM; k++) mean += (double)x[k] / (double)n;
    for (int64_t k = 0; k < n; k++) squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    return (struct moments){mean, 1 / sqrt(squares / (double)n + (double)d->norm.eps)};
}

static enum error norm_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t n = shape_last(&d->x);
    for (int64_t i = 0; i < op_rows(d); i++) {
        const float *x = a->x[0] + i * n;
        struct moments m = moments_of(d, x);
        for (int64_t k = 0; k < n; k++) {
            double shift = d->norm.bias ? (double)a->w[1][k] : 0;
            a->y[i * n + k] = (float)(((double)x[k] - m.mean) * m.r * (double)a->w[0][k] + shift);
        }
    }
    return ERR_NONE;
}

static void row_backward(const struct op_desc *d, const struct op_args *a, int64_t i) {
    int64_t n = shape_last(&d->x);
    const float *x = a->x[0] + i * n, *dy = a->dy + i * n, *w = a->w[0];
    struct moments m = moments_of(d, x);
    double sum = 0, slope = 0;
    for (int64_t k = 0; k < n; k++) {
        double g = (double)dy[k] * (double)w[k];
        if (d->kind == OP_LAYERNORM) sum += g / (double)n;
        slope += g * ((double)x[k] - m.mean) * m.r / (double)n;
    }
    for (int64_t k = 0; k < n; k++) {
        double h = ((double)x[k] - m.mean) * m.r;
        a->dx[0][i * n + k] = (float)(m.r * ((double)dy[k] * (double)w[k] - sum - h * slope));
    }
}

/* Sums over all rows for one feature; scratch has the moments of each row. */
static void feature_backward(const struct op_desc *d, const struct op_args *a, int64_t k) {
    const struct moments *m = a->scratch;
    int64_t n = shape_last(&d->x);
    double dw = 0, db = 0;
    for (int64_t i = 0; i < op_rows(d); i++) {
        double dy = (double)a->dy[i * n + k];
        dw += dy * ((double)a->x[0][i * n + k] - m[i].mean) * m[i].r;
        db += dy;
    }
    a->dw[0][k] = (float)dw;
    if (d->norm.bias) a->dw[1][k] = (float)db;
}

static enum error norm_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t n = shape_last(&d->x);
    struct moments *m = a->scratch;
    for (int64_t i = 0; i < op_rows(d); i++) m[i] = moments_of(d, a->x[0] + i * n);
    for (int64_t k = 0; k < n; k++) feature_backward(d, a, k);
    for (int64_t i = 0; i < op_rows(d) && a->dx[0]; i++) row_backward(d, a, i);
    return ERR_NONE;
}

static enum error norm_create(const struct op_impl *impl, struct device *dev, const struct op_desc *d,
                              struct op **out) {
    TRY(op_create_plain(impl, dev, d, out));
    (*out)->scratch_bytes = (size_t)op_rows(d) * sizeof(struct moments);
    return ERR_NONE;
}

static enum error layernorm_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return norm_create(&ref_layernorm, dev, d, out);
}

static enum error rmsnorm_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return norm_create(&ref_rmsnorm, dev, d, out);
}

const struct op_impl ref_layernorm = {
    .name = "ref",
    .takes = op_takes_plain,
    .create = layernorm_create,
    .forward = norm_forward,
    .backward = norm_backward,
    .free = op_release,
};
const struct op_impl ref_rmsnorm = {
    .name = "ref",
    .takes = op_takes_plain,
    .create = rmsnorm_create,
    .forward = norm_forward,
    .backward = norm_backward,
    .free = op_release,
};
