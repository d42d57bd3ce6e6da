/* layernorm and rmsnorm on a GPU. What is kept of a row is its mean and 1 / sqrt(var + eps). */
#include "engine/device/cuda/cuda.h"
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
                              .w = a->w[0],
                              .shift = d->norm.bias ? a->w[1] : NULL,
                              .moments = a->training ? a->saved : NULL,
                              .dw = a->dw[0],
                              .db = d->norm.bias ? a->dw[1] : NULL,
                              .partial = a->scratch};
}

static enum error norm_forward(struct op *op, const struct op_args *a) {
    struct norm_call c = norm_call(&op->desc, a);
    CU(norm_forward_launch(&c, cuda_stream(op)), op_kind_name(op->desc.kind));
    return ERR_NONE;
}

static enum error norm_backward(struct op *op, const struct op_args *a) {
    struct norm_call c = norm_call(&op->desc, a);
    CU(norm_backward_launch(&c, cuda_stream(op)), op_kind_name(op->desc.kind));
    return ERR_NONE;
}

static enum error norm_create(const struct op_impl *impl, struct device *dev, const struct op_desc *d,
                              struct op **out) {
    TRY(op_create_plain(impl, dev, d, out));
    int64_t floats = norm_groups(op_rows(d)) * shape_last(&d->x) * (d->norm.bias ? 2 : 1);
    (*out)->saved_bytes = (size_t)op_rows(d) * 2 * sizeof(float);
    (*out)->scratch_bytes = (size_t)floats * sizeof(float);
    return ERR_NONE;
}

static enum error layernorm_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return norm_create(&cuda_layernorm, dev, d, out);
}

static enum error rmsnorm_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return norm_create(&cuda_rmsnorm, dev, d, out);
}

const struct op_impl cuda_layernorm = {
    .name = "kernel",
    .takes = op_takes_plain,
    .create = layernorm_create,
    .forward = norm_forward,
    .backward = norm_backward,
    .free = op_release,
};
const struct op_impl cuda_rmsnorm = {
    .name = "kernel",
    .takes = op_takes_plain,
    .create = rmsnorm_create,
    .forward = norm_forward,
    .backward = norm_backward,
    .free = op_release,
};
