/* Running a planned graph: forward through the steps, backward through them in reverse. Three
 * arenas serve all plans, each as large as the largest wants it: activations (with what ops save),
 * gradients of activations, scratch.
 *
 * All of these lie in the device's memory. A pass asks for its ops and returns; only an asynchronous device is then
 * still at them. */
#include "engine/model/graph_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { EVERYWHERE = -1 };

enum error graph_create(const struct model *m, struct device *dev, enum loss loss, enum precision precision,
                        struct graph **out) {
    struct graph *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "cannot allocate a graph");
    g->part = model_part(m, 0, m->nnodes);
    g->m = m, g->dev = dev, g->loss = loss, g->precision = precision;
    g->runtime = device_runtime(dev);
    g->ncuts = EVERYWHERE;
    g->stretches = 1;
    g->inputs = g->runtime->apart ? INPUT_SLOTS : 0;
    *out = g;
    return graph_hold(g, 1);
}

enum error graph_soften(struct graph *g, float smoothing, const float *class_weights) {
    size_t bytes = (size_t)shape_last(&g->m->output) * sizeof *class_weights;
    assert(!g->plans);
    g->smoothing = smoothing;
    if (!class_weights) return ERR_NONE;
    TRY(arena_grow(g, &g->class_weights, bytes));
    return device_write(g->dev, g->class_weights.base, class_weights, bytes);
}

enum error graph_members(struct graph *g, int count) {
    if (count <= g->nmembers) return ERR_NONE;
    struct member_arenas *more = realloc(g->members, (size_t)count * sizeof *more);
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
        device_free(g->dev, g->members[i].activations.base);
        device_free(g->dev, g->members[i].both);
        if (i == 0 || !g->holds) device_free(g->dev, g->members[i].gradients.base);
    }
    records_free(g);
    inputs_free(g);
    free(g->members);
    free(g->parts);
    free(g->sums);
    memory_free(g->output);
    device_free(g->dev, g->raised.base);
    device_free(g->dev, g->low.base);
    device_free(g->dev, g->scratch.base);
    device_free(g->dev, g->apart.base);
    device_free(g->dev, g->class_weights.base);
    free(g);
}

void graph_freeze(struct graph *g, const int *frozen, bool stops) {
    g->frozen = frozen;
    g->stops = stops;
}

/* ---- planning ----------------------------------------------------------------------------- */

static bool segments_equal(const struct segments *a, const struct segments *b) {
    bool equal = a->count == b->count;
    for (int i = 0; i <= a->count && equal; i++) equal = a->begin[i] == b->begin[i];
    return equal;
}

struct plan *graph_plan(const struct graph *g, int64_t n, const struct segments *segments) {
    const struct segments one = {1, {0, n}};
    struct plan *p = g->plans;
    while (p && !segments_equal(&p->segments, segments ? segments : &one)) p = p->next;
    return p;
}

int graph_together(const struct device_runtime *runtime, int64_t shards, int64_t pieces) {
    int count = 1;
    if (pieces > 1 || runtime->asynchronous) return count;
    while (2 * count <= shards && 2 * count <= SEGMENTS_MAX) count *= 2;
    return count;
}

/* What the arena held is lost. */
enum error arena_grow(struct graph *g, struct arena *a, size_t bytes) {
    if (a->base && bytes <= a->bytes) return ERR_NONE;
    void *base;
    TRY(device_alloc(g->dev, bytes, &base));
    device_free(g->dev, a->base);
    records_drop(g);
    *a = (struct arena){base, bytes};
    return ERR_NONE;
}

/* Makes every member's arenas large enough. */
static enum error arenas_grow(struct graph *g, const struct plan *p) {
    for (int i = 0; i < g->nmembers; i++) {
        TRY(arena_grow(g, &g->members[i].activations, (size_t)p->activations));
        if (i > 0 && g->holds)
            g->members[i].gradients = g->members[0].gradients;
        else
            TRY(arena_grow(g, &g->members[i].gradients, (size_t)p->gradients));
    }
    if (p->unit < (int64_t)sizeof(float)) TRY(arena_grow(g, &g->low, (size_t)(g->m->arena_floats * p->unit)));
    TRY(inputs_prepare(g, p->n));
    if (p->apart) TRY(arena_grow(g, &g->apart, (size_t)p->apart));
    return arena_grow(g, &g->scratch, p->scratch);
}

enum error graph_prepare(struct graph *g, int64_t n, const struct segments *segments) {
    const struct segments one = {1, {0, n}};
    struct plan *p = n > 0 ? graph_plan(g, n, segments) : NULL;
    if (n == 0) return ERR_NONE;
    if (p) return arenas_grow(g, p); /* members may have come since */
    const struct plan_work work = {g->m,        &g->part, g->dev, g->loss, g->precision, g->stops ? g->frozen : NULL,
                                   g->stretches};
    TRY(plan_create(&work, segments ? segments : &one, &p));
    p->next = g->plans; /* a plan whose memory failed stays out of use: prepare is tried again */
    enum error err = arenas_grow(g, p);
    if (err == ERR_NONE)
        g->plans = p;
    else
        plan_free(p);
    return err;
}

void graph_stretches(struct graph *g, int stretches) {
    assert(!g->plans);
    g->stretches = stretches;
}

void graph_info(const struct graph *g, struct graph_info *out) {
    const struct plan *p = g->plans;
    *out = (struct graph_info){
        .scratch_bytes = (int64_t)g->scratch.bytes,
    };
    for (int i = 0; i < g->nmembers; i++) {
        bool own = i == 0 || !g->holds;
        out->activation_bytes += (int64_t)(g->members[i].activations.bytes + (own ? g->members[i].gradients.bytes : 0));
    }
    if (!p) return;
    out->flops = p->flops;
    out->stretches = p->stretches;
    out->ops = p->nsteps;
    out->fused = p->fused;
}

/* ---- one step ----------------------------------------------------------------------------- */

void graph_where_set(struct graph *g, int node, bool backward) {
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

/* Who watches wants to know when the device has come there. */
static enum error tell_watch(const struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                             bool backward, bool done) {
    if (!g->watch) return ERR_NONE;
    TRY(device_wait(g->dev));
    g->watch(g->watcher, (int)(s - m->plan->steps), backward, done);
    return ERR_NONE;
}

static float *activation(const struct member_arenas *m, int tensor) {
    int64_t y = m->plan->tensors[tensor].y;
    return y < 0 ? NULL : arena_at(&m->activations, y);
}

/* What both passes need. */
static void step_args(const struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                      const struct graph_batch *b, const float *values, struct op_args *a) {
    *a = (struct op_args){
        .y = activation(m, s->out),
        .saved = arena_at(&m->activations, s->saved),
        .scratch = g->scratch.base,
        .training = b->training,
        .update_buffers = b->update_buffers,
        .seed = b->seed,
        .ids = b->ids,
        .labels = b->labels,
        .others = b->others,
        .shares = b->shares,
        .class_weights = g->class_weights.base,
        .smoothing = g->smoothing,
        .target = b->target,
        .scale = b->scale,
        .at = b->at,
    };
    for (int i = 0; i < s->ninputs; i++) {
        bool given = s->in[i] == TENSOR_BATCH && g->part.from == 0;
        a->x[i] = given ? b->x : activation(m, s->in[i]);
    }
    for (int i = 0; i < s->nparams; i++) {
        int64_t offset = g->m->params[g->m->nodes[s->node].param[i]].offset;
        if (op_row(s->desc.kind)->sees == SEES_PLACE) offset += b->at * shape_last(&s->desc.x);
        a->w[i] = values + offset;
        if (g->low.base) a->w_low[i] = arena_at(&g->low, offset * m->plan->unit);
    }
    if (s->op->cache_bytes) a->cache = g->caches[s->node];
}

static void *low_of(const struct graph *g, const struct tensor_info *p) {
    return arena_at(&g->low, p->offset * (int64_t)device_unit(g->dev, g->precision));
}

/* The parameters of a step, brought and (where activations have another type) lowered. */
static enum error weights_bring(struct graph *g, const struct plan_step *s, const float *values, enum graph_pass pass) {
    if (!g->source || !s->nparams) return ERR_NONE;
    TRY(g->source->need(g->source->user, s->node, pass));
    bool lowers = g->low.base && (pass == PASS_FORWARD || g->source->lends);
    for (int i = 0; i < s->nparams && lowers; i++) {
        const struct tensor_info *p = &g->m->params[g->m->nodes[s->node].param[i]];
        TRY(g->runtime->lower(g->dev, LANE_COMPUTE, low_of(g, p), values + p->offset, p->count, g->precision));
    }
    return ERR_NONE;
}

/* What was lowered of weights that are lent goes with them. */
static void weights_leave(struct graph *g, const struct plan_step *s) {
    for (int i = 0; g->low.base && g->source && g->source->lends && i < s->nparams; i++) {
        const struct tensor_info *p = &g->m->params[g->m->nodes[s->node].param[i]];
        memory_release(low_of(g, p), (size_t)p->count * device_unit(g->dev, g->precision));
    }
}

void graph_source(struct graph *g, const struct graph_source *s) {
    g->source = s;
}

/* ---- forward ------------------------------------------------------------------------------ */

enum error graph_step_forward(struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                              const struct graph_run *r, struct norm_sync *sync) {
    struct op_args a;
    step_args(g, m, s, r->batch, r->values, &a);
    graph_where_set(g, s->node, false);
    TRY(weights_bring(g, s, r->values, r->again ? PASS_AGAIN : PASS_FORWARD));
    a.sync = sync;
    if (s->node == NODE_LOSS) {
        if (r->batch->training && m->plan->tensors[s->in[0]].replaced) a.dx[0] = activation(m, s->in[0]);
        a.sums = r->sums;
        a.top = r->batch->top ? r->sums + 2 : NULL;
    } else {
        const struct model_node *node = &g->m->nodes[s->node];
        for (int i = 0; i < node->plan.nbuffers && r->buffers; i++)
            a.buffer[i] = r->buffers + g->m->buffers[node->buffer[i]].offset;
    }
    TRY(tell_watch(g, m, s, false, false));
    TRY(op_forward(s->op, &a));
    weights_leave(g, s);
    return tell_watch(g, m, s, false, true);
}

/* Writes values [begin, end) to where the graph keeps them in its lower precision. */
static enum error range_to_low(struct graph *g, const float *values, int64_t begin, int64_t end) {
    void *to = arena_at(&g->low, begin * graph_now(g)->plan->unit);
    return g->runtime->lower(g->dev, LANE_COMPUTE, to, values + begin, end - begin, g->precision);
}

/* The values in the type of activations, once they are others. */
static enum error values_lower(struct graph *g, const float *values) {
    if (!g->low.base || g->source || g->lowered == values) return ERR_NONE;
    TRY(range_to_low(g, values, g->part.begin, g->part.end));
    for (int i = g->part.params; i < g->m->nparams; i++) {
        const struct tensor_info *p = &g->m->params[i];
        if (model_part_borrows(g->m, &g->part, i)) TRY(range_to_low(g, values, p->offset, p->offset + p->count));
    }
    g->lowered = values;
    return ERR_NONE;
}

void graph_values_changed(struct graph *g) {
    g->lowered = NULL;
}

enum error graph_forward(struct graph *g, const struct graph_batch *b, const float *values, float *buffers,
                         struct graph_sums *sums) {
    TRY(graph_prepare(g, b->n, b->segments));
    if (g->source) TRY(g->source->pass(g->source->user, values, b->training));
    struct member_arenas *m = graph_now(g);
    m->plan = b->n ? graph_plan(g, b->n, b->segments) : NULL;
    TRY(device_zero(g->dev, m->both, SUMS_BYTES));
    if (m->plan) {
        TRY(values_lower(g, values));
        TRY(input_take(g, b));
        bool judged = b->labels || b->target; /* else only the outputs are asked for */
        int end = m->plan->nsteps - (!judged && plan_judges(m->plan));
        struct graph_run r = {.batch = &m->last, .values = values, .buffers = buffers, .sums = m->both};
        TRY(ends_input(g));
        TRY(stretch_run(g, &r, false, 0, end));
        TRY(ends_output(g));
    }
    if (!sums) return ERR_NONE;
    double all[SEGMENTS_MAX * LOSS_SUMS];
    TRY(device_read(g->dev, all, m->both, sizeof all));
    *sums = (struct graph_sums){0};
    for (int i = 0; m->plan && i < m->plan->segments.count; i++) {
        const double *of = all + i * LOSS_SUMS;
        sums->loss += of[0], sums->correct += of[1], sums->top += of[2];
    }
    return ERR_NONE;
}

enum error graph_head(struct graph *g, float *header, float scale, bool stop) {
    const struct plan *p = graph_now(g)->plan;
    const double *both = graph_now(g)->both;
    const struct segments none = {.count = 1}, *s = p ? &p->segments : &none;
    if (s->count == 1) return g->runtime->head(g->dev, header, both, scale, (float)s->begin[1], stop);
    float slots[SEGMENT_SLOTS][HEADER_FLOATS];
    for (int i = 0; i < s->count; i++) {
        float *slot = slots[segment_slot(i)];
        TRY(g->runtime->head(g->dev, slot, both + i * LOSS_SUMS, scale, (float)segment_size(s, i), stop));
        for (int k = segment_slot(i); k > segment_bottom(i); k--)
            for (int j = 0; j < HEADER_FLOATS; j++) slots[k - 1][j] += slots[k][j];
    }
    return device_write(g->dev, header, slots[0], sizeof slots[0]);
}

/* n values whose rows are aligned: takes out what lies between them. */
static void rows_close(float *y, int64_t n, int64_t width, int64_t pitch) {
    for (int64_t r = 0; r < n / pitch; r++) memmove(y + r * width, y + r * pitch, (size_t)width * sizeof *y);
}

enum error graph_output(struct graph *g, const float **out) {
    const struct member_arenas *m = graph_now(g);
    assert(m->plan);
    const struct plan_tensor *t = &m->plan->tensors[m->plan->output];
    const void *there = activation(m, m->plan->output), *view;
    int64_t n = m->plan->n * t->count;
    size_t bytes = (size_t)n * sizeof(float);
    if (t->unit < (int64_t)sizeof(float)) {
        TRY(arena_grow(g, &g->raised, bytes));
        TRY(g->runtime->raise(g->dev, LANE_COMPUTE, g->raised.base, there, n, g->precision));
        there = g->raised.base;
    }
    memory_free(g->output);
    TRY(device_view(g->dev, there, bytes, &view, &g->output));
    if (t->layout == LAYOUT_ALIGNED) { /* on an accelerator, of whose memory this is a copy */
        const struct shape *y = &m->plan->steps[t->producer].desc.y;
        rows_close(g->output, n, shape_last(y), shape_pitch(y, t->layout, t->unit));
    }
    *out = view;
    return ERR_NONE;
}

/* ---- backward ----------------------------------------------------------------------------- */

/* The gradient of a tensor that several steps read: one more part of it. */
static enum error gradient_add(struct graph *g, const struct member_arenas *m, int tensor, float *part) {
    const struct plan_tensor *t = &m->plan->tensors[tensor];
    return g->runtime->add(g->dev, arena_at(&m->gradients, t->dy), part, m->plan->n * t->count, g->precision);
}

/* The first layer of tied weights, the last one backward, adds the segments' gradients along the tree. */
static enum error apart_add(struct graph *g, const struct member_arenas *m, const struct plan_step *s, float *grads) {
    const struct tensor_info *w = &g->m->params[g->m->nodes[s->node].param[0]];
    float *of = arena_at(&g->apart, s->apart);
    TRY(apart_sum(g, of, w->count, m->plan->segments.count));
    return device_write(g->dev, grads + w->offset, of, (size_t)w->count * sizeof *of);
}

/* Of parameters [from, to): those that are frozen have none. What lies between neighbours is zero anyway. */
static enum error frozen_clear(struct graph *g, int from, int to, float *grads) {
    const struct tensor_info *p = g->m->params;
    for (int i = from, end; g->frozen && i < to; i = end) {
        for (end = i + 1; end < to && g->frozen[end] && g->frozen[i];) end++;
        int64_t n = p[end - 1].offset + p[end - 1].count - p[i].offset;
        if (g->frozen[i]) TRY(device_zero(g->dev, grads + p[i].offset, (size_t)n * sizeof *grads));
    }
    return ERR_NONE;
}

enum error graph_step_backward(struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                               const struct graph_run *r, struct norm_sync *sync) {
    struct op_args a;
    step_args(g, m, s, r->batch, r->values, &a);
    graph_where_set(g, s->node, true);
    TRY(weights_bring(g, s, r->values, PASS_BACKWARD));
    a.sync = sync;
    if (s->node != NODE_LOSS) {
        const struct plan_tensor *y = &m->plan->tensors[s->out];
        a.dy = y->replaced ? a.y : arena_at(&m->gradients, y->dy);
        a.add_dw = s->add_dw, a.add_dx = s->add_dx;
        for (int i = 0; i < s->nparams; i++) a.dw[i] = r->grads + g->m->params[g->m->nodes[s->node].param[i]].offset;
        if (s->apart >= 0) a.dw[0] = arena_at(&g->apart, s->apart);
    }
    for (int i = 0; i < s->ninputs; i++)
        if (s->dx[i] >= 0) a.dx[i] = arena_at(&m->gradients, s->dx[i]);
    TRY(tell_watch(g, m, s, true, false));
    TRY(s->few ? few_backward(g, m, s, &a) : op_backward(s->op, &a));
    weights_leave(g, s);
    bool measured = sync && sync->pass == NORM_MEASURE;
    for (int i = 0; i < s->ninputs && !measured; i++)
        if (s->add[i]) TRY(gradient_add(g, m, s->in[i], a.dx[i]));
    if (s->apart >= 0 && g->m->nodes[s->node].tied < 0) TRY(apart_add(g, m, s, r->grads));
    for (int i = 0; i < s->nparams; i++) {
        int param = g->m->nodes[s->node].param[i];
        TRY(frozen_clear(g, param, param + 1, r->grads));
    }
    return tell_watch(g, m, s, true, true);
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

enum error gradients_clear(struct graph *g, float *grads) {
    const struct model *m = g->m;
    for (int i = g->part.param; i < g->part.params; i++)
        TRY(device_zero(g->dev, grads + m->params[i].offset, (size_t)m->params[i].count * sizeof *grads));
    return ERR_NONE;
}

void graph_caches(struct graph *g, void *const *caches) {
    g->caches = caches;
}

void graph_cuts(struct graph *g, const int64_t *cuts, int count) {
    g->cuts = cuts;
    g->ncuts = g->runtime->asynchronous ? count : EVERYWHERE;
}

/* How far the arena is ready behind this step, if somebody waits for it there; else 0. cut: which place is
 * awaited. */
static int64_t awaited(const struct graph *g, const struct plan_step *s, int *cut) {
    if (!completes_params(g, s) || !graph_now(g)->plan->tensors[s->out].wants_grad) return 0;
    int64_t upto = ready_upto(g->m, &g->m->nodes[s->node]);
    if (g->ncuts == EVERYWHERE) return upto;
    if (*cut < g->ncuts && upto < g->cuts[*cut]) return 0;
    while (*cut < g->ncuts && g->cuts[*cut] <= upto) (*cut)++;
    return upto;
}

enum error graph_backward(struct graph *g, const struct graph_batch *b, const float *values, float *grads,
                          grad_ready_fn ready, void *user) {
    const struct member_arenas *m = graph_now(g);
    const struct plan *p = m->plan;
    struct graph_run r = {.batch = &m->last, .values = values, .grads = grads};
    bool parts = ready && g->ncuts != 0;
    int64_t reached = 0;
    int cut = 0;
    (void)b;
    assert(b->n == (p ? p->n : 0) && (b->training || !p));
    if (!p) {
        TRY(gradients_clear(g, grads));
        return ready ? ready(user, g->part.end) : ERR_NONE;
    }
    TRY(frozen_clear(g, g->part.param, g->part.params, grads)); /* of layers that backward does not come to */
    TRY(ends_backward(g, grads));
    for (int end = p->nsteps; end > 0;) {
        int64_t upto = 0;
        int from = end;
        while (from > 0 && upto == 0) {
            from--;
            if (parts) upto = awaited(g, &p->steps[from], &cut);
        }
        TRY(stretch_run(g, &r, true, from, end));
        if (upto) TRY(ready(user, reached = upto));
        end = from;
    }
    TRY(ends_back(g, grads));
    return ready && reached < g->part.end ? ready(user, g->part.end) : ERR_NONE;
}
