/* Running a planned graph: forward through the steps, backward through them in reverse. Three
 * arenas serve all plans, each as large as the largest wants it: activations (with what ops save),
 * gradients of activations, scratch. */
#include "engine/base/vector.h"
#include "engine/model/graph_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum error graph_create(const struct model *m, struct device *dev, enum loss loss,
                        enum precision precision, struct graph **out) {
    struct graph *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "cannot allocate a graph");
    g->m = m, g->dev = dev, g->loss = loss, g->precision = precision;
    *out = g;
    return graph_members(g, 1);
}

enum error graph_members(struct graph *g, int count) {
    if (count <= g->nmembers) return ERR_NONE;
    struct member *more = realloc(g->members, (size_t)count * sizeof *more);
    if (!more) return FAIL(ERR_MEMORY, "cannot allocate a graph");
    memset(more + g->nmembers, 0, (size_t)(count - g->nmembers) * sizeof *more);
    g->members = more;
    g->nmembers = count;
    return ERR_NONE;
}

void graph_free(struct graph *g) {
    if (!g) return;
    for (struct plan *p = g->plans, *next; p; p = next) {
        next = p->next;
        plan_free(p);
    }
    for (int i = 0; i < g->nmembers; i++) {
        memory_free(g->members[i].activations.base);
        memory_free(g->members[i].gradients.base);
    }
    free(g->members);
    free(g->parts);
    free(g->sums);
    memory_free(g->scratch.base);
    free(g);
}

/* ---- planning ----------------------------------------------------------------------------- */

struct plan *graph_plan(const struct graph *g, int64_t n) {
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

/* Makes every member's arenas large enough. */
static enum error arenas_grow(struct graph *g, const struct plan *p) {
    for (int i = 0; i < g->nmembers; i++) {
        TRY(arena_grow(&g->members[i].activations, (size_t)p->activations * sizeof(float)));
        TRY(arena_grow(&g->members[i].gradients, (size_t)p->gradients * sizeof(float)));
    }
    return arena_grow(&g->scratch, p->scratch);
}

enum error graph_prepare(struct graph *g, int64_t n) {
    struct plan *p = n > 0 ? graph_plan(g, n) : NULL;
    if (n == 0) return ERR_NONE;
    if (p) return arenas_grow(g, p); /* members may have come since */
    TRY(plan_create(g->m, g->dev, g->loss, g->precision, n, &p));
    p->next = g->plans; /* a plan whose memory failed stays out of use: prepare is tried again */
    enum error err = arenas_grow(g, p);
    if (err == ERR_NONE)
        g->plans = p;
    else
        plan_free(p);
    return err;
}

void graph_info(const struct graph *g, struct graph_info *out) {
    const struct plan *p = g->plans;
    *out = (struct graph_info){
        .scratch_bytes = (int64_t)g->scratch.bytes,
    };
    for (int i = 0; i < g->nmembers; i++)
        out->activation_bytes +=
            (int64_t)(g->members[i].activations.bytes + g->members[i].gradients.bytes);
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

void graph_watch(struct graph *g, graph_watch_fn watch, void *user) {
    g->watch = watch;
    g->watcher = user;
}

static void tell_watch(const struct graph *g, const struct member *m, const struct plan_step *s,
                       bool backward, bool done) {
    if (g->watch) g->watch(g->watcher, (int)(s - m->plan->steps), backward, done);
}

static float *activation(const struct member *m, int tensor) {
    return (float *)m->activations.base + m->plan->tensors[tensor].y;
}

/* What both passes need. */
static void step_args(const struct graph *g, const struct member *m, const struct plan_step *s,
                      const struct graph_batch *b, const float *values, struct op_args *a) {
    *a = (struct op_args){
        .y = activation(m, s->out),
        .saved = (float *)m->activations.base + s->saved,
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
        a->x[i] = s->in[i] == TENSOR_BATCH ? b->x : activation(m, s->in[i]);
    for (int i = 0; i < s->nparams; i++)
        a->w[i] = values + g->m->params[g->m->nodes[s->node].param[i]].offset;
}

/* ---- forward ------------------------------------------------------------------------------ */

enum error graph_step_forward(struct graph *g, const struct member *m, const struct plan_step *s,
                              const struct graph_run *r, struct norm_sync *sync) {
    struct op_args a;
    step_args(g, m, s, r->batch, r->values, &a);
    where_set(g, s->node, false);
    a.sync = sync;
    if (s->node == NODE_LOSS) {
        a.sums = r->sums;
    } else {
        const struct model_node *node = &g->m->nodes[s->node];
        for (int i = 0; i < node->plan.nbuffers; i++)
            a.buffer[i] = r->buffers + g->m->buffers[node->buffer[i]].offset;
    }
    tell_watch(g, m, s, false, false);
    TRY(op_forward(s->op, &a));
    tell_watch(g, m, s, false, true);
    return ERR_NONE;
}

enum error graph_forward(struct graph *g, const struct graph_batch *b, const float *values,
                         float *buffers, struct graph_sums *sums) {
    struct member *m = &g->members[0];
    double both[2] = {0, 0};
    struct graph_run r = {.batch = b, .values = values, .buffers = buffers, .sums = both};
    TRY(graph_prepare(g, b->n));
    m->plan = graph_plan(g, b->n);
    bool judged = b->labels || b->target; /* else only the outputs are asked for */
    for (int s = 0; m->plan && s < m->plan->nsteps - !judged; s++)
        TRY(graph_step_forward(g, m, &m->plan->steps[s], &r, NULL));
    *sums = (struct graph_sums){.loss = both[0], .correct = both[1]};
    return ERR_NONE;
}

const float *graph_output(const struct graph *g) {
    assert(g->members[0].plan);
    return activation(&g->members[0], g->members[0].plan->output);
}

/* ---- backward ----------------------------------------------------------------------------- */

enum error graph_step_backward(struct graph *g, const struct member *m, const struct plan_step *s,
                               const struct graph_run *r, struct norm_sync *sync) {
    float *gradients = m->gradients.base;
    struct op_args a;
    step_args(g, m, s, r->batch, r->values, &a);
    where_set(g, s->node, true);
    a.sync = sync;
    if (s->node != NODE_LOSS) {
        a.dy = gradients + m->plan->tensors[s->out].dy;
        a.add_dw = s->add_dw;
        for (int i = 0; i < s->nparams; i++)
            a.dw[i] = r->grads + g->m->params[g->m->nodes[s->node].param[i]].offset;
    }
    for (int i = 0; i < s->ninputs; i++)
        if (s->dx[i] >= 0) a.dx[i] = gradients + s->dx[i];
    tell_watch(g, m, s, true, false);
    TRY(op_backward(s->op, &a));
    for (int i = 0; i < s->ninputs; i++) {
        const struct plan_tensor *t = &m->plan->tensors[s->in[i]];
        bool measured = sync && sync->pass == NORM_MEASURE;
        if (s->add[i] && !measured) floats_add(gradients + t->dy, a.dx[i], m->plan->n * t->count);
    }
    tell_watch(g, m, s, true, true);
    return ERR_NONE;
}

/* Whether parameters are ready behind the step, and not only one that a layer before it shares. */
static bool completes_params(const struct graph *g, const struct plan_step *s) {
    return s->nparams > 0 && s->nparams > (g->m->nodes[s->node].tied >= 0);
}

/* How far the arena is ready once this node's parameters are: up to the next one's place. */
static int64_t ready_upto(const struct model *m, const struct model_node *node) {
    int next = node->param[node->plan.nparams - 1] + 1;
    return next < m->nparams ? m->params[next].offset : m->arena_floats;
}

void gradients_clear(const struct model *m, float *grads) {
    for (int i = 0; i < m->nparams; i++)
        memset(grads + m->params[i].offset, 0, (size_t)m->params[i].count * sizeof *grads);
}

enum error graph_backward(struct graph *g, const struct graph_batch *b, const float *values,
                          float *grads, grad_ready_fn ready, void *user) {
    const struct member *m = &g->members[0];
    const struct plan *p = m->plan;
    struct graph_run r = {.batch = b, .values = values, .grads = grads};
    assert(b->n == (p ? p->n : 0) && (b->training || !p));
    if (!p) {
        gradients_clear(g->m, grads);
        return ready ? ready(user, g->m->arena_floats) : ERR_NONE;
    }
    for (int s = p->nsteps - 1; s >= 0; s--) {
        const struct plan_step *step = &p->steps[s];
        if (!p->tensors[step->out].wants_grad) continue;
        TRY(graph_step_backward(g, m, step, &r, NULL));
        if (!ready || !completes_params(g, step)) continue;
        TRY(ready(user, ready_upto(g->m, &g->m->nodes[step->node])));
    }
    return ERR_NONE;
}
