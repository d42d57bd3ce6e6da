/* Dropout and add on vector units, an even part of the elements for each thread. */
#include "engine/base/rng.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/kernels.h"

#include <string.h>

enum { GRAIN = 4096 }; /* elements that are worth a thread */

/* ---- dropout: the mask is drawn once, a byte for each element, and saved for backward ------- */
static void dropout_part(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_args *a = p->a;
    const struct op_desc *d = p->d;
    int64_t each = shape_count(&d->x);
    uint8_t *mask = a->saved;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * each;
        kernel_dropout_mask(rng_key(a->seed, RNG_DROPOUT), a->ids[i], (uint64_t)d->dropout.layer << 40, d->dropout.p,
                            each, mask + at);
        kernel_mask_scale(each, mask + at, 1 / (1 - d->dropout.p), a->x[0] + at, a->y + at);
    }
}

static void dropout_backward_part(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_args *a = p->a;
    kernel_mask_scale(end - begin, (const uint8_t *)a->saved + begin, 1 / (1 - p->d->dropout.p), a->dy + begin,
                      a->dx[0] + begin);
}

static enum error dropout_forward(struct op *op, const struct op_args *a) {
    if (a->training) return cpu_run(op, a, op->desc.n, 1, dropout_part);
    memcpy(a->y, a->x[0], (size_t)op_xs(&op->desc) * sizeof *a->y);
    return ERR_NONE;
}

static enum error dropout_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op_xs(&op->desc), GRAIN, dropout_backward_part) : ERR_NONE;
}

static enum error dropout_plan(struct op *op) {
    op->saved_bytes = (size_t)op_xs(&op->desc);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_dropout) = {
    .name = "vector",
    .plan = dropout_plan,
    .forward = dropout_forward,
    .backward = dropout_backward,
};

/* ---- add ------------------------------------------------------------------------------------ */
static void add_part(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_args *a = p->a;
    kernel_add(end - begin, a->x[0] + begin, a->x[1] + begin, p->d->act, a->y + begin);
}

static void add_backward_part(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_args *a = p->a;
    for (int side = 0; side < 2; side++) {
        if (!a->dx[side]) continue;
        float *dx = a->dx[side] + begin;
        if (p->d->act == ACT_RELU)
            kernel_relu_backward(end - begin, a->y + begin, a->dy + begin, dx);
        else if (dx != a->dy + begin)
            memcpy(dx, a->dy + begin, (size_t)(end - begin) * sizeof *dx);
    }
}

static enum error add_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op_xs(&op->desc), GRAIN, add_part);
}

static enum error add_backward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op_xs(&op->desc), GRAIN, add_backward_part);
}

static bool add_takes(const struct op_desc *d) {
    return act_is_fused(d->act) && d->x_layout == d->y_layout;
}

const struct op_impl CPU_NAME(cpu_add) = {
    .name = "vector",
    .takes = add_takes,
    .forward = add_forward,
    .backward = add_backward,
};
