/* layernorm, rmsnorm and groupnorm on a GPU. What is kept of a row, or of a group, is its mean and 1 / sqrt(var + eps). */
#include "engine/device/cuda/image.h"
#include "engine/device/cuda/norm_launch.h"

static struct norm_call norm_call(const struct op_desc *d, const struct op_args *a) {
    return (struct norm_call){.x_type = element_read(d),
                              .type = element_of(d->precision),
                              .rows = op_rows(d),
                              .width = shape_last(&d->x),
                              .eps = d->norm.eps,
                              .centred = d->kind == OP_LAYERNORM,
                              .x = a->x[0],
                              .dy = a->dy,
                              .y = a->y,
                              .dx = a->dx[0],
                              .add = a->add_dx,
                              .w = a->w[0],
                              .shift = d->norm.bias ? a->w[1] : NULL,
                              .moments = a->training ? a->saved : NULL,
                              .dw = a->dw[0],
                              .db = d->norm.bias ? a->dw[1] : NULL,
                              .partial = a->scratch};
}

static enum error norm_forward(struct op *op, const struct op_args *a) {
    struct norm_call c = norm_call(&op->desc, a);
    CU(norm_forward_launch(&c, cuda_stream(op)), op_row(op->desc.kind)->name);
    return ERR_NONE;
}

static enum error norm_backward(struct op *op, const struct op_args *a) {
    struct norm_call c = norm_call(&op->desc, a);
    CU(norm_backward_launch(&c, cuda_stream(op)), op_row(op->desc.kind)->name);
    return ERR_NONE;
}

static enum error norm_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    int64_t floats = norm_groups(op_rows(d)) * shape_last(&d->x) * (d->norm.bias ? 2 : 1);
    op->saved_bytes = (size_t)op_rows(d) * 2 * sizeof(float);
    op->scratch_bytes = (size_t)floats * sizeof(float);
    op->adds_dx = true;
    return ERR_NONE;
}

const struct op_impl cuda_layernorm = {
    .name = "kernel",
    .plan = norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
};
const struct op_impl cuda_rmsnorm = {
    .name = "kernel",
    .plan = norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
};

/* ---- groupnorm: of images that lie (n, h, w, c), or of features ------------------------------ */
static struct norm_call group_call(const struct op_desc *d, const struct op_args *a) {
    struct norm_call c = norm_call(d, a);
    c.rows = d->n, c.width = d->x.dim[0];
    c.area = shape_count(&d->x) / c.width, c.groups = d->own.whole;
    return c;
}

static enum error group_forward(struct op *op, const struct op_args *a) {
    struct norm_call c = group_call(&op->desc, a);
    CU(group_forward_launch(&c, cuda_stream(op)), "groupnorm");
    return ERR_NONE;
}

static enum error group_backward(struct op *op, const struct op_args *a) {
    struct norm_call c = group_call(&op->desc, a);
    CU(group_backward_launch(&c, cuda_stream(op)), "groupnorm");
    return ERR_NONE;
}

static bool group_takes(const struct op_desc *d) {
    return d->act == ACT_NONE && lies(&d->x, d->x_layout, LAYOUT_LAST) && lies(&d->y, d->y_layout, LAYOUT_LAST) &&
           d->n <= INT32_MAX / d->own.whole; /* blocks of a launch */
}

static enum error group_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->saved_bytes = (size_t)(d->n * d->own.whole) * 2 * sizeof(float);
    if (d->norm.bias) op->scratch_bytes = (size_t)(d->n * d->x.dim[0]) * 2 * sizeof(float);
    return ERR_NONE;
}

const struct op_impl cuda_groupnorm = {
    .name = "kernel",
    .takes = group_takes,
    .plan = group_plan,
    .forward = group_forward,
    .backward = group_backward,
};
