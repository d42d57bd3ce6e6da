/* An op over segments whose implementation knows nothing of them: the op of each segment. A device's threads compute
 * segments side by side, each segment on one thread: one round of work then serves all of them, and what an op does
 * before and after its own rounds is shared out, too. That wants dw and scratch for each; where this is too much memory,
 * or the device has one thread, it is one segment after the other. */
#include "engine/device/impl.h"
#include "engine/device/runtime.h"
#include "engine/device/threads.h"

#include <string.h>

struct segmented {
    struct op op;
    struct op_impl impl;         /* with the name of what computes a segment */
    struct op *of[SEGMENTS_MAX]; /* segments of one size share theirs; NULL: an empty one */
    size_t saved[SEGMENTS_MAX];  /* where a segment's begin */
    int64_t weights[2], rows;    /* floats of w; rows of a sample */
    size_t slots_bytes;          /* scratch begins with slots for dw */
    size_t part_bytes;           /* then each thread's */
    bool beside;                 /* segments are computed side by side */
};
enum { BESIDE_MOST = 8 << 20, GRAIN = 4096 }; /* bytes of scratch; floats that are worth a thread */

static const struct segments *segments_of(const struct segmented *s) {
    return s->op.desc.segments;
}

/* The arguments for segment i: on a host device, where activations are floats. */
static struct op_args part_of(const struct segmented *s, const struct op_args *a, int i) {
    const struct op_desc *d = &s->op.desc;
    int64_t begin = segments_of(s)->begin[i], x = begin * shape_count(&d->x), y = begin * shape_count(&d->y);
    struct op_args part = *a;
    for (int k = 0; k < 2; k++) {
        int64_t at = k > 0 && d->joins ? y : x;
        if (a->x[k]) part.x[k] = a->x[k] + at;
        if (a->dx[k]) part.dx[k] = a->dx[k] + at;
    }
    if (a->y) part.y = a->y + y;
    if (a->dy) part.dy = a->dy + y;
    if (a->target) part.target = a->target + x;
    part.saved = (char *)a->saved + s->saved[i];
    part.scratch = (char *)a->scratch + s->slots_bytes + (s->beside ? (size_t)threads_self() * s->part_bytes : 0);
    part.update_buffers = a->update_buffers && i == 0;
    if (a->ids) part.ids = a->ids + begin;
    if (a->labels) part.labels = a->labels + begin * s->rows;
    if (a->others) part.others = a->others + begin * s->rows, part.shares = a->shares + begin;
    if (a->sums) part.sums = a->sums + i * LOSS_SUMS;
    if (a->top) part.top = a->top + i * LOSS_SUMS;
    return part;
}

/* The address of slot 'slot' of dw[k]. */
static float *slot_of(const struct segmented *s, const struct op_args *a, int k, int slot) {
    float *slots = a->scratch;
    if (slot == 0) return a->dw[k];
    return slots + (slot - 1) * (s->weights[0] + s->weights[1]) + k * s->weights[0];
}

/* dw of segment i, where it is to be written. */
static void part_weights(const struct segmented *s, const struct op_args *a, int i, struct op_args *part) {
    for (int k = 0; k < 2 && a->dw[k]; k++) {
        bool apart = k == 0 && s->op.desc.apart;
        part->dw[k] = apart ? a->dw[k] + i * s->weights[k] : slot_of(s, a, k, s->beside ? i : segment_slot(i));
        if (!s->of[i] && !(apart && a->add_dw)) memset(part->dw[k], 0, (size_t)s->weights[k] * sizeof(float));
    }
}

struct call {
    const struct segmented *s;
    const struct op_args *a;
    bool backward;
    int k;                        /* of dw */
    enum error err[SEGMENTS_MAX]; /* of each segment */
};

static enum error segment_run(const struct call *c, int i) {
    struct op *op = c->s->of[i];
    struct op_args part = part_of(c->s, c->a, i);
    if (c->backward) part_weights(c->s, c->a, i, &part);
    if (!op) return ERR_NONE;
    return c->backward ? op_backward(op, &part) : op_forward(op, &part);
}

/* ---- one after the other ---- */

/* Adds the weights' gradients of segment i to those that are complete with it, along the tree. */
static enum error add_slots(const struct segmented *s, const struct op_args *a, int i) {
    for (int k = s->op.desc.apart; k < 2 && a->dw[k]; k++)
        for (int slot = segment_slot(i); slot > segment_bottom(i); slot--)
            TRY(device_add(s->op.dev, slot_of(s, a, k, slot - 1), slot_of(s, a, k, slot), s->weights[k]));
    return ERR_NONE;
}

static enum error run_in_order(const struct call *c) {
    for (int i = 0; i < segments_of(c->s)->count; i++) {
        TRY(segment_run(c, i));
        if (c->backward) TRY(add_slots(c->s, c->a, i));
    }
    return ERR_NONE;
}

/* ---- side by side ---- */

static void run_segments(void *ctx, int64_t begin, int64_t end) {
    struct call *c = ctx;
    for (int64_t i = begin; i < end; i++) c->err[i] = segment_run(c, (int)i);
}

/* A part of dw[k]: the same tree, from its leaves. */
static void add_leaves(void *ctx, int64_t begin, int64_t end) {
    const struct call *c = ctx;
    int count = segments_of(c->s)->count;
    for (int half = 1; half < count; half *= 2)
        for (int i = 0; i < count; i += 2 * half)
            floats_add(slot_of(c->s, c->a, c->k, i) + begin, slot_of(c->s, c->a, c->k, i + half) + begin, end - begin);
}

/* What went wrong has its message on the thread where it did, so it is done again here. */
static enum error run_beside(struct call *c) {
    struct threads *threads = c->s->op.dev->threads;
    threads_share(threads, segments_of(c->s)->count, 1, run_segments, c);
    for (int i = 0; i < segments_of(c->s)->count; i++)
        if (c->err[i] != ERR_NONE) TRY(segment_run(c, i));
    for (c->k = c->s->op.desc.apart; c->backward && c->k < 2 && c->a->dw[c->k]; c->k++)
        threads_share(threads, c->s->weights[c->k], GRAIN, add_leaves, c);
    return ERR_NONE;
}

/* ---- the op ---- */

static enum error segments_run(struct op *op, const struct op_args *a, bool backward) {
    struct call c = {.s = (const struct segmented *)op, .a = a, .backward = backward};
    return c.s->beside ? run_beside(&c) : run_in_order(&c);
}

static enum error segmented_forward(struct op *op, const struct op_args *a) {
    return segments_run(op, a, false);
}

static enum error segmented_backward(struct op *op, const struct op_args *a) {
    return segments_run(op, a, true);
}

static void segmented_fini(struct op *op) {
    struct segmented *s = (struct segmented *)op;
    for (int i = 0; i < segments_of(s)->count; i++) {
        bool shared = false;
        for (int k = 0; k < i; k++) shared |= s->of[k] == s->of[i];
        if (!shared) op_free(s->of[i]);
    }
}

/* The op of segment i: that of an earlier one of its size, or a new one. */
static enum error part_create(struct segmented *s, int i) {
    const struct segments *all = segments_of(s);
    struct op_desc d = s->op.desc;
    d.n = segment_size(all, i);
    d.segments = NULL;
    d.apart = false;
    for (int k = 0; k < i && !s->of[i]; k++)
        if (segment_size(all, k) == d.n) s->of[i] = s->of[k];
    if (d.n > 0 && !s->of[i]) TRY(op_create(s->op.dev, &d, &s->of[i]));
    s->saved[i] = s->op.saved_bytes;
    if (!s->of[i]) return ERR_NONE;
    s->op.saved_bytes += align_bytes(s->of[i]->saved_bytes);
    if (s->of[i]->scratch_bytes > s->part_bytes) s->part_bytes = align_bytes(s->of[i]->scratch_bytes);
    s->op.y_unread = s->of[i]->y_unread;
    s->op.slopes = s->of[i]->slopes;
    s->impl.name = s->of[i]->impl->name;
    return ERR_NONE;
}

static void scratch_plan(struct segmented *s) {
    size_t each = (size_t)(s->weights[0] + s->weights[1]) * sizeof(float), threads = (size_t)s->op.dev->params.threads;
    size_t leaves = (size_t)segments_of(s)->count - 1, slots = (size_t)segment_slots(segments_of(s)->count) - 1;
    s->beside = s->beside && leaves * each + threads * s->part_bytes <= BESIDE_MOST;
    s->slots_bytes = align_bytes((s->beside ? leaves : slots) * each);
    s->op.scratch_bytes = s->slots_bytes + (s->beside ? threads : 1) * s->part_bytes;
}

static enum error segmented_plan(struct op *op) {
    struct segmented *s = (struct segmented *)op;
    s->impl = *op->impl;
    op->impl = &s->impl;
    op_weights(&op->desc, s->weights);
    s->rows = op_rows(&op->desc) / op->desc.n;
    s->beside = op->dev->threads != NULL;
    for (int i = 0; i < segments_of(s)->count; i++) TRY(part_create(s, i));
    scratch_plan(s);
    return ERR_NONE;
}

enum error segmented_create(struct device *dev, const struct op_desc *d, struct op **out) {
    static const struct op_impl impl = {.size = sizeof(struct segmented),
                                        .plan = segmented_plan,
                                        .forward = segmented_forward,
                                        .backward = segmented_backward,
                                        .fini = segmented_fini};
    return op_make(&impl, dev, d, out);
}
