/* y = act(x * w0 + w1) of images (n, h, w, c) by cuDNN. Weights lie (out, in / groups, kh, kw) in f32; cuDNN wants
 * (out, kh, kw, in / groups) in the images' type. Where both are the same (one place, or one channel) the weights
 * serve as they are; else forward makes a copy, which backward uses too.
 *
 *   forward    y = x * w + b as one plan, or as the product alone where cuDNN has no such plan; what is left is a pass
 *              over y. Relu always is: of cuDNN's engines with one none that is fast promises that a NaN stays a NaN,
 *              and a network that diverges would look healthy
 *   backward   dz = dy where y > 0, dw1 = its sums; dw0 and dx by a plan each
 *
 * A fused bias is of the images' type. Channels are not padded: cuDNN's engines do that in their workspace where it
 * is worth it. */
#include "engine/device/cuda/conv_plan.h"
#include "engine/device/cuda/image.h"
#include "engine/device/cuda/parts.h"

#include <string.h>

struct conv {
    struct op op;
    enum element type;
    struct conv_plan *plan[CONV_PASSES];
    struct conv_run run[CONV_PASSES];
    bool fused;              /* the bias is in the plan */
    bool same;               /* the two orders of weights are the same */
    bool cast;               /* x is data in f32 and must become 'type' */
    int64_t in, area;        /* channels and places of a filter */
    struct channels_cut cut; /* of y */
    struct {
        size_t x, w, dz, part, space;
        size_t saved_x;
    } at; /* pieces of scratch, and of what is saved after the filters */
};

static int64_t filter_count(const struct conv *c) {
    return c->op.desc.y.dim[0] * c->in * c->area;
}
static void *piece_at(const struct op_args *a, size_t at) {
    return (char *)a->scratch + at;
}
static bool aligned(const void *p) {
    return p && (uintptr_t)p % 16 == 0;
}

/* ---- running -------------------------------------------------------------------------------- */
/* Copies that forward makes stay for backward; without one they go to scratch. */
static void *copy_at(const struct op_args *a, bool made, size_t saved, size_t scratch) {
    return made || a->training ? (char *)a->saved + saved : piece_at(a, scratch);
}

/* x in the type of the plans. */
static enum error images_ready(const struct conv *c, const struct op_args *a, bool made, const void **out) {
    *out = a->x[0];
    if (!c->cast) return ERR_NONE;
    struct device *d = c->op.dev;
    void *x = copy_at(a, made, c->at.saved_x, c->at.x);
    *out = x;
    if (made) return ERR_NONE;
    return cuda_lower(d, LANE_COMPUTE, x, a->x[0], op_xs(&c->op.desc), c->op.desc.precision);
}

/* The weights as they are, if they serve. */
static const void *weights_as_they_are(const struct conv *c, const struct op_args *a) {
    const void *w = c->type == ELEMENT_F32 ? (const void *)a->w[0] : a->w_low[0];
    return c->same && aligned(w) ? w : NULL;
}

static enum error filters_ready(const struct conv *c, const struct op_args *a, bool made, const void **out) {
    *out = weights_as_they_are(c, a);
    if (*out) return ERR_NONE;
    void *w = copy_at(a, made, 0, c->at.w);
    *out = w;
    const struct turn t = {ELEMENT_F32, c->type, a->w[0], w, c->op.desc.y.dim[0], c->in, c->area};
    if (!made) CU(turn_launch(&t, cuda_stream(&c->op)), "a filter's copy");
    return ERR_NONE;
}

union conv_at { /* cuDNN takes what it reads and what it writes in one list */
    const void *from[CONV_TENSORS];
    void *to[CONV_TENSORS];
};

static enum error pass_run(struct conv *c, enum conv_pass pass, union conv_at at, const struct op_args *a) {
    (void)cuda_stream(&c->op); /* cuDNN runs there, and wants the thread on that GPU */
    return conv_run(&c->run[pass], c->plan[pass], at.to, piece_at(a, c->at.space));
}

static enum error conv_forward(struct op *op, const struct op_args *a) {
    struct conv *c = (struct conv *)op;
    const struct op_desc *d = &op->desc;
    union conv_at at = {.from = {[CONV_Y] = a->y}};
    TRY(images_ready(c, a, false, &at.from[CONV_X]));
    TRY(filters_ready(c, a, false, &at.from[CONV_W]));
    if (c->fused) at.from[CONV_BIAS] = c->type == ELEMENT_F32 ? (const void *)a->w[1] : a->w_low[1];
    TRY(pass_run(c, CONV_FORWARD, at, a));
    const float *late = d->conv.bias && !c->fused ? a->w[1] : NULL;
    if (!late && d->act == ACT_NONE) return ERR_NONE;
    CU(conv_finish_launch(&c->cut, a->y, late, d->act == ACT_RELU, cuda_stream(op)), "a convolution's bias");
    return ERR_NONE;
}

/* dw0 lands where it belongs, or beside w in scratch and is turned from there. */
static enum error filter_gradient(struct conv *c, const void *dz, const struct op_args *a) {
    bool direct = c->same && c->type == ELEMENT_F32 && aligned(a->dw[0]);
    void *dw = direct ? (void *)a->dw[0] : piece_at(a, c->at.w);
    union conv_at at = {.from = {[CONV_W] = dw, [CONV_Y] = dz}};
    TRY(images_ready(c, a, true, &at.from[CONV_X]));
    TRY(pass_run(c, CONV_FILTER, at, a));
    const struct turn t = {c->type, ELEMENT_F32, dw, a->dw[0], c->op.desc.y.dim[0], c->area, c->in};
    if (!direct) CU(turn_launch(&t, cuda_stream(&c->op)), "a filter's gradient");
    return ERR_NONE;
}

static enum error conv_backward(struct op *op, const struct op_args *a) {
    struct conv *c = (struct conv *)op;
    const struct op_desc *d = &op->desc;
    void *masked = d->act == ACT_RELU ? piece_at(a, c->at.dz) : NULL;
    union conv_at at = {.from = {[CONV_X] = a->dx[0], [CONV_Y] = masked ? masked : a->dy}};
    const struct conv_gradient g = {a->y, a->dy, masked, piece_at(a, c->at.part), d->conv.bias ? a->dw[1] : NULL};
    if (masked || g.db) CU(conv_gradient_launch(&c->cut, &g, cuda_stream(op)), "a bias' gradient");
    TRY(filter_gradient(c, at.from[CONV_Y], a));
    if (!a->dx[0] || d->first) return ERR_NONE;
    TRY(filters_ready(c, a, true, &at.from[CONV_W]));
    return pass_run(c, CONV_DATA, at, a);
}

/* ---- planning ------------------------------------------------------------------------------- */
static bool conv_takes(const struct op_desc *d) {
    return d->x_layout == LAYOUT_LAST && d->y_layout == LAYOUT_LAST && act_is_fused(d->act) && !d->conv.maxpool;
}

static void conv_fini(struct op *op) {
    struct conv *c = (struct conv *)op;
    for (int pass = 0; pass < CONV_PASSES; pass++) {
        conv_run_fini(&c->run[pass]);
        conv_plan_put(c->plan[pass]);
    }
}

static void shape_of(const struct conv *c, struct conv_shape *s) {
    static const cudnnDataType_t types[] = {
        [ELEMENT_F32] = CUDNN_DATA_FLOAT, [ELEMENT_BF16] = CUDNN_DATA_BFLOAT16, [ELEMENT_FP16] = CUDNN_DATA_HALF};
    const struct op_desc *d = &c->op.desc;
    memset(s, 0, sizeof *s);
    s->n = d->n, s->groups = d->conv.groups;
    for (int i = 0; i < 3; i++) s->x[i] = d->x.dim[i], s->y[i] = d->y.dim[i];
    for (int i = 0; i < 2; i++) {
        s->kernel[i] = d->conv.window.kernel[i];
        s->stride[i] = d->conv.window.stride[i];
        s->pad[i] = d->conv.window.pad[i];
    }
    s->type = types[c->type];
    s->exact = d->precision == PRECISION_F32;
}

static enum error passes_plan(struct conv *c) {
    const struct op_desc *d = &c->op.desc;
    struct cuda *dev = cuda_of(&c->op);
    struct conv_shape s;
    shape_of(c, &s);
    TRY(conv_plan_get(dev, CONV_FILTER, &s, &c->plan[CONV_FILTER]));
    if (!d->first) TRY(conv_plan_get(dev, CONV_DATA, &s, &c->plan[CONV_DATA]));
    s.bias = c->fused = d->conv.bias;
    enum error err = c->fused ? conv_plan_get(dev, CONV_FORWARD, &s, &c->plan[CONV_FORWARD]) : ERR_CONFIG;
    if (err != ERR_CONFIG) return err;
    s.bias = c->fused = false;
    return conv_plan_get(dev, CONV_FORWARD, &s, &c->plan[CONV_FORWARD]);
}

/* x, w and the workspace of one pass at a time; dz and part are backward's. */
static void lay_out(struct conv *c) {
    size_t unit = (size_t)element_bytes(c->type), end = 0, space = 0;
    size_t filter = (size_t)filter_count(c) * unit, parts = (size_t)channels_part_floats(&c->cut) * sizeof(float);
    for (int pass = 0; pass < CONV_PASSES; pass++)
        if (conv_plan_space(c->plan[pass]) > space) space = conv_plan_space(c->plan[pass]);
    c->at.x = piece(&end, c->cast ? (size_t)op_xs(&c->op.desc) * unit : 0);
    c->at.w = piece(&end, filter);
    c->at.dz = piece(&end, c->op.desc.act == ACT_RELU ? (size_t)op_ys(&c->op.desc) * unit : 0);
    c->at.part = piece(&end, c->op.desc.conv.bias ? parts : 0);
    c->at.space = piece(&end, space);
    c->op.scratch_bytes = end;
    end = 0;
    piece(&end, filter);
    c->at.saved_x = piece(&end, c->cast ? (size_t)op_xs(&c->op.desc) * unit : 0);
    c->op.saved_bytes = end;
}

static enum error conv_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct conv *c = (struct conv *)op;
    c->type = element_of(d->precision);
    c->in = d->x.dim[0] / d->conv.groups;
    c->area = (int64_t)d->conv.window.kernel[0] * d->conv.window.kernel[1];
    c->same = c->area == 1 || c->in == 1;
    c->cast = d->first && c->type != ELEMENT_F32;
    c->cut = channels_cut(d->n * d->y.dim[1] * d->y.dim[2], d->y.dim[0], c->type);
    TRY(passes_plan(c));
    lay_out(c);
    return ERR_NONE;
}

const struct op_impl cuda_conv2d = {
    .name = "cudnn",
    .takes = conv_takes,
    .size = sizeof(struct conv),
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .fini = conv_fini,
};
