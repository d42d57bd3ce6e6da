/* Ops: names, shapes, and the choice of an implementation. */
#include "engine/base/vector.h"
#include "engine/device/impl.h"
#include "engine/device/ref/ref.h"
#include "engine/device/runtime.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct op_row *rows[OP_KINDS + OPS_ADDED] = {
#define OP(KIND, name, cpu, cuda) [OP_##KIND] = &op_##name,
#include "engine/device/ops.def"
};
static int nrows = OP_KINDS;

const struct op_row *op_row(enum op_kind kind) {
    return rows[kind];
}

enum op_kind op_register(const struct op_row *row) {
    assert(nrows < OP_KINDS + OPS_ADDED);
    rows[nrows] = row;
    return (enum op_kind)nrows++;
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

const char *precision_name(enum precision p) {
    static const char *const names[] = {
        [PRECISION_F32] = "f32", [PRECISION_BF16] = "bf16", [PRECISION_FP16] = "fp16", [PRECISION_TF32] = "tf32"};
    return names[p];
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

int64_t shape_pitch(const struct shape *s, enum layout l, int64_t unit) {
    int64_t width = shape_last(s), each = LAYOUT_ROW / unit;
    return l == LAYOUT_ALIGNED ? (width + each - 1) / each * each : width;
}

/* ---- descriptions --------------------------------------------------------------------------- */
static bool shape_sane(const struct shape *s, int64_t n) {
    int64_t bytes;
    if (s->ndim < 1 || s->ndim > SHAPE_MAX || __builtin_mul_overflow(n, 16, &bytes)) return false;
    for (int i = 0; i < s->ndim; i++)
        if (s->dim[i] < 1 || __builtin_mul_overflow(bytes, s->dim[i], &bytes)) return false;
    return true;
}

bool op_rows_fit(const struct op_desc *d, int64_t out) {
    bool equal = d->x.ndim == d->y.ndim && d->x.ndim <= 2 && shape_last(&d->y) == out;
    return equal && (d->x.ndim < 2 || d->x.dim[0] == d->y.dim[0]);
}

static bool desc_fits(const struct op_desc *d) {
    const struct op_row *row = op_row(d->kind);
    return row->fits ? row->fits(d) : shape_equal(&d->x, &d->y);
}

/* Whether values of the shape may have the layout: images are not rows, and blocked ones need whole blocks. */
static bool layout_fits(enum layout layout, const struct shape *s) {
    bool whole = layout != LAYOUT_BLOCKED || s->dim[0] % LAYOUT_BLOCK == 0;
    return layout == LAYOUT_PLAIN || ((s->ndim == 3) == (layout != LAYOUT_ALIGNED) && whole);
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
    return FAIL(ERR_CONFIG, "%s of %" PRId64 " samples cannot turn %s into %s", op_row(d->kind)->name, d->n,
                shape_text(&d->x, x), shape_text(&d->y, y));
}

void op_weights(const struct op_desc *d, int64_t count[2]) {
    const struct op_row *row = op_row(d->kind);
    count[0] = count[1] = 0;
    if (row->weights) row->weights(d, count);
}

double op_flops(const struct op_desc *d, bool backward) {
    const struct op_row *row = op_row(d->kind);
    double products = row->products ? row->products(d) : 0;
    return 2 * products * (!backward ? 1 : d->first ? 1 : 2);
}

/* ---- ops ------------------------------------------------------------------------------------ */
/* Whether anything that the op gives is a sum over samples. */
static bool sums_samples(const struct op_desc *d) {
    int64_t weights[2];
    op_weights(d, weights);
    return weights[0] > 0 || op_row(d->kind)->loss;
}

enum error op_create(struct device *dev, const struct op_desc *desc, struct op **out) {
    struct op_desc plain = *desc;
    const struct op_desc *d = desc;
    enum error err = ERR_NONE;
    TRY(desc_check(d));
    bool segmented = d->segments && d->segments->count > 1 && sums_samples(d);
    if (!segmented) plain.segments = NULL, plain.apart = false, d = &plain;
    const struct op_impl *impl;
    for (int i = 0; (impl = op_impl_at(dev, d->kind, i)); i++) {
        if (!op_impl_takes(impl, d)) continue;
        if (segmented && (d->apart || !impl->segments || !impl->segments(d))) return segmented_create(dev, d, out);
        err = op_make(impl, dev, d, out); /* a library may find that it cannot, after all */
        if (err != ERR_CONFIG) return err;
    }
    if (err != ERR_NONE) return error_prefix(err, "%s: ", op_row(d->kind)->name);
    return FAIL(ERR_CONFIG, "device %s has no implementation of this %s\nthe devices ref and cpu compute every op",
                dev->ops->name, op_row(d->kind)->name);
}

/* The device's own implementations of a kind, of which one that was registered has none. */
static const struct op_impl *const *impls_of(struct device *dev, enum op_kind kind) {
    static const struct op_impl *const none[1];
    return dev->ops->impls && kind < OP_KINDS ? dev->ops->impls(dev, kind) : none;
}

const struct op_impl *op_impl_at(struct device *dev, enum op_kind kind, int i) {
    const struct op_impl *const *impls = impls_of(dev, kind);
    for (; *impls && i > 0; i--) impls++;
    if (*impls) return *impls;
    return i == 0 && !dev->ops->runtime->apart ? &op_row(kind)->plain : NULL;
}

int op_choice(struct device *dev, const struct op_desc *d) {
    const struct op_impl *const *impls = impls_of(dev, d->kind);
    for (int i = 0; impls[i]; i++)
        if (op_impl_takes(impls[i], d)) return i;
    return -1;
}

bool op_takes(struct device *dev, const struct op_desc *d) {
    return op_choice(dev, d) >= 0 || (!dev->ops->runtime->apart && op_impl_takes(&op_row(d->kind)->plain, d));
}

void op_free(struct op *op) {
    if (!op) return;
    if (op->impl->fini) op->impl->fini(op);
    free(op);
}

enum error op_make(const struct op_impl *impl, struct device *dev, const struct op_desc *d, struct op **out) {
    size_t size = impl->size ? impl->size : sizeof(struct op);
    struct op *op = calloc(1, size);
    if (!op) return FAIL(ERR_MEMORY, "cannot allocate %zu bytes for an op", size);
    op->impl = impl;
    op->dev = dev;
    op->desc = *d;
    enum error err = impl->plan ? impl->plan(op) : ERR_NONE;
    if (err == ERR_NONE)
        *out = op;
    else
        op_free(op);
    return err;
}

bool op_takes_any(const struct op_desc *d) {
    (void)d;
    return true;
}

bool op_impl_takes(const struct op_impl *impl, const struct op_desc *d) {
    if (!impl->aligns && (d->x_layout == LAYOUT_ALIGNED || d->y_layout == LAYOUT_ALIGNED)) return false;
    if (!impl->joins && d->joins) return false;
    return impl->takes ? impl->takes(d) : op_takes_plain(d);
}

bool op_takes_plain(const struct op_desc *d) {
    bool known = act_is_fused(d->act) || op_row(d->kind)->activates;
    return d->x_layout == LAYOUT_PLAIN && d->y_layout == LAYOUT_PLAIN && known;
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
