/* Cross-entropy, mean squared error and binary cross-entropy on a GPU. A label outside its classes comes to light at the next wait. */
#include "engine/device/cuda/cuda.h"
#include "engine/device/cuda/loss_launch.h"

static struct loss_call loss_call(const struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    double rows = (double)(shape_count(&d->x) / shape_last(&d->x));
    int64_t unit = (int64_t)element_bytes(element_read(d));
    return (struct loss_call){.x_type = element_read(d),
                              .type = element_of(d->precision),
                              .rows = op_rows(d),
                              .width = shape_last(&d->x),
                              .pitch = shape_pitch(&d->x, d->x_layout, unit),
                              .x = a->x[0],
                              .dx = a->dx[0],
                              .labels = a->labels,
                              .others = a->others,
                              .shares = a->shares,
                              .class_weights = a->class_weights,
                              .rows_each = op_rows(d) / d->n,
                              .smoothing = a->smoothing,
                              .soft = loss_is_soft(a),
                              .target = a->target,
                              .found = a->scratch,
                              .sums = a->sums,
                              .top = a->labels ? a->top : NULL,
                              .loss_share = rows,
                              .right_share = rows,
                              .fault = cuda_of(op)->fault_there,
                              .wrong = FAULT_LABEL};
}

static size_t found_bytes(const struct op_desc *d) {
    return (size_t)op_rows(d) * sizeof(struct loss_row);
}

/* ---- cross-entropy -------------------------------------------------------------------------- */
static enum error cross_entropy_forward(struct op *op, const struct op_args *a) {
    struct loss_call c = loss_call(op, a);
    c.forward = true;
    c.y = a->y;
    c.kept = a->training && !c.dx ? a->saved : NULL;
    c.scale = a->scale / (float)c.loss_share;
    CU(cross_entropy_launch(&c, cuda_stream(op)), "cross_entropy");
    return ERR_NONE;
}

static enum error cross_entropy_backward(struct op *op, const struct op_args *a) {
    struct loss_call c = loss_call(op, a);
    if (!a->dx[0]) return ERR_NONE;
    c.kept = a->saved;
    c.scale = a->scale / (float)c.loss_share;
    CU(cross_entropy_launch(&c, cuda_stream(op)), "cross_entropy, backward");
    return ERR_NONE;
}

static enum error cross_entropy_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->saved_bytes = (size_t)op_rows(d) * sizeof(struct softmax_row);
    op->scratch_bytes = found_bytes(d);
    op->y_unread = op->slopes = true;
    return ERR_NONE;
}

static bool cross_entropy_takes(const struct op_desc *d) {
    return (d->x_layout == LAYOUT_PLAIN || d->x_layout == LAYOUT_ALIGNED) && d->y_layout == LAYOUT_PLAIN;
}

const struct op_impl cuda_cross_entropy = {
    .name = "kernel",
    .takes = cross_entropy_takes,
    .aligns = true,
    .plan = cross_entropy_plan,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
};

/* ---- mean squared error, binary cross-entropy: means over features --------------------------- */
static cudaError_t features_launch(const struct op *op, const struct op_args *a, bool forward) {
    struct loss_call c = loss_call(op, a);
    bool mse = op->desc.kind == OP_MSE;
    c.forward = forward;
    c.loss_share = (double)shape_count(&op->desc.x);
    c.scale = (mse ? 2 : 1) * a->scale / (float)c.loss_share;
    return (mse ? mse_launch : bce_launch)(&c, cuda_stream(op));
}

static enum error features_forward(struct op *op, const struct op_args *a) {
    CU(features_launch(op, a, true), op_row(op->desc.kind)->name);
    return ERR_NONE;
}

static enum error features_backward(struct op *op, const struct op_args *a) {
    if (a->dx[0]) CU(features_launch(op, a, false), op_row(op->desc.kind)->name);
    return ERR_NONE;
}

static enum error features_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->scratch_bytes = found_bytes(d);
    op->y_unread = true;
    return ERR_NONE;
}

const struct op_impl cuda_mse = {
    .name = "kernel",
    .plan = features_plan,
    .forward = features_forward,
    .backward = features_backward,
};

const struct op_impl cuda_bce = {
    .name = "kernel",
    .plan = features_plan,
    .forward = features_forward,
    .backward = features_backward,
};
