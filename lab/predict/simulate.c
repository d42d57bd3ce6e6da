#include "lab/predict/simulate.h"

#include "engine/base/memory.h"
#include "engine/base/rng.h"
#include "lab/predict/exchange.h"
#include "transport/algo/algo.h"

#include <math.h>

struct replay {
    const struct step_shape *shape;
    const struct simulate_plan *plan;
    struct exchange e;
    int workers, root;    /* root: of dp */
    double crowd;         /* how many devices a core has */
    double *start, *done; /* of a worker's step: its begin, its backward's end */
    double *slow;
};

/* ---- devices -------------------------------------------------------------------------------- */

static double crowd_of(const struct simulate_plan *p, int devices) {
    return p->cores && devices > p->cores ? (double)devices / p->cores : 1;
}

static enum error doubles(int n, double **out) {
    void *memory;
    TRY(memory_alloc((size_t)n * sizeof **out, &memory));
    *out = memory;
    return ERR_NONE;
}

/* A server of its own is one more device, on a host of its own. */
static enum error replay_open(struct replay *r, const struct step_shape *shape, const struct simulate_plan *plan) {
    struct network_plan net = plan->net;
    *r = (struct replay){.shape = shape, .plan = plan, .workers = plan->net.devices};
    bool apart = plan->server && plan->kind == SERVED_APART;
    r->crowd = crowd_of(plan, r->workers);
    r->root = apart ? r->workers : 0;
    net.devices += apart;
    TRY(exchange_open(&net, plan->near, plan->leaves, &r->e));
    if (apart) r->e.terms = places_terms(cost_leaves(plan->leaves, r->workers), r->workers), r->e.own = 0;
    r->e.plain = plan->plain;
    TRY(doubles(net.devices, &r->start));
    TRY(doubles(net.devices, &r->done));
    return doubles(net.devices, &r->slow);
}

static void replay_close(struct replay *r) {
    exchange_close(&r->e);
    memory_free(r->start);
    memory_free(r->done);
    memory_free(r->slow);
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Everybody's times of this step; a server of its own has nothing to compute. */
static void begin_step(struct replay *r, int step) {
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
static void await_bucket(struct replay *r, int b) {
    const struct step_shape *s = r->shape;
    for (int i = 0; i < r->e.size; i++) {
        double ready = r->start[i] + r->slow[i] * (s->before + s->backward * s->ready[b]);
        r->e.at[i] = fmax(r->e.at[i], r->plan->overlap ? ready : r->done[i]);
    }
}

static void await_backward(struct replay *r) {
    for (int i = 0; i < r->e.size; i++) r->e.at[i] = fmax(r->e.at[i], r->done[i]);
}

static void update(struct replay *r, double seconds) {
    for (int i = 0; i < r->e.size; i++) r->e.at[i] += seconds;
}

static struct ground ground_of(const struct simulate_plan *p) {
    int hosts = (p->net.devices + p->net.per_host - 1) / p->net.per_host;
    return (struct ground){p->net.devices, hosts, p->net.outside, p->near, p->leaves};
}

static enum scheme scheme_of(const struct simulate_plan *p, double bytes) {
    const struct ground g = ground_of(p);
    return p->scheme == SCHEMES ? cost_cheapest(&g, p->ring_order, bytes) : p->scheme;
}

static enum error all_reduce_step(struct replay *r) {
    const struct step_shape *s = r->shape;
    for (int b = 0; b < s->buckets; b++) {
        await_bucket(r, b);
        TRY(exchange_all_reduce(&r->e, scheme_of(r->plan, s->bytes[b]), s->bytes[b]));
    }
    await_backward(r);
    update(r, s->update * r->crowd);
    return ERR_NONE;
}

static double all_bytes(const struct step_shape *s) {
    double all = 0;
    for (int b = 0; b < s->buckets; b++) all += s->bytes[b];
    return all;
}

static enum error sharded_step(struct replay *r) {
    const struct step_shape *s = r->shape;
    for (int b = 0; b < s->buckets; b++) {
        await_bucket(r, b);
        TRY(exchange_reduce_scatter(&r->e, s->bytes[b]));
    }
    await_backward(r);
    update(r, s->update / r->workers * r->crowd);
    return exchange_all_gather(&r->e, all_bytes(s));
}

static enum error server_step(struct replay *r) {
    const struct step_shape *s = r->shape;
    for (int b = 0; b < s->buckets; b++) {
        await_bucket(r, b);
        exchange_reduce(&r->e, r->root, s->bytes[b]);
    }
    await_backward(r);
    r->e.at[r->root] += s->update;
    exchange_broadcast(&r->e, r->root, all_bytes(s));
    return ERR_NONE;
}

static enum error run_step(struct replay *r, int step) {
    begin_step(r, step);
    if (r->e.size == 1) {
        await_backward(r);
        update(r, r->shape->update);
        return ERR_NONE;
    }
    if (!r->plan->server) return all_reduce_step(r);
    return r->plan->kind == SERVED_SHARDED ? sharded_step(r) : server_step(r);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static double last_of(const double *v, int n) {
    double last = v[0];
    for (int i = 1; i < n; i++) last = fmax(last, v[i]);
    return last;
}

/* What the slowest device computes in a step, and then updates. */
static double longest_compute(const struct replay *r) {
    const struct step_shape *s = r->shape;
    double compute = last_of(r->slow, r->workers) * (s->before + s->backward), each = s->update;
    if (r->plan->server) return compute + (r->plan->kind == SERVED_SHARDED ? each / r->workers * r->crowd : each);
    return compute + each * r->crowd;
}

/* All ranks together send the same bytes whatever the way: 2 (N - 1) times the gradients. Where there are cores for
 * each rank's two threads it is hidden behind the ports; fewer do it in turn with computing. */
static double moving_of(const struct step_shape *s, const struct simulate_plan *p) {
    int ranks = p->net.devices + (p->server && p->kind == SERVED_APART);
    if (!p->cores || p->cores >= 2 * ranks || ranks == 1) return 0;
    int cores = p->cores < ranks ? p->cores : ranks;
    return 2 * (ranks - 1) * all_bytes(s) * p->moving / cores;
}

static enum error replay_all(struct replay *r, struct simulated *out) {
    int steps = r->plan->steps > 0 ? r->plan->steps : 1;
    double largest = 0;
    for (int i = 0; i < steps; i++) {
        TRY(run_step(r, i));
        out->compute += longest_compute(r) / steps;
    }
    out->step = last_of(r->e.at, r->e.size) / steps + moving_of(r->shape, r->plan);
    out->exposed = fmax(out->step - out->compute, 0);
    out->port = network_busiest(&r->e.net);
    out->port.seconds /= steps;
    out->busy = out->step > 0 ? out->port.seconds / out->step : 0;
    for (int b = 0; b < r->shape->buckets; b++) largest = fmax(largest, r->shape->bytes[b]);
    out->scheme = !r->plan->server                  ? scheme_of(r->plan, largest)
                  : r->plan->kind == SERVED_SHARDED ? SCHEME_SHARDED
                                                    : SCHEME_star;
    return ERR_NONE;
}

static enum error check(const struct simulate_plan *p) {
    int n = p->net.devices, per = p->net.per_host;
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
    TRY(check(plan));
    enum error err = replay_open(&r, shape, plan);
    if (err == ERR_NONE) err = replay_all(&r, out);
    replay_close(&r);
    return err;
}

double simulate_formula(const struct step_shape *shape, const struct simulate_plan *plan) {
    double ready[SIMULATE_BUCKETS], crowd = crowd_of(plan, plan->net.devices);
    bool serves = plan->server && plan->kind != SERVED_SHARDED;
    struct ground g = ground_of(plan);
    struct step_cost c = {.before = shape->before * crowd,
                          .backward = shape->backward * crowd,
                          .update = shape->update * (serves ? 1 : crowd),
                          .buckets = shape->buckets,
                          .ready = ready,
                          .bytes = shape->bytes,
                          .overlap = plan->overlap,
                          .server = plan->server,
                          .ring_order = plan->ring_order};
    if (plan->net.per_host > 1 || plan->net.per_rack || plan->slow_share > 0) return (double)NAN;
    if (plan->server && plan->kind == SERVED_APART) g.devices++;
    for (int b = 0; b < c.buckets; b++) ready[b] = c.backward * shape->ready[b];
    enum scheme s = plan->kind == SERVED_SHARDED ? SCHEME_SHARDED : SCHEME_star;
    return cost_step(&c, plan->server ? s : plan->scheme, &g) + moving_of(shape, plan);
}
