/* Dropout and add, plain. */
#include "engine/base/rng.h"
#include "engine/device/ref/ref.h"

/* ---- dropout: whether an element stays is a function of (seed, layer, sample, element) ------ */
static void dropout(const struct op_desc *d, const struct op_args *a, const float *from, float *to) {
    int64_t each = shape_count(&d->x);
    float grow = 1 / (1 - d->dropout.p);
    struct rng_key key = rng_key(a->seed, RNG_DROPOUT);
    for (int64_t k = 0; k < op_xs(d); k++) {
        uint32_t words[4];
        uint64_t e = (uint64_t)(k % each);
        rng_words(key, a->ids[k / each], ((uint64_t)d->dropout.layer << 40) | (e / 4), words);
        to[k] = rng_unit(words[e % 4]) >= d->dropout.p ? from[k] * grow : 0;
    }
}

static enum error dropout_forward(struct op *op, const struct op_args *a) {
    if (a->training)
        dropout(&op->desc, a, a->x[0], a->y);
    else
        for (int64_t k = 0; k < op_xs(&op->desc); k++) a->y[k] = a->x[0][k];
    return ERR_NONE;
}

static enum error dropout_backward(struct op *op, const struct op_args *a) {
    if (a->dx[0]) dropout(&op->desc, a, a->dy, a->dx[0]);
    return ERR_NONE;
}

static enum error dropout_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&ref_dropout, dev, d, out);
}

const struct op_impl ref_dropout = {
    .name = "ref",
    .takes = op_takes_plain,
    .create = dropout_create,
    .forward = dropout_forward,
    .backward = dropout_backward,
    .free = op_release,
};

/* ---- add ------------------------------------------------------------------------------------ */
static enum error add_forward(struct op *op, const struct op_args *a) {
    for (int64_t k = 0; k < op_xs(&op->desc); k++) a->y[k] = act_forward(op->desc.act, a->x[0][k] + a->x[1][k]);
    return ERR_NONE;
}

static enum error add_backward(struct op *op, const struct op_args *a) {
    for (int side = 0; side < 2; side++)
        for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[side]; k++)
            a->dx[side][k] = act_backward(op->desc.act, a->y[k], a->dy[k]);
    return ERR_NONE;
}

static enum error add_create(struct device *dev, const struct op_desc *d, struct op **out) {
    return op_create_plain(&ref_add, dev, d, out);
}

const struct op_impl ref_add = {
    .name = "ref",
    .takes = op_takes_plain,
    .create = add_create,
    .forward = add_forward,
    .backward = add_backward,
    .free = op_release,
};
