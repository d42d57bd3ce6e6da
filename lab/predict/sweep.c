#include "lab/predict/sweep.h"
#include "engine/settings/run_config.h"
#include "lab/predict/staged.h"

#include "modes/share/share.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sharing way_sharing(const struct way *w, const struct run_config *c) {
    struct sharing how = {.servers = w->of->servers};
    if (w->of->fill) w->of->fill(c, &how);
    if (w->count && way_is_staged(w))
        how.stages = w->count;
    else if (w->count)
        how.servers = how.owners = w->count;
    return how;
}

enum error way_open(const char *path, const struct algo_ops **own) {
    return algo_named(path, NULL, own);
}

const char *way_scheme_name(const struct way *w, enum scheme s) {
    return s == SCHEME_OWN && w->own ? strrchr(w->own->name, '/') + 1 : scheme_name(s);
}

bool way_is_staged(const struct way *w) {
    return w->of->share->plan.staged;
}

bool way_reduces(const struct way *w) {
    const struct exchange_plan *p = &w->of->share->plan;
    return (p->nbefore && p->before[0].by == MOVE_ALL_REDUCE) || (p->nafter && p->after[0].by == MOVE_ALL_REDUCE);
}

/* In ring order a device has one sum, whatever its shards are. */
struct sweep_place sweep_place(const struct run_config *c, int64_t devices) {
    bool ring = c->comm.order == COMM_ORDER_RING;
    return (struct sweep_place){.config = c,
                                .plan = {.net = {.devices = (int)devices, .per_host = 1, .oversubscription = 1},
                                         .leaves = ring ? 0 : (int)c->batch.shards,
                                         .ring_order = ring,
                                         .moving = SIMULATE_MOVING,
                                         .slow_by = 1,
                                         .steps = 1},
                                .shards = (int)c->batch.shards,
                                .overlap = -1,
                                .first = c->ddp.bucket.first,
                                .cap = c->ddp.bucket.cap,
                                .strong = true};
}

bool way_suits(const struct way *w, const struct sweep_place *p) {
    const struct network_plan *n = &p->plan.net;
    const struct ground g = {n->devices, (n->devices + n->per_host - 1) / n->per_host, n->outside, p->plan.near,
                             p->plan.leaves};
    if (!way_reduces(w) || w->scheme == SCHEMES) return true;
    if (w->scheme == SCHEME_OWN) {
        bool ring = w->own->orders[ORDER_RING];
        return n->devices <= REHEARSAL_RANKS && !way_is_staged(w) && (ring || is_power_of_two(n->devices));
    }
    if (w->scheme == SCHEME_hierarchical && (n->devices <= n->per_host || n->devices % n->per_host != 0)) return false;
    return isfinite(cost_share(w->scheme, &g, 1));
}

static enum error sweep_way_cut(const struct measured_step *m, const struct simulate_plan *plan, const struct way *w,
                                const struct sweep_place *p, const struct sharing *how, double share,
                                struct step_shape *out) {
    if (how->cut.cap) return measured_shape(m, share, &how->cut, out);
    bool one = w->of->in_one && !plan->overlap;
    int64_t cap = one ? INT64_MAX : p->cap;
    const struct cutting cut = {one || p->first > cap ? cap : p->first, cap};
    return measured_shape(m, share, &cut, out);
}

/* What mode pipeline makes of these devices, and the bytes of the stage that holds the most. */
static enum error sweep_try_staged(const struct measured_step *m, const struct simulate_plan *plan, const struct way *w,
                                   const struct sweep_place *p, struct step_shape *shape, double *memory) {
    struct run_config c = *p->config;
    char number[16];
    const char *stages[] = {number};
    const struct cutting cut = {p->first > p->cap ? p->cap : p->first, p->cap};
    const struct staged_ask ask = {&c, m->model, m->by_layer, cost_leaves(p->shards, plan->net.devices)};
    struct held held;
    double batches = p->strong ? 1 : m->work * plan->net.devices;
    c.batch.size = llround((double)c.batch.size * batches);
    c.devices.count = plan->net.devices;
    snprintf(number, sizeof number, "%d", w->count);
    if (w->count) c.pipeline.stages = (struct config_list){.items = stages, .count = 1};
    c.sharing.ahead = way_sharing(w, &c).ahead;
    TRY(staged_fit(&c, m->model));
    TRY(staged_shape(&ask, m, batches, &cut, shape));
    TRY(staged_hold(&ask, &held));
    *memory = held_all(&held);
    return ERR_NONE;
}

/* The bytes of the busiest device. If servers are apart, the others have none of the optimizer's state. */
static double sweep_way_memory(const struct measured_step *m, const struct simulate_plan *plan,
                               const struct step_shape *shape, double share) {
    const struct held_ask ask = {.plan = &plan->moves,
                                 .devices = plan->net.devices,
                                 .owners = plan->owners,
                                 .serves_apart = plan->servers > 0,
                                 .sums = held_sums(shape->passes),
                                 .slots = m->slots,
                                 .arena = (double)m->model->arena_floats * sizeof(float),
                                 .bytes = shape->bytes,
                                 .buckets = shape->buckets};
    const struct held h = held_find(&ask);
    double device = measured_beside(m, share) + held_all(&h);
    double state = plan->moves.update == UPDATE_BY_OWNERS ? 1.0 / plan->owners : 1;
    return plan->servers ? fmax(device, measured_memory(m, 0, state)) : device;
}

enum error sweep_try(const struct measured_step *m, const struct way *w, const struct sweep_place *p,
                     struct sweep_answer *out) {
    struct simulate_plan plan = p->plan;
    int devices = plan.net.devices;
    double share = p->strong ? leaves_longest(cost_leaves(p->shards, devices), devices) : m->work;
    plan.moves = w->of->share->plan;
    plan.every = plan.moves.alone ? p->config->ddp.sync.every : 1;
    const struct sharing how = way_sharing(w, p->config);
    plan.servers = how.servers;
    plan.owners = sharing_owners(&how, devices + how.servers);
    plan.scheme = w->scheme;
    plan.own = w->own;
    plan.overlap = p->overlap >= 0 ? p->overlap : w->mode->overlaps(p->config);
    plan.streams = how.streams && plan.overlap;
    if (run_cuts_matrices(p->config, &plan.moves))
        return FAIL(ERR_CONFIG,
                    "optimizer %s works on whole matrices, but mode %s (%s) cuts them among ranks\n"
                    "ask for other modes, or with --set optimizer=adamw",
                    optim_of(&p->config->optimizer.kind)->section.name, w->mode->name, w->of->name);
    struct step_shape *shape = malloc(sizeof *shape);
    if (!shape) return FAIL(ERR_MEMORY, "cannot allocate a step");
    double memory = 0;
    enum error err = plan.moves.staged ? sweep_try_staged(m, &plan, w, p, shape, &memory)
                                       : sweep_way_cut(m, &plan, w, p, &how, share, shape);
    if (err == ERR_NONE) err = simulate(shape, &plan, &out->result);
    if (err == ERR_NONE) out->formula = simulate_formula(shape, &plan);
    out->buckets = err == ERR_NONE ? shape->buckets : 0;
    if (err == ERR_NONE) out->memory = plan.moves.staged ? memory : sweep_way_memory(m, &plan, shape, share);
    free(shape);
    double alone = (m->load + m->forward + m->backward) * (p->strong ? 1 : m->work) + m->update;
    out->speed_up = (p->strong ? 1 : devices) * alone / out->result.step;
    return err;
}
