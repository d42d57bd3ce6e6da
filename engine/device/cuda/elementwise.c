/* Activation, dropout and add on a GPU. */
#include "engine/base/rng.h"
#include "engine/device/cuda/cuda.h"
#include "engine/device/cuda/elementwise_launch.h"

/* One layout for all that is read and written. */
static bool layouts_equal(const struct op_desc *d) {
    return d->x_layout == d->y_layout;
}

static struct elements elements_of(const struct op_desc *d) {
    return (struct elements){.act = d->act,
                             .alpha = d->act_alpha,
                             .x_type = element_read(d),
                             .type = element_of(d->precision),
                             .n = op_xs(d)};
}

/* ---- activation ----------------------------------------------------------------------------- */
static enum error activation_forward(struct op *op, const struct op_args *a) {
    struct elements e = elements_of(&op->desc);
    e.x[0] = a->x[0], e.to[0] = a->y;
    CU(act_launch(&e, cuda_stream(op)), "activation");
    return ERR_NONE;
}

static enum error activation_backward(struct op *op, const struct op_args *a) {
    struct elements e = elements_of(&op->desc);
    e.x[0] = a->x[0], e.dy = a->dy, e.to[0] = a->dx[0];
    if (a->dx[0]) CU(act_back_launch(&e, cuda_stream(op)), "activation, backward");
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
    return (struct dropout_call){.from_type = element_read(d),
                                 .type = element_of(d->precision),
                                 .from = a->x[0],
                                 .to = a->y,
                                 .key = {key.k[0], key.k[1]},
                                 .stream = (uint64_t)d->dropout.layer << 40,
                                 .ids = a->ids,
                                 .n = d->n,
                                 .each = shape_count(&d->x),
                                 .channels = d->x_layout == LAYOUT_LAST ? d->x.dim[0] : 1,
                                 .p = d->dropout.p,
                                 .grow = 1 / (1 - d->dropout.p)};
}

static enum error dropout_forward(struct op *op, const struct op_args *a) {
    struct dropout_call c = dropout_call(&op->desc, a);
    struct elements e = elements_of(&op->desc);
    e.x[0] = a->x[0], e.to[0] = a->y;
    CU(a->training ? dropout_launch(&c, cuda_stream(op)) : act_launch(&e, cuda_stream(op)), "dropout");
    return ERR_NONE;
}

static enum error dropout_backward(struct op *op, const struct op_args *a) {
    struct dropout_call c = dropout_call(&op->desc, a);
    c.from_type = c.type, c.from = a->dy, c.to = a->dx[0];
    if (c.to) CU(dropout_launch(&c, cuda_stream(op)), "dropout, backward");
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
    struct elements e = elements_of(&op->desc);
    e.x[0] = a->x[0], e.x[1] = a->x[1], e.to[0] = a->y;
    CU(add_launch(&e, cuda_stream(op)), "add");
    return ERR_NONE;
}

/* dx of both sides: without an activation a side that is dy itself is done already. */
static enum error add_backward(struct op *op, const struct op_args *a) {
    struct elements e = elements_of(&op->desc);
    e.y = a->y, e.dy = a->dy;
    for (int side = 0; side < 2; side++) e.to[side] = e.act == ACT_NONE && a->dx[side] == a->dy ? NULL : a->dx[side];
    if (e.to[1] == e.to[0]) e.to[1] = NULL; /* both in one place */
    if (e.to[0] || e.to[1]) CU(add_back_launch(&e, cuda_stream(op)), "add, backward");
    return ERR_NONE;
}

const struct op_impl cuda_add = {
    .name = "kernel",
    .takes = add_takes,
    .forward = add_forward,
    .backward = add_backward,
};
