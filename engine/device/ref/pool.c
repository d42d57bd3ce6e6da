/* The largest or the mean of each window, plain. A mean counts padding; a maximum never sees it:
 * the first of equal values is the largest, and a NaN takes the place of anything, as in PyTorch.
 */
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"
#include "engine/base/whole.h"

#include <stdio.h>

#include <math.h>
#include <string.h>

struct place { /* a window: its plane of x, and its rows and columns [y0, y1) x [x0, x1) inside it
                */
    int64_t plane, y0, y1, x0, x1;
};

static struct place place_of(const struct op_desc *d, int64_t at) {
    const struct window *w = &d->pool.window;
    int64_t h = d->x.dim[1], wide = d->x.dim[2], yh = d->y.dim[1], yw = d->y.dim[2];
    int64_t y0 = at / yw % yh * w->stride[0] - w->pad[0], x0 = at % yw * w->stride[1] - w->pad[1];
    return (struct place){.plane = at / (yh * yw) * h * wide,
                          .y0 = at_least(y0, 0),
                          .y1 = at_most(y0 + w->kernel[0], h),
                          .x0 = at_least(x0, 0),
                          .x1 = at_most(x0 + w->kernel[1], wide)};
}

static int64_t window_largest(const struct op_desc *d, const float *x, int64_t at) {
    struct place p = place_of(d, at);
    int64_t best = -1;
    for (int64_t iy = p.y0; iy < p.y1; iy++)
        for (int64_t ix = p.x0; ix < p.x1; ix++) {
            int64_t k = p.plane + iy * d->x.dim[2] + ix;
            if (best < 0 || x[k] > x[best] || isnan(x[k])) best = k;
        }
    return best;
}

static enum error pool_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    const struct window *w = &d->pool.window;
    for (int64_t at = 0; at < op_ys(d); at++) {
        if (d->pool.kind == POOL_MAX) {
            a->y[at] = a->x[0][window_largest(d, a->x[0], at)];
            continue;
        }
        struct place p = place_of(d, at);
        double sum = 0;
        for (int64_t iy = p.y0; iy < p.y1; iy++)
            for (int64_t ix = p.x0; ix < p.x1; ix++) sum += (double)a->x[0][p.plane + iy * d->x.dim[2] + ix];
        a->y[at] = (float)(sum / ((double)w->kernel[0] * w->kernel[1]));
    }
    return ERR_NONE;
}

static enum error pool_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    const struct window *w = &d->pool.window;
    if (!a->dx[0]) return ERR_NONE;
    memset(a->dx[0], 0, (size_t)op_xs(d) * sizeof(float));
    for (int64_t at = 0; at < op_ys(d); at++) {
        if (d->pool.kind == POOL_MAX) {
            a->dx[0][window_largest(d, a->x[0], at)] += a->dy[at];
            continue;
        }
        struct place p = place_of(d, at);
        float share = a->dy[at] / ((float)w->kernel[0] * (float)w->kernel[1]);
        for (int64_t iy = p.y0; iy < p.y1; iy++)
            for (int64_t ix = p.x0; ix < p.x1; ix++) a->dx[0][p.plane + iy * d->x.dim[2] + ix] += share;
    }
    return ERR_NONE;
}

bool window_fits(const struct op_desc *d, const struct window *w, bool maxpool) {
    if (d->x.ndim != 3 || d->y.ndim != 3) return false;
    for (int axis = 0; axis < 2; axis++) {
        int64_t x = d->x.dim[1 + axis];
        if (w->kernel[axis] < 1 || w->stride[axis] < 1 || w->pad[axis] < 0) return false;
        if (x + 2 * (int64_t)w->pad[axis] < w->kernel[axis]) return false;
        int64_t places = window_places(w, axis, x);
        if (d->y.dim[1 + axis] != (maxpool ? places / 2 : places)) return false;
    }
    return true;
}

void window_onnx(const struct window *w, char out[3][128]) {
    snprintf(out[0], 128, "kernel_shape=%d,%d", w->kernel[0], w->kernel[1]);
    snprintf(out[1], 128, "strides=%d,%d", w->stride[0], w->stride[1]);
    snprintf(out[2], 128, "pads=%d,%d,%d,%d", w->pad[0], w->pad[1], w->pad[0], w->pad[1]);
}

static bool pool_fits(const struct op_desc *d) {
    const struct window *w = &d->pool.window;
    return window_fits(d, w, false) && d->x.dim[0] == d->y.dim[0] && 2 * w->pad[0] <= w->kernel[0] &&
           2 * w->pad[1] <= w->kernel[1];
}

/* Adds the node of ONNX's graph; returns the name of its output. */
static const char *pool_onnx(const struct onnx_form *f) {
    char a[3][128];
    bool max = f->d->pool.kind == POOL_MAX;
    window_onnx(&f->d->pool.window, a);
    return onnx_node(f->g, max ? "MaxPool" : "AveragePool", f->name, ONNX_LIST(f->x[0]),
                     ONNX_LIST(a[0], a[1], a[2], max ? NULL : "count_include_pad=1"));
}

const struct op_row op_pool2d = {
    .name = "pool2d",
    .fits = pool_fits,
    .onnx = pool_onnx,
    .plain = {.name = "ref", .forward = pool_forward, .backward = pool_backward},
};
