/* What makes sequences, and what reduces them: embedding, position, prepend, select, tokens, mean;
 * plain. */
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"

static void floats_zero(float *to, int64_t count) {
    for (int64_t k = 0; k < count; k++) to[k] = 0;
}

static void floats_copy(const float *from, int64_t count, float *to) {
    for (int64_t k = 0; k < count; k++) to[k] = from[k];
}

/* ---- embedding: a token has no gradient ----------------------------------------------------- */
static enum error embedding_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t features = shape_last(&d->y);
    for (int64_t i = 0; i < op_xs(d); i++) {
        TRY(token_check(a->x[0][i], d->embedding.vocabulary));
        floats_copy(a->w[0] + (int64_t)a->x[0][i] * features, features, a->y + i * features);
    }
    return ERR_NONE;
}

static enum error embedding_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t features = shape_last(&d->y);
    if (!a->add_dw) floats_zero(a->dw[0], d->embedding.vocabulary * features);
    for (int64_t i = 0; i < op_xs(d); i++)
        for (int64_t k = 0; k < features; k++) a->dw[0][(int64_t)a->x[0][i] * features + k] += a->dy[i * features + k];
    if (a->dx[0]) floats_zero(a->dx[0], op_xs(d));
    return ERR_NONE;
}

static bool embedding_fits(const struct op_desc *d) {
    const struct shape *x = &d->x, *y = &d->y;
    return x->ndim == 1 && y->ndim == 2 && y->dim[0] == x->dim[0] && d->embedding.vocabulary >= 1 &&
           d->embedding.vocabulary <= 1 << 24;
}

static void embedding_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = d->embedding.vocabulary * shape_last(&d->y);
}

static const char *embedding_onnx(const struct onnx_form *f) {
    return onnx_binary(f->g, "Gather", f->name, f->w[0], f->x[0]);
}

const struct op_row op_embedding = {
    .name = "embedding",
    .sees = SEES_TOKEN,
    .fits = embedding_fits,
    .weights = embedding_weights,
    .onnx = embedding_onnx,
    .plain = {.name = "ref", .forward = embedding_forward, .backward = embedding_backward},
};

/* ---- position ------------------------------------------------------------------------------- */
static enum error position_forward(struct op *op, const struct op_args *a) {
    int64_t each = shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc); k++) a->y[k] = a->x[0][k] + a->w[0][k % each];
    return ERR_NONE;
}

static enum error position_backward(struct op *op, const struct op_args *a) {
    int64_t each = shape_count(&op->desc.x);
    for (int64_t k = 0; k < each; k++) {
        double sum = 0;
        for (int64_t i = 0; i < op->desc.n; i++) sum += (double)a->dy[i * each + k];
        a->dw[0][k] = (float)sum;
    }
    if (a->dx[0]) floats_copy(a->dy, op_xs(&op->desc), a->dx[0]);
    return ERR_NONE;
}

static void position_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = shape_count(&d->x);
}

static const char *position_onnx(const struct onnx_form *f) {
    return onnx_binary(f->g, "Add", f->name, f->x[0], f->w[0]);
}

const struct op_row op_position = {
    .name = "position",
    .sees = SEES_PLACE,
    .weights = position_weights,
    .onnx = position_onnx,
    .plain = {.name = "ref", .forward = position_forward, .backward = position_backward},
};

/* ---- prepend -------------------------------------------------------------------------------- */
static enum error prepend_forward(struct op *op, const struct op_args *a) {
    int64_t x = shape_count(&op->desc.x), features = shape_last(&op->desc.x), y = x + features;
    for (int64_t i = 0; i < op->desc.n; i++) {
        floats_copy(a->w[0], features, a->y + i * y);
        floats_copy(a->x[0] + i * x, x, a->y + i * y + features);
    }
    return ERR_NONE;
}

static enum error prepend_backward(struct op *op, const struct op_args *a) {
    int64_t x = shape_count(&op->desc.x), features = shape_last(&op->desc.x), y = x + features;
    for (int64_t k = 0; k < features; k++) {
        double sum = 0;
        for (int64_t i = 0; i < op->desc.n; i++) sum += (double)a->dy[i * y + k];
        a->dw[0][k] = (float)sum;
    }
    for (int64_t i = 0; i < op->desc.n && a->dx[0]; i++) floats_copy(a->dy + i * y + features, x, a->dx[0] + i * x);
    return ERR_NONE;
}

static bool prepend_fits(const struct op_desc *d) {
    const struct shape *x = &d->x, *y = &d->y;
    return x->ndim == 2 && y->ndim == 2 && y->dim[0] == x->dim[0] + 1 && y->dim[1] == x->dim[1];
}

static void prepend_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = shape_last(&d->x);
}

/* The row for each sample, and what follows it. */
static const char *prepend_onnx(const struct onnx_form *f) {
    struct onnx_graph *g = f->g;
    const int64_t rest[] = {1, f->d->x.dim[1]};
    const char *samples =
        onnx_node(g, "Shape", onnx_name(g, f->name, "samples"), ONNX_LIST(f->x[0]), ONNX_LIST("start=0", "end=1"));
    const char *shape = onnx_node(g, "Concat", onnx_name(g, f->name, "shape"),
                                  ONNX_LIST(samples, onnx_ints(g, rest, 2)), ONNX_LIST("axis=0"));
    const char *rows = onnx_binary(g, "Expand", onnx_name(g, f->name, "rows"), f->w[0], shape);
    return onnx_node(g, "Concat", f->name, ONNX_LIST(rows, f->x[0]), ONNX_LIST("axis=1"));
}

const struct op_row op_prepend = {
    .name = "prepend",
    .fits = prepend_fits,
    .weights = prepend_weights,
    .onnx = prepend_onnx,
    .plain = {.name = "ref", .forward = prepend_forward, .backward = prepend_backward},
};

/* ---- select --------------------------------------------------------------------------------- */
static enum error select_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t x = shape_count(&d->x), features = shape_last(&d->x);
    for (int64_t i = 0; i < d->n; i++)
        floats_copy(a->x[0] + i * x + d->select.row * features, features, a->y + i * features);
    return ERR_NONE;
}

static enum error select_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int64_t x = shape_count(&d->x), features = shape_last(&d->x);
    if (a->dx[0]) floats_zero(a->dx[0], op_xs(d));
    for (int64_t i = 0; i < d->n && a->dx[0]; i++)
        floats_copy(a->dy + i * features, features, a->dx[0] + i * x + d->select.row * features);
    return ERR_NONE;
}

static bool select_fits(const struct op_desc *d) {
    const struct shape *x = &d->x, *y = &d->y;
    return x->ndim == 2 && y->ndim == 1 && y->dim[0] == x->dim[1] && d->select.row >= 0 && d->select.row < x->dim[0];
}

static const char *select_onnx(const struct onnx_form *f) {
    return onnx_node(f->g, "Gather", f->name, ONNX_LIST(f->x[0], onnx_ints(f->g, &f->d->select.row, -1)),
                     ONNX_LIST("axis=1"));
}

const struct op_row op_select = {
    .name = "select",
    .fits = select_fits,
    .onnx = select_onnx,
    .plain = {.name = "ref", .forward = select_forward, .backward = select_backward},
};

/* ---- tokens --------------------------------------------------------------------------------- */
/* The offset in (pixel, channel) of element k of a sample (channel, pixel). */
static int64_t turned_place(const struct op_desc *d, int64_t k) {
    int64_t channels = d->x.dim[0], pixels = d->y.dim[0];
    return k % pixels * channels + k / pixels;
}

static enum error tokens_forward(struct op *op, const struct op_args *a) {
    int64_t each = shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc); k++)
        a->y[k / each * each + turned_place(&op->desc, k % each)] = a->x[0][k];
    return ERR_NONE;
}

static enum error tokens_backward(struct op *op, const struct op_args *a) {
    int64_t each = shape_count(&op->desc.x);
    for (int64_t k = 0; k < op_xs(&op->desc) && a->dx[0]; k++)
        a->dx[0][k] = a->dy[k / each * each + turned_place(&op->desc, k % each)];
    return ERR_NONE;
}

static bool tokens_fits(const struct op_desc *d) {
    const struct shape *x = &d->x, *y = &d->y;
    return x->ndim == 3 && y->ndim == 2 && y->dim[0] == x->dim[1] * x->dim[2] && y->dim[1] == x->dim[0];
}

static const char *tokens_onnx(const struct onnx_form *f) {
    struct onnx_graph *g = f->g;
    const int64_t shape[] = {0, f->d->x.dim[0], f->d->x.dim[1] * f->d->x.dim[2]};
    const char *flat = onnx_binary(g, "Reshape", onnx_name(g, f->name, "flat"), f->x[0], onnx_ints(g, shape, 3));
    return onnx_node(g, "Transpose", f->name, ONNX_LIST(flat), ONNX_LIST("perm=0,2,1"));
}

const struct op_row op_tokens = {
    .name = "tokens",
    .fits = tokens_fits,
    .onnx = tokens_onnx,
    .plain = {.name = "ref", .forward = tokens_forward, .backward = tokens_backward},
};

/* ---- mean: over 'count' values that are 'stride' apart -------------------------------------- */
struct run {
    int64_t count, stride, first;
};

static struct run run_of(const struct op_desc *d, int64_t k) {
    int64_t each = shape_count(&d->x), out = shape_last(&d->y), count = each / out;
    int64_t first = k / out * each;
    if (d->x.ndim == 2) return (struct run){count, out, first + k % out};
    return (struct run){count, 1, first + k % out * count};
}

static enum error mean_forward(struct op *op, const struct op_args *a) {
    for (int64_t k = 0; k < op_ys(&op->desc); k++) {
        struct run r = run_of(&op->desc, k);
        double sum = 0;
        for (int64_t i = 0; i < r.count; i++) sum += (double)a->x[0][r.first + i * r.stride];
        a->y[k] = (float)(sum / (double)r.count);
    }
    return ERR_NONE;
}

static enum error mean_backward(struct op *op, const struct op_args *a) {
    for (int64_t k = 0; k < op_ys(&op->desc) && a->dx[0]; k++) {
        struct run r = run_of(&op->desc, k);
        for (int64_t i = 0; i < r.count; i++)
            a->dx[0][r.first + i * r.stride] = (float)((double)a->dy[k] / (double)r.count);
    }
    return ERR_NONE;
}

static bool mean_fits(const struct op_desc *d) {
    const struct shape *x = &d->x, *y = &d->y;
    return x->ndim >= 2 && y->ndim == 1 && y->dim[0] == x->dim[x->ndim == 2 ? 1 : 0];
}

static const char *mean_onnx(const struct onnx_form *f) {
    return onnx_node(f->g, "ReduceMean", f->name, ONNX_LIST(f->x[0]),
                     ONNX_LIST(f->d->x.ndim == 3 ? "axes=2,3" : "axes=1", "keepdims=0"));
}

const struct op_row op_mean = {
    .name = "mean",
    .fits = mean_fits,
    .onnx = mean_onnx,
    .plain = {.name = "ref", .forward = mean_forward, .backward = mean_backward},
};
