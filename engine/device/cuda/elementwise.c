/* Activation, dropout and add on a GPU. */
#include "engine/base/rng.h"
#include "engine/device/cuda/cuda.h"
#include "engine/device/cuda/elementwise_launch.h"

/* One layout for all that is read and written. */
static bool layouts_equal(const struct op_desc *d) {
    return d->x_layout == d->y_layout;
}

/* ---- activation ----------------------------------------------------------------------------- */
static enum error activation_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    CU(act_launch(d->act, d->act_alpha, element_read(d), element_of(d->precision), a->x[0], a->y, op_xs(d),
                  cuda_stream(op)),
       "activation");
    return ERR_NONE;
}

static enum error activation_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    if (!a->dx[0]) return ERR_NONE;
    CU(act_back_launch(d->act, d->act_alpha, element_of(d->precision), a->x[0], a->dy, a->dx[0], op_xs(d),
                       cuda_stream(op)),
       "activation, backward");
    return ERR_NONE;
}

const struct op_impl cuda_activation = {
    .name = "kernel",
    .takes = layouts_equal,
    .forward = activation_forward,
    .backward = activation_backward,
};

/* ---- dropout -------------------------------------------------------------------------------- */
static bool dropout_takes(const struct op_desc *d) {
    return d->x_layout == d->y_layout && d->x_layout != LAYOUT_BLOCKED;
}

static struct dropout_call dropout_call(const struct op_desc *d, const struct op_args *a) {
    struct rng_key key = rng_key(a->seed, RNG_DROPOUT);
    return (struct dropout_call){.key = {key.k[0], key.k[1]},
                                 .stream = (uint64_t)d->dropout.layer << 40,
                                 .ids = a->ids,
                                 .n = d->n,
                                 .each = shape_count(&d->x),
                                 .channels = d->x_layout == LAYOUT_LAST ? d->x.dim[0] : 1,
                                 .p = d->dropout.p,
                                 .grow = 1 / (1 - d->dropout.p)};
}

static enum error dropout_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    enum element from = element_read(d), to = element_of(d->precision);
    struct dropout_call c = dropout_call(d, a);
    if (a->training)
        CU(dropout_launch(&c, from, to, a->x[0], a->y, cuda_stream(op)), "dropout");
    else
        CU(act_launch(ACT_NONE, 0, from, to, a->x[0], a->y, op_xs(d), cuda_stream(op)), "dropout");
    return ERR_NONE;
}

static enum error dropout_backward(struct op *op, const struct op_args *a) {
    enum element type = element_of(op->desc.precision);
    struct dropout_call c = dropout_call(&op->desc, a);
    if (!a->dx[0]) return ERR_NONE;
    CU(dropout_launch(&c, type, type, a->dy, a->dx[0], cuda_stream(op)), "dropout, backward");
    return ERR_NONE;
}

const struct op_impl cuda_dropout = {
    .name = "kernel",
    .takes = dropout_takes,
    .forward = dropout_forward,
    .backward = dropout_backward,
};

/* ---- add ------------------------------------------------------------------------------------ */
static bool add_takes(const struct op_desc *d) {
    return layouts_equal(d) && act_is_fused(d->act);
}

static enum error add_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    CU(add_launch(d->act == ACT_RELU, element_read(d), element_of(d->precision), a->x[0], a->x[1], a->y, op_xs(d),
                  cuda_stream(op)),
       "add");
    return ERR_NONE;
}

/* Without an activation a side that is dy itself is done already. */
static enum error add_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    float *dx[2];
    for (int side = 0; side < 2; side++) dx[side] = d->act == ACT_NONE && a->dx[side] == a->dy ? NULL : a->dx[side];
    if (dx[1] == dx[0]) dx[1] = NULL; /* both in one place */
    if (!dx[0] && !dx[1]) return ERR_NONE;
    CU(add_back_launch(d->act == ACT_RELU, element_of(d->precision), a->y, a->dy, dx[0], dx[1], op_xs(d),
                       cuda_stream(op)),
       "add, backward");
    return ERR_NONE;
}

const struct op_impl cuda_add = {
    .name = "kernel",
    .takes = add_takes,
    .forward = add_forward,
    .backward = add_backward,
};
