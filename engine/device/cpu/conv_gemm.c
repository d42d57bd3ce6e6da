/* Convolutions as matrix products, for what no other implementation takes. One sample and group at
 * a time, 'cols' is a matrix whose column k is the window of output place k, (in/groups * kh * kw,
 * yh * yw):
 *
 *   forward    y = w cols + b
 *   backward   dw += dz cols'; dcols = w' dz, and dx is the sum of the windows of dcols
 *
 * with w as (out/groups, in/groups * kh * kw). Sums go over samples in their order. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/gemm.h"
#include "engine/device/cpu/kernels.h"

#include <string.h>

struct conv {
    struct op op;
    int64_t in, out; /* channels of a group */
    int64_t taps;    /* in * kh * kw: rows of cols */
    int64_t area;    /* yh * yw: columns of cols */
    int64_t plane;   /* xh * xw */
};

struct pass { /* scratch is (pack, cols, dz, w') */
    const struct conv *c;
    const struct op_args *a;
    void *pack;
    float *cols, *dz, *wt;
    const float *x; /* of the sample and group at work */
    float *dx;
};

static struct pass pass_of(const struct conv *c, const struct op_args *a) {
    char *cols = (char *)a->scratch + gemm_pack_bytes(c->op.dev);
    float *dz = (float *)cols + align_floats(c->taps * c->area);
    float *wt = dz + align_floats(op_ys(&c->op.desc));
    return (struct pass){.c = c, .a = a, .pack = a->scratch, .cols = (float *)cols, .dz = dz, .wt = wt};
}

/* ---- windows <-> cols ----------------------------------------------------------------------- */
struct tap { /* one row of cols: a channel of x and a place in the window */
    int64_t channel, ky, kx;
};

static struct tap tap_of(const struct conv *c, int64_t row) {
    int64_t kh = c->op.desc.conv.window.kernel[0], kw = c->op.desc.conv.window.kernel[1];
    return (struct tap){row / (kh * kw), row / kw % kh, row % kw};
}

/* Outputs k with 0 <= k * stride + off < length are [*begin, *end). */
static void inside(int64_t off, int64_t stride, int64_t length, int64_t places, int64_t *begin, int64_t *end) {
    *begin = off < 0 ? (-off + stride - 1) / stride : 0;
    *end = off < length ? (length - 1 - off) / stride + 1 : 0;
    if (*end > places) *end = places;
    if (*begin > *end) *begin = *end;
}

/* Rows [begin, end) of cols from x. */
static void gather_rows(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct op_desc *d = &p->c->op.desc;
    const struct window *w = &d->conv.window;
    int64_t yh = window_places(w, 0, d->x.dim[1]), yw = window_places(w, 1, d->x.dim[2]);
    for (int64_t row = begin; row < end; row++) {
        struct tap t = tap_of(p->c, row);
        int64_t k0, k1, off = t.kx - w->pad[1];
        inside(off, w->stride[1], d->x.dim[2], yw, &k0, &k1);
        for (int64_t oy = 0; oy < yh; oy++) {
            int64_t iy = oy * w->stride[0] + t.ky - w->pad[0];
            float *to = p->cols + row * p->c->area + oy * yw;
            bool in = iy >= 0 && iy < d->x.dim[1];
            const float *from = p->x + t.channel * p->c->plane + iy * d->x.dim[2] + off;
            memset(to, 0, (size_t)yw * sizeof *to);
            for (int64_t k = k0; k < k1 && in; k++) to[k] = from[k * w->stride[1]];
        }
    }
}

/* Channels [begin, end) of dx from cols. */
static void spread_channels(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct op_desc *d = &p->c->op.desc;
    const struct window *w = &d->conv.window;
    int64_t yh = window_places(w, 0, d->x.dim[1]), yw = window_places(w, 1, d->x.dim[2]);
    int64_t each = p->c->taps / p->c->in; /* rows of cols of a channel */
    memset(p->dx + begin * p->c->plane, 0, (size_t)((end - begin) * p->c->plane) * sizeof *p->dx);
    for (int64_t row = begin * each; row < end * each; row++) {
        struct tap t = tap_of(p->c, row);
        int64_t k0, k1, off = t.kx - w->pad[1];
        inside(off, w->stride[1], d->x.dim[2], yw, &k0, &k1);
        for (int64_t oy = 0; oy < yh; oy++) {
            int64_t iy = oy * w->stride[0] + t.ky - w->pad[0];
            if (iy < 0 || iy >= d->x.dim[1]) continue;
            const float *from = p->cols + row * p->c->area + oy * yw;
            float *to = p->dx + t.channel * p->c->plane + iy * d->x.dim[2] + off;
            for (int64_t k = k0; k < k1; k++) to[k * w->stride[1]] += from[k];
        }
    }
}

static int64_t x_at(const struct conv *c, int64_t i, int64_t group) {
    return (i * c->op.desc.conv.groups + group) * c->in * c->plane;
}

static int64_t y_at(const struct conv *c, int64_t i, int64_t group) {
    return (i * c->op.desc.conv.groups + group) * c->out * c->area;
}

/* ---- forward -------------------------------------------------------------------------------- */
static void finish_samples(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    int64_t channels = p->c->op.desc.y.dim[0];
    for (int64_t k = begin * channels; k < end * channels; k++) {
        float *y = p->a->y + k * p->c->area;
        float bias = p->c->op.desc.conv.bias ? p->a->w[1][k % channels] : 0;
        for (int64_t j = 0; j < p->c->area; j++) y[j] += bias;
        if (p->c->op.desc.act == ACT_RELU) kernel_relu(p->c->area, y, y);
    }
}

static enum error conv_forward(struct op *op, const struct op_args *a) {
    const struct conv *c = (const struct conv *)op;
    struct pass p = pass_of(c, a);
    for (int64_t i = 0; i < op->desc.n; i++)
        for (int64_t group = 0; group < op->desc.conv.groups; group++) {
            p.x = a->x[0] + x_at(c, i, group);
            cpu_parallel(op->dev, c->taps, 1, gather_rows, &p);
            struct gemm g = {.m = c->out,
                             .n = c->area,
                             .k = c->taps,
                             .precision = op->desc.precision,
                             .a = a->w[0] + group * c->out * c->taps,
                             .lda = c->taps,
                             .b = p.cols,
                             .ldb = c->area,
                             .c = a->y + y_at(c, i, group),
                             .ldc = c->area};
            gemm_run(op->dev, &g, p.pack);
        }
    cpu_parallel(op->dev, op->desc.n, 1, finish_samples, &p);
    return ERR_NONE;
}

/* ---- backward ------------------------------------------------------------------------------- */
static void mask_part(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    kernel_relu_backward(end - begin, p->a->y + begin, p->a->dy + begin, p->dz + begin);
}

static void bias_channels(const struct conv *c, const float *dz, float *db) {
    int64_t channels = c->op.desc.y.dim[0];
    for (int64_t ch = 0; ch < channels; ch++) {
        double sum = 0;
        for (int64_t i = 0; i < c->op.desc.n; i++)
            for (int64_t k = 0; k < c->area; k++) sum += (double)dz[(i * channels + ch) * c->area + k];
        db[ch] = (float)sum;
    }
}

static void group_backward(struct pass *p, const float *dz, int64_t i, int64_t group) {
    const struct conv *c = p->c;
    const struct op_args *a = p->a;
    int64_t weights = group * c->out * c->taps;
    p->x = a->x[0] + x_at(c, i, group);
    cpu_parallel(c->op.dev, c->taps, 1, gather_rows, p);
    struct gemm dw = {.m = c->out,
                      .n = c->taps,
                      .k = c->area,
                      .precision = c->op.desc.precision,
                      .a = dz + y_at(c, i, group),
                      .lda = c->area,
                      .b = p->cols,
                      .ldb = c->area,
                      .b_transposed = true,
                      .c = a->dw[0] + weights,
                      .ldc = c->taps,
                      .add = i > 0};
    gemm_run(c->op.dev, &dw, p->pack);
    if (!a->dx[0]) return;
    struct gemm dcols = {.m = c->taps,
                         .n = c->area,
                         .k = c->out,
                         .precision = c->op.desc.precision,
                         .a = p->wt + weights,
                         .lda = c->out,
                         .b = dz + y_at(c, i, group),
                         .ldb = c->area,
                         .c = p->cols,
                         .ldc = c->area};
    gemm_run(c->op.dev, &dcols, p->pack);
    p->dx = a->dx[0] + x_at(c, i, group);
    cpu_parallel(c->op.dev, c->in, 1, spread_channels, p);
}

static enum error conv_backward(struct op *op, const struct op_args *a) {
    const struct conv *c = (const struct conv *)op;
    struct pass p = pass_of(c, a);
    const float *dz = op->desc.act == ACT_RELU ? p.dz : a->dy;
    int64_t weights = c->out * c->taps;
    if (op->desc.act == ACT_RELU) cpu_parallel(op->dev, op_ys(&op->desc), 4096, mask_part, &p);
    if (op->desc.conv.bias) bias_channels(c, dz, a->dw[1]);
    for (int64_t group = 0; group < op->desc.conv.groups; group++)
        transpose(c->out, c->taps, a->w[0] + group * weights, c->taps, p.wt + group * weights, c->out);
    for (int64_t i = 0; i < op->desc.n; i++)
        for (int64_t group = 0; group < op->desc.conv.groups; group++) group_backward(&p, dz, i, group);
    return ERR_NONE;
}

/* ---- the op --------------------------------------------------------------------------------- */
static enum error conv_create(struct device *dev, const struct op_desc *d, struct op **out) {
    const struct window *w = &d->conv.window;
    struct conv c = {.in = d->x.dim[0] / d->conv.groups,
                     .out = d->y.dim[0] / d->conv.groups,
                     .area = d->y.dim[1] * d->y.dim[2],
                     .plane = d->x.dim[1] * d->x.dim[2]};
    size_t taps, cols;
    TRY(memory_size((size_t)c.in, (size_t)w->kernel[0] * (size_t)w->kernel[1], "windows", &taps));
    TRY(memory_size(taps, (size_t)c.area * sizeof(float), "a convolution's windows", &cols));
    c.taps = (int64_t)taps;
    TRY(op_alloc(sizeof c, &cpu_conv_gemm, dev, d, out));
    c.op = **out;
    int64_t weights = d->y.dim[0] * c.taps;
    int64_t floats = align_floats(c.taps * c.area) + align_floats(op_ys(d)) + align_floats(weights);
    c.op.scratch_bytes = gemm_pack_bytes(dev) + (size_t)floats * sizeof(float);
    *(struct conv *)*out = c;
    return ERR_NONE;
}

static bool takes(const struct op_desc *d) {
    return !d->conv.maxpool && op_takes_plain(d);
}

const struct op_impl cpu_conv_gemm = {
    .name = "gemm",
    .takes = takes,
    .create = conv_create,
    .forward = conv_forward,
    .backward = conv_backward,
    .free = op_release,
};
