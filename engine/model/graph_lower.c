/* From a model's nodes to the steps of a plan.
 *
 * Fusion. A view is no step: its tensor is its input's. An activation that alone reads the output of
 * a linear, conv2d, batchnorm or add becomes a part of that step where the device has a kernel for
 * the pair, and so does a 2x2 max-pool behind a convolution. An add becomes a part of the later one of the two steps
 * that it reads, where it alone reads that one and the device can add so. The loss is the last step.
 *
 * Layouts. Convolutions want images blocked by channels; turning each one's input and output around
 * would cost more than it brings. So the steps are gone through in order, and images stay blocked as
 * far as the device can follow:
 *   - a convolution takes and gives blocked images where the device's first choice for it does;
 *   - any other step takes what it is given, and gives the same, if the device can;
 *   - where a step cannot (flatten, tokens) a reorder stands in between. A tensor is turned around
 *     at most once, whoever reads it.
 * An accelerator has all images in its own layout, from the batch on, as far as its ops take them so. What a linear op
 * gives to the loss, a row for each sample or position and an element for each class, has aligned rows there: the number
 * of classes is the data's, and products of rows that begin anywhere are slow.
 *
 * Types. Where activations are smaller than f32, the batch, and what is made of it without parameters, stays f32: x of
 * a 'first' op. There a first op is one that reads these alone; else also one that no trained parameter precedes. */
#include "engine/model/graph_plan.h"

#include <stdlib.h>

struct lowering {
    const struct model *m;
    const struct model_part *part;
    struct device *dev;
    struct plan *p;
    enum precision precision;
    const int *frozen; /* by parameter; NULL: none is */
    int *uses;         /* by node: ops (the loss too) that read its output, views looked through, in all parts */
    int *tensor;       /* by node: where its output is */
};

/* What comes from an earlier part is the input of this one. */
static int tensor_read(const struct lowering *b, int node) {
    int root = model_root(b->m, node);
    return root < b->part->from ? TENSOR_BATCH : b->tensor[root];
}

static void uses_count(struct lowering *b) {
    const struct model *m = b->m;
    for (int k = 0; k <= m->nnodes; k++) {
        if (k < m->nnodes && m->nodes[k].plan.view) continue;
        for (int i = 0; i < (k < m->nnodes ? 1 + m->nodes[k].layer->joins : 1); i++) {
            int root = model_root(m, k < m->nnodes ? m->nodes[k].input[i] : m->nnodes - 1);
            if (root >= 0) b->uses[root]++;
        }
    }
}

/* ---- fusion ------------------------------------------------------------------------------- */

/* A 2x2 max-pool of stride 2: other ops than a pool have no window. */
static bool is_halving(const struct op_desc *d) {
    const struct window *w = &d->pool.window;
    if (d->pool.kind != POOL_MAX) return false;
    for (int i = 0; i < 2; i++)
        if (w->kernel[i] != 2 || w->stride[i] != 2 || w->pad[i] != 0) return false;
    return true;
}

/* Puts 'next' behind d in one op, if such an op is and the device is none the slower for it. */
static bool desc_fuse(struct device *dev, struct op_desc *d, const struct op_desc *next) {
    struct op_desc both = *d;
    if (op_row(next->kind)->activates && op_row(d->kind)->fuses && d->act == ACT_NONE && !d->conv.maxpool) {
        both.act = next->act;
        both.act_alpha = next->act_alpha;
        bool slow = op_choice(dev, d) < 0 && op_takes(dev, &both);
        if (!slow && op_choice(dev, &both) < 0) return false;
    } else if (is_halving(next) && op_row(d->kind)->pools && !d->conv.maxpool) {
        both.conv.maxpool = true;
        both.y = next->y;
        if (op_choice(dev, &both) < 0) return false;
    } else {
        return false;
    }
    *d = both;
    return true;
}

/* Makes node k a part of the step that it reads from. */
static bool step_fuse(struct lowering *b, int k) {
    const struct model_node *node = &b->m->nodes[k];
    int source = model_root(b->m, node->input[0]);
    if (source < b->part->from || b->uses[source] != 1) return false;
    struct plan_tensor *t = &b->p->tensors[b->tensor[source]];
    struct op_desc *d = &b->p->steps[t->producer].desc;
    if (!desc_fuse(b->dev, d, &node->plan.op)) return false;
    t->count = shape_count(&d->y);
    b->tensor[k] = b->tensor[source];
    b->p->fused++;
    return true;
}

/* Makes an add a part of a step that it reads from; the other input is there before that. */
static bool step_join(struct lowering *b, int k) {
    const struct model_node *node = &b->m->nodes[k];
    if (node->plan.op.kind != OP_ADD) return false;
    int in[2] = {tensor_read(b, node->input[0]), tensor_read(b, node->input[1])}, later = in[1] > in[0];
    struct plan_tensor *t = &b->p->tensors[in[later]], *other = &b->p->tensors[in[!later]];
    if (in[later] == TENSOR_BATCH || b->uses[model_root(b->m, node->input[later])] != 1) return false;
    struct plan_step *step = &b->p->steps[t->producer];
    struct op_desc both = step->desc;
    both.joins = true;
    if (step->desc.joins || both.act != ACT_NONE || both.conv.maxpool || both.first) return false;
    if (other->layout != t->layout || other->unit != t->unit || op_choice(b->dev, &both) < 0) return false;
    step->desc = both;
    step->in[step->ninputs++] = in[!later];
    t->wants_grad |= other->wants_grad;
    b->tensor[k] = in[later];
    b->p->fused++;
    return true;
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Whether a layer behind node k has the same weights. */
static bool weights_follow(const struct model *m, int k) {
    int owner = m->nodes[k].tied >= 0 ? m->nodes[k].tied : k;
    for (int i = k + 1; i < m->nnodes; i++)
        if (m->nodes[i].tied == owner) return true;
    return false;
}

static bool trains(const struct lowering *b, const struct plan_step *step) {
    int trained = 0;
    for (int i = 0; i < step->nparams; i++) trained += !b->frozen || !b->frozen[b->m->nodes[step->node].param[i]];
    return trained > 0;
}

static bool reads_data(const struct lowering *b, const struct plan_step *step) {
    bool data = true;
    for (int i = 0; i < step->ninputs; i++) data &= b->p->tensors[step->in[i]].is_data;
    return data;
}

static bool reads_grad(const struct lowering *b, const struct plan_step *step) {
    bool grad = false;
    for (int i = 0; i < step->ninputs; i++) grad |= b->p->tensors[step->in[i]].wants_grad;
    return grad;
}

/* Fills what a step has of its place in the graph. */
static void step_place(const struct lowering *b, struct plan_step *step) {
    bool small = b->p->unit < (int64_t)sizeof(float), data = reads_data(b, step);
    step->desc.n = b->p->n;
    step->desc.segments = b->p->segments.count > 1 ? &b->p->segments : NULL;
    step->desc.first = small ? data : !reads_grad(b, step);
    step->desc.precision = small && data && step->nparams == 0 ? PRECISION_F32 : b->precision;
}

/* Gives the tensor that the step writes. */
static int step_append(struct lowering *b, struct plan_step step) {
    struct plan *p = b->p;
    bool is_data = reads_data(b, &step) && step.nparams == 0;
    step.out = p->ntensors++;
    p->tensors[step.out] = (struct plan_tensor){.count = shape_count(&step.desc.y),
                                                .unit = is_data ? (int64_t)sizeof(float) : p->unit,
                                                .producer = p->nsteps,
                                                .layout = step.desc.y_layout,
                                                .wants_grad = reads_grad(b, &step) || trains(b, &step),
                                                .is_data = is_data};
    p->steps[p->nsteps++] = step;
    return step.out;
}

/* ---- layouts ------------------------------------------------------------------------------ */

static enum layout layout_best(const struct device *dev, const struct shape *s) {
    enum layout best = dev->ops->image_layout;
    bool whole = best != LAYOUT_BLOCKED || s->dim[0] % LAYOUT_BLOCK == 0;
    return s->ndim == 3 && whole ? best : LAYOUT_PLAIN;
}

/* Decides in which layouts the step reads and writes: d's are plain before. */
static void layouts_choose(const struct lowering *b, struct plan_step *step) {
    struct op_desc *d = &step->desc, best = *d;
    bool turns = op_row(d->kind)->turns, given = turns || b->dev->ops->images_turned;
    for (int i = 0; i < step->ninputs; i++) given |= b->p->tensors[step->in[i]].layout != LAYOUT_PLAIN;
    best.x_layout = layout_best(b->dev, &d->x);
    best.y_layout = layout_best(b->dev, &d->y);
    if (!given || (best.x_layout == LAYOUT_PLAIN && best.y_layout == LAYOUT_PLAIN)) return;
    int other = op_choice(b->dev, &best), plain = op_choice(b->dev, d);
    if (other < 0 || (turns && plain >= 0 && plain < other)) return;
    *d = best;
}

static const struct shape *input_shape(const struct lowering *b) {
    return b->part->input < 0 ? &b->m->input : &b->m->nodes[b->part->input].plan.y;
}

/* The tensor that holds t in this layout, turned around for 'reader' if it has to be. */
static int tensor_in(struct lowering *b, int t, enum layout layout, int reader) {
    struct plan_tensor *from = &b->p->tensors[t];
    if (from->layout == layout) return t;
    if (from->other) return from->other;
    const struct shape *shape = t == TENSOR_BATCH ? input_shape(b) : &b->p->steps[from->producer].desc.y;
    struct plan_step turn = {
        .desc = {.kind = OP_REORDER, .x = *shape, .y = *shape, .x_layout = from->layout, .y_layout = layout},
        .node = reader,
        .ninputs = 1,
        .in = {t}};
    step_place(b, &turn);
    from->other = step_append(b, turn);
    b->p->reorders++;
    return from->other;
}

/* Aligns the rows of what the loss reads, if it alone does and the device's ops for both know how. A linear layer's own
 * backward reads what it wrote only where an activation is fused into it. */
static void rows_align(struct lowering *b, int root, struct op_desc *loss) {
    struct plan_tensor *t = &b->p->tensors[b->p->output];
    struct op_desc *d = &b->p->steps[t->producer].desc, writes = *d, reads = *loss;
    if (root < b->part->from || b->uses[root] != 1 || d->kind != OP_LINEAR) return;
    t->judged = d->act == ACT_NONE;
    writes.y_layout = reads.x_layout = LAYOUT_ALIGNED;
    if (op_choice(b->dev, &writes) < 0 || op_choice(b->dev, &reads) < 0) return;
    t->count = t->count / shape_last(&d->y) * shape_pitch(&d->y, LAYOUT_ALIGNED, t->unit);
    t->layout = LAYOUT_ALIGNED;
    *d = writes, *loss = reads;
}

static int step_lower(struct lowering *b, struct plan_step step) {
    step_place(b, &step);
    layouts_choose(b, &step);
    for (int i = 0; i < step.ninputs; i++) step.in[i] = tensor_in(b, step.in[i], step.desc.x_layout, step.node);
    return step_append(b, step);
}

/* ---- the model ---------------------------------------------------------------------------- */

static const enum op_kind loss_ops[] = {
    [LOSS_CROSS_ENTROPY] = OP_CROSS_ENTROPY, [LOSS_MSE] = OP_MSE, [LOSS_BCE] = OP_BCE};

/* The batch, or what the part before has made of it. */
static void lower_input(struct lowering *b) {
    struct plan_tensor *t = &b->p->tensors[TENSOR_BATCH];
    *t = (struct plan_tensor){.count = shape_count(input_shape(b)), .unit = sizeof(float), .is_data = true};
    for (int i = 0; i < b->m->nparams; i++) {
        if (b->m->params[i].node >= b->part->from) continue;
        t->is_data = false;
        t->wants_grad |= !b->frozen || !b->frozen[i];
    }
    if (!t->is_data) t->unit = b->p->unit;
    if (b->part->from) b->p->input = plan_lines(b->p, b->p->n * t->count * t->unit);
    b->p->ntensors = 1;
}

static void lower(struct lowering *b, enum loss loss) {
    const struct model *m = b->m;
    int last = b->part->to - 1;
    lower_input(b);
    for (int k = b->part->from; k <= last; k++) {
        const struct model_node *node = &m->nodes[k];
        if (node->plan.view || step_fuse(b, k) || step_join(b, k)) continue;
        struct plan_step step = {.desc = node->plan.op, .node = k, .nparams = node->plan.nparams};
        step.ninputs = 1 + node->layer->joins;
        step.add_dw = step.nparams > 0 && weights_follow(m, k);
        step.desc.apart = b->p->segments.count > 1 && step.nparams > 0 && (step.add_dw || node->tied >= 0);
        for (int i = 0; i < step.ninputs; i++) step.in[i] = tensor_read(b, node->input[i]);
        b->tensor[k] = step_lower(b, step);
    }
    b->p->output = tensor_in(b, tensor_read(b, last), LAYOUT_PLAIN, last);
    if (last + 1 < m->nnodes) return;
    struct plan_step step = {.desc = {.kind = loss_ops[loss], .x = m->output, .y = m->output},
                             .node = NODE_LOSS,
                             .ninputs = 1,
                             .in = {b->p->output}};
    rows_align(b, model_root(m, last), &step.desc);
    step_lower(b, step);
}

enum error plan_lower(const struct plan_work *w, struct plan *p) {
    size_t nodes = (size_t)w->m->nnodes, most = 2 * nodes + 3; /* each tensor turned around once */
    struct lowering b = {
        .m = w->m, .part = w->part, .dev = w->dev, .p = p, .precision = w->precision, .frozen = w->frozen};
    b.uses = calloc(nodes, sizeof *b.uses);
    b.tensor = calloc(nodes, sizeof *b.tensor);
    p->steps = calloc(most, sizeof *p->steps);
    p->tensors = calloc(most, sizeof *p->tensors);
    bool fits = b.uses && b.tensor && p->steps && p->tensors;
    if (fits) {
        uses_count(&b);
        lower(&b, w->loss);
    }
    free(b.uses);
    free(b.tensor);
    return fits ? ERR_NONE : FAIL(ERR_MEMORY, "cannot allocate a plan of %d layers", w->m->nnodes);
}
