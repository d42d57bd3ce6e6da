/* Running a planned graph: forward through the steps, backward through them in reverse. Three
 * arenas serve all plans, each as large as the largest wants it: activations (with what ops save),
 * gradients of activations, scratch. */
#include "engine/model/graph_plan.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct arena {
    void *base;
    size_t bytes;
};
struct graph {
    const struct model *m;
    struct device *dev;
    enum loss loss;
    struct plan *plans;
    const struct plan *last; /* of the last forward; NULL: it had no samples */
    struct arena activations, gradients, scratch;
    atomic_int where; /* 0: nowhere; 2 * (node + 2), + 1 in backward */
};

enum error graph_create(const struct model *m, struct device *dev, enum loss loss,
                        struct graph **out) {
    struct graph *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "cannot allocate a graph");
    g->m = m, g->dev = dev, g->loss = loss;
    *out = g;
    return ERR_NONE;
}

void graph_free(struct graph *g) {
    if (!g) return;
    for (struct plan *p = g->plans, *next; p; p = next) {
        next = p->next;
        plan_free(p);
    }
    memory_free(g->activations.base);
    memory_free(g->gradients.base);
    memory_free(g->scratch.base);
    free(g);
}

/* ---- planning ----------------------------------------------------------------------------- */

static struct plan *plan_find(const struct graph *g, int64_t n) {
    struct plan *p = g->plans;
    while (p && p->n != n) p = p->next;
    return p;
}

/* What the arena held is lost. */
static enum error arena_grow(struct arena *a, size_t bytes) {
    if (a->base && bytes <= a->bytes) return ERR_NONE;
    void *base;
    TRY(memory_alloc(bytes, &base));
    memory_free(a->base);
    *a = (struct arena){base, bytes};
    return ERR_NONE;
}

enum error graph_prepare(struct graph *g, int64_t n) {
    if (n == 0 || plan_find(g, n)) return ERR_NONE;
    struct plan *p;
    TRY(plan_create(g->m, g->dev, g->loss, n, &p));
    p->next = g->plans; /* a plan whose memory failed stays out of use: prepare is tried again */
    enum error err = arena_grow(&g->activations, (size_t)p->activations * sizeof(float));
    if (err == ERR_NONE) err = arena_grow(&g->gradients, (size_t)p->gradients * sizeof(float));
    if (err == ERR_NONE) err = arena_grow(&g->scratch, p->scratch);
    if (err == ERR_NONE)
        g->plans = p;
    else
        plan_free(p);
    return err;
}

void graph_info(const struct graph *g, struct graph_info *out) {
    const struct plan *p = g->plans;
    *out = (struct graph_info){
        .activation_bytes = (int64_t)(g->activations.bytes + g->gradients.bytes),
        .scratch_bytes = (int64_t)g->scratch.bytes,
    };
    if (!p) return;
    out->flops = p->flops;
    out->ops = p->nsteps;
    out->fused = p->fused;
}

/* ---- one step ----------------------------------------------------------------------------- */

static void where_set(struct graph *g, int node, bool backward) {
    atomic_store_explicit(&g->where, 2 * (node + 2) + backward, memory_order_relaxed);
}

const char *graph_where(const struct graph *g, bool *backward) {
    int where = atomic_load_explicit(&g->where, memory_order_relaxed);
    *backward = where % 2;
    if (where == 0) return "";
    return where / 2 - 2 == NODE_LOSS ? "loss" : g->m->nodes[where / 2 - 2].name;
}

static float *activation(const struct graph *g, const struct plan *p, int tensor) {
    return (float *)g->activations.base + p->tensors[tensor].y;
}

/* What both passes need. */
static void step_args(const struct graph *g, const struct plan *p, const struct plan_step *s,
                      const struct graph_batch *b, const float *values, struct op_args *a) {
    *a = (struct op_args){
        .y = activation(g, p, s->out),
        .saved = (float *)g->activations.base + s->saved,
        .scratch = g->scratch.base,
        .training = b->training,
        .update_buffers = b->update_buffers,
        .seed = b->seed,
        .ids = b->ids,
        .labels = b->labels,
        .target = b->target,
        .scale = b->scale,
    };
    for (int i = 0; i < s->ninputs; i++)
        a->x[i] = s->in[i] == TENSOR_BATCH ? b->x : activation(g, p, s->in[i]);
    if (s->node == NODE_LOSS) return;
    const struct model_node *node = &g->m->nodes[s->node];
    for (int i = 0; i < node->plan.nparams; i++)
        a->w[i] = values + g->m->params[node->param[i]].offset;
}

/* ---- forward ------------------------------------------------------------------------------ */

static enum error step_forward(struct graph *g, const struct plan *p, const struct plan_step *s,
                               const struct graph_batch *b, const float *values, float *buffers,
                               double *sums) {
    struct op_args a;
    step_args(g, p, s, b, values, &a);
    where_set(g, s->node, false);
    if (s->node == NODE_LOSS) {
        a.sums = sums;
    } else {
        const struct model_node *node = &g->m->nodes[s->node];
        for (int i = 0; i < node->plan.nbuffers; i++)
            a.buffer[i] = buffers + g->m->buffers[node->buffer[i]].offset;
    }
    return op_forward(s->op, &a);
}

enum error graph_forward(struct graph *g, const struct graph_batch *b, const float *values,
                         float *buffers, struct graph_sums *sums) {
    TRY(graph_prepare(g, b->n));
    const struct plan *p = g->last = plan_find(g, b->n);
    double both[2] = {0, 0};
    bool judged = b->labels || b->target; /* else only the outputs are asked for */
    for (int s = 0; p && s < p->nsteps - !judged; s++)
        TRY(step_forward(g, p, &p->steps[s], b, values, buffers, both));
    *sums = (struct graph_sums){.loss = both[0], .correct = both[1]};
    return ERR_NONE;
}

const float *graph_output(const struct graph *g) {
    assert(g->last);
    return activation(g, g->last, g->last->output);
}

/* ---- backward ----------------------------------------------------------------------------- */

/* Adds what a further reader of a tensor wrote to a temporary. */
static void gradient_add(float *restrict to, const float *restrict from, int64_t n) {
    for (int64_t k = 0; k < n; k++) to[k] += from[k];
}

static enum error step_backward(struct graph *g, const struct plan *p, const struct plan_step *s,
                                const struct graph_batch *b, const float *values, float *grads) {
    float *gradients = g->gradients.base;
    struct op_args a;
    step_args(g, p, s, b, values, &a);
    where_set(g, s->node, true);
    if (s->node != NODE_LOSS) {
        const struct model_node *node = &g->m->nodes[s->node];
        a.dy = gradients + p->tensors[s->out].dy;
        for (int i = 0; i < node->plan.nparams; i++)
            a.dw[i] = grads + g->m->params[node->param[i]].offset;
    }
    for (int i = 0; i < s->ninputs; i++)
        if (s->dx[i] >= 0) a.dx[i] = gradients + s->dx[i];
    TRY(op_backward(s->op, &a));
    for (int i = 0; i < s->ninputs; i++) {
        const struct plan_tensor *t = &p->tensors[s->in[i]];
        if (s->add[i]) gradient_add(gradients + t->dy, a.dx[i], p->n * t->count);
    }
    return ERR_NONE;
}

/* How far the arena is ready once this node's parameters are: up to the next one's place. */
static int64_t ready_upto(const struct model *m, const struct model_node *node) {
    int next = node->param[node->plan.nparams - 1] + 1;
    return next < m->nparams ? m->params[next].offset : m->arena_floats;
}

/* No samples: every gradient is zero. */
static void gradients_clear(const struct model *m, float *grads) {
    for (int i = 0; i < m->nparams; i++)
        memset(grads + m->params[i].offset, 0, (size_t)m->params[i].count * sizeof *grads);
}

enum error graph_backward(struct graph *g, const struct graph_batch *b, const float *values,
                          float *grads, grad_ready_fn ready, void *user) {
    const struct plan *p = g->last;
    assert(b->n == (p ? p->n : 0) && (b->training || !p));
    if (!p) {
        gradients_clear(g->m, grads);
        return ready ? ready(user, g->m->arena_floats) : ERR_NONE;
    }
    for (int s = p->nsteps - 1; s >= 0; s--) {
        const struct plan_step *step = &p->steps[s];
        if (!p->tensors[step->out].wants_grad) continue;
        TRY(step_backward(g, p, step, b, values, grads));
        if (step->node == NODE_LOSS || g->m->nodes[step->node].plan.nparams == 0) continue;
        if (ready) TRY(ready(user, ready_upto(g->m, &g->m->nodes[step->node])));
    }
    return ERR_NONE;
}
