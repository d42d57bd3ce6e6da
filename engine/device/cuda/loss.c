/* Cross-entropy, mean squared error and binary cross-entropy on a GPU. A label outside its classes comes to light at the next wait. */
#include "engine/device/cuda/cuda.h"
#include "engine/device/cuda/loss_launch.h"

static struct loss_call loss_call(const struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    double rows = (double)(shape_count(&d->x) / shape_last(&d->x));
    return (struct loss_call){.x_type = element_read(d),
                              .type = element_of(d->precision),
                              .rows = op_rows(d),
                              .width = shape_last(&d->x),
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
    c.y = a->y;
    c.kept = a->training ? a->saved : NULL;
    CU(cross_entropy_forward_launch(&c, cuda_stream(op)), "cross_entropy");
    return ERR_NONE;
}

static enum error cross_entropy_backward(struct op *op, const struct op_args *a) {
    struct loss_call c = loss_call(op, a);
    if (!a->dx[0]) return ERR_NONE;
    c.kept = a->saved;
    c.scale = a->scale / (float)c.loss_share;
    CU(cross_entropy_backward_launch(&c, cuda_stream(op)), "cross_entropy, backward");
    return ERR_NONE;
}

static enum error cross_entropy_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->saved_bytes = (size_t)op_rows(d) * sizeof(struct softmax_row);
    op->scratch_bytes = found_bytes(d);
    op->y_unread = true;
    return ERR_NONE;
}

const struct op_impl cuda_cross_entropy = {
    .name = "kernel",
    .plan = cross_entropy_plan,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
};

/* ---- mean squared error, binary cross-entropy: means over features --------------------------- */
static struct loss_call features_call(const struct op *op, const struct op_args *a, float slope) {
    struct loss_call c = loss_call(op, a);
    c.loss_share = (double)shape_count(&op->desc.x);
    c.scale = slope * a->scale / (float)c.loss_share;
    return c;
}

static enum error mse_forward(struct op *op, const struct op_args *a) {
    struct loss_call c = features_call(op, a, 2);
    CU(mse_forward_launch(&c, cuda_stream(op)), "mse");
    return ERR_NONE;
}

static enum error mse_backward(struct op *op, const struct op_args *a) {
    struct loss_call c = features_call(op, a, 2);
    if (a->dx[0]) CU(mse_backward_launch(&c, cuda_stream(op)), "mse, backward");
    return ERR_NONE;
}

static enum error bce_forward(struct op *op, const struct op_args *a) {
    struct loss_call c = features_call(op, a, 1);
    CU(bce_forward_launch(&c, cuda_stream(op)), "bce");
    return ERR_NONE;
}

static enum error bce_backward(struct op *op, const struct op_args *a) {
    struct loss_call c = features_call(op, a, 1);
    if (a->dx[0]) CU(bce_backward_launch(&c, cuda_stream(op)), "bce, backward");
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
    .forward = mse_forward,
    .backward = mse_backward,
};

const struct op_impl cuda_bce = {
    .name = "kernel",
    .plan = features_plan,
    .forward = bce_forward,
    .backward = bce_backward,
};
