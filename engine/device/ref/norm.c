/* layernorm and rmsnorm of each row, plain. With h = (x - mean) r, r = 1 / sqrt(var + eps), n the
 * row's length, g = dy w0:
 *   y   = h w0 + w1
 *   dw0 = sum over rows of dy h, dw1 = sum over rows of dy
 *   dx  = r (g - sum(g) / n - h sum(g h) / n)
 * rmsnorm is the same with 0 for the mean, so that sum(g) / n is not taken off either. */
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"

#include <math.h>
#include <stdio.h>

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

static enum error norm_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->scratch_bytes = (size_t)op_rows(d) * sizeof(struct moments);
    return ERR_NONE;
}

static void layernorm_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = shape_last(&d->x), count[1] = d->norm.bias ? count[0] : 0;
}

static const char *layernorm_onnx(const struct onnx_form *f) {
    char eps[48];
    snprintf(eps, sizeof eps, "epsilon=f%.9g", (double)f->d->norm.eps);
    return onnx_node(f->g, "LayerNormalization", f->name, ONNX_LIST(f->x[0], f->w[0], f->d->norm.bias ? f->w[1] : NULL),
                     ONNX_LIST("axis=-1", eps));
}

const struct op_row op_layernorm = {
    .name = "layernorm",
    .sees = SEES_ROW,
    .weights = layernorm_weights,
    .onnx = layernorm_onnx,
    .plain = {.name = "ref", .plan = norm_plan, .forward = norm_forward, .backward = norm_backward},
};

static void rmsnorm_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = shape_last(&d->x);
}

static const char *rmsnorm_onnx(const struct onnx_form *f) {
    struct onnx_graph *g = f->g;
    const char *square = onnx_binary(g, "Mul", onnx_name(g, f->name, "square"), f->x[0], f->x[0]);
    const char *mean = onnx_node(g, "ReduceMean", onnx_name(g, f->name, "mean"), ONNX_LIST(square),
                                 ONNX_LIST("axes=-1", "keepdims=1"));
    const char *sum = onnx_binary(g, "Add", onnx_name(g, f->name, "sum"), mean, onnx_float(g, f->d->norm.eps));
    const char *root = onnx_unary(g, "Sqrt", onnx_name(g, f->name, "root"), sum);
    const char *scaled = onnx_binary(g, "Div", onnx_name(g, f->name, "scaled"), f->x[0], root);
    return onnx_binary(g, "Mul", f->name, scaled, f->w[0]);
}

const struct op_row op_rmsnorm = {
    .name = "rmsnorm",
    .sees = SEES_ROW,
    .weights = rmsnorm_weights,
    .onnx = rmsnorm_onnx,
    .plain = {.name = "ref", .plan = norm_plan, .forward = norm_forward, .backward = norm_backward},
};
