/* Dropout and add, plain. */
#include "engine/base/rng.h"
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"

/* ---- dropout: whether an element stays is a function of (seed, layer, sample, element) ------ */
static void dropout_factor(const struct op_desc *d, const struct op_args *a, const float *from, float *to) {
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
        dropout_factor(&op->desc, a, a->x[0], a->y);
    else
        for (int64_t k = 0; k < op_xs(&op->desc); k++) a->y[k] = a->x[0][k];
    return ERR_NONE;
}

static enum error dropout_backward(struct op *op, const struct op_args *a) {
    if (a->dx[0]) dropout_factor(&op->desc, a, a->dy, a->dx[0]);
    return ERR_NONE;
}

static bool dropout_fits(const struct op_desc *d) {
    return shape_equal(&d->x, &d->y) && d->dropout.p >= 0 && d->dropout.p < 1;
}

/* Nothing is dropped once training is over. */
static const char *dropout_onnx(const struct onnx_form *f) {
    return f->x[0];
}

const struct op_row op_dropout = {
    .name = "dropout",
    .sees = SEES_ROW,
    .elementwise = true,
    .fits = dropout_fits,
    .onnx = dropout_onnx,
    .plain = {.name = "ref", .forward = dropout_forward, .backward = dropout_backward},
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

static const char *add_onnx(const struct onnx_form *f) {
    return onnx_binary(f->g, "Add", f->name, f->x[0], f->x[1]);
}

const struct op_row op_add = {
    .name = "add",
    .sees = SEES_ROW,
    .elementwise = true,
    .same_dx = true,
    .fuses = true,
    .onnx = add_onnx,
    .plain = {.name = "ref", .forward = add_forward, .backward = add_backward},
};
