/* What makes sequences, and what reduces them, on a GPU: embedding, position, prepend, select, tokens, mean. x of data
 * is f32; what is read from it has the type of activations. */
#include "engine/device/cuda/cuda.h"
#include "engine/device/cuda/image_launch.h"
#include "engine/device/cuda/sequence_launch.h"
#include "engine/device/impl.h"

static bool is_plain(const struct op_desc *d) {
    return d->x_layout == LAYOUT_PLAIN && d->y_layout == LAYOUT_PLAIN;
}

/* Whether x and y lie plain or channels last, as the GPU's images do; where y is no image, its layout says nothing. */
static bool is_gpu_image(const struct op_desc *d) {
    return (d->x_layout == LAYOUT_PLAIN || d->x_layout == LAYOUT_LAST) &&
           (d->y_layout == LAYOUT_PLAIN || d->y_layout == LAYOUT_LAST);
}

/* The call that moves rows of y's length from x to y. */
static struct rows_call rows_forward(const struct op *op, const struct op_args *a, enum rows_kind kind) {
    const struct op_desc *d = &op->desc;
    return (struct rows_call){.kind = kind,
                              .from = element_read(d),
                              .to = element_of(d->precision),
                              .count = op_ys(d) / shape_last(&d->y),
                              .width = shape_last(&d->y),
                              .positions = d->x.dim[0],
                              .x = a->x[0],
                              .w = a->w[0],
                              .y = a->y};
}

/* The call that moves rows from dy to dx. */
static struct rows_call rows_backward(const struct op *op, const struct op_args *a, enum rows_kind kind) {
    const struct op_desc *d = &op->desc;
    enum element type = element_of(d->precision);
    return (struct rows_call){.kind = kind,
                              .from = type,
                              .to = type,
                              .count = op_xs(d) / shape_last(&d->y),
                              .width = shape_last(&d->y),
                              .positions = d->x.dim[0],
                              .x = a->dy,
                              .y = a->dx[0]};
}

static enum error copy_back(const struct op *op, const struct op_args *a) {
    size_t bytes = (size_t)op_xs(&op->desc) * element_bytes(element_of(op->desc.precision));
    if (!a->dx[0]) return ERR_NONE;
    CU(cudaMemcpyAsync(a->dx[0], a->dy, bytes, cudaMemcpyDeviceToDevice, cuda_stream(op)), op_row(op->desc.kind)->name);
    return ERR_NONE;
}

#define CUDA_SEQUENCE(what, how)                                                                                       \
    const struct op_impl cuda_##what = {                                                                               \
        .name = "kernels",                                                                                             \
        .takes = how,                                                                                                  \
        .forward = what##_forward,                                                                                     \
        .backward = what##_backward,                                                                                   \
    };

/* ---- embedding ------------------------------------------------------------------------------ */
static bool embedding_takes(const struct op_desc *d) {
    /* no half type has room for tokens */
    return is_plain(d) && (d->first || !cuda_is_half(d)) && op_xs(d) <= EMBEDDING_ROWS_MOST;
}

static enum error embedding_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct rows_call r = rows_forward(op, a, ROWS_TOKEN);
    r.from = r.to;
    r.x = cuda_is_half(d) ? a->w_low[0] : (const void *)a->w[0];
    r.w = NULL;
    r.token = a->x[0];
    r.vocabulary = d->embedding.vocabulary;
    r.fault = cuda_of(op)->fault_there, r.fault_code = FAULT_TOKEN;
    CU(rows_move(&r, cuda_stream(op)), "embedding");
    return ERR_NONE;
}

static enum error embedding_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct embedding_back e = {.type = element_of(d->precision),
                               .rows = op_xs(d),
                               .width = shape_last(&d->y),
                               .vocabulary = d->embedding.vocabulary,
                               .token = a->x[0],
                               .dy = a->dy,
                               .dw = a->dw[0],
                               .add = a->add_dw,
                               .scratch = a->scratch};
    CU(embedding_back(&e, cuda_stream(op)), "embedding");
    if (a->dx[0]) /* a token has no gradient */
        CU(cudaMemsetAsync(a->dx[0], 0, (size_t)op_xs(d) * element_bytes(element_of(d->precision)), cuda_stream(op)),
           "embedding");
    return ERR_NONE;
}

static enum error embedding_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->scratch_bytes = embedding_back_bytes(op_xs(d), d->embedding.vocabulary);
    return ERR_NONE;
}

const struct op_impl cuda_embedding = {
    .name = "kernels",
    .takes = embedding_takes,
    .plan = embedding_plan,
    .forward = embedding_forward,
    .backward = embedding_backward,
};

/* ---- position ------------------------------------------------------------------------------- */
static enum error position_forward(struct op *op, const struct op_args *a) {
    struct rows_call r = rows_forward(op, a, ROWS_ADD);
    if (op->desc.x.ndim == 1) r.positions = 1;
    CU(rows_move(&r, cuda_stream(op)), "position");
    return ERR_NONE;
}

static enum error position_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t each = shape_count(&d->x);
    CU(samples_sum(element_of(d->precision), a->dy, d->n, each, each, a->dw[0], cuda_stream(op)), "position");
    return copy_back(op, a);
}

static bool position_takes(const struct op_desc *d) {
    return is_plain(d) && d->x.ndim <= 2;
}

CUDA_SEQUENCE(position, position_takes)

/* ---- prepend -------------------------------------------------------------------------------- */
static enum error prepend_forward(struct op *op, const struct op_args *a) {
    struct rows_call r = rows_forward(op, a, ROWS_BEHIND_W);
    CU(rows_move(&r, cuda_stream(op)), "prepend");
    return ERR_NONE;
}

static enum error prepend_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct rows_call r = rows_backward(op, a, ROWS_WITHOUT_FIRST);
    CU(samples_sum(r.from, a->dy, d->n, shape_count(&d->y), r.width, a->dw[0], cuda_stream(op)), "prepend");
    if (a->dx[0]) CU(rows_move(&r, cuda_stream(op)), "prepend");
    return ERR_NONE;
}

CUDA_SEQUENCE(prepend, is_plain)

/* ---- select --------------------------------------------------------------------------------- */
static enum error select_forward(struct op *op, const struct op_args *a) {
    struct rows_call r = rows_forward(op, a, ROWS_SELECT);
    r.which = op->desc.select.row;
    CU(rows_move(&r, cuda_stream(op)), "select");
    return ERR_NONE;
}

static enum error select_backward(struct op *op, const struct op_args *a) {
    struct rows_call r = rows_backward(op, a, ROWS_PLACE);
    r.which = op->desc.select.row;
    if (a->dx[0]) CU(rows_move(&r, cuda_stream(op)), "select");
    return ERR_NONE;
}

CUDA_SEQUENCE(select, is_plain)

/* ---- tokens: an image whose channels are last is a sequence already ---------------------------- */
static enum error tokens_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    const struct rows_call r = rows_forward(op, a, ROWS_SAME);
    const struct turn t = {r.from, r.to, a->x[0], a->y, d->n, d->y.dim[1], d->y.dim[0]};
    bool last = d->x_layout == LAYOUT_LAST;
    CU(last ? rows_move(&r, cuda_stream(op)) : turn_launch(&t, cuda_stream(op)), "tokens");
    return ERR_NONE;
}

static enum error tokens_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    enum element type = element_of(d->precision);
    const struct turn t = {type, type, a->dy, a->dx[0], d->n, d->y.dim[0], d->y.dim[1]};
    if (d->x_layout == LAYOUT_LAST) return copy_back(op, a);
    if (t.to) CU(turn_launch(&t, cuda_stream(op)), "tokens");
    return ERR_NONE;
}

CUDA_SEQUENCE(tokens, is_gpu_image)

/* ---- mean ----------------------------------------------------------------------------------- */
/* Whether values of one place of x lie side by side, and those of one feature apart. */
static bool features_last(const struct op_desc *d) {
    return d->x.ndim == 2 || d->x_layout == LAYOUT_LAST;
}

static enum error mean_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    enum element from = element_read(d), to = element_of(d->precision);
    int64_t width = shape_last(&d->y), places = shape_count(&d->x) / width;
    cudaStream_t stream = cuda_stream(op);
    CU(features_last(d) ? mean_of_rows(from, to, a->x[0], d->n, places, width, a->y, stream)
                        : mean_of_planes(from, to, a->x[0], d->n * width, places, a->y, stream),
       "mean");
    return ERR_NONE;
}

static enum error mean_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct rows_call r = rows_backward(op, a, ROWS_SPREAD);
    r.positions = shape_count(&d->x) / r.width;
    if (!a->dx[0]) return ERR_NONE;
    CU(features_last(d) ? rows_move(&r, cuda_stream(op))
                        : mean_of_planes_back(r.from, a->dy, d->n * r.width, r.positions, a->dx[0], cuda_stream(op)),
       "mean");
    return ERR_NONE;
}

CUDA_SEQUENCE(mean, is_gpu_image)
