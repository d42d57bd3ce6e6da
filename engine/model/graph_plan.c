/* Planning a graph for one batch size.
 *
 * 1. Lower the nodes to steps. A view is no step: its tensor is its input's. A relu that alone
 * reads the output of a linear, conv2d, batchnorm or add becomes a part of that step, and so does a
 * 2x2 max-pool behind a convolution where the device has a kernel for the pair. The loss is the
 * last step.
 * 2. Plan the ops on the device: they tell what they save and how much scratch they want.
 * 3. Lay out the activations, each at a place of its own, since backward needs them.
 * 4. Lay out the gradients. Steps run backwards, so a tensor's gradient lives from its last reader
 * (which writes it first) to its producer (which takes it in). A further reader writes to a
 * temporary that lives in its own step, and the sum is taken: the order is that of the steps,
 * always the same. Each gets the lowest place where nothing that lives at the same time lies (first
 * fit).
 *
 * Gradients that lead to no parameter are not computed. */
#include "engine/model/graph_plan.h"

#include <assert.h>
#include <stdlib.h>

struct planner {
    const struct model *m;
    struct device *dev;
    struct plan *p;
    int *uses;   /* by node: ops (the loss too) that read its output, views looked through */
    int *tensor; /* by node: where its output is */
};

/* ---- 1. lowering -------------------------------------------------------------------------- */

/* The node whose memory this node's output is; -1: the batch. */
static int node_root(const struct model *m, int node) {
    while (node >= 0 && m->nodes[node].plan.view) node = m->nodes[node].input[0];
    return node;
}

static int tensor_read(const struct planner *b, int node) {
    int root = node_root(b->m, node);
    return root < 0 ? TENSOR_BATCH : b->tensor[root];
}

static void uses_count(struct planner *b) {
    const struct model *m = b->m;
    for (int k = 0; k <= m->nnodes; k++) {
        if (k < m->nnodes && m->nodes[k].plan.view) continue;
        for (int i = 0; i < (k < m->nnodes ? m->nodes[k].layer->inputs : 1); i++) {
            int root = node_root(m, k < m->nnodes ? m->nodes[k].input[i] : m->nnodes - 1);
            if (root >= 0) b->uses[root]++;
        }
    }
}

/* A 2x2 max-pool of stride 2. */
static bool is_halving(const struct op_desc *d) {
    const struct window *w = &d->pool.window;
    if (d->kind != OP_POOL2D || d->pool.kind != POOL_MAX) return false;
    for (int i = 0; i < 2; i++)
        if (w->kernel[i] != 2 || w->stride[i] != 2 || w->pad[i] != 0) return false;
    return true;
}

static bool takes_activation(const struct op_desc *d) {
    bool kind = d->kind == OP_LINEAR || d->kind == OP_CONV2D || d->kind == OP_BATCHNORM ||
                d->kind == OP_ADD;
    return kind && d->act == ACT_NONE && !(d->kind == OP_CONV2D && d->conv.maxpool);
}

/* Puts 'next' behind d in one op, if such an op is and the device is none the slower for it. */
static bool desc_fuse(struct device *dev, struct op_desc *d, const struct op_desc *next) {
    struct op_desc both = *d;
    if (next->kind == OP_RELU && takes_activation(d)) {
        both.act = ACT_RELU;
        bool slow = !op_takes(dev, d, true) && op_takes(dev, &both, false);
        if (!slow && !op_takes(dev, &both, true)) return false;
    } else if (is_halving(next) && d->kind == OP_CONV2D && !d->conv.maxpool) {
        both.conv.maxpool = true;
        both.y = next->y;
        if (!op_takes(dev, &both, true)) return false;
    } else {
        return false;
    }
    *d = both;
    return true;
}

/* Makes node k a part of the step that it reads from. */
static bool step_fuse(struct planner *b, int k) {
    const struct model_node *node = &b->m->nodes[k];
    int source = node_root(b->m, node->input[0]);
    if (source < 0 || b->uses[source] != 1) return false;
    struct plan_tensor *t = &b->p->tensors[b->tensor[source]];
    struct op_desc *d = &b->p->steps[t->producer].desc;
    if (!desc_fuse(b->dev, d, &node->plan.op)) return false;
    t->count = shape_count(&d->y);
    b->tensor[k] = b->tensor[source];
    b->p->fused++;
    return true;
}

static void step_append(struct planner *b, struct plan_step step) {
    struct plan *p = b->p;
    struct plan_tensor *out = &p->tensors[step.out];
    bool reads_grad = false;
    for (int i = 0; i < step.ninputs; i++) reads_grad |= p->tensors[step.in[i]].wants_grad;
    bool params = step.node != NODE_LOSS && b->m->nodes[step.node].plan.nparams > 0;
    step.desc.n = p->n;
    step.desc.first = !reads_grad;
    *out = (struct plan_tensor){.count = shape_count(&step.desc.y),
                                .producer = p->nsteps,
                                .wants_grad = reads_grad || params};
    p->steps[p->nsteps++] = step;
}

static void lower(struct planner *b, enum loss loss) {
    const struct model *m = b->m;
    b->p->tensors[TENSOR_BATCH].count = shape_count(&m->input);
    for (int k = 0; k < m->nnodes; k++) {
        const struct model_node *node = &m->nodes[k];
        if (node->plan.view || step_fuse(b, k)) continue;
        b->tensor[k] = k + 1;
        struct plan_step step = {.desc = node->plan.op, .node = k, .out = k + 1};
        step.ninputs = node->layer->inputs;
        for (int i = 0; i < step.ninputs; i++) step.in[i] = tensor_read(b, node->input[i]);
        step_append(b, step);
    }
    b->p->output = tensor_read(b, m->nnodes - 1);
    enum op_kind kind = loss == LOSS_CROSS_ENTROPY ? OP_CROSS_ENTROPY : OP_MSE;
    step_append(b, (struct plan_step){.desc = {.kind = kind, .x = m->output, .y = m->output},
                                      .node = NODE_LOSS,
                                      .ninputs = 1,
                                      .in = {b->p->output},
                                      .out = m->nnodes + 1});
}

/* ---- 2. and 3. ops and activations -------------------------------------------------------- */

/* Two operations for each product; backward has as many again for dw, and for dx if it is wanted.
 */
static double step_flops(const struct op_desc *d) {
    double products = 0;
    if (d->kind == OP_LINEAR) products = (double)d->x.dim[0] * (double)d->y.dim[0];
    if (d->kind == OP_CONV2D) {
        const struct window *w = &d->conv.window;
        products = (double)d->x.dim[0] / d->conv.groups * (double)d->y.dim[0];
        for (int i = 0; i < 2; i++) {
            int64_t room = d->x.dim[1 + i] + 2 * w->pad[i] - w->kernel[i];
            products *= w->kernel[i] * (double)(room / w->stride[i] + 1);
        }
    }
    return 2 * products * (d->first ? 2 : 3);
}

/* Takes the next place of an arena; op_create has checked that one tensor's bytes fit in 63 bits.
 */
static enum error arena_place(int64_t *total, int64_t floats, int64_t *out) {
    *out = *total;
    if (floats > INT64_MAX / 16 - *total)
        return FAIL(ERR_MEMORY, "the activations do not fit in memory\nmake batch.size smaller");
    *total += align_floats(floats);
    return ERR_NONE;
}

static enum error ops_create(struct planner *b) {
    struct plan *p = b->p;
    for (int s = 0; s < p->nsteps; s++) {
        struct plan_step *step = &p->steps[s];
        struct plan_tensor *out = &p->tensors[step->out];
        enum error err = op_create(b->dev, &step->desc, &step->op);
        if (err != ERR_NONE && step->node != NODE_LOSS)
            return error_prefix(err, "%s: ", b->m->nodes[step->node].name);
        if (err != ERR_NONE) return err;
        TRY(arena_place(&p->activations, p->n * out->count, &out->y));
        int64_t saved = (int64_t)((step->op->saved_bytes + sizeof(float) - 1) / sizeof(float));
        TRY(arena_place(&p->activations, saved, &step->saved));
        if (step->op->scratch_bytes > p->scratch) p->scratch = step->op->scratch_bytes;
        p->flops += step_flops(&step->desc);
    }
    return ERR_NONE;
}

/* ---- 4. gradients ------------------------------------------------------------------------- */

struct span { /* memory that lives while the steps first >= s >= last run backwards */
    int first, last;
    int64_t at, floats;
};
struct spans {
    struct span *of;
    int count;
    int64_t end; /* of all */
};

/* The lowest place that nothing alive at the same time touches: whatever it meets, it moves behind.
 */
static int64_t span_place(struct spans *all, struct span s) {
    s.floats = align_floats(s.floats);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < all->count; i++) {
            const struct span *o = &all->of[i];
            bool together = s.first >= o->last && o->first >= s.last;
            if (!together || s.at >= o->at + o->floats || o->at >= s.at + s.floats) continue;
            s.at = o->at + o->floats;
            moved = true;
        }
    }
    all->of[all->count++] = s;
    if (all->end < s.at + s.floats) all->end = s.at + s.floats;
    return s.at;
}

static void gradients_place(struct plan *p, struct spans *all) {
    for (int t = 0; t < p->ntensors; t++) p->tensors[t].dy = -1;
    for (int s = p->nsteps - 1; s >= 0; s--) {
        struct plan_step *step = &p->steps[s];
        for (int i = 0; i < LAYER_INPUTS; i++) step->dx[i] = -1;
        for (int i = 0; i < step->ninputs && !step->desc.first; i++) {
            struct plan_tensor *t = &p->tensors[step->in[i]];
            bool begins = t->wants_grad && t->dy < 0;
            struct span span = {
                .first = s, .last = begins ? t->producer : s, .floats = p->n * t->count};
            step->dx[i] = span_place(all, span);
            step->add[i] = t->wants_grad && !begins;
            if (begins) t->dy = step->dx[i];
        }
    }
}

static enum error gradients_layout(struct plan *p) {
    struct spans all = {.of = calloc((size_t)p->nsteps * LAYER_INPUTS, sizeof(struct span))};
    if (!all.of) return FAIL(ERR_MEMORY, "cannot allocate a plan of %d steps", p->nsteps);
    int64_t total = 0, at; /* if all lived at once it must not overflow either */
    enum error err = ERR_NONE;
    for (int s = 0; s < p->nsteps && err == ERR_NONE; s++)
        for (int i = 0; i < p->steps[s].ninputs && err == ERR_NONE; i++)
            err = arena_place(&total, p->n * p->tensors[p->steps[s].in[i]].count, &at);
    if (err == ERR_NONE) gradients_place(p, &all);
    p->gradients = all.end;
    free(all.of);
    return err;
}

/* ---- the plan ----------------------------------------------------------------------------- */

static enum error plan_fill(struct planner *b, enum loss loss) {
    uses_count(b);
    lower(b, loss);
    TRY(ops_create(b));
    return gradients_layout(b->p);
}

enum error plan_create(const struct model *m, struct device *dev, enum loss loss, int64_t n,
                       struct plan **out) {
    assert(n > 0);
    size_t nodes = (size_t)m->nnodes;
    struct plan *p = calloc(1, sizeof *p);
    struct planner b = {.m = m, .dev = dev, .p = p};
    enum error err = ERR_NONE;
    b.uses = calloc(nodes, sizeof *b.uses);
    b.tensor = calloc(nodes, sizeof *b.tensor);
    if (p) {
        *p = (struct plan){.n = n, .ntensors = m->nnodes + 2};
        p->steps = calloc(nodes + 1, sizeof *p->steps);
        p->tensors = calloc(nodes + 2, sizeof *p->tensors);
    }
    if (p && p->steps && p->tensors && b.uses && b.tensor)
        err = plan_fill(&b, loss);
    else
        err = FAIL(ERR_MEMORY, "cannot allocate a plan of %d layers", m->nnodes);
    free(b.uses);
    free(b.tensor);
    if (err == ERR_NONE)
        *out = p;
    else
        plan_free(p);
    return err;
}

void plan_free(struct plan *p) {
    if (!p) return;
    for (int s = 0; s < p->nsteps; s++) op_free(p->steps[s].op);
    free(p->steps);
    free(p->tensors);
    free(p);
}
