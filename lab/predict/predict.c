#include "engine/base/links.h"
#include "engine/base/plugin.h"
#include "engine/settings/run_config.h"
#include "lab/predict/measured.h"
#include "lab/predict/planned.h"
#include "lab/predict/staged.h"
#include "modes/share/share.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first key of a configuration that the simulator does not know: it would be missing from the answer. */
struct unsimulated measured_unknown(const struct run_config *c) {
    const struct {
        bool asked;
        const char *key, *without;
    } unknown[] = {
        {c->inject.slow.by > 0, "inject.slow.by", "0%"},
        {c->inject.fault.kind != FAULT_NONE, "inject.fault.kind", "none"},
        {c->sharing.compressed, "comm.compress", "none"},
        {c->sharing.plan.alone && c->ddp.sync.state == SYNC_AVERAGE, "ddp.sync.state", "local"},
        {c->sync_batchnorm, "sync_batchnorm", "false"},
        {c->sharing.brought, "dp.scatter", "direct"},
        {c->sharing.plan.by_turns, c->sharing.key, c->sharing.share->without},
        {c->sharing.plan.after[0].by == MOVE_OWN, "ddp.sync.with", "all"},
        {c->sharing.plan.before[0].by == MOVE_OWN, "ddp.reduce.with", "sum"},
        {c->sharing.tunes[TUNABLE_BUCKET], tunable_keys[TUNABLE_BUCKET], BUCKET_STANDARD},
        {c->sharing.tunes[TUNABLE_ALGORITHM], tunable_keys[TUNABLE_ALGORITHM], "auto"},
        {strcmp(c->comm.algorithm, "auto") && !plugin_is_path(c->comm.algorithm) &&
             !scheme_is_known(scheme_find(c->comm.algorithm)),
         "comm.algorithm", "auto"},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (unknown[i].asked) return (struct unsimulated){unknown[i].key, unknown[i].without};
    return (struct unsimulated){NULL, NULL};
}

enum error measured_refuse(const struct run_config *c) {
    struct unsimulated u = measured_unknown(c);
    if (!u.key) return ERR_NONE;
    return FAIL(ERR_CONFIG, "%s is not simulated\n--set %s=%s leaves it out", u.key, u.key, u.without);
}

static enum error predict_take_sharing(const struct run_config *c, struct simulate_plan *p) {
    p->overlap = c->sharing.overlap;
    p->moves = c->sharing.plan;
    p->every = c->sharing.every;
    p->servers = c->sharing.servers;
    p->owners = sharing_owners(&c->sharing, c->devices.count + c->sharing.servers);
    p->streams = c->sharing.streams;
    p->scheme = strcmp(c->comm.algorithm, "auto") ? scheme_find(c->comm.algorithm) : SCHEMES;
    p->ring_order = c->comm.order == COMM_ORDER_RING;
    if (!plugin_is_path(c->comm.algorithm)) return ERR_NONE;
    p->scheme = SCHEME_OWN;
    return algo_named(c->comm.algorithm, c->comm.sha256, &p->own);
}

/* Ranks that reach each other's memory take what is best there, whatever their ports would say. */
static bool predict_takes_direct(const struct run_config *c) {
    enum link_joins joins = link_rows[c->comm.link].joins;
    return (joins == JOINS_THREADS || joins == JOINS_PROCESSES) && c->comm.order != COMM_ORDER_RING;
}

/* The step as measured, cut into as many passes as the configuration makes of its batch. */
static struct measured_step predict_step_recut(const struct measured_step *m, const struct run_config *c,
                                               double batches) {
    struct measured_step own = *m;
    own.passes = llround((double)planned_passes(c) * c->devices.count / batches);
    return own;
}

enum error measured_predict(const struct measured_step *m, const struct run_config *c, const struct wire *port,
                            int cores, struct simulated *out, double *formula) {
    const struct emulation *e = &c->comm.emulate.as;
    struct simulate_plan p = {.net = network_described(e, c->devices.count, run_all_ranks(c)),
                              .cores = cores,
                              .moving = port ? 0 : SIMULATE_MOVING, /* a fitted port has it */
                              .leaves = c->comm.order == COMM_ORDER_RING ? 0 : (int)c->batch.shards,
                              .steps = emulation_draws(e) ? SIMULATE_DRAWN : 1};
    TRY(measured_refuse(c));
    if (port) p.net = (struct network_plan){c->devices.count, 1, .oversubscription = 1, .outside = *port}, p.steps = 1;
    if (!port && !emulation_on(e) && run_all_ranks(c) > 1)
        return FAIL(ERR_CONFIG, "nothing is known of the ports\ncomm.emulate says what they are like");
    TRY(predict_take_sharing(c, &p));
    if (port && p.scheme == SCHEMES && predict_takes_direct(c)) p.scheme = SCHEME_direct;
    struct step_shape *shape = malloc(sizeof *shape);
    if (!shape) return FAIL(ERR_MEMORY, "cannot allocate a step");
    double batches = (double)c->batch.size / (double)m->batch;
    struct measured_step own = predict_step_recut(m, c, batches);
    double share = batches * leaves_longest((int)c->batch.shards, c->devices.count);
    const struct staged_ask stages = {c, m->model, m->by_layer, (int)c->batch.shards};
    enum error err = p.moves.staged ? staged_shape(&stages, m, batches, &c->sharing.cut, shape)
                                    : measured_shape(&own, share, &c->sharing.cut, shape);
    if (err == ERR_NONE) err = simulate(shape, &p, out);
    if (err == ERR_NONE) *formula = simulate_formula(shape, &p);
    free(shape);
    return err;
}
