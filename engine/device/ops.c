/* Ops: names, shapes, and the choice of an implementation. */
#include "engine/base/vector.h"
#include "engine/device/impl.h"
#include "engine/device/ref/ref.h"
#include "engine/device/runtime.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char *op_kind_name(enum op_kind kind) {
    static const char *const names[] = {
#define OP(KIND, name) #name,
#include "engine/device/ops.def"
    };
    return names[kind];
}

static const struct {
    const char *name;
    bool fused;
} activations[] = {
#define ACTIVATION(NAME, name, fused) {#name, fused},
#include "engine/device/activations.def"
};

const char *act_name(enum activation act) {
    return activations[act].name;
}

bool act_is_fused(enum activation act) {
    return activations[act].fused;
}

int64_t shape_count(const struct shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->ndim; i++) n *= s->dim[i];
    return n;
}

int64_t shape_last(const struct shape *s) {
    return s->dim[s->ndim - 1];
}

bool shape_equal(const struct shape *a, const struct shape *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

char *shape_text(const struct shape *s, char out[96]) {
    int at = 0;
    out[0] = '\0';
    for (int i = 0; i < s->ndim; i++) at += snprintf(out + at, 96 - (size_t)at, "%s%" PRId64, i ? "x" : "", s->dim[i]);
    return out;
}

/* ---- descriptions --------------------------------------------------------------------------- */
static bool shape_sane(const struct shape *s, int64_t n) {
    int64_t bytes;
    if (s->ndim < 1 || s->ndim > SHAPE_MAX || __builtin_mul_overflow(n, 16, &bytes)) return false;
    for (int i = 0; i < s->ndim; i++)
        if (s->dim[i] < 1 || __builtin_mul_overflow(bytes, s->dim[i], &bytes)) return false;
    return true;
}

/* Whether y = (channels, places of the window in x), after a 2x2 max-pool if there is one. */
static bool window_fits(const struct op_desc *d, const struct window *w, bool maxpool) {
    if (d->x.ndim != 3 || d->y.ndim != 3) return false;
    for (int axis = 0; axis < 2; axis++) {
        int64_t x = d->x.dim[1 + axis];
        if (w->kernel[axis] < 1 || w->stride[axis] < 1 || w->pad[axis] < 0) return false;
        if (x + 2 * (int64_t)w->pad[axis] < w->kernel[axis]) return false;
        int64_t places = window_places(w, axis, x);
        if (d->y.dim[1 + axis] != (maxpool ? places / 2 : places)) return false;
    }
    return true;
}

/* Whether y has the rows of x, each 'out' long. */
static bool rows_fit(const struct op_desc *d, int64_t out) {
    bool equal = d->x.ndim == d->y.ndim && d->x.ndim <= 2 && shape_last(&d->y) == out;
    return equal && (d->x.ndim < 2 || d->x.dim[0] == d->y.dim[0]);
}

static bool cache_fits(const struct op_desc *d) {
    int64_t context = d->attention.context;
    return context == 0 || (d->attention.causal && d->n == 1 && d->x.dim[0] <= context);
}

static bool attention_fits(const struct op_desc *d) {
    int64_t all = shape_last(&d->y);
    return d->x.ndim == 2 && shape_last(&d->x) == 3 * all && d->attention.heads >= 1 && all % d->attention.heads == 0 &&
           rows_fit(d, all) && cache_fits(d);
}

static bool sequence_fits(const struct op_desc *d) {
    const struct shape *x = &d->x, *y = &d->y;
    switch (d->kind) {
    case OP_EMBEDDING:
        return x->ndim == 1 && y->ndim == 2 && y->dim[0] == x->dim[0] && d->embedding.vocabulary >= 1 &&
               d->embedding.vocabulary <= 1 << 24;
    case OP_PREPEND:
        return x->ndim == 2 && y->ndim == 2 && y->dim[0] == x->dim[0] + 1 && y->dim[1] == x->dim[1];
    case OP_SELECT:
        return x->ndim == 2 && y->ndim == 1 && y->dim[0] == x->dim[1] && d->select.row >= 0 &&
               d->select.row < x->dim[0];
    case OP_TOKENS:
        return x->ndim == 3 && y->ndim == 2 && y->dim[0] == x->dim[1] * x->dim[2] && y->dim[1] == x->dim[0];
    default: /* mean */
        return x->ndim >= 2 && y->ndim == 1 && y->dim[0] == x->dim[x->ndim == 2 ? 1 : 0];
    }
}

static bool desc_fits(const struct op_desc *d) {
    const struct window *pool = &d->pool.window;
    switch (d->kind) {
    case OP_LINEAR:
        return rows_fit(d, shape_last(&d->y));
    case OP_CONV2D:
        return window_fits(d, &d->conv.window, d->conv.maxpool) && d->conv.groups >= 1 &&
               d->x.dim[0] % d->conv.groups == 0 && d->y.dim[0] % d->conv.groups == 0;
    case OP_POOL2D:
        return window_fits(d, pool, false) && d->x.dim[0] == d->y.dim[0] && 2 * pool->pad[0] <= pool->kernel[0] &&
               2 * pool->pad[1] <= pool->kernel[1];
    case OP_DROPOUT:
        return shape_equal(&d->x, &d->y) && d->dropout.p >= 0 && d->dropout.p < 1;
    case OP_ATTENTION:
        return attention_fits(d);
    case OP_EMBEDDING:
    case OP_PREPEND:
    case OP_SELECT:
    case OP_TOKENS:
    case OP_MEAN:
        return sequence_fits(d);
    default:
        return shape_equal(&d->x, &d->y);
    }
}

/* Only images have another layout; blocked are those of whole blocks. */
static bool layout_fits(enum layout layout, const struct shape *s) {
    bool whole = layout != LAYOUT_BLOCKED || s->dim[0] % LAYOUT_BLOCK == 0;
    return layout == LAYOUT_PLAIN || (s->ndim == 3 && whole);
}

static bool segments_fit(const struct op_desc *d) {
    const struct segments *s = d->segments;
    if (!s) return !d->apart;
    bool fits = s->count >= 1 && s->count <= SEGMENTS_MAX && (s->count & (s->count - 1)) == 0 && s->begin[0] == 0;
    for (int i = 0; i < s->count && fits; i++) fits = s->begin[i] <= s->begin[i + 1];
    return fits && s->begin[s->count] == d->n;
}

static enum error desc_check(const struct op_desc *d) {
    char x[96], y[96];
    if (d->n >= 1 && shape_sane(&d->x, d->n) && shape_sane(&d->y, d->n) && desc_fits(d) && segments_fit(d) &&
        layout_fits(d->x_layout, &d->x) && layout_fits(d->y_layout, &d->y))
        return ERR_NONE;
    return FAIL(ERR_CONFIG, "%s of %" PRId64 " samples cannot turn %s into %s", op_kind_name(d->kind), d->n,
                shape_text(&d->x, x), shape_text(&d->y, y));
}

void op_weights(const struct op_desc *d, int64_t count[2]) {
    int64_t x = shape_last(&d->x), y = shape_last(&d->y);
    count[0] = count[1] = 0;
    switch (d->kind) {
    case OP_LINEAR:
        count[0] = x * y, count[1] = d->linear.bias ? y : 0;
        break;
    case OP_CONV2D:
        count[0] = d->y.dim[0] * (d->x.dim[0] / d->conv.groups) * d->conv.window.kernel[0] * d->conv.window.kernel[1];
        count[1] = d->conv.bias ? d->y.dim[0] : 0;
        break;
    case OP_BATCHNORM:
        count[0] = count[1] = d->x.dim[0];
        break;
    case OP_LAYERNORM:
        count[0] = x, count[1] = d->norm.bias ? x : 0;
        break;
    case OP_EMBEDDING:
        count[0] = d->embedding.vocabulary * y;
        break;
    case OP_POSITION:
        count[0] = shape_count(&d->x);
        break;
    case OP_RMSNORM:
    case OP_PREPEND:
        count[0] = x;
        break;
    default:
        break;
    }
}

/* ---- ops ------------------------------------------------------------------------------------ */
/* Whether anything that the op gives is a sum over samples. */
static bool sums_samples(const struct op_desc *d) {
    int64_t weights[2];
    op_weights(d, weights);
    return weights[0] > 0 || op_is_loss(d->kind);
}

enum error op_create(struct device *dev, const struct op_desc *desc, struct op **out) {
    struct op_desc plain = *desc;
    const struct op_desc *d = desc;
    enum error err = ERR_NONE;
    TRY(desc_check(d));
    bool segmented = d->segments && d->segments->count > 1 && sums_samples(d);
    if (!segmented) plain.segments = NULL, plain.apart = false, d = &plain;
    for (const struct op_impl *const *i = dev->ops->impls(dev, d->kind); *i; i++) {
        if (!(*i)->takes(d)) continue;
        if (segmented && (d->apart || !(*i)->segments || !(*i)->segments(d))) return segmented_create(dev, d, out);
        err = (*i)->create(dev, d, out); /* a library may find that it cannot, after all */
        if (err != ERR_DEVICE) return err;
    }
    if (err != ERR_NONE) return error_prefix(err, "%s: ", op_kind_name(d->kind));
    return FAIL(ERR_DEVICE, "device %s has no implementation of this %s", dev->ops->name, op_kind_name(d->kind));
}

int op_choice(struct device *dev, const struct op_desc *d) {
    const struct op_impl *const *impls = dev->ops->impls(dev, d->kind);
    for (int i = 0; impls[i]; i++)
        if (impls[i] != ref_impl(d->kind) && impls[i]->takes(d)) return i;
    return -1;
}

bool op_takes(struct device *dev, const struct op_desc *d) {
    const struct op_impl *plain = dev->ops->runtime->apart ? NULL : ref_impl(d->kind);
    return op_choice(dev, d) >= 0 || (plain && plain->takes(d));
}

void op_free(struct op *op) {
    if (op) op->impl->free(op);
}

enum error op_alloc(size_t size, const struct op_impl *impl, struct device *dev, const struct op_desc *d,
                    struct op **out) {
    struct op *op = calloc(1, size);
    if (!op) return FAIL(ERR_MEMORY, "cannot allocate %zu bytes for an op", size);
    op->impl = impl;
    op->dev = dev;
    op->desc = *d;
    *out = op;
    return ERR_NONE;
}

void op_release(struct op *op) {
    free(op);
}

bool op_takes_any(const struct op_desc *d) {
    (void)d;
    return true;
}

bool op_takes_plain(const struct op_desc *d) {
    bool known = act_is_fused(d->act) || d->kind == OP_ACTIVATION;
    return d->x_layout == LAYOUT_PLAIN && d->y_layout == LAYOUT_PLAIN && known;
}

enum error op_create_plain(const struct op_impl *impl, struct device *dev, const struct op_desc *d, struct op **out) {
    return op_alloc(sizeof(struct op), impl, dev, d, out);
}

enum error label_check(int32_t label, int64_t classes) {
    if (label >= 0 && label < classes) return ERR_NONE;
    return FAIL(ERR_DATA,
                "label %" PRId32 " is outside the model's %" PRId64
                " classes\ncheck data and the size of the last layer",
                label, classes);
}

enum error labels_check(const struct op_desc *d, const struct op_args *a) {
    for (int64_t i = 0; i < op_rows(d) && a->labels; i++) TRY(label_check(a->labels[i], shape_last(&d->x)));
    for (int64_t i = 0; i < op_rows(d) && a->others; i++) TRY(label_check(a->others[i], shape_last(&d->x)));
    return ERR_NONE;
}

struct loss_target loss_target(const struct op_desc *d, const struct op_args *a, int64_t row) {
    struct loss_target t = {a->labels[row], a->labels[row], 1, 0};
    if (!a->others) return t;
    t.other = a->others[row];
    t.of_label = (double)a->shares[row / (op_rows(d) / d->n)];
    t.of_other = 1 - t.of_label;
    return t;
}

double class_weights_sum(const struct op_args *a, int64_t classes) {
    double sum = 0;
    for (int64_t k = 0; k < classes && a->class_weights; k++) sum += (double)a->class_weights[k];
    return a->class_weights ? sum : (double)classes;
}

struct soft_target soft_target(const struct op_desc *d, const struct op_args *a, int64_t row, double weights_sum) {
    double smoothing = (double)a->smoothing;
    struct soft_target t = {.at = loss_target(d, a, row), .of_each = smoothing / (double)shape_last(&d->x)};
    const float *w = a->class_weights;
    t.at.of_label *= (1 - smoothing) * (w ? (double)w[t.at.label] : 1);
    t.at.of_other *= (1 - smoothing) * (w ? (double)w[t.at.other] : 1);
    t.all = t.at.of_label + t.at.of_other + t.of_each * weights_sum;
    return t;
}

VECTORISED static int64_t count_above(const float *x, int64_t n, float own) {
    int64_t above = 0;
    for (int64_t k = 0; k < n; k++) above += !(x[k] <= own);
    return above;
}

VECTORISED static int64_t count_not_below(const float *x, int64_t n, float own) {
    int64_t above = 0;
    for (int64_t k = 0; k < n; k++) above += !(x[k] < own);
    return above;
}

bool label_in_top(const float *x, int64_t classes, int32_t label) {
    float own = x[label];
    return count_not_below(x, label, own) + count_above(x + label, classes - label, own) < LOSS_TOP;
}

enum error token_check(float token, int64_t vocabulary) {
    if (token >= 0 && token < (float)vocabulary && token == (float)(int64_t)token) return ERR_NONE;
    return FAIL(ERR_DATA,
                "token %g is not a whole number below the vocabulary of %" PRId64
                "\ncheck data and the embedding's vocabulary",
                (double)token, vocabulary);
}
