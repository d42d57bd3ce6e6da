/* y = act((x - mean) / sqrt(var + eps) w0 + w1 [+ x1]) of each channel, on images (n, h, w, c) or rows of c features. What is
 * saved are means, then 1 / sqrt(var + eps). */
#include "engine/device/cuda/image.h"

struct batchnorm {
    struct op op;
    struct channels_cut cut;
    size_t line; /* in scratch, after the partial sums */
};

static struct norm_launch launch_of(const struct batchnorm *b, const struct op_args *a) {
    const struct op_desc *d = &b->op.desc;
    return (struct norm_launch){.x_type = element_read(d),
                                .cut = b->cut,
                                .x = a->x[0],
                                .joined = a->x[1],
                                .dy = a->dy,
                                .djoined = a->dx[1],
                                .y = a->y,
                                .dx = d->first ? NULL : a->dx[0],
                                .w = a->w[0],
                                .b = a->w[1],
                                .dw = a->dw[0],
                                .db = a->dw[1],
                                .saved = a->saved,
                                .part = a->scratch,
                                .line = (float *)((char *)a->scratch + b->line),
                                .eps = d->norm.eps,
                                .momentum = d->norm.momentum,
                                .relu = d->act == ACT_RELU};
}

static enum error norm_forward(struct op *op, const struct op_args *a) {
    const struct batchnorm *b = (const struct batchnorm *)op;
    struct norm_launch l = launch_of(b, a);
    if (a->sync)
        return FAIL(ERR_DEVICE, "batchnorm over several batches is not to be had on a GPU\n"
                                "set sync_batchnorm: false, or train on the CPU");
    TRY(norm_check_count(a, b->cut.rows));
    for (int i = 0; i < 2; i++) l.running[i] = a->training && !a->update_buffers ? NULL : a->buffer[i];
    if (a->training) CU(norm_measure_launch(&l, cuda_stream(op)), "a batchnorm's moments");
    CU(norm_apply_launch(&l, a->training, cuda_stream(op)), "a batchnorm");
    return ERR_NONE;
}

static enum error norm_backward(struct op *op, const struct op_args *a) {
    struct norm_launch l = launch_of((const struct batchnorm *)op, a);
    CU(norm_gradient_launch(&l, cuda_stream(op)), "a batchnorm's gradient");
    return ERR_NONE;
}

static bool norm_takes(const struct op_desc *d) {
    return d->x.ndim != 2 && act_is_fused(d->act) && lies(&d->x, d->x_layout, LAYOUT_LAST) &&
           lies(&d->y, d->y_layout, LAYOUT_LAST) && !(d->joins && d->first);
}

static enum error norm_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct batchnorm *b = (struct batchnorm *)op;
    int64_t channels = d->x.dim[0];
    size_t end = 0;
    b->cut = channels_cut(op_xs(d) / channels, channels, element_of(d->precision));
    piece(&end, (size_t)channels_part_floats(&b->cut) * sizeof(float));
    b->line = piece(&end, 3 * (size_t)channels * sizeof(float));
    b->op.scratch_bytes = end;
    b->op.saved_bytes = 2 * (size_t)channels * sizeof(float);
    return ERR_NONE;
}

const struct op_impl cuda_batchnorm = {
    .name = "cuda",
    .takes = norm_takes,
    .size = sizeof(struct batchnorm),
    .plan = norm_plan,
    .forward = norm_forward,
    .backward = norm_backward,
    .joins = true,
};
