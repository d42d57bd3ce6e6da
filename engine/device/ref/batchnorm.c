/* y = act((x - mean) / sqrt(var + eps) w0 + w1) per channel, plain. When training the moments are
 * the batch's and are saved as (mean, 1 / sqrt(var + eps)); the running ones follow them, the
 * variance unbiased. */
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"

#include <math.h>
#include <stdio.h>

struct channel { /* one channel of a batch: 'n' planes of 'area' floats, 'stride' apart */
    int64_t first, stride, n, area;
};

static struct channel channel_of(const struct op_desc *d, int64_t c) {
    int64_t each = shape_count(&d->x), area = each / d->x.dim[0];
    return (struct channel){.first = c * area, .stride = each, .n = d->n, .area = area};
}

static int64_t channel_element(const struct channel *c, int64_t k) {
    return c->first + k / c->area * c->stride + k % c->area;
}

static void channel_moments(const struct channel *c, const float *x, double *mean, double *var) {
    int64_t count = c->n * c->area;
    double sum = 0, squares = 0;
    for (int64_t k = 0; k < count; k++) sum += (double)x[channel_element(c, k)];
    *mean = sum / (double)count;
    for (int64_t k = 0; k < count; k++) {
        double off = (double)x[channel_element(c, k)] - *mean;
        squares += off * off;
    }
    *var = squares / (double)count;
}

static void norm_channel(const struct op_desc *d, const struct op_args *a, int64_t ch) {
    struct channel c = channel_of(d, ch);
    int64_t count = c.n * c.area;
    double mean, var, all = (double)count;
    if (a->training) {
        if (norm_applying(a))
            norm_take(a, ch, &mean, &var, &all);
        else
            channel_moments(&c, a->x[0], &mean, &var);
        if (norm_measuring(a)) {
            norm_keep(a, ch, mean, var * (double)count);
            return;
        }
        float *saved = a->saved;
        saved[2 * ch] = (float)mean;
        saved[2 * ch + 1] = (float)(1 / sqrt(var + (double)d->norm.eps));
        if (a->update_buffers) {
            double unbiased = var * all / (all - 1);
            a->buffer[0][ch] = norm_follow(a->buffer[0][ch], mean, d->norm.momentum);
            a->buffer[1][ch] = norm_follow(a->buffer[1][ch], unbiased, d->norm.momentum);
        }
    } else {
        mean = (double)a->buffer[0][ch], var = (double)a->buffer[1][ch];
    }
    double scale = (double)a->w[0][ch] / sqrt(var + (double)d->norm.eps);
    for (int64_t k = 0; k < count; k++) {
        int64_t at = channel_element(&c, k);
        double y = ((double)a->x[0][at] - mean) * scale + (double)a->w[1][ch] + (d->joins ? (double)a->x[1][at] : 0);
        a->y[at] = act_forward(d->act, (float)y);
    }
}

static enum error norm_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    TRY(norm_check_count(a, op_xs(d) / d->x.dim[0]));
    for (int64_t c = 0; c < d->x.dim[0]; c++) norm_channel(d, a, c);
    return ERR_NONE;
}

/* With h = (x - mean) r: dw0 = sum(dy h), dw1 = sum(dy), dx = w0 r (dy - dw1 / m - h dw0 / m); over
 * several batches dx by the sums of all, and their m. */
static void norm_channel_backward(const struct op_desc *d, const struct op_args *a, int64_t ch) {
    struct channel c = channel_of(d, ch);
    int64_t count = c.n * c.area;
    const float *saved = a->saved;
    double mean = (double)saved[2 * ch], r = (double)saved[2 * ch + 1], dw = 0, db = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t at = channel_element(&c, k);
        double dy = (double)act_backward(d->act, a->y[at], a->dy[at]);
        db += dy;
        dw += dy * ((double)a->x[0][at] - mean) * r;
    }
    a->dw[0][ch] = (float)dw;
    a->dw[1][ch] = (float)db;
    double all = (double)count;
    if (norm_measuring(a)) {
        norm_keep(a, ch, db, dw / r);
        return;
    }
    if (norm_applying(a)) {
        norm_take(a, ch, &db, &dw, &all);
        dw *= r;
    }
    for (int64_t k = 0; k < count && a->dx[0]; k++) {
        int64_t at = channel_element(&c, k);
        double dy = (double)act_backward(d->act, a->y[at], a->dy[at]);
        double h = ((double)a->x[0][at] - mean) * r;
        a->dx[0][at] = (float)((double)a->w[0][ch] * r * (dy - (db + h * dw) / all));
    }
    for (int64_t k = 0; k < count && a->dx[1]; k++) {
        int64_t at = channel_element(&c, k);
        a->dx[1][at] = act_backward(d->act, a->y[at], a->dy[at]);
    }
}

static enum error norm_backward(struct op *op, const struct op_args *a) {
    for (int64_t c = 0; c < op->desc.x.dim[0]; c++) norm_channel_backward(&op->desc, a, c);
    return ERR_NONE;
}

static enum error norm_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->saved_bytes = (size_t)d->x.dim[0] * 2 * sizeof(float);
    return ERR_NONE;
}

static void batchnorm_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = count[1] = d->x.dim[0];
}

static const char *batchnorm_onnx(const struct onnx_form *f) {
    char eps[48];
    snprintf(eps, sizeof eps, "epsilon=f%.9g", (double)f->d->norm.eps);
    return onnx_node(f->g, "BatchNormalization", f->name, ONNX_LIST(f->x[0], f->w[0], f->w[1], f->w[2], f->w[3]),
                     ONNX_LIST(eps));
}

const struct op_row op_batchnorm = {
    .name = "batchnorm",
    .fuses = true,
    .moments = true,
    .weights = batchnorm_weights,
    .onnx = batchnorm_onnx,
    .plain = {.name = "ref", .plan = norm_plan, .forward = norm_forward, .backward = norm_backward, .joins = true},
};
