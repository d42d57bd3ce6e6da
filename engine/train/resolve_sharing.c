/* How gradients are shared, beside mode and link: combinations that make no sense. */
#include "engine/device/runtime.h"
#include "engine/train/resolve_impl.h"

static const struct device_ops *kind_of(const struct resolve *r) {
    return device_find(r->c->devices.kind);
}

static void check_shard(struct resolve *r) {
    const struct node *shard = resolve_find(r, "optimizer.shard");
    if (!r->c->optimizer.shard || resolve_mode_is(r, "ddp")) return;
    bool dp = resolve_mode_is(r, "dp");
    config_error(r->e, shard, false, "'optimizer.shard' is for mode ddp, but mode is '%s' (%s)\n%s",
                 r->c->mode, resolve_place(r, resolve_find(r, "mode")),
                 dp ? "in mode dp that is dp.server: sharded"
                    : "one device has nobody to share the optimizer with");
}

static void check_compress(struct resolve *r) {
    const struct node *compress = resolve_find(r, "comm.compress");
    int kind = r->c->comm.compress.index;
    if (kind == COMPRESS_none) return;
    if (!resolve_mode_is(r, "ddp"))
        config_error(r->e, compress, false,
                     "'comm.compress' is for mode ddp, but mode is '%s' (%s)\nuse mode ddp, or "
                     "comm.compress: none",
                     r->c->mode, resolve_place(r, resolve_find(r, "mode")));
    if (r->c->deterministic == DETERMINISTIC_BITWISE)
        config_error(r->e, compress, false,
                     "compressed gradients depend on the number of devices, but deterministic is "
                     "'bitwise' (%s)\nuse comm.compress: none",
                     resolve_place(r, resolve_find(r, "deterministic")));
}

/* ---- local SGD ---- */

static void refuse_sync(struct resolve *r, const char *key, const char *why, const char *hint) {
    config_error(r->e, resolve_find(r, "ddp.sync.every"), false,
                 "ddp.sync: weights are averaged every %lld steps, but %s (%s)\n%s",
                 (long long)r->c->ddp.sync.every, why, resolve_place(r, resolve_find(r, key)),
                 hint);
}

/* What means the gradient of the whole batch, which then nobody has. */
static void check_sync(struct resolve *r) {
    const struct run_config *c = r->c;
    const struct device_ops *kind = device_find(c->devices.kind);
    if (c->ddp.sync.state == SYNC_AVERAGE) resolve_needs(r, "ddp.sync.state", "ddp.sync.every");
    if (c->ddp.sync.every == 1) return;
    if (!resolve_mode_is(r, "ddp"))
        refuse_sync(r, "mode", "mode is not 'ddp'", "use mode ddp, or ddp.sync: 1");
    if (c->deterministic == DETERMINISTIC_BITWISE)
        refuse_sync(r, "deterministic", "deterministic is 'bitwise'",
                    "what comes out depends on the number of devices: use deterministic: true");
    if (c->optimizer.shard)
        refuse_sync(r, "optimizer.shard", "optimizer.shard has each rank step a part of them",
                    "use optimizer.shard: false");
    if (c->comm.compress.index != COMPRESS_none)
        refuse_sync(r, "comm.compress", "comm.compress is for gradients, which do not travel",
                    "use comm.compress: none");
    if (c->sync_batchnorm)
        refuse_sync(r, "sync_batchnorm", "sync_batchnorm has ranks meet in every step",
                    "use sync_batchnorm: false");
    if (kind && kind->runtime->apart)
        refuse_sync(r, "devices", "devices are accelerators, which cannot do that yet",
                    "use devices: cpu:N, or ddp.sync: 1");
}

/* ---- a server that does not wait ---- */

/* A key that dp.staleness excludes, with both places. */
static void refuse_beside(struct resolve *r, const char *why, const char *path, const char *value,
                          const char *hint) {
    config_error(r->e, resolve_find(r, "dp.staleness"), false,
                 "'dp.staleness': %s, but %s is '%s' (%s)\n%s, or dp.staleness: 0", why, path,
                 value, resolve_place(r, resolve_find(r, path)), hint);
}

static void check_staleness(struct resolve *r) {
    const struct run_config *c = r->c;
    if (!dp_is_asynchronous(c)) return;
    if (!dp_serves_apart(c))
        refuse_beside(r, "a server that does not wait has to be one of its own", "dp.server",
                      c->dp.server == SERVER_SHARED ? "shared" : "sharded",
                      "use dp.server: dedicated");
    if (c->dp.scatter == SCATTER_SERVER)
        refuse_beside(r, "devices are not in the same step", "dp.scatter", "server",
                      "use dp.scatter: direct");
    if (c->dp.overlap == DP_OVERLAP_ON)
        refuse_beside(r, "a gradient travels when it is complete", "dp.overlap", "on",
                      "use dp.overlap: auto");
    if (c->sync_batchnorm)
        refuse_beside(r, "devices are not in the same step", "sync_batchnorm", "true",
                      "use sync_batchnorm: false");
    if (c->deterministic == DETERMINISTIC_BITWISE)
        refuse_beside(r, "what comes out depends on the number of devices", "deterministic",
                      "bitwise",
                      "use deterministic: true (in turn) or false (in order of arrival)");
    if (c->train.until_metric && !strcmp(c->train.until_metric, "train.loss"))
        refuse_beside(r, "devices are not in the same step", "train.until", "train.loss",
                      "use train.until: {val.loss: ...}");
    if (kind_of(r)->runtime->apart)
        refuse_beside(r, "gradients are served in the host's memory", "devices", c->devices_text,
                      "use devices: cpu");
}

/* ---- accelerators ---- */

static bool emulation_given(const struct comm_config *c) {
    return c->emulate.bandwidth > 0 || c->emulate.latency > 0;
}

/* What each backend is between: threads, processes. */
static const char *wrong_backend(const struct resolve *r) {
    const struct comm_config *c = &r->c->comm;
    const char *devices = resolve_place(r, resolve_find(r, "devices"));
    bool ddp = resolve_mode_is(r, "ddp");
    if (!kind_of(r)->runtime->apart)
        return pool_printf(r->pool,
                           "devices are '%s' (%s), whose memory is the host's\nuse comm.backend "
                           "auto or host",
                           r->c->devices_text, devices);
    if (emulation_given(c))
        return "emulated links (comm.emulate) are the host's\nuse comm.backend auto or host";
    if (c->backend == BACKEND_PEER && !resolve_mode_is(r, "dp"))
        return pool_printf(r->pool,
                           "it is for the threads of mode dp, but mode is '%s' (%s)\nuse "
                           "comm.backend auto",
                           r->c->mode, resolve_place(r, resolve_find(r, "mode")));
    if (c->backend == BACKEND_PEER && r->c->dp.server == SERVER_CPU)
        return pool_printf(r->pool,
                           "the server has no GPU (dp.server cpu, %s)\nuse comm.backend auto",
                           resolve_place(r, resolve_find(r, "dp.server")));
    if (c->backend == BACKEND_NCCL && !ddp)
        return pool_printf(r->pool,
                           "it is for the processes of mode ddp, but mode is '%s' (%s)\nuse "
                           "comm.backend auto",
                           r->c->mode, resolve_place(r, resolve_find(r, "mode")));
    return "";
}

static enum error check_backend(struct resolve *r) {
    static const char *const names[] = {"auto", "host", "peer", "nccl"};
    int backend = r->c->comm.backend;
    if (backend == BACKEND_AUTO || backend == BACKEND_HOST) return ERR_NONE;
    const char *wrong = wrong_backend(r);
    if (!wrong) return ERR_MEMORY;
    if (*wrong)
        config_error(r->e, resolve_find(r, "comm.backend"), false, "comm.backend '%s': %s",
                     names[backend], wrong);
    return ERR_NONE;
}

static void check_compress_there(struct resolve *r) {
    if (r->c->comm.compress.index == COMPRESS_none || !kind_of(r)->runtime->apart) return;
    config_error(r->e, resolve_find(r, "comm.compress"), false,
                 "gradients are compressed in the host's memory, but devices are '%s' (%s)\nuse "
                 "comm.compress: none",
                 r->c->devices_text, resolve_place(r, resolve_find(r, "devices")));
}

static enum error resolve_overlap(struct resolve *r) {
    struct dp_config *c = &r->c->dp;
    bool there = kind_of(r)->runtime->asynchronous;
    if (c->overlap != DP_OVERLAP_AUTO || !resolve_mode_is(r, "dp")) return ERR_NONE;
    c->overlap = there ? DP_OVERLAP_ON : DP_OVERLAP_OFF;
    return resolve_decide(r, "dp.overlap", there ? "on" : "off");
}

/* A GPU that the list does not name, else the first of the list. */
static void find_server(struct resolve *r) {
    struct device_choice *d = &r->c->devices;
    int here = 0;
    d->server = d->listed ? d->unit[0] : 0;
    if (!kind_of(r)->units || kind_of(r)->units(&here) != ERR_NONE) return;
    for (int unit = 0; unit < here; unit++) {
        bool named = !d->listed && unit < d->local;
        for (int i = 0; i < d->listed; i++) named = named || d->unit[i] == unit;
        if (named) continue;
        d->server = unit;
        return;
    }
}

enum error resolve_sharing(struct resolve *r) {
    check_shard(r);
    check_compress(r);
    check_compress_there(r);
    check_sync(r);
    check_staleness(r);
    find_server(r);
    TRY(check_backend(r));
    return resolve_overlap(r);
}
