/* One rank's gradients of one step. The rank computes its shards in passes: as many together as the device can keep
 * apart (device/segments.h), or one by one. What passes give is added along the tree over all shards, of which the rank
 * has a run of leaves (base/leaves.h): inside a subtree partial sums of passes lie in arenas as those of segments lie in
 * slots. A run's subtrees leave each by itself, from arenas side by side; where the mode has no use for that, the rank
 * adds them from left to right.
 *
 * In the last backward the additions follow the gradients as they become ready, so that buckets can
 * leave before it ends.
 *
 * Nothing here waits for an asynchronous device: while it computes, the next piece of the batch, and then the next
 * step's, is on its way there. */
#include "engine/base/clock.h"
#include "engine/device/runtime.h"
#include "engine/settings/run_config.h"
#include "engine/train/inject.h"
#include "engine/train/internal.h"
double tree_sum(double *v, int n) {
    for (int half; n > 1; n = half) {
        half = (n + 1) / 2;
        for (int i = 0; i + half < n; i++) v[i] += v[i + half];
    }
    return n ? v[0] : 0;
}

int trainer_leaf(const struct trainer *t, int run) {
    return leaves_cut((int)t->config->batch.shards, t->standing.runs, run);
}

int trainer_shards(const struct trainer *t, int run, int *shards) {
    int from = trainer_leaf(t, run), n = trainer_leaf(t, run + 1) - from;
    for (int i = 0; i < n && shards; i++) shards[i] = leaves_shard((int)t->config->batch.shards, from + i);
    return n;
}

/* Additions that follow one backward: arena 'top' into 'top - 1', and so on down to 'bottom';
 * before that, when the shard came in pieces, the piece's arena into 'top'. */
struct cascade {
    struct trainer *t;
    float *piece; /* NULL: the backward wrote grads[top] itself */
    int shard;    /* of this rank, whose gradient is measured in grads[top]; -1: none is */
    int top, bottom;
    bool last; /* of the step: what ends in grads[0] is final */
    int64_t done;
    struct trace *trace; /* in the step's last backward: what is final there; NULL: there is none */
    grad_ready_fn ready;
    void *user;
};

static enum error cascade_ready(void *user, int64_t upto) {
    struct cascade *c = user;
    int64_t from = c->done, n = upto - from;
    float **grads = c->t->arena.grads;
    struct device *dev = c->t->device;
    if (c->piece) TRY(device_add(dev, grads[c->top] + from, c->piece + from, n));
    if (c->shard >= 0) TRY(noise_measure(c->t, c->shard, grads[c->top], from, upto));
    for (int d = c->top; d > c->bottom; d--) TRY(device_add(dev, grads[d - 1] + from, grads[d] + from, n));
    c->done = upto;
    if (c->last) TRY(inject_spoil(c->t, from, upto));
    inject_lag(c->t);
    if (c->trace) trace_ready(c->trace, upto - c->t->part.begin, c->ready != NULL);
    return c->ready ? c->ready(c->user, upto) : ERR_NONE;
}

/* The factor of a sample's loss and gradient: all of the global batch weigh the same, whichever rank has
 * them. A rank that steps alone takes the mean of its samples (one that has none has nothing to divide). The mistake is
 * each rank's mean, and then the mean of these. */
static float sample_weight(const struct trainer *t, const struct step_batch *b) {
    bool mistaken = inject_mistake(t->config) == MISTAKE_MEAN_OF_MEANS, alone = t->config->sharing.plan.alone;
    int64_t own = 0;
    if (!alone && !mistaken) return 1.0f / (float)b->samples;
    for (int i = 0; i < b->nshards; i++) own += b->shards[i].n;
    if (own == 0) return alone ? 1 : 0;
    return 1.0f / (float)(alone ? own : own * t->standing.workers);
}

static int64_t passes_all(const struct trainer *t) {
    return t->feed.nlaps * t->config->batch.accumulate;
}

/* How many forwards come before the first backward, and so before each backward after that. */
static int64_t passes_ahead(const struct trainer *t) {
    int64_t most = passes_all(t) - 1;
    return t->standing.ahead < most ? t->standing.ahead : most > 0 ? most : 0;
}

int compute_held(const struct trainer *t) {
    return (int)passes_ahead(t) + 1;
}

/* How many shards of a subtree a pass computes together: one where each one's gradient is to be seen. */
static int shards_together(const struct trainer *t, int size) {
    if (t->config->train.noise_scale.unit != SPAN_OFF) return 1;
    return graph_together(device_runtime(t->device), size, t->config->batch.accumulate);
}

/* Plans the laps of one subtree, into arenas from 'base' on; the last one ends in grads[to]. */
static void plan_subtree(struct trainer *t, int first, int size, int base, int to) {
    bool one = t->standing.part; /* each is a batch of its own on its way through the parts */
    int count = one ? 1 : shards_together(t, size);
    for (int i = 0; i < size / count; i++) {
        bool last = i == size / count - 1;
        t->feed.laps[t->feed.nlaps++] = (struct lap){.first = first + i * count,
                                                     .count = count,
                                                     .top = base + segment_slot(i),
                                                     .bottom = last ? to : base + segment_bottom(i)};
    }
}

void compute_plan(struct trainer *t) {
    int from = trainer_leaf(t, t->standing.run), to = trainer_leaf(t, t->standing.run + 1), size;
    for (int at = from, k = 0; at < to; at += size, k++) {
        size = leaves_subtree(at, to);
        if (t->standing.subtrees)
            plan_subtree(t, at - from, size, k, k);
        else
            plan_subtree(t, at - from, size, k > 0, 0);
    }
}

/* What a pass computes: a lap's shards, or one of the pieces that they are cut in. */
struct pass {
    const struct lap *lap;
    const struct shard *first;
    int of; /* which piece */
    struct segments segments;
    int64_t from, to; /* samples of the shards */
};

static struct pass pass_at(const struct trainer *t, const struct step_batch *b, int64_t k) {
    int64_t pieces = t->config->batch.accumulate;
    const struct lap *lap = &t->feed.laps[k / pieces];
    struct pass p = {.lap = lap, .first = &b->shards[lap->first], .of = (int)(k % pieces)};
    p.segments.count = lap->count;
    for (int i = 0; i < lap->count; i++) p.segments.begin[i + 1] = p.segments.begin[i] + p.first[i].n;
    p.from = p.segments.begin[lap->count] * p.of / pieces;
    p.to = p.segments.begin[lap->count] * (p.of + 1) / pieces;
    return p;
}

static int64_t passes_of(const struct trainer *t, const struct step_batch *b) {
    return b->nshards ? passes_all(t) : 0;
}

/* Samples [from, to) of shards that begin with s. */
static struct graph_batch batch_of(const struct trainer *t, const struct step_batch *b, const struct shard *s,
                                   int64_t from, int64_t to) {
    const struct dataset *d = t->feed.data;
    return (struct graph_batch){
        .n = to - from,
        .x = s->x + from * shape_count(&d->shape),
        .labels = s->labels ? s->labels + from * d->labels : NULL,
        .others = s->others ? s->others + from * d->labels : NULL,
        .shares = s->shares ? s->shares + from : NULL,
        .target = s->target ? s->target + from * d->targets : NULL,
        .ids = s->ids + from,
        .seed = (uint64_t)t->config->seed,
        .scale = scaling_factor(t) * sample_weight(t, b),
        .training = true,
        .update_buffers = s->index == 0,
    };
}

static struct graph_batch pass_batch(const struct trainer *t, const struct step_batch *b, const struct pass *p) {
    struct graph_batch batch = batch_of(t, b, p->first, p->from, p->to);
    if (p->lap->count > 1) batch.segments = &p->segments;
    return batch;
}

/* As many passes as any device makes of a step. */
static int64_t passes_most(const struct trainer *t) {
    int64_t most = 0;
    for (int w = 0; w < t->standing.runs; w++) {
        int64_t laps = 0;
        for (int at = trainer_leaf(t, w), to = trainer_leaf(t, w + 1), size; at < to; at += size) {
            size = leaves_subtree(at, to);
            laps += size / shards_together(t, size);
        }
        if (laps > most) most = laps;
    }
    return most * t->config->batch.accumulate;
}

enum error compute_idle(struct trainer *t, int64_t passes, bool trains) {
    const struct graph_batch none = {.training = trains};
    for (int64_t k = 0; k < passes; k++)
        TRY(graph_forward(t->graph, &none, compute_values(t, trains), t->arena.buffers, NULL));
    return ERR_NONE;
}

const float *compute_values(const struct trainer *t, bool trains) {
    return !trains && t->arena.average ? t->arena.average : t->arena.values;
}

enum error compute_prepare(struct trainer *t, const struct step_batch *b) {
    for (int64_t k = 0; k < passes_of(t, b); k++) {
        const struct pass p = pass_at(t, b, k);
        TRY(graph_prepare(t->graph, p.to - p.from, p.lap->count > 1 ? &p.segments : NULL));
    }
    return ERR_NONE;
}

/* Parts of the gradient are awaited at the mode's cuts, if anybody waits for them. */
static enum error run_backward(struct trainer *t, const struct graph_batch *batch, float *grads, struct cascade *c) {
    graph_cuts(t->graph, t->standing.cuts, c->ready ? t->standing.ncuts : 0);
    return graph_backward(t->graph, batch, t->arena.values, grads, cascade_ready, c);
}

/* Forward of the batch's k-th pass. *mark: when the last phase ended; moved on to now. */
static enum error pass_forward(struct trainer *t, const struct step_batch *b, int64_t k, int64_t *mark) {
    const struct pass p = pass_at(t, b, k);
    const struct graph_batch batch = pass_batch(t, b, &p);
    graph_turn(t->graph, (int)(k % compute_held(t)));
    TRY(timers_mark(t, TIMED_BEGIN));
    TRY(graph_forward(t->graph, &batch, t->arena.values, t->arena.buffers, NULL));
    TRY(timers_mark(t, TIMED_MIDDLE));
    inject_lag(t);
    trainer_phase(t, PHASE_FORWARD, mark);
    return ERR_NONE;
}

/* The backward of a pass, into c's arena. The last layer's device has the sums of its losses. */
static enum error pass_backward(struct trainer *t, const struct step_batch *b, int64_t k, struct cascade *c,
                                int64_t *mark) {
    const struct pass p = pass_at(t, b, k);
    const struct graph_batch batch = pass_batch(t, b, &p);
    float *grads = c->piece ? c->piece : t->arena.grads[c->top];
    graph_turn(t->graph, (int)(k % compute_held(t)));
    if (t->part.begin == 0) TRY(graph_head(t->graph, grads, sample_weight(t, b), trainer_wants_end(t)));
    TRY(run_backward(t, &batch, grads, c));
    TRY(timers_mark(t, TIMED_END));
    trainer_phase(t, PHASE_BACKWARD, mark);
    return ERR_NONE;
}

/* ---- sync_batchnorm: the rank's shards in step ---- */
static enum error share_moments(void *user, double *v, int n) {
    struct trainer *t = user;
    int64_t begin = clock_ns();
    enum error err = t->job->mode->step->sum(t->mode, v, n);
    inject_waited(t, clock_ns() - begin);
    return err;
}

/* What laps would have added, had there been one for each shard. */
static enum error add_members(struct trainer *t) {
    int from = trainer_leaf(t, t->standing.run), n = t->feed.nshards, size;
    struct graph_member *m = t->feed.members;
    for (int at = 0; at < n; at += size) {
        size = leaves_subtree(from + at, from + n);
        for (int apart = 1; apart < size; apart *= 2)
            for (int i = at; i < at + size; i += 2 * apart)
                TRY(device_add(t->device, m[i].grads, m[i + apart].grads, t->model->arena_floats));
        if (at && !t->standing.subtrees) TRY(device_add(t->device, m[0].grads, m[at].grads, t->model->arena_floats));
    }
    return ERR_NONE;
}

/* Gradients are shared after backward: the exchanges of moments stand in between. */
static enum error compute_together(struct trainer *t, const struct step_batch *b) {
    const struct graph_sync sync = {(int)t->config->batch.shards, share_moments, t};
    struct graph_member *m = t->feed.members;
    int64_t mark = clock_ns();
    for (int i = 0; i < b->nshards; i++) m[i].batch = batch_of(t, b, &b->shards[i], 0, b->shards[i].n);
    TRY(graph_forward_together(t->graph, m, b->nshards, t->arena.values, t->arena.buffers, &sync));
    inject_lag(t);
    trainer_phase(t, PHASE_FORWARD, &mark);
    for (int i = 0; i < b->nshards; i++) {
        const struct graph_batch *of = &m[i].batch;
        TRY(device_runtime(t->device)->head(t->device, m[i].grads, m[i].both, of->scale, (float)of->n,
                                            trainer_wants_end(t)));
    }
    TRY(graph_backward_together(t->graph, m, b->nshards, t->arena.values, &sync));
    for (int i = 0; i < b->nshards && t->noise.due; i++)
        TRY(noise_measure(t, i, m[i].grads, 0, t->model->arena_floats));
    TRY(add_members(t));
    TRY(inject_spoil(t, 0, t->model->arena_floats));
    inject_lag(t);
    trainer_phase(t, PHASE_BACKWARD, &mark);
    return ERR_NONE;
}

void trainer_waited(struct trainer *t, int64_t ns) {
    t->waited_ns += ns;
    inject_waited(t, ns);
}

/* ---- one step --------------------------------------------------------------------------------- */

/* While the device computes: the next step's batch begins to travel to it. Where that cannot be had, the step that
 * wants it will say so. */
static enum error look_ahead(struct trainer *t, int64_t *mark) {
    t->feed.ahead = NULL;
    if (!t->feed.loader) return ERR_NONE;
    if (!graph_stages(t->graph)) {
        loader_take_back(t->feed.loader);
        return ERR_NONE;
    }
    if (t->at.step + 1 >= t->steps) return ERR_NONE;
    TRY(graph_staged(t->graph)); /* the loader takes back what this step has read */
    trainer_phase(t, PHASE_BACKWARD, mark);
    const struct step_batch *b;
    if (loader_next(t->feed.loader, &b) != ERR_NONE) return ERR_NONE;
    trainer_phase(t, PHASE_LOAD, mark);
    t->feed.ahead = b;
    const struct pass first = pass_at(t, b, 0);
    const struct graph_batch batch = pass_batch(t, b, &first);
    return batch.n ? graph_stage(t->graph, &batch) : ERR_NONE;
}

static struct cascade cascade_of(struct trainer *t, const struct step_batch *b, int64_t k) {
    int64_t pieces = t->config->batch.accumulate;
    const struct pass p = pass_at(t, b, k);
    int top = p.lap->top, bottom = p.of == pieces - 1 ? p.lap->bottom : top;
    struct cascade c = {.t = t, .top = top, .bottom = bottom, .last = k == passes_of(t, b) - 1};
    c.done = t->part.begin;
    c.shard = t->noise.due && p.of == pieces - 1 ? p.lap->first : -1;
    if (p.of > 0) c.piece = t->arena.grads[GRAD_ARENAS - 1];
    return c;
}

static enum error run_batch(struct trainer *t, const struct step_batch *b, grad_ready_fn ready, void *user) {
    int64_t all = passes_of(t, b), ahead = all ? passes_ahead(t) : 0, mark;
    if (t->standing.source) TRY(compute_idle(t, passes_most(t) - all, true));
    mark = clock_ns();
    for (int64_t k = 0; k < all + ahead; k++) {
        if (k < all) TRY(pass_forward(t, b, k, &mark));
        if (k < ahead) continue;
        struct cascade c = cascade_of(t, b, k - ahead);
        if (c.last) c.ready = ready, c.user = user, c.trace = t->trace;
        TRY(pass_backward(t, b, k - ahead, &c, &mark));
        if (c.last) continue;
        const struct pass next = pass_at(t, b, k - ahead + 1);
        const struct graph_batch batch = pass_batch(t, b, &next);
        if (batch.n) TRY(graph_stage(t->graph, &batch));
    }
    return ERR_NONE;
}

/* An asynchronous device that is slow on purpose keeps its gradients until it has been: they leave late, all at once. */
static enum error run_late(struct trainer *t, const struct step_batch *b, grad_ready_fn ready, void *user) {
    TRY(run_batch(t, b, NULL, NULL));
    TRY(inject_hold(t));
    return ready ? ready(user, t->model->arena_floats) : ERR_NONE;
}

static enum error next_batch(struct trainer *t, const struct step_batch **out) {
    return t->config->sharing.brought ? t->job->mode->step->bring(t->mode, out) : loader_next(t->feed.loader, out);
}

enum error trainer_compute(struct trainer *t, grad_ready_fn ready, void *user) {
    const struct step_batch *b = t->feed.ahead;
    int64_t mark = clock_ns();
    if (!b) TRY(next_batch(t, &b));
    trainer_phase(t, PHASE_LOAD, &mark);
    TRY(inject_strike(t));
    t->waited_ns = 0;
    inject_begin(t);
    if (t->feed.members) {
        TRY(compute_together(t, b));
        trace_ready(t->trace, t->model->arena_floats, ready != NULL);
        return ready ? ready(user, t->model->arena_floats) : ERR_NONE;
    }
    TRY(inject_holds(t) ? run_late(t, b, ready, user) : run_batch(t, b, ready, user));
    mark = clock_ns();
    return look_ahead(t, &mark);
}
