/* Images from one layout to the other: a block of one sample is a matrix of 16 channels by places,
 * turned. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/gemm.h"

#include <string.h>

enum { B = LAYOUT_BLOCK };

struct pass {
    int64_t area; /* places of an image */
    bool to_blocked;
    const float *from;
    float *to;
};

static void reorder_blocks(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    for (int64_t k = begin * B * p->area; k < end * B * p->area; k += B * p->area)
        if (p->to_blocked)
            transpose(B, p->area, p->from + k, p->area, p->to + k, B);
        else
            transpose(p->area, B, p->from + k, B, p->to + k, p->area);
}

static void reorder_image(const struct op *op, enum layout from_layout, const float *from, enum layout to_layout,
                          float *to) {
    const struct op_desc *d = &op->desc;
    if (from_layout == to_layout) {
        memcpy(to, from, (size_t)op_xs(d) * sizeof *to);
        return;
    }
    struct pass p = {d->x.dim[1] * d->x.dim[2], to_layout == LAYOUT_BLOCKED, from, to};
    cpu_parallel(op->dev, d->n * (d->x.dim[0] / B), 1, reorder_blocks, &p);
}

static enum error reorder_forward(struct op *op, const struct op_args *a) {
    reorder_image(op, op->desc.x_layout, a->x[0], op->desc.y_layout, a->y);
    return ERR_NONE;
}

static enum error reorder_backward(struct op *op, const struct op_args *a) {
    if (a->dx[0]) reorder_image(op, op->desc.y_layout, a->dy, op->desc.x_layout, a->dx[0]);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_reorder) = {
    .name = "vector",
    .takes = op_takes_any,
    .forward = reorder_forward,
    .backward = reorder_backward,
};
