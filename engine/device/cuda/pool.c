/* The largest or the mean of each window of images in either layout. A maximum saves which place of its window it came
 * from. */
#include "engine/device/cuda/image.h"

static struct pool_launch launch_of(const struct op_desc *d) {
    struct pool_launch l = {.x_type = element_read(d),
                            .type = element_of(d->precision),
                            .last = d->x_layout == LAYOUT_LAST,
                            .max = d->pool.kind == POOL_MAX,
                            .n = d->n,
                            .c = d->x.dim[0]};
    for (int i = 0; i < 2; i++) {
        l.x[i] = (int)d->x.dim[1 + i], l.y[i] = (int)d->y.dim[1 + i];
        l.kernel[i] = d->pool.window.kernel[i], l.stride[i] = d->pool.window.stride[i];
        l.pad[i] = d->pool.window.pad[i];
    }
    return l;
}

static enum error pool_forward(struct op *op, const struct op_args *a) {
    struct pool_launch l = launch_of(&op->desc);
    l.in = a->x[0], l.out = a->y, l.from = l.max && a->training ? a->saved : NULL;
    CU(pool_forward_launch(&l, cuda_stream(op)), "a pool");
    return ERR_NONE;
}

static enum error pool_backward(struct op *op, const struct op_args *a) {
    struct pool_launch l = launch_of(&op->desc);
    l.in = a->dy, l.out = a->dx[0], l.from = a->saved;
    if (!a->dx[0] || op->desc.first) return ERR_NONE;
    CU(pool_backward_launch(&l, cuda_stream(op)), "a pool's gradient");
    return ERR_NONE;
}

/* Places of a window are counted in 16 bits, sides of an image in 31. */
static bool pool_takes(const struct op_desc *d) {
    enum { SIDE = 1 << 24 };
    int64_t places = (int64_t)d->pool.window.kernel[0] * d->pool.window.kernel[1];
    return d->x_layout == d->y_layout && d->x_layout != LAYOUT_BLOCKED && places <= 1 << 16 && d->act == ACT_NONE &&
           d->x.dim[1] <= SIDE && d->x.dim[2] <= SIDE;
}

static enum error max_or_mean_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    int64_t places = (int64_t)d->pool.window.kernel[0] * d->pool.window.kernel[1];
    if (d->pool.kind == POOL_MAX) op->saved_bytes = (size_t)op_ys(d) * (places <= 256 ? 1 : 2);
    return ERR_NONE;
}

const struct op_impl cuda_pool2d = {
    .name = "cuda",
    .takes = pool_takes,
    .plan = max_or_mean_plan,
    .forward = pool_forward,
    .backward = pool_backward,
};
