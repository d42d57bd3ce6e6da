/* A graph of a part: what it exchanges with those of the parts before and after it, and how many batches are on their way
 * through it. */
#include "engine/model/graph_run.h"

#include <assert.h>

void graph_part(struct graph *g, const struct model_part *part, const struct graph_ends *ends) {
    assert(!g->plans && !g->inputs);
    g->part = *part;
    g->ends = ends;
}

enum error graph_hold(struct graph *g, int batches) {
    assert(!g->plans);
    TRY(graph_members(g, batches));
    g->holds = batches > 1;
    for (int i = 0; i < batches; i++) {
        void *both;
        if (g->members[i].both) continue;
        TRY(device_alloc(g->dev, SUMS_BYTES, &both));
        g->members[i].both = both;
    }
    return ERR_NONE;
}

void graph_turn(struct graph *g, int place) {
    g->turn = place;
}

static enum error end_pass(struct graph *g, bool takes, const struct crossing *c, void *place) {
    return takes ? g->ends->take(g->ends->user, c, place) : g->ends->give(g->ends->user, c, place);
}

/* An activation, or its gradient. */
static enum error tensor_pass(struct graph *g, bool takes, bool back, int tensor) {
    const struct member_arenas *m = graph_now(g);
    const struct plan_tensor *t = &m->plan->tensors[tensor];
    const struct crossing c = {.what = back ? CROSS_GRADIENT : CROSS_OUTPUT,
                               .training = m->last.training,
                               .bytes = m->plan->n * t->count * t->unit};
    if (back && !t->wants_grad) return ERR_NONE;
    return end_pass(g, takes, &c, arena_at(back ? &m->gradients : &m->activations, back ? t->dy : t->y));
}

static bool is_first(const struct graph *g) {
    return g->part.from == 0;
}

static bool is_last(const struct graph *g) {
    return g->part.to == g->m->nnodes;
}

/* The gradients of weights that layers of several parts have: the later parts' sum comes before this part adds its own,
 * as it would be there if it were one. */
static enum error shared_pass(struct graph *g, bool takes, float *grads) {
    const struct model_part *p = &g->part;
    for (int i = 0; i < g->m->nparams && g->ends; i++) {
        const struct tensor_info *w = &g->m->params[i];
        const struct crossing c = {
            .what = CROSS_WEIGHTS, .param = i, .training = true, .bytes = w->count * (int64_t)sizeof *grads};
        bool passes = takes ? model_uses(g->m, p->to, g->m->nnodes, i) : w->node < p->from;
        if (!passes || !model_uses(g->m, p->from, p->to, i) || (g->frozen && g->frozen[i])) continue;
        TRY(end_pass(g, takes, &c, grads + w->offset));
    }
    return ERR_NONE;
}

enum error ends_input(struct graph *g) {
    return is_first(g) ? ERR_NONE : tensor_pass(g, true, false, TENSOR_BATCH);
}

enum error ends_output(struct graph *g) {
    return is_last(g) ? ERR_NONE : tensor_pass(g, false, false, graph_now(g)->plan->output);
}

enum error ends_backward(struct graph *g, float *grads) {
    if (!is_last(g)) TRY(tensor_pass(g, true, true, graph_now(g)->plan->output));
    return shared_pass(g, true, grads);
}

enum error ends_back(struct graph *g, float *grads) {
    if (!is_first(g)) TRY(tensor_pass(g, false, true, TENSOR_BATCH));
    return shared_pass(g, false, grads);
}
