/* Ops: names, shapes, and the choice of an implementation. */
#include "engine/device/impl.h"
#include "engine/device/ref/ref.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char *op_kind_name(enum op_kind kind) {
    static const char *const names[] = {
#define X(name, text) [OP_##name] = text,
        OPS(X)
#undef X
    };
    return names[kind];
}

int64_t shape_count(const struct shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->ndim; i++) n *= s->dim[i];
    return n;
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
    for (int i = 0; i < s->ndim; i++)
        at += snprintf(out + at, 96 - (size_t)at, "%s%" PRId64, i ? "x" : "", s->dim[i]);
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

static bool desc_fits(const struct op_desc *d) {
    const struct window *pool = &d->pool.window;
    switch (d->kind) {
    case OP_LINEAR:
        return true;
    case OP_CONV2D:
        return window_fits(d, &d->conv.window, d->conv.maxpool) && d->conv.groups >= 1 &&
               d->x.dim[0] % d->conv.groups == 0 && d->y.dim[0] % d->conv.groups == 0;
    case OP_POOL2D:
        return window_fits(d, pool, false) && d->x.dim[0] == d->y.dim[0] &&
               2 * pool->pad[0] <= pool->kernel[0] && 2 * pool->pad[1] <= pool->kernel[1];
    case OP_DROPOUT:
        return shape_equal(&d->x, &d->y) && d->dropout.p >= 0 && d->dropout.p < 1;
    default:
        return shape_equal(&d->x, &d->y);
    }
}

static enum error desc_check(const struct op_desc *d) {
    char x[96], y[96];
    if (d->n >= 1 && shape_sane(&d->x, d->n) && shape_sane(&d->y, d->n) && desc_fits(d))
        return ERR_NONE;
    return FAIL(ERR_CONFIG, "%s of %" PRId64 " samples cannot turn %s into %s",
                op_kind_name(d->kind), d->n, shape_text(&d->x, x), shape_text(&d->y, y));
}

/* ---- ops ------------------------------------------------------------------------------------ */
enum error op_create(struct device *dev, const struct op_desc *d, struct op **out) {
    TRY(desc_check(d));
    for (const struct op_impl *const *i = dev->ops->impls(dev, d->kind); *i; i++) {
        if (!(*i)->takes(d)) continue;
        enum error err =
            (*i)->create(dev, d, out); /* a library may find that it cannot, after all */
        if (err != ERR_DEVICE) return err;
    }
    return FAIL(ERR_DEVICE, "device %s has no implementation of this %s", dev->ops->name,
                op_kind_name(d->kind));
}

bool op_takes(struct device *dev, const struct op_desc *d, bool fast) {
    for (const struct op_impl *const *i = dev->ops->impls(dev, d->kind); *i; i++)
        if (!(fast && *i == ref_impl(d->kind)) && (*i)->takes(d)) return true;
    return false;
}

void op_free(struct op *op) {
    if (op) op->impl->free(op);
}

enum error op_alloc(size_t size, const struct op_impl *impl, struct device *dev,
                    const struct op_desc *d, struct op **out) {
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

enum error op_create_plain(const struct op_impl *impl, struct device *dev, const struct op_desc *d,
                           struct op **out) {
    return op_alloc(sizeof(struct op), impl, dev, d, out);
}

enum error label_check(int32_t label, int64_t classes) {
    if (label >= 0 && label < classes) return ERR_NONE;
    return FAIL(ERR_DATA,
                "label %" PRId32 " is outside the model's %" PRId64
                " classes\ncheck data and the size of the last layer",
                label, classes);
}
