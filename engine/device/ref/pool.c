/* The largest or the mean of each window, plain. A mean counts padding; a maximum never sees it:
 * the first of equal values is the largest, and a NaN takes the place of anything, as in PyTorch.
 */
#include "engine/device/ref/ref.h"

#include <math.h>
#include <string.h>

struct place { /* a window: its plane of x, and its rows and columns [y0, y1) x [x0, x1) inside it
                */
    int64_t plane, y0, y1, x0, x1;
};

static int64_t at_least(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static struct place place_of(const struct op_desc *d, int64_t at) {
    const struct window *w = &d->pool.window;
    int64_t h = d->x.dim[1], wide = d->x.dim[2], yh = d->y.dim[1], yw = d->y.dim[2];
    int64_t y0 = at / yw % yh * w->stride[0] - w->pad[0], x0 = at % yw * w->stride[1] - w->pad[1];
    return (struct place){.plane = at / (yh * yw) * h * wide,
                          .y0 = at_least(y0, 0),
                          .y1 = -at_least(-(y0 + w->kernel[0]), -h),
                          .x0 = at_least(x0, 0),
                          .x1 = -at_least(-(x0 + w->kernel[1]), -wide)};
}

static int64_t largest(const struct op_desc *d, const float *x, int64_t at) {
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
            a->y[at] = a->x[0][largest(d, a->x[0], at)];
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
            a->dx[0][largest(d, a->x[0], at)] += a->dy[at];
            continue;
        }
        struct place p = place_of(d, at);
        float share = a->dy[at] / ((float)w->kernel[0] * (float)w->kernel[1]);
        for (int64_t iy = p.y0; iy < p.y1; iy++)
            for (int64_t ix = p.x0; ix < p.x1; ix++) a->dx[0][p.plane + iy * d->x.dim[2] + ix] += share;
    }
    return ERR_NONE;
}

static enum error max_or_mean_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&ref_pool2d, dev, d, out);
}

const struct op_impl ref_pool2d = {
    .name = "ref",
    .takes = op_takes_plain,
    .create = max_or_mean_create,
    .forward = pool_forward,
    .backward = pool_backward,
    .free = op_release,
};
