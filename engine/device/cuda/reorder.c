/* Images from one layout to the other; data becomes what activations are on the way. Rows, and images that stay as
 * they lie, are copied. */
#include "engine/device/cuda/image.h"
#include "engine/device/cuda/parts.h"

static int64_t places(const struct op_desc *d) {
    return d->x.ndim == 3 ? d->x.dim[1] * d->x.dim[2] : 1;
}

/* n samples as they lie. */
static enum error copy(struct op *op, enum value from_v, const void *from, enum value to_v, void *to) {
    const struct op_desc *d = &op->desc;
    struct device *dev = op->dev;
    if (from_v != to_v) return cuda_lower(dev, LANE_COMPUTE, to, from, op_xs(d), d->precision);
    size_t bytes = (size_t)op_xs(d) * (size_t)value_bytes(to_v);
    CU(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_stream(op)), "a copy of images");
    return ERR_NONE;
}

/* A sample that lies plain is (channels, places). */
static enum error turn(struct op *op, enum layout layout, enum value from_v, const void *from, enum value to_v,
                       void *to) {
    const struct op_desc *d = &op->desc;
    int64_t c = d->x.dim[0], rows = layout == LAYOUT_PLAIN ? c : places(d);
    if (d->x_layout == d->y_layout || places(d) == 1 || c == 1) return copy(op, from_v, from, to_v, to);
    CU(turn_launch(from_v, from, to_v, to, d->n, rows, c * places(d) / rows, cuda_stream(op)),
       "images in another layout");
    return ERR_NONE;
}

static enum error reorder_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    return turn(op, d->x_layout, value_of_x(d), a->x[0], value_of(d->precision), a->y);
}

static enum error reorder_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    enum value v = value_of(d->precision);
    if (!a->dx[0] || d->first) return ERR_NONE;
    return turn(op, d->y_layout, v, a->dy, v, a->dx[0]);
}

static bool reorder_takes(const struct op_desc *d) {
    return d->x_layout != LAYOUT_BLOCKED && d->y_layout != LAYOUT_BLOCKED;
}

const struct op_impl cuda_reorder = {
    .name = "cuda",
    .takes = reorder_takes,
    .forward = reorder_forward,
    .backward = reorder_backward,
};
