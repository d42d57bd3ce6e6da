#include "lab/predict/simulate.h"

#include "engine/base/header.h"
#include "engine/base/memory.h"
#include "engine/base/rng.h"
#include "lab/predict/exchange.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <string.h>

struct replay {
    const struct step_shape *shape;
    const struct simulate_plan *plan;
    struct exchange e;
    int workers, root;    /* root: the rank of reduce and broadcast */
    double crowd;         /* how many devices a core has */
    double *start, *done; /* of a worker's step: its begin, its backward's end */
    double *weights;      /* of each rank: when it can go on with moves of weights that gradients do not wait for */
    double *slow;
    double *ended; /* of each rank, when each of its last layers ended */
    int *number;   /* of each device, the rank that comm.emulate.links calls so */
};

/* ---- devices -------------------------------------------------------------------------------- */

static double crowd_of(const struct simulate_plan *p, int devices) {
    return p->cores && devices > p->cores ? (double)devices / p->cores : 1;
}

static enum error simulate_doubles_alloc(int n, double **out) {
    TRY_MEMORY(*out = memory_new((size_t)n * sizeof **out));
    return ERR_NONE;
}

/* Where servers are apart, ranks begin with them. */
static enum error replay_number(struct replay *r, struct emulation *links) {
    int ranks = r->workers + r->plan->servers;
    TRY_MEMORY(r->number = memory_new((size_t)ranks * sizeof *r->number));
    for (int i = 0; i < ranks; i++) r->number[i] = (i + r->plan->servers) % ranks;
    links->number = r->number;
    return ERR_NONE;
}

/* A server apart is one more device, on another host. */
static enum error replay_open(struct replay *r, const struct step_shape *shape, const struct simulate_plan *plan) {
    struct network_plan net = plan->net;
    *r = (struct replay){.shape = shape, .plan = plan, .workers = plan->net.devices};
    r->crowd = shape->stages.count ? 1 : crowd_of(plan, r->workers); /* stages that wait leave the cores to others */
    r->root = plan->servers ? r->workers : 0;
    net.devices += plan->servers;
    TRY(replay_number(r, &net.links));
    TRY(exchange_open(&net, plan->near, plan->leaves, &r->e));
    if (plan->servers) r->e.terms = places_terms(cost_leaves(plan->leaves, r->workers), r->workers), r->e.own = 0;
    r->e.servers = plan->servers, r->e.owners = plan->owners;
    r->e.plain |= plan->plain;
    r->e.plugged = plan->own;
    TRY(simulate_doubles_alloc(net.devices, &r->start));
    TRY(simulate_doubles_alloc(net.devices, &r->done));
    TRY(simulate_doubles_alloc(2 * net.devices, &r->weights));
    TRY(simulate_doubles_alloc((PLAN_AHEAD + 1) * net.devices, &r->ended));
    return simulate_doubles_alloc(net.devices, &r->slow);
}

static void replay_close(struct replay *r) {
    exchange_close(&r->e);
    memory_free(r->start);
    memory_free(r->done);
    memory_free(r->weights);
    memory_free(r->ended);
    memory_free(r->slow);
    memory_free(r->number);
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Sets the times of all ranks in this step; a dedicated server has nothing to compute. */
static void replay_begin(struct replay *r, int64_t step) {
    const struct simulate_plan *p = r->plan;
    struct rng_key key = rng_key(p->seed, RNG_ORDER);
    for (int i = 0; i < r->e.size; i++) {
        r->start[i] = r->e.at[i];
        bool late = rng_float(key, (uint64_t)step, (uint64_t)i) < p->slow_share;
        r->slow[i] = i >= r->workers ? 0 : r->crowd * (late ? p->slow_by : 1);
        r->done[i] = r->start[i] + r->slow[i] * (r->shape->before + r->shape->backward);
    }
}

/* No rank sends a bucket before it has it. */
static void replay_await_bucket(struct replay *r, int b) {
    const struct step_shape *s = r->shape;
    for (int i = 0; i < r->e.size; i++) {
        double ready = r->start[i] + r->slow[i] * (s->before + s->backward * s->ready[b]);
        r->e.at[i] = fmax(r->e.at[i], r->plan->overlap ? ready : r->done[i]);
    }
}

static void replay_await_backward(struct replay *r) {
    for (int i = 0; i < r->e.size; i++) r->e.at[i] = fmax(r->e.at[i], r->done[i]);
}

/* Among how many ranks an update is divided. */
static int simulate_updaters(const struct replay *r) {
    if (r->shape->stages.count) return r->shape->stages.count;
    if (r->plan->moves.update != UPDATE_BY_OWNERS) return 1;
    return r->plan->owners ? r->plan->owners : r->workers;
}

/* The ranks that update, each what is its to update. */
static void replay_update(struct replay *r) {
    double seconds = r->shape->update;
    enum update_by by = r->plan->moves.update;
    if (by == UPDATE_BY_ROOT)
        r->e.at[r->root] += seconds;
    else
        for (int i = 0; i < r->e.size; i++) r->e.at[i] += seconds * r->crowd / simulate_updaters(r);
}

static struct ground simulate_ground_of(const struct simulate_plan *p) {
    int hosts = (p->net.devices + p->net.per_host - 1) / p->net.per_host;
    return (struct ground){p->net.devices, hosts, p->net.outside, p->near, p->leaves};
}

static enum scheme simulate_scheme_of(const struct simulate_plan *p, double bytes) {
    const struct ground g = simulate_ground_of(p);
    return p->scheme == SCHEMES ? cost_cheapest(&g, p->ring_order, bytes) : p->scheme;
}

static double simulate_all_bytes(const struct step_shape *s) {
    double all = 0;
    for (int b = 0; b < s->buckets; b++) all += s->bytes[b];
    return all;
}

static enum error replay_move(struct replay *r, const struct move *v, double bytes, int64_t meeting) {
    switch (v->by) {
    case MOVE_ALL_REDUCE:
        return exchange_all_reduce(&r->e, simulate_scheme_of(r->plan, bytes), bytes);
    case MOVE_REDUCE:
        exchange_reduce(&r->e, r->root, bytes);
        return ERR_NONE;
    case MOVE_BROADCAST:
        exchange_broadcast(&r->e, r->root, bytes);
        return ERR_NONE;
    case MOVE_REDUCE_SCATTER:
        return exchange_reduce_scatter(&r->e, bytes);
    case MOVE_ALL_GATHER:
        return exchange_all_gather(&r->e, bytes);
    case MOVE_PAIRS:
        exchange_swaps(&r->e, bytes);
        return ERR_NONE;
    case MOVE_NEIGHBOUR:
        exchange_neighbours(&r->e, meeting, bytes);
        return ERR_NONE;
    default:
        return FAIL(ERR_BUG, "a move that is not simulated: %d", (int)v->by);
    }
}

static enum error replay_gradients(struct replay *r) {
    const struct exchange_plan *p = &r->plan->moves;
    for (int b = 0; b < r->shape->buckets && p->nbefore; b++) {
        replay_await_bucket(r, b);
        for (int i = 0; i < p->nbefore; i++) TRY(replay_move(r, &p->before[i], r->shape->bytes[b], 0));
    }
    return ERR_NONE;
}

static enum error replay_weights(struct replay *r, int64_t meeting) {
    const struct exchange_plan *p = &r->plan->moves;
    for (int i = 0; i < p->nafter; i++) {
        if (p->after[i].whole) TRY(replay_move(r, &p->after[i], simulate_all_bytes(r->shape), meeting));
        for (int b = 0; b < r->shape->buckets && !p->after[i].whole; b++)
            TRY(replay_move(r, &p->after[i], r->shape->bytes[b], meeting));
    }
    return ERR_NONE;
}

/* A bucket's gradients have landed, on each rank by its time; its weights go on from there, beside gradients. */
static enum error replay_stream_weights(struct replay *r, int b) {
    size_t size = (size_t)r->e.size * sizeof(double);
    double *lane = r->weights + r->e.size, all = simulate_all_bytes(r->shape), bytes = r->shape->bytes[b];
    memcpy(lane, r->e.at, size);
    for (int i = 0; i < r->e.size; i++)
        r->e.at[i] =
            fmax(fmax(lane[i], r->weights[i]), r->done[i]) + r->shape->update * bytes / all / simulate_updaters(r);
    TRY(replay_move(r, &r->plan->moves.after[0], bytes, 0));
    memcpy(r->weights, r->e.at, size);
    memcpy(r->e.at, lane, size);
    return ERR_NONE;
}

static enum error replay_stream(struct replay *r) {
    memset(r->weights, 0, (size_t)r->e.size * sizeof *r->weights);
    for (int b = 0; b < r->shape->buckets; b++) {
        replay_await_bucket(r, b);
        TRY(replay_move(r, &r->plan->moves.before[0], r->shape->bytes[b], 0));
        TRY(replay_stream_weights(r, b));
    }
    for (int i = 0; i < r->e.size; i++) r->e.at[i] = fmax(r->e.at[i], r->weights[i]);
    return ERR_NONE;
}

/* ---- weights that come before their layers ---- */

/* A layer's weights come on a lane of their own, at the earliest when a layer has ended that leaves room for them;
 * layer: of a pass, in which backward's follow forward's. */
static enum error replay_gather(struct replay *r, const struct move *v, int layer, double bytes) {
    size_t size = (size_t)r->e.size * sizeof(double);
    double *lane = r->weights, *gradients = r->weights + r->e.size;
    const double *room = r->ended + (size_t)(layer % (PLAN_AHEAD + 1)) * (size_t)r->e.size;
    for (int i = 0; i < r->e.size; i++) {
        if (r->plan->moves.kept == WEIGHTS_A_LAYER && layer > PLAN_AHEAD) lane[i] = fmax(lane[i], room[i]);
        if (!r->plan->overlap) lane[i] = fmax(lane[i], r->done[i]);
    }
    memcpy(gradients, r->e.at, size);
    memcpy(r->e.at, lane, size);
    TRY(replay_move(r, v, bytes, 0));
    memcpy(lane, r->e.at, size);
    memcpy(r->e.at, gradients, size);
    for (int i = 0; i < r->workers; i++) r->done[i] = fmax(r->done[i], lane[i]);
    return ERR_NONE;
}

/* The layers of a pass, one bucket after another; v: what brings their weights, NULL: they are there. leaves: gradients do. */
static enum error replay_layers(struct replay *r, const struct move *v, double seconds, bool backward, bool leaves) {
    const struct step_shape *s = r->shape;
    for (int k = 0; k < s->buckets; k++) {
        int b = backward ? k : s->buckets - 1 - k, layer = backward ? s->buckets + k : k;
        double share = s->ready[b] - (b ? s->ready[b - 1] : 0);
        if (v && !(backward && b < plan_stays(r->plan->overlap))) TRY(replay_gather(r, v, layer, s->bytes[b]));
        for (int i = 0; i < r->e.size; i++) {
            r->done[i] += r->slow[i] * seconds * share;
            r->ended[(size_t)(layer % (PLAN_AHEAD + 1)) * (size_t)r->e.size + (size_t)i] = r->done[i];
            if (leaves && r->plan->overlap) r->e.at[i] = fmax(r->e.at[i], r->done[i]);
        }
        if (leaves && r->plan->overlap) TRY(replay_move(r, &r->plan->moves.before[0], s->bytes[b], 0));
    }
    return ERR_NONE;
}

/* A step begins with the gathers of what the last one has updated. */
static enum error replay_gathered(struct replay *r) {
    const struct step_shape *s = r->shape;
    const struct exchange_plan *p = &r->plan->moves;
    double loads = s->before - s->forward - s->backward * (s->passes - 1);
    for (int i = 0; i < r->e.size; i++) r->weights[i] = r->start[i], r->done[i] = r->start[i] + r->slow[i] * loads;
    for (int pass = 0; pass < s->passes; pass++) {
        bool gathers = pass == 0 || p->after[0].end == EACH_FORWARD, last = pass == s->passes - 1;
        TRY(replay_layers(r, gathers ? &p->after[0] : NULL, s->forward / s->passes, false, false));
        TRY(replay_layers(r, p->nafter > 1 ? &p->after[1] : NULL, s->backward, true, last));
    }
    if (!r->plan->overlap) replay_await_backward(r);
    for (int b = 0; b < s->buckets && !r->plan->overlap; b++) TRY(replay_move(r, &p->before[0], s->bytes[b], 0));
    replay_await_backward(r);
    replay_update(r);
    return ERR_NONE;
}

/* The sums of a step ride with no gradients here: before the update ranks tell each other theirs (share/stages.c). */
static enum error replay_staged(struct replay *r) {
    const double sums = HEADER_FLOATS * sizeof(double);
    for (int i = 0; i < r->e.size; i++) r->e.at[i] += r->slow[i] * r->shape->before;
    const struct pipe_copies copies = {r->plan->scheme, r->plan->leaves};
    TRY(pipe_replay(&r->e, &r->shape->stages, r->shape->passes, r->slow, &copies));
    if (r->e.size > 1) TRY(exchange_all_reduce(&r->e, simulate_scheme_of(r->plan, sums), sums));
    replay_update(r);
    return ERR_NONE;
}

/* Steps of ranks that step alone, which are all alike without stragglers. */
static void simulate_add_steps(struct replay *r, int64_t steps) {
    double each = r->crowd * (r->shape->before + r->shape->backward + r->shape->update);
    for (int i = 0; i < r->e.size; i++) r->e.at[i] += each * (double)steps;
}

static enum error replay_step(struct replay *r, int64_t step) {
    int64_t every = r->plan->every;
    replay_begin(r, step);
    if (r->shape->stages.count) return replay_staged(r);
    if (r->e.size == 1) {
        replay_await_backward(r);
        r->e.at[0] += r->shape->update;
        return ERR_NONE;
    }
    if (r->plan->streams) return replay_stream(r);
    if (plan_comes_ahead(&r->plan->moves, r->plan->overlap) && r->shape->passes > 0) return replay_gathered(r);
    TRY(replay_gradients(r));
    replay_await_backward(r);
    replay_update(r);
    return (step + 1) % every ? ERR_NONE : replay_weights(r, step / every);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static double simulate_latest(const double *v, int n) {
    double last = v[0];
    for (int i = 1; i < n; i++) last = fmax(last, v[i]);
    return last;
}

/* Seconds for which the slowest stage computes all micro-batches of a copy; all: for which all stages together do. */
static double simulate_stages_compute(const struct step_shape *s, bool all) {
    double most = 0, sum = 0;
    for (int k = 0; k < s->stages.count; k++) {
        double own = s->passes * (s->stages.forward[k] + s->stages.backward[k]);
        sum += own, most = fmax(most, own);
    }
    return all ? sum : most;
}

/* What the cores need for a step of all stages and copies, which they share; 0: each has its own. */
static double simulate_stages_crowd(const struct step_shape *s, const struct simulate_plan *p) {
    int devices = p->net.devices, copies = s->stages.count ? devices / s->stages.count : 0;
    if (!copies || !p->cores || p->cores >= devices) return 0;
    return (devices * s->before + copies * (simulate_stages_compute(s, true) + s->update)) / p->cores;
}

/* The time for which the slowest device computes in a step, and then updates. */
static double simulate_longest_compute(const struct replay *r) {
    const struct step_shape *s = r->shape;
    double own = s->before + s->backward + simulate_stages_compute(s, false);
    double compute = simulate_latest(r->slow, r->workers) * own, each = s->update;
    enum update_by by = r->plan->moves.update;
    if (by == UPDATE_BY_ROOT) return compute + each;
    return compute + each * r->crowd / simulate_updaters(r);
}

/* Bytes that all stages of all copies send. */
static double simulate_stages_bytes(const struct step_shape *s, const struct simulate_plan *p) {
    int copies = p->net.devices / s->stages.count;
    double borders = 0, gradients = 0;
    for (int k = 0; k < s->stages.count; k++) borders += s->stages.border[k], gradients += s->stages.bytes[k];
    return 2 * borders * s->passes * copies + cost_bytes(&p->moves, 1, 1, copies, 0, 1) * gradients;
}

/* Where there are cores for each rank's two threads, moving bytes is hidden by the ports; fewer do it in turn with
 * computing. own: the bytes that all ranks send in a step by a plug-in; below 0: the plan of the mode says how many. */
static double simulate_moving_of(const struct step_shape *s, const struct simulate_plan *p, double own) {
    int ranks = p->net.devices + p->servers;
    if (!p->cores || p->cores >= 2 * ranks || ranks == 1) return 0;
    int cores = p->cores < ranks ? p->cores : ranks;
    if (s->stages.count) return simulate_stages_bytes(s, p) * p->moving / cores;
    double again = cost_again(s->bytes, s->buckets, p->overlap);
    double sent = cost_bytes(&p->moves, p->every, s->passes, ranks, p->servers, again) * simulate_all_bytes(s);
    return (own >= 0 ? own : sent) * p->moving / cores;
}

/* What the largest bucket takes; of moves that are no all-reduce, the algorithm that they are a part of. */
static enum scheme simulate_largest_scheme(const struct simulate_plan *p, double largest) {
    const struct move *first = p->moves.nbefore ? &p->moves.before[0] : &p->moves.after[0];
    return first->by == MOVE_REDUCE           ? SCHEME_star
           : first->by == MOVE_REDUCE_SCATTER ? SCHEME_SHARDED
                                              : simulate_scheme_of(p, largest);
}

static enum error replay_all(struct replay *r, struct simulated *out) {
    int64_t every = r->plan->every, steps = (r->plan->steps > 0 ? r->plan->steps : 1) * every;
    int64_t alike = r->plan->slow_share > 0 ? 0 : every - 1; /* before each meeting */
    double largest = 0, count = (double)steps;
    for (int64_t i = alike; i < steps; i += 1 + alike) {
        simulate_add_steps(r, alike);
        TRY(replay_step(r, i));
        out->compute += simulate_longest_compute(r) * (double)(1 + alike) / count;
    }
    double each = simulate_latest(r->e.at, r->e.size) / count;
    double own = r->plan->scheme == SCHEME_OWN ? r->e.own_bytes / count : -1;
    out->step = fmax(each, simulate_stages_crowd(r->shape, r->plan)) + simulate_moving_of(r->shape, r->plan, own);
    out->exposed = fmax(out->step - out->compute, 0);
    out->port = network_busiest(&r->e.net);
    out->port.seconds /= count;
    out->busy = out->step > 0 ? out->port.seconds / out->step : 0;
    for (int b = 0; b < r->shape->buckets; b++) largest = fmax(largest, r->shape->bytes[b]);
    out->scheme = simulate_largest_scheme(r->plan, largest);
    return ERR_NONE;
}

static enum error simulate_plan_check(const struct simulate_plan *p) {
    int n = p->net.devices, per = p->net.per_host;
    if (p->moves.by_turns || p->every < 1) return FAIL(ERR_BUG, "a plan that cannot be simulated");
    if (n < 1 || n > SIMULATE_DEVICES)
        return FAIL(ERR_USAGE, "%d devices\nfrom 1 to %d can be simulated", n, SIMULATE_DEVICES);
    if (per < 1 || p->net.per_rack < 0 || !(p->net.oversubscription >= 1))
        return FAIL(ERR_USAGE, "%d devices on a host, %d hosts in a rack, oversubscription %g", per, p->net.per_rack,
                    p->net.oversubscription);
    return ERR_NONE;
}

enum error simulate(const struct step_shape *shape, const struct simulate_plan *plan, struct simulated *out) {
    struct replay r;
    *out = (struct simulated){0};
    TRY(simulate_plan_check(plan));
    enum error err = replay_open(&r, shape, plan);
    if (err == ERR_NONE) err = replay_all(&r, out);
    replay_close(&r);
    return err;
}

/* Where links cost nothing: one micro-batch passes all stages, and the slowest stage computes each of the others. */
static double simulate_stages_formula(const struct step_shape *s, const struct simulate_plan *p) {
    int count = s->stages.count;
    if (p->net.devices > count) return (double)NAN;
    double slowest = simulate_stages_compute(s, false), first = simulate_stages_compute(s, true) / s->passes;
    double compute = first + slowest * (s->passes - 1) / s->passes;
    return fmax(s->before + compute + s->update / count, simulate_stages_crowd(s, p)) + simulate_moving_of(s, p, -1);
}

double simulate_formula(const struct step_shape *shape, const struct simulate_plan *plan) {
    double ready[SIMULATE_BUCKETS], crowd = crowd_of(plan, plan->net.devices);
    struct ground g = simulate_ground_of(plan);
    struct step_cost c = {.before = shape->before * crowd,
                          .backward = shape->backward * crowd,
                          .update = shape->update * (plan->moves.update == UPDATE_BY_ROOT ? 1 : crowd),
                          .forward = shape->forward * crowd / (shape->passes > 0 ? shape->passes : 1),
                          .passes = shape->passes,
                          .buckets = shape->buckets,
                          .ready = ready,
                          .bytes = shape->bytes,
                          .overlap = plan->overlap,
                          .streams = plan->streams,
                          .plan = &plan->moves,
                          .every = plan->every,
                          .ring_order = plan->ring_order};
    bool own = plan->scheme == SCHEME_OWN && plan->net.devices > 1;
    if (own || plan->net.per_host > 1 || plan->net.per_rack || plan->slow_share > 0) return (double)NAN;
    if (shape->stages.count) return simulate_stages_formula(shape, plan);
    g.devices += plan->servers;
    g.servers = plan->servers, g.owners = plan->owners;
    for (int b = 0; b < c.buckets; b++) ready[b] = c.backward * shape->ready[b];
    return cost_step(&c, plan->scheme, &g) + simulate_moving_of(shape, plan, -1);
}
