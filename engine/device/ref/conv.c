/* y = pool(act(x * w + b)), plain. The convolution's own output (before the pool) is kept in
 * 'saved' when training; its gradient goes through scratch. */
#include "engine/device/bf16.h"
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"

#include <stdio.h>

#include <math.h>
#include <string.h>

struct dims { /* of a convolution: channels, height and width of x and of its own output y */
    int64_t n, groups, xc, xh, xw, yc, yh, yw, kh, kw, sh, sw, ph, pw;
};

static struct dims dims_of(const struct op_desc *d) {
    const struct window *w = &d->conv.window;
    return (struct dims){.n = d->n,
                         .groups = d->conv.groups,
                         .xc = d->x.dim[0],
                         .xh = d->x.dim[1],
                         .xw = d->x.dim[2],
                         .yc = d->y.dim[0],
                         .yh = window_places(w, 0, d->x.dim[1]),
                         .yw = window_places(w, 1, d->x.dim[2]),
                         .kh = w->kernel[0],
                         .kw = w->kernel[1],
                         .sh = w->stride[0],
                         .sw = w->stride[1],
                         .ph = w->pad[0],
                         .pw = w->pad[1]};
}

static int64_t conv_places(const struct dims *c) {
    return c->n * c->yc * c->yh * c->yw;
}

/* One product of the sum: which x, which w, which y. */
typedef void (*visit)(void *ctx, int64_t x, int64_t w, int64_t y);

/* Visits every product of output channel o of sample i. */
static void for_channel(const struct dims *c, int64_t i, int64_t o, visit fn, void *ctx) {
    int64_t cin = c->xc / c->groups, from = o / (c->yc / c->groups) * cin;
    for (int64_t oy = 0; oy < c->yh; oy++)
        for (int64_t ox = 0; ox < c->yw; ox++)
            for (int64_t k = 0; k < cin * c->kh * c->kw; k++) {
                int64_t ch = k / (c->kh * c->kw), ky = k / c->kw % c->kh, kx = k % c->kw;
                int64_t iy = oy * c->sh + ky - c->ph, ix = ox * c->sw + kx - c->pw;
                if (iy < 0 || iy >= c->xh || ix < 0 || ix >= c->xw) continue;
                fn(ctx, ((i * c->xc + from + ch) * c->xh + iy) * c->xw + ix, o * cin * c->kh * c->kw + k,
                   ((i * c->yc + o) * c->yh + oy) * c->yw + ox);
            }
}

/* ---- forward -------------------------------------------------------------------------------- */
static float conv_factor(enum precision precision, float v) {
    return precision == PRECISION_BF16 ? bf16_round(v) : v;
}

struct conv_sum {
    enum precision precision;
    const float *x, *w;
    float *y;
};

static void add_product(void *ctx, int64_t x, int64_t w, int64_t y) {
    struct conv_sum *s = ctx;
    s->y[y] += conv_factor(s->precision, s->x[x]) * conv_factor(s->precision, s->w[w]);
}

static void conv_sums(const struct op_desc *d, const struct dims *c, const struct op_args *a, float *y) {
    struct conv_sum s = {d->precision, a->x[0], a->w[0], y};
    int64_t area = c->yh * c->yw;
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t o = 0; o < c->yc; o++) {
            float *plane = y + (i * c->yc + o) * area;
            for (int64_t k = 0; k < area; k++) plane[k] = d->conv.bias ? a->w[1][o] : 0;
            for_channel(c, i, o, add_product, &s);
            for (int64_t k = 0; k < area; k++) plane[k] = act_forward(d->act, plane[k]);
        }
}

/* The largest of the 2x2 window of pooled place 'at', by pool.c's rule: the first of equals, and a NaN takes the place of
 * anything. */
static int64_t pool_source(const struct dims *c, const float *y, int64_t at) {
    int64_t ph = c->yh / 2, pw = c->yw / 2, plane = at / (ph * pw);
    int64_t first = (plane * c->yh + at / pw % ph * 2) * c->yw + at % pw * 2;
    int64_t places4[] = {first, first + 1, first + c->yw, first + c->yw + 1}, best = first;
    for (int k = 1; k < 4; k++)
        if (y[places4[k]] > y[best] || isnan(y[places4[k]])) best = places4[k];
    return best;
}

static enum error conv_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct dims c = dims_of(d);
    if (!d->conv.maxpool) {
        conv_sums(d, &c, a, a->y);
        return ERR_NONE;
    }
    float *y = a->training ? a->saved : a->scratch;
    conv_sums(d, &c, a, y);
    for (int64_t at = 0; at < op_ys(d); at++) a->y[at] = y[pool_source(&c, y, at)];
    return ERR_NONE;
}

/* ---- backward ------------------------------------------------------------------------------- */
/* The gradient before pool and activation, one value for each of the convolution's own outputs. */
static void sums_gradient(const struct op_desc *d, const struct dims *c, const struct op_args *a, float *dz) {
    const float *y = d->conv.maxpool ? a->saved : a->y;
    if (d->conv.maxpool) {
        memset(dz, 0, (size_t)conv_places(c) * sizeof *dz);
        for (int64_t at = 0; at < op_ys(d); at++) dz[pool_source(c, y, at)] = a->dy[at];
    }
    for (int64_t k = 0; k < conv_places(c); k++) dz[k] = act_backward(d->act, y[k], d->conv.maxpool ? dz[k] : a->dy[k]);
}

struct conv_gradient {
    enum precision precision;
    const float *x, *w, *dz;
    float *dx, *dw;
};

static void add_gradients(void *ctx, int64_t x, int64_t w, int64_t y) {
    struct conv_gradient *g = ctx;
    float dz = conv_factor(g->precision, g->dz[y]);
    g->dw[w] += conv_factor(g->precision, g->x[x]) * dz;
    if (g->dx) g->dx[x] += conv_factor(g->precision, g->w[w]) * dz;
}

static enum error conv_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct dims c = dims_of(d);
    int64_t area = c.yh * c.yw, weights = c.yc * (c.xc / c.groups) * c.kh * c.kw;
    float *dz = a->scratch;
    sums_gradient(d, &c, a, dz);
    struct conv_gradient g = {d->precision, a->x[0], a->w[0], dz, a->dx[0], a->dw[0]};
    memset(g.dw, 0, (size_t)weights * sizeof *g.dw);
    if (g.dx) memset(g.dx, 0, (size_t)op_xs(d) * sizeof *g.dx);
    for (int64_t o = 0; o < c.yc; o++) {
        double bias = 0;
        for (int64_t i = 0; i < c.n; i++) {
            for (int64_t k = 0; k < area; k++) bias += (double)dz[(i * c.yc + o) * area + k];
            for_channel(&c, i, o, add_gradients, &g);
        }
        if (d->conv.bias) a->dw[1][o] = (float)bias;
    }
    return ERR_NONE;
}

static enum error conv_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct dims c = dims_of(d);
    size_t bytes, rows;
    TRY(memory_size((size_t)(c.n * c.yc), sizeof(float), "a convolution", &rows));
    TRY(memory_size(rows, (size_t)(c.yh * c.yw), "a convolution", &bytes));
    op->scratch_bytes = bytes;
    op->saved_bytes = d->conv.maxpool ? bytes : 0;
    return ERR_NONE;
}

static bool conv_fits(const struct op_desc *d) {
    return window_fits(d, &d->conv.window, d->conv.maxpool) && d->conv.groups >= 1 &&
           d->x.dim[0] % d->conv.groups == 0 && d->y.dim[0] % d->conv.groups == 0;
}

static void conv_weights(const struct op_desc *d, int64_t count[2]) {
    const int *kernel = d->conv.window.kernel;
    count[0] = d->y.dim[0] * (d->x.dim[0] / d->conv.groups) * kernel[0] * kernel[1];
    count[1] = d->conv.bias ? d->y.dim[0] : 0;
}

/* Multiply-adds at every place of the window, also where a fused pool makes y smaller. */
static double conv_products(const struct op_desc *d) {
    const struct window *w = &d->conv.window;
    double products = (double)d->x.dim[0] / d->conv.groups * (double)d->y.dim[0];
    for (int i = 0; i < 2; i++) products *= w->kernel[i] * (double)window_places(w, i, d->x.dim[1 + i]);
    return products;
}

static const char *conv_onnx(const struct onnx_form *f) {
    char a[3][128], group[32];
    window_onnx(&f->d->conv.window, a);
    snprintf(group, sizeof group, "group=%d", f->d->conv.groups);
    return onnx_node(f->g, "Conv", f->name, ONNX_LIST(f->x[0], f->w[0], f->d->conv.bias ? f->w[1] : NULL),
                     ONNX_LIST(a[0], a[1], a[2], group));
}

const struct op_row op_conv2d = {
    .name = "conv2d",
    .fuses = true,
    .pools = true,
    .turns = true,
    .fits = conv_fits,
    .weights = conv_weights,
    .products = conv_products,
    .onnx = conv_onnx,
    .plain = {.name = "ref", .plan = conv_plan, .forward = conv_forward, .backward = conv_backward},
};
