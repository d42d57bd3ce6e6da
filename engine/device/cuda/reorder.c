/* Images from one layout to the other; data becomes what activations are on the way. Rows, and images that stay as
 * they lie, are copied. */
#include "engine/device/cuda/image.h"
#include "engine/device/cuda/parts.h"

static int64_t places(const struct op_desc *d) {
    return d->x.ndim == 3 ? d->x.dim[1] * d->x.dim[2] : 1;
}

/* n samples as they lie. */
static enum error samples_copy(struct op *op, const struct turn *t) {
    const struct op_desc *d = &op->desc;
    if (t->from_type != t->to_type) return cuda_lower(op->dev, LANE_COMPUTE, t->to, t->from, op_xs(d), d->precision);
    return cuda_copy(op->dev, LANE_COMPUTE, t->to, op->dev, t->from, (size_t)op_xs(d) * element_bytes(t->to_type));
}

/* Describes the turn from images of that layout. A sample that lies plain is (channels, places). */
static enum error turn_from(struct op *op, enum layout layout, struct turn *t) {
    const struct op_desc *d = &op->desc;
    int64_t c = d->x.dim[0];
    if (d->x_layout == d->y_layout || places(d) == 1 || c == 1) return samples_copy(op, t);
    t->n = d->n;
    t->rows = layout == LAYOUT_PLAIN ? c : places(d);
    t->columns = c * places(d) / t->rows;
    CU(turn_launch(t, cuda_stream(op)), "images in another layout");
    return ERR_NONE;
}

static enum error reorder_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct turn t = {element_read(d), element_of(d->precision), .from = a->x[0], .to = a->y};
    return turn_from(op, d->x_layout, &t);
}

static enum error reorder_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct turn t = {element_of(d->precision), element_of(d->precision), .from = a->dy, .to = a->dx[0]};
    return !t.to || d->first ? ERR_NONE : turn_from(op, d->y_layout, &t);
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
