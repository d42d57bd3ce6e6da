#include "lab/measured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the simulator does not know would be missing from its answer. */
enum error measured_refuse(const struct run_config *c) {
    const struct {
        bool asked;
        const char *key, *without;
    } unknown[] = {
        {c->inject.slow.by > 0, "inject.slow.by", "0%"},
        {c->inject.fault.kind != FAULT_NONE, "inject.fault.kind", "none"},
        {c->comm.compress.index != COMPRESS_none, "comm.compress", "none"},
        {c->ddp.sync.every > 1, "ddp.sync", "1"},
        {c->sync_batchnorm, "sync_batchnorm", "false"},
        {c->dp.scatter == SCATTER_SERVER, "dp.scatter", "direct"},
        {dp_is_asynchronous(c), "dp.staleness", "0"},
        {strcmp(c->comm.algorithm, "auto") && !scheme_is_known(scheme_find(c->comm.algorithm)),
         "comm.algorithm", "auto"},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (unknown[i].asked)
            return FAIL(ERR_CONFIG, "what %s does is not simulated\n--set %s=%s leaves it out",
                        unknown[i].key, unknown[i].key, unknown[i].without);
    return ERR_NONE;
}

enum simulated_server measured_server(const struct run_config *c) {
    if (c->dp.server == SERVER_SHARDED) return SERVED_SHARDED;
    return dp_serves_apart(c) ? SERVED_APART : SERVED_SHARED;
}

/* A ddp whose ranks step slices of the arena exchanges what dp's sharded server does. */
static void take_mode(const struct run_config *c, struct simulate_plan *p) {
    bool dp = !strcmp(c->mode, "dp");
    p->overlap = dp ? c->dp.overlap == DP_OVERLAP_ON : c->ddp.overlap;
    p->server = dp || c->optimizer.shard;
    p->kind = dp ? measured_server(c) : SERVED_SHARDED;
    p->scheme = strcmp(c->comm.algorithm, "auto") ? scheme_find(c->comm.algorithm) : SCHEMES;
    p->ring_order = c->comm.order == COMM_ORDER_RING;
}

/* Ranks that reach each other's memory take what is best there, whatever their ports would say. */
static bool takes_direct(const struct run_config *c) {
    return (c->comm.link == COMM_LINK_THREAD || c->comm.link == COMM_LINK_SHM) &&
           c->comm.order != COMM_ORDER_RING;
}

/* The step as measured, cut into as many passes as the configuration makes of its batch. */
static struct measured_step recut(const struct measured_step *m, const struct run_config *c,
                                  double batches) {
    struct measured_step own = *m;
    own.passes = llround((double)(c->batch.shards * c->batch.accumulate) / batches);
    return own;
}

enum error measured_predict(const struct measured_step *m, const struct run_config *c,
                            const struct wire *port, int cores, struct simulated *out,
                            double *formula) {
    const struct emulate_config *e = &c->comm.emulate;
    struct wire emulated = {e->latency, e->bandwidth > 0 ? 1 / e->bandwidth : 0};
    struct simulate_plan p = {.net = {.devices = c->devices.count,
                                      .per_host = 1,
                                      .oversubscription = 1,
                                      .outside = port ? *port : emulated},
                              .cores = cores,
                              .moving = port ? 0 : SIMULATE_MOVING, /* a fitted port has it */
                              .steps = 1};
    TRY(measured_refuse(c));
    bool apart = !strcmp(c->mode, "dp") && dp_serves_apart(c);
    if (!port && !(e->bandwidth > 0) && !(e->latency > 0) && c->devices.count + apart > 1)
        return FAIL(ERR_CONFIG,
                    "nothing is known of the ports\ncomm.emulate says what they are like");
    take_mode(c, &p);
    if (port && p.scheme == SCHEMES && takes_direct(c)) p.scheme = SCHEME_direct;
    bool one = p.server && p.kind == SERVED_SHARDED && !p.overlap && !strcmp(c->mode, "dp");
    struct step_shape *shape = malloc(sizeof *shape);
    if (!shape) return FAIL(ERR_MEMORY, "cannot allocate a step");
    const struct bucket_config *b = &c->ddp.bucket;
    double batches = (double)c->batch.size / (double)m->batch;
    struct measured_step own = recut(m, c, batches);
    enum error err = measured_shape(&own, batches / c->devices.count, one ? INT64_MAX : b->first,
                                    one ? INT64_MAX : b->cap, shape);
    if (err == ERR_NONE) err = simulate(shape, &p, out);
    if (err == ERR_NONE) *formula = simulate_formula(shape, &p);
    free(shape);
    return err;
}
