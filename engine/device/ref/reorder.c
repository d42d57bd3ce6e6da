/* y is x in the other layout; dx is dy, back. The one op of plain C that knows of blocks. */
#include "engine/device/ref/ref.h"

/* The offset in this layout of element k of a plain batch. */
static int64_t place_of(const struct op_desc *d, enum layout layout, int64_t k) {
    int64_t area = d->x.ndim == 3 ? d->x.dim[1] * d->x.dim[2] : 1;
    if (layout == LAYOUT_PLAIN) return k;
    int64_t plane = k / area, lane = plane % LAYOUT_BLOCK;
    return (plane - lane) * area + k % area * LAYOUT_BLOCK + lane;
}

static enum error reorder_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    for (int64_t k = 0; k < op_xs(d); k++) a->y[place_of(d, d->y_layout, k)] = a->x[0][place_of(d, d->x_layout, k)];
    return ERR_NONE;
}

static enum error reorder_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    for (int64_t k = 0; k < op_xs(d) && a->dx[0]; k++)
        a->dx[0][place_of(d, d->x_layout, k)] = a->dy[place_of(d, d->y_layout, k)];
    return ERR_NONE;
}

const struct op_row op_reorder = {
    .name = "reorder",
    .plain = {.name = "ref", .takes = op_takes_any, .forward = reorder_forward, .backward = reorder_backward},
};
