/* Several shards computed together, so that batchnorm can normalise by the moments of the whole
 * batch. The shards of this rank run up to a batchnorm one after the other, each measures its part,
 * the parts of all shards of all ranks are brought together, and then each goes on:
 *
 *   shard 0   ... conv | measure |          | apply, relu, conv ... | measure | ...
 *   shard 2   ... conv | measure |          | apply, relu, conv ... | measure | ...
 *                               exchange: v[shard] of all ranks
 *
 * Backward goes the same way through the gradient's two sums. A part is (count, and two numbers a
 * channel) of one shard, and the parts are added in the order of the shards on every rank: the bits
 * do not depend on who computed which. */
#include "engine/model/graph_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct together {
    struct graph *g;
    struct graph_member *member;
    int count;
    const float *values;
    float *buffers;
    const struct graph_sync *sync;
};

static int64_t channels_of(const struct model_node *node) {
    return node->x.dim[0];
}

static struct graph_run run_of(struct together *t, int i) {
    return (struct graph_run){.batch = &t->member[i].batch,
                              .values = t->values,
                              .buffers = t->buffers,
                              .grads = t->member[i].grads,
                              .sums = t->member[i].both};
}

/* ---- bringing parts together ------------------------------------------------------------------ */

static double *part_of(const struct together *t, int shard, int64_t channels) {
    return t->g->parts + shard * (1 + 2 * channels);
}

static enum error exchange(struct together *t, int64_t channels, double *count) {
    int n = t->sync->shards * (int)(1 + 2 * channels);
    TRY(t->sync->sum(t->sync->user, t->g->parts, n));
    *count = 0;
    for (int v = 0; v < t->sync->shards; v++) *count += part_of(t, v, channels)[0];
    return ERR_NONE;
}

/* (mean, sum of squared deviations) of each part -> (mean, variance) of all. */
static void moments_join(struct together *t, int64_t channels, double count) {
    for (int64_t c = 0; c < channels; c++) {
        double mean = 0, squares = 0;
        for (int v = 0; v < t->sync->shards; v++) {
            const double *part = part_of(t, v, channels);
            mean += part[0] * part[1 + 2 * c];
        }
        mean /= count;
        for (int v = 0; v < t->sync->shards; v++) {
            const double *part = part_of(t, v, channels);
            double off = part[1 + 2 * c] - mean;
            if (part[0] > 0) squares += part[2 + 2 * c] + part[0] * off * off;
        }
        t->g->sums[2 * c] = mean;
        t->g->sums[2 * c + 1] = squares / count;
    }
}

static void sums_join(struct together *t, int64_t channels) {
    memset(t->g->sums, 0, (size_t)channels * 2 * sizeof *t->g->sums);
    for (int v = 0; v < t->sync->shards; v++)
        for (int64_t k = 0; k < 2 * channels; k++) t->g->sums[k] += part_of(t, v, channels)[1 + k];
}

/* ---- running ---------------------------------------------------------------------------------- */

typedef enum error pass_fn(struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                           const struct graph_run *r, struct norm_sync *sync);

/* The step of member i's plan that is this node's batchnorm. */
static int step_find(const struct plan *p, int node) {
    for (int s = 0; s < p->nsteps; s++)
        if (p->steps[s].node == node && op_row(p->steps[s].desc.kind)->moments) return s;
    assert(!"a batchnorm is a step of its own");
    return -1;
}

static enum error measure(struct together *t, int node, pass_fn *pass) {
    int64_t channels = channels_of(&t->g->m->nodes[node]);
    memset(t->g->parts, 0, (size_t)t->sync->shards * (size_t)(1 + 2 * channels) * sizeof *t->g->parts);
    for (int i = 0; i < t->count; i++) {
        const struct member_arenas *m = &t->g->members[i];
        if (!m->plan) continue;
        const struct plan_step *s = &m->plan->steps[step_find(m->plan, node)];
        struct graph_run r = run_of(t, i);
        double *part = part_of(t, t->member[i].shard, channels);
        struct norm_sync sync = {.pass = NORM_MEASURE, .sums = part + 1};
        part[0] = (double)(m->plan->n * shape_count(&s->desc.x) / channels);
        TRY(pass(t->g, m, s, &r, &sync));
    }
    return ERR_NONE;
}

static enum error apply(struct together *t, int node, double count, pass_fn *pass) {
    for (int i = 0; i < t->count; i++) {
        const struct member_arenas *m = &t->g->members[i];
        if (!m->plan) continue;
        struct graph_run r = run_of(t, i);
        struct norm_sync sync = {.pass = NORM_APPLY, .sums = t->g->sums, .count = count};
        TRY(pass(t->g, m, &m->plan->steps[step_find(m->plan, node)], &r, &sync));
    }
    return ERR_NONE;
}

static bool is_norm(const struct model *m, int node) {
    return op_row(m->nodes[node].plan.op.kind)->moments && !m->nodes[node].plan.view;
}

/* The steps between two batchnorms (nodes; -1: the beginning, nnodes: the end), forward or backward. */
static enum error steps_between(struct together *t, int after, int before, bool backward) {
    for (int i = 0; i < t->count; i++) {
        const struct member_arenas *m = &t->g->members[i];
        if (!m->plan) continue;
        struct graph_run r = run_of(t, i);
        int begin = after < 0 ? 0 : step_find(m->plan, after) + 1;
        int end = before < t->g->m->nnodes ? step_find(m->plan, before) : m->plan->nsteps;
        for (int k = begin; k < end; k++) {
            const struct plan_step *s = &m->plan->steps[backward ? end - 1 - (k - begin) : k];
            if (!backward)
                TRY(graph_step_forward(t->g, m, s, &r, NULL));
            else if (m->plan->tensors[s->out].wants_grad)
                TRY(graph_step_backward(t->g, m, s, &r, NULL));
        }
    }
    return ERR_NONE;
}

static enum error norm_run(struct together *t, int node, bool backward) {
    const struct model_node *n = &t->g->m->nodes[node];
    pass_fn *pass = backward ? graph_step_backward : graph_step_forward;
    double count;
    TRY(measure(t, node, pass));
    TRY(exchange(t, channels_of(n), &count));
    if (!backward && count < 2) return FAIL(ERR_CONFIG, "%s: batchnorm needs more than one value a channel", n->name);
    if (backward)
        sums_join(t, channels_of(n));
    else
        moments_join(t, channels_of(n), count);
    return apply(t, node, count, pass);
}

static enum error run_all(struct together *t, bool backward) {
    int n = t->g->m->nnodes, last = backward ? n : -1;
    for (int i = 0; i < n; i++) {
        int k = backward ? n - 1 - i : i;
        if (!is_norm(t->g->m, k)) continue;
        TRY(backward ? steps_between(t, k, last, true) : steps_between(t, last, k, false));
        TRY(norm_run(t, k, backward));
        last = k;
    }
    return backward ? steps_between(t, -1, last, true) : steps_between(t, last, n, false);
}

/* ---- the two passes --------------------------------------------------------------------------- */

/* Room for the largest exchange, once. */
static enum error room_make(struct graph *g, int shards) {
    int64_t most = 0;
    for (int k = 0; k < g->m->nnodes; k++)
        if (is_norm(g->m, k) && channels_of(&g->m->nodes[k]) > most) most = channels_of(&g->m->nodes[k]);
    if (g->parts) return ERR_NONE;
    g->parts = calloc((size_t)shards * (size_t)(1 + 2 * most), sizeof *g->parts);
    g->sums = calloc((size_t)(2 * most) + 1, sizeof *g->sums);
    return g->parts && g->sums ? ERR_NONE : FAIL(ERR_MEMORY, "no memory for moments");
}

enum error graph_forward_together(struct graph *g, struct graph_member *members, int count, const float *values,
                                  float *buffers, const struct graph_sync *sync) {
    TRY(graph_members(g, count));
    TRY(room_make(g, sync->shards));
    if (g->source) TRY(g->source->pass(g->source->user, values, true));
    struct together t = {g, members, count, values, buffers, sync};
    for (int i = 0; i < count; i++) {
        TRY(graph_prepare(g, members[i].batch.n, NULL));
        g->members[i].plan = members[i].batch.n ? graph_plan(g, members[i].batch.n, NULL) : NULL;
        members[i].both[0] = members[i].both[1] = 0;
    }
    return run_all(&t, false);
}

enum error graph_backward_together(struct graph *g, struct graph_member *members, int count, const float *values,
                                   const struct graph_sync *sync) {
    struct together t = {g, members, count, values, NULL, sync};
    for (int i = 0; i < count; i++)
        if (!g->members[i].plan) TRY(gradients_clear(g, members[i].grads));
    return run_all(&t, true);
}
