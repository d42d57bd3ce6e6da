/* groupnorm of a sample, plain. A group is adjacent channels: one run of floats. With h = (x - mean) r,
 * r = 1 / sqrt(var + eps), m the floats of a group, g = dy w0:
 *   y   = h w0 + w1
 *   dw0 = sum over samples and places of dy h, dw1 = sum of dy
 *   dx  = r (g - sum(g) / m - h sum(g h) / m)
 * own.whole is the number of groups; norm.bias: w0 and w1 are there, else they are 1 and 0. */
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"

#include <math.h>
#include <stdio.h>

struct group { /* of the whole batch: n times the groups of a sample */
    int64_t first, count, area;
    double mean, r;
};

static struct group group_of(const struct op_desc *d, const float *x, int64_t i) {
    int64_t count = shape_count(&d->x) / d->own.whole;
    struct group g = {.first = i * count, .count = count, .area = shape_count(&d->x) / d->x.dim[0]};
    double squares = 0;
    for (int64_t k = 0; k < count; k++) g.mean += (double)x[g.first + k] / (double)count;
    for (int64_t k = 0; k < count; k++) {
        double off = (double)x[g.first + k] - g.mean;
        squares += off * off;
    }
    g.r = 1 / sqrt(squares / (double)count + (double)d->norm.eps);
    return g;
}

static int64_t channel_of(const struct op_desc *d, const struct group *g, int64_t at) {
    return at / g->area % d->x.dim[0];
}

static enum error groupnorm_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    for (int64_t i = 0; i < d->n * d->own.whole; i++) {
        struct group g = group_of(d, a->x[0], i);
        for (int64_t at = g.first; at < g.first + g.count; at++) {
            double h = ((double)a->x[0][at] - g.mean) * g.r;
            int64_t c = channel_of(d, &g, at);
            a->y[at] = (float)(d->norm.bias ? h * (double)a->w[0][c] + (double)a->w[1][c] : h);
        }
    }
    return ERR_NONE;
}

static void group_backward(const struct op_desc *d, const struct op_args *a, const struct group *g) {
    double sum = 0, slope = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t at = g->first; at < g->first + g->count; at++) {
            double w = d->norm.bias ? (double)a->w[0][channel_of(d, g, at)] : 1;
            double dh = (double)a->dy[at] * w, h = ((double)a->x[0][at] - g->mean) * g->r;
            if (pass)
                a->dx[0][at] = (float)(g->r * (dh - sum - h * slope));
            else
                sum += dh / (double)g->count, slope += dh * h / (double)g->count;
        }
}

static enum error groupnorm_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    double *dw = a->scratch, *db = dw + d->x.dim[0];
    for (int64_t c = 0; c < 2 * d->x.dim[0]; c++) dw[c] = 0;
    for (int64_t i = 0; i < d->n * d->own.whole; i++) {
        struct group g = group_of(d, a->x[0], i);
        for (int64_t at = g.first; at < g.first + g.count; at++) {
            int64_t c = channel_of(d, &g, at);
            dw[c] += (double)a->dy[at] * ((double)a->x[0][at] - g.mean) * g.r;
            db[c] += (double)a->dy[at];
        }
        if (a->dx[0]) group_backward(d, a, &g);
    }
    for (int64_t c = 0; c < d->x.dim[0] && d->norm.bias; c++) a->dw[0][c] = (float)dw[c], a->dw[1][c] = (float)db[c];
    return ERR_NONE;
}

static enum error groupnorm_plan(struct op *op) {
    op->scratch_bytes = 2 * (size_t)op->desc.x.dim[0] * sizeof(double);
    return ERR_NONE;
}

static bool groupnorm_fits(const struct op_desc *d) {
    return shape_equal(&d->x, &d->y) && d->x.ndim != 2 && d->own.whole >= 1 && d->x.dim[0] % d->own.whole == 0;
}

static void groupnorm_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = count[1] = d->norm.bias ? d->x.dim[0] : 0;
}

/* InstanceNormalization of the groups as if each were a channel: GroupNormalization needs a newer opset. */
static const char *groupnorm_onnx(const struct onnx_form *f) {
    struct onnx_graph *g = f->g;
    const int64_t split[] = {0, f->d->own.whole, -1}, whole[] = {0, f->d->x.dim[0], f->d->x.dim[1], f->d->x.dim[2]};
    const int64_t groups[] = {f->d->own.whole}, channels[] = {f->d->x.dim[0], 1, 1};
    int ndim = f->d->x.ndim;
    char eps[48];
    float *ones = pool_alloc(g->pool, 2 * sizeof *ones * (size_t)groups[0]), *zeros = ones + groups[0];
    if (!ones) return NULL;
    for (int64_t i = 0; i < groups[0]; i++) ones[i] = 1, zeros[i] = 0;
    snprintf(eps, sizeof eps, "epsilon=f%.9g", (double)f->d->norm.eps);
    const char *cut = onnx_binary(g, "Reshape", onnx_name(g, f->name, "cut"), f->x[0], onnx_ints(g, split, 3));
    const char *scale = onnx_tensor(g, onnx_name(g, f->name, "ones"), ones, groups, 1);
    const char *shift = onnx_tensor(g, onnx_name(g, f->name, "zeros"), zeros, groups, 1);
    const char *even = onnx_node(g, "InstanceNormalization", onnx_name(g, f->name, "even"),
                                 ONNX_LIST(cut, scale, shift), ONNX_LIST(eps));
    const char *back = f->d->norm.bias ? onnx_name(g, f->name, "back") : f->name;
    onnx_binary(g, "Reshape", back, even, onnx_ints(g, whole, ndim + 1));
    if (!f->d->norm.bias) return back;
    const char *by = onnx_binary(g, "Reshape", onnx_name(g, f->name, "weight"), f->w[0], onnx_ints(g, channels, ndim));
    const char *to = onnx_binary(g, "Reshape", onnx_name(g, f->name, "bias"), f->w[1], onnx_ints(g, channels, ndim));
    return onnx_binary(g, "Add", f->name, onnx_binary(g, "Mul", onnx_name(g, f->name, "scaled"), back, by), to);
}

const struct op_row op_groupnorm = {
    .name = "groupnorm",
    .fits = groupnorm_fits,
    .weights = groupnorm_weights,
    .onnx = groupnorm_onnx,
    .plain = {.name = "ref", .plan = groupnorm_plan, .forward = groupnorm_forward, .backward = groupnorm_backward},
};
