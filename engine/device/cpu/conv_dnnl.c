/* Convolutions in bf16 by oneDNN, where the machine multiplies bf16 (what its versions spell each in
 * its own way is in onednn.c).
 *
 * Each pass is a list of steps, made once: reorder what is not in the layout that the convolution
 * wants, convolve, reorder the result back. Blocked images are in the layout that it wants; weights
 * are plain always.
 *
 *   forward    [x] [w] y = act(x * w + b) [y]
 *   backward   dz = dy where y > 0; [x] [dz] dw, db [dw]; then [w] dx [dx] unless the input is data
 *
 * The reorders of what is multiplied round it, and the convolution's results are f32. A plain C
 * implementation of the library's is never taken: it is a hundred times slower than
 * cpu_conv_direct, which stands next in line. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/layout.h"
#include "engine/device/cpu/onednn.h"

#include <string.h>

enum home { HOME_X, HOME_W, HOME_B, HOME_Y, HOME_DZ, HOME_DX, HOME_DW, HOME_SCRATCH, HOMES };
enum { STEPS_MAX = 6, SLOTS_MAX = 32, ARGS_MAX = 6 };

struct step {
    dnnl_primitive_t primitive;
    int count;
    dnnl_exec_arg_t args[ARGS_MAX];
};
struct steps {
    int count;
    struct step step[STEPS_MAX];
};
struct slot { /* a memory object, and where its bytes are in a call */
    dnnl_memory_t memory;
    enum home home;
    size_t offset;
    void *handle; /* what it points to now */
};
/* As the op has them; as the convolution is asked for them: blocked or "any", factors in 'factor';
 * results ("to_...") are f32 always. */
struct layouts {
    const_dnnl_memory_desc_t x, w, b, y, any_x, any_w, any_y, to_x, to_w, to_y;
    dnnl_dims_t stride, pad;
};
struct conv {
    struct op op;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t forward_pd, data_pd, weights_pd;
    struct steps forward, backward_weights, backward_data;
    int slots;
    struct slot slot[SLOTS_MAX];
    size_t scratch; /* of the pass being planned */
};

static enum error dnnl_failed(dnnl_status_t status, const char *what) {
    if (status == dnnl_out_of_memory) return FAIL(ERR_MEMORY, "%s: out of memory", what);
    return FAIL(ERR_DEVICE, "%s: oneDNN says %d", what, (int)status);
}
#define DNNL(call)                                                                                                     \
    do {                                                                                                               \
        dnnl_status_t status_ = (call);                                                                                \
        if (status_ != dnnl_success) return dnnl_failed(status_, "a convolution");                                     \
    } while (0)

/* ---- what the library is asked for ---------------------------------------------------------- */
static enum error describe(const_dnnl_memory_desc_t *layout, int nd, const dnnl_dim_t *dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag) {
    DNNL(onednn_layout_create(layout, nd, dims, type, tag));
    return ERR_NONE;
}

static void layouts_free(const struct layouts *l) {
    const_dnnl_memory_desc_t all[] = {l->x, l->w, l->b, l->y, l->any_x, l->any_w, l->any_y, l->to_x, l->to_w, l->to_y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) onednn_layout_free(all[i]);
}

/* An image that the op has in 'layout': as it is, and as a factor and a result. */
static enum error describe_image(const dnnl_dim_t *dims, enum layout layout, const_dnnl_memory_desc_t *kept,
                                 const_dnnl_memory_desc_t *factor, const_dnnl_memory_desc_t *result) {
    bool blocked = layout == LAYOUT_BLOCKED;
    dnnl_format_tag_t asked = blocked ? dnnl_nChw16c : dnnl_format_tag_any;
    TRY(describe(kept, 4, dims, dnnl_f32, blocked ? dnnl_nChw16c : dnnl_nchw));
    TRY(describe(factor, 4, dims, dnnl_bf16, asked));
    return describe(result, 4, dims, dnnl_f32, asked);
}

static enum error describe_layouts(const struct conv *c, struct layouts *l) {
    const struct op_desc *d = &c->op.desc;
    const struct window *w = &d->conv.window;
    int64_t groups = d->conv.groups;
    dnnl_dims_t x = {d->n, d->x.dim[0], d->x.dim[1], d->x.dim[2]};
    dnnl_dims_t y = {d->n, d->y.dim[0], d->y.dim[1], d->y.dim[2]}, b = {y[1]};
    dnnl_dims_t oihw = {y[1], x[1], w->kernel[0], w->kernel[1]};
    dnnl_dims_t goihw = {groups, y[1] / groups, x[1] / groups, w->kernel[0], w->kernel[1]};
    bool grouped = groups > 1;
    int nd = grouped ? 5 : 4;
    const dnnl_dim_t *dims = grouped ? goihw : oihw;
    for (int i = 0; i < 2; i++) l->stride[i] = w->stride[i], l->pad[i] = w->pad[i];
    TRY(describe_image(x, d->x_layout, &l->x, &l->any_x, &l->to_x));
    TRY(describe_image(y, d->y_layout, &l->y, &l->any_y, &l->to_y));
    TRY(describe(&l->b, 1, b, dnnl_f32, dnnl_a));
    TRY(describe(&l->w, nd, dims, dnnl_f32, grouped ? dnnl_goihw : dnnl_oihw));
    TRY(describe(&l->any_w, nd, dims, dnnl_bf16, dnnl_format_tag_any));
    return describe(&l->to_w, nd, dims, dnnl_f32, dnnl_format_tag_any);
}

static struct convolution describe_pass(const struct conv *c, const struct layouts *l, enum pass pass) {
    struct convolution d = {.pass = pass, .stride = l->stride, .pad = l->pad, .w = l->any_w};
    d.x = pass == PASS_DATA ? l->to_x : l->any_x;
    d.y = pass == PASS_FORWARD ? l->to_y : l->any_y;
    if (pass == PASS_FORWARD) {
        d.b = c->op.desc.conv.bias ? l->b : NULL;
        d.relu = c->op.desc.act == ACT_RELU;
        return d;
    }
    d.hint = c->forward_pd;
    if (pass == PASS_WEIGHTS) d.w = l->to_w;
    return d;
}

static enum error ask(struct conv *c, const struct convolution *d, dnnl_primitive_desc_t *out) {
    const char *name = "ref";
    DNNL(onednn_convolution(c->engine, d, out));
    DNNL(dnnl_primitive_desc_query(*out, dnnl_query_impl_info_str, 0, &name));
    if (strstr(name, "ref")) return FAIL(ERR_DEVICE, "oneDNN has only plain C for a convolution");
    return ERR_NONE;
}

static enum error ask_direct(struct conv *c, const struct layouts *l, enum pass pass) {
    dnnl_primitive_desc_t *all[] = {&c->forward_pd, &c->weights_pd, &c->data_pd};
    struct convolution d = describe_pass(c, l, pass);
    d.algorithm = dnnl_convolution_direct;
    return ask(c, &d, all[pass]);
}

/* ---- lists of steps ------------------------------------------------------------------------- */
static enum error slot_add(struct conv *c, const_dnnl_memory_desc_t md, enum home home, dnnl_memory_t *out) {
    struct slot *s = &c->slot[c->slots];
    s->home = home;
    if (home == HOME_SCRATCH) {
        s->offset = c->scratch;
        size_t bytes = dnnl_memory_desc_get_size(md);
        c->scratch += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    DNNL(dnnl_memory_create(&s->memory, md, c->engine, NULL));
    c->slots++;
    *out = s->memory;
    return ERR_NONE;
}

static void step_arg(struct step *s, int arg, dnnl_memory_t memory) {
    if (memory) s->args[s->count++] = (dnnl_exec_arg_t){arg, memory};
}

static enum error reorder_add(struct conv *c, struct steps *list, dnnl_memory_t from, const_dnnl_memory_desc_t from_md,
                              dnnl_memory_t to, const_dnnl_memory_desc_t to_md) {
    struct step *s = &list->step[list->count];
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_reorder_primitive_desc_create(&pd, from_md, c->engine, to_md, c->engine, NULL));
    dnnl_status_t status = dnnl_primitive_create(&s->primitive, pd);
    dnnl_primitive_desc_destroy(pd);
    DNNL(status);
    list->count++;
    step_arg(s, DNNL_ARG_FROM, from);
    step_arg(s, DNNL_ARG_TO, to);
    return ERR_NONE;
}

struct tensor { /* a tensor of a step: as we keep it, and as the step wants it */
    dnnl_query_t query;
    enum home home;
    const_dnnl_memory_desc_t plain, wanted;
    dnnl_memory_t kept, given; /* the same when the layouts are */
};

static enum error tensor_add(struct conv *c, const_dnnl_primitive_desc_t pd, struct tensor *t) {
    t->wanted = dnnl_primitive_desc_query_md(pd, t->query, 0);
    TRY(slot_add(c, t->plain, t->home, &t->kept));
    t->given = t->kept;
    if (dnnl_memory_desc_equal(t->plain, t->wanted)) return ERR_NONE;
    return slot_add(c, t->wanted, HOME_SCRATCH, &t->given);
}

/* An input, reordered unless an earlier list left it in the layout that is wanted now. */
static enum error input_add(struct conv *c, struct steps *list, const_dnnl_primitive_desc_t pd, struct tensor *t) {
    const_dnnl_memory_desc_t wanted = dnnl_primitive_desc_query_md(pd, t->query, 0);
    if (t->given && dnnl_memory_desc_equal(wanted, t->wanted)) return ERR_NONE;
    TRY(tensor_add(c, pd, t));
    if (t->given == t->kept) return ERR_NONE;
    return reorder_add(c, list, t->kept, t->plain, t->given, t->wanted);
}

/* Adds: reorder the inputs; the primitive; reorder the output. */
static enum error convolution_add(struct conv *c, struct steps *list, dnnl_primitive_desc_t pd,
                                  struct tensor *const in[2], const int arg[3], struct tensor *out, int bias_arg,
                                  dnnl_memory_t bias) {
    for (int i = 0; i < 2; i++) TRY(input_add(c, list, pd, in[i]));
    TRY(tensor_add(c, pd, out));
    const_dnnl_memory_desc_t pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    dnnl_memory_t scratchpad = NULL;
    TRY(slot_add(c, pad, HOME_SCRATCH, &scratchpad));
    struct step *s = &list->step[list->count];
    DNNL(dnnl_primitive_create(&s->primitive, pd));
    list->count++;
    step_arg(s, arg[0], in[0]->given);
    step_arg(s, arg[1], in[1]->given);
    step_arg(s, arg[2], out->given);
    step_arg(s, bias_arg, bias);
    step_arg(s, DNNL_ARG_SCRATCHPAD, scratchpad);
    if (out->given == out->kept) return ERR_NONE;
    return reorder_add(c, list, out->given, out->wanted, out->kept, out->plain);
}

/* dz, if it is not dy itself, is the first thing in scratch. */
static size_t dz_bytes(const struct op_desc *d) {
    return d->act == ACT_RELU ? (size_t)align_floats(op_ys(d)) * sizeof(float) : 0;
}

static enum error plan_forward(struct conv *c, const struct layouts *l) {
    struct tensor x = {.query = dnnl_query_src_md, .home = HOME_X, .plain = l->x};
    struct tensor w = {.query = dnnl_query_weights_md, .home = HOME_W, .plain = l->w};
    struct tensor y = {.query = dnnl_query_dst_md, .home = HOME_Y, .plain = l->y};
    const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    dnnl_memory_t bias = NULL;
    if (c->op.desc.conv.bias) TRY(slot_add(c, l->b, HOME_B, &bias));
    return convolution_add(c, &c->forward, c->forward_pd, (struct tensor *[]){&x, &w}, args, &y, DNNL_ARG_BIAS, bias);
}

static enum error plan_backward_weights(struct conv *c, const struct layouts *l, struct tensor *dz) {
    struct tensor x = {.query = dnnl_query_src_md, .home = HOME_X, .plain = l->x};
    struct tensor dw = {.query = dnnl_query_diff_weights_md, .home = HOME_DW, .plain = l->w};
    const int args[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS};
    return convolution_add(c, &c->backward_weights, c->weights_pd, (struct tensor *[]){&x, dz}, args, &dw, 0, NULL);
}

static enum error plan_backward_data(struct conv *c, const struct layouts *l, struct tensor *dz) {
    struct tensor w = {.query = dnnl_query_weights_md, .home = HOME_W, .plain = l->w};
    struct tensor dx = {.query = dnnl_query_diff_src_md, .home = HOME_DX, .plain = l->x};
    const int args[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC};
    if (c->op.desc.first) return ERR_NONE;
    return convolution_add(c, &c->backward_data, c->data_pd, (struct tensor *[]){dz, &w}, args, &dx, 0, NULL);
}

/* Scratch serves one pass at a time; both lists of backward read the same dz. */
static enum error plan_all(struct conv *c, const struct layouts *l) {
    struct tensor dz = {.query = dnnl_query_diff_dst_md, .home = HOME_DZ, .plain = l->y};
    TRY(plan_forward(c, l));
    c->op.scratch_bytes = c->scratch;
    c->scratch = dz_bytes(&c->op.desc);
    TRY(plan_backward_weights(c, l, &dz));
    TRY(plan_backward_data(c, l, &dz));
    if (c->scratch > c->op.scratch_bytes) c->op.scratch_bytes = c->scratch;
    return ERR_NONE;
}

/* ---- running -------------------------------------------------------------------------------- */
/* The library's handles are not const, though it only reads what is an input. */
static void *handle_of(const float *p) {
    void *handle;
    memcpy(&handle, &p, sizeof handle);
    return handle;
}

static enum error bind_slots(struct conv *c, const struct op_args *a) {
    const float *dz = c->op.desc.act == ACT_RELU ? a->scratch : a->dy;
    char *at[HOMES] = {[HOME_X] = handle_of(a->x[0]), [HOME_W] = handle_of(a->w[0]), [HOME_B] = handle_of(a->w[1]),
                       [HOME_Y] = (char *)a->y,       [HOME_DZ] = handle_of(dz),     [HOME_DX] = (char *)a->dx[0],
                       [HOME_DW] = (char *)a->dw[0],  [HOME_SCRATCH] = a->scratch};
    for (int i = 0; i < c->slots; i++) {
        struct slot *s = &c->slot[i];
        void *handle = at[s->home] ? at[s->home] + s->offset : NULL;
        if (handle == s->handle) continue;
        DNNL(dnnl_memory_set_data_handle(s->memory, handle));
        s->handle = handle;
    }
    return ERR_NONE;
}

static enum error run(struct conv *c, const struct steps *list) {
    for (int i = 0; i < list->count; i++) {
        const struct step *s = &list->step[i];
        DNNL(dnnl_primitive_execute(s->primitive, c->stream, s->count, s->args));
    }
    DNNL(dnnl_stream_wait(c->stream));
    return ERR_NONE;
}

static enum error conv_forward(struct op *op, const struct op_args *a) {
    struct conv *c = (struct conv *)op;
    TRY(bind_slots(c, a));
    return run(c, &c->forward);
}

static void mask_part(void *ctx, int64_t begin, int64_t end) {
    const struct op_args *a = ctx;
    kernel_relu_backward(end - begin, a->y + begin, a->dy + begin, (float *)a->scratch + begin);
}

static enum error conv_backward(struct op *op, const struct op_args *a) {
    struct conv *c = (struct conv *)op;
    struct op_args args = *a;
    if (op->desc.act == ACT_RELU) cpu_parallel(op->dev, op_ys(&op->desc), 4096, mask_part, &args);
    TRY(bind_slots(c, a));
    if (op->desc.conv.bias) channel_sums(op->dev, &op->desc, op->desc.act == ACT_RELU ? a->scratch : a->dy, a->dw[1]);
    TRY(run(c, &c->backward_weights));
    return a->dx[0] ? run(c, &c->backward_data) : ERR_NONE;
}

static void steps_free(struct steps *list) {
    for (int i = 0; i < list->count; i++)
        if (list->step[i].primitive) dnnl_primitive_destroy(list->step[i].primitive);
}

static void conv_free(struct op *op) {
    struct conv *c = (struct conv *)op;
    steps_free(&c->forward);
    steps_free(&c->backward_weights);
    steps_free(&c->backward_data);
    for (int i = 0; i < c->slots; i++) dnnl_memory_destroy(c->slot[i].memory);
    dnnl_primitive_desc_t all[] = {c->forward_pd, c->data_pd, c->weights_pd};
    for (int i = 0; i < 3; i++)
        if (all[i]) dnnl_primitive_desc_destroy(all[i]);
    if (c->stream) dnnl_stream_destroy(c->stream);
    if (c->engine) dnnl_engine_destroy(c->engine);
    op_release(op);
}

static enum error ask_all(struct conv *c, struct layouts *l) {
    TRY(describe_layouts(c, l));
    TRY(ask_direct(c, l, PASS_FORWARD));
    TRY(ask_direct(c, l, PASS_WEIGHTS));
    if (!c->op.desc.first) TRY(ask_direct(c, l, PASS_DATA));
    return plan_all(c, l);
}

static enum error plan(struct conv *c) {
    struct layouts l = {0};
    DNNL(dnnl_engine_create(&c->engine, dnnl_cpu, 0));
    DNNL(dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags));
    enum error err = ask_all(c, &l);
    layouts_free(&l);
    return err;
}

static enum error conv_create(struct device *dev, const struct op_desc *d, struct op **out) {
    struct op *op;
    TRY(op_alloc(sizeof(struct conv), &cpu_conv_dnnl, dev, d, &op));
    enum error err = plan((struct conv *)op);
    if (err == ERR_NONE)
        *out = op;
    else
        conv_free(op);
    return err;
}

/* The library has kernels for blocks of 16 from whole blocks or the
 * channels of a picture, for windows up to its limit, and for groups that are whole blocks or single
 * channels. */
static bool blocks_known(const struct op_desc *d) {
    enum { WIDEST = 14 };
    int64_t in = d->x.dim[0] / d->conv.groups, out = d->y.dim[0] / d->conv.groups;
    const struct window *w = &d->conv.window;
    if (w->kernel[0] > WIDEST || w->kernel[1] > WIDEST) return false;
    if (d->conv.groups == 1) return in % LAYOUT_BLOCK == 0 || in <= 3;
    return (in == 1 && out == 1) || (in % LAYOUT_BLOCK == 0 && out % LAYOUT_BLOCK == 0);
}

static bool takes(const struct op_desc *d) {
    bool plain = d->x_layout == LAYOUT_PLAIN && d->y_layout == LAYOUT_PLAIN;
    if (d->precision != PRECISION_BF16 || !onednn_uses(dnnl_cpu_isa_avx512_core_bf16)) return false;
    return !d->conv.maxpool && act_is_fused(d->act) && (plain || blocks_known(d));
}

const struct op_impl cpu_conv_dnnl = {
    .name = "dnnl",
    .takes = takes,
    .create = conv_create,
    .forward = conv_forward,
    .backward = conv_backward,
    .stateful = true,
    .free = conv_free,
};
