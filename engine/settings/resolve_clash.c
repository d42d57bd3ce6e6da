/* What does not go together, and what needs to know all that is 'auto'. */
#include "engine/device/runtime.h"
#include "engine/optim/plugin.h"
#include "engine/settings/resolve.h"

#include <stdio.h>
#include <string.h>

/* ---- a clash ---- */

/* The value of a key. A launcher's devices are counted, while the tree keeps what was asked for. */
static const char *clash_value(const struct resolve *r, const char *key) {
    const struct node *node = resolve_find(r, key);
    return !strcmp(key, "devices") ? r->c->devices_text : node && node->text ? node->text : "";
}

enum { KEY_MOST = 64 };

/* The text with the values and places of the keys that it names; "{name: KEY}" and the like stay. NULL: no memory. */
static const char *clash_text(const struct resolve *r, const char *why) {
    const char *text = "";
    while (*why && text) {
        char key[KEY_MOST];
        size_t plain = strcspn(why, "{"), end = plain + strcspn(why + plain, "}");
        bool place = !strncmp(why + plain, "{at ", 4),
             named = why[plain] && (place || !memchr(why + plain, ' ', end - plain));
        size_t begin = plain + (place ? 4 : 1);
        const char *value = "";
        if (named) {
            snprintf(key, sizeof key, "%.*s", (int)(end - begin), why + begin);
            value = place ? resolve_place(r, resolve_find(r, key)) : clash_value(r, key);
        } else {
            plain = end;
        }
        text = pool_printf(r->pool, "%s%.*s%s", text, (int)plain, why, value);
        why += named ? end + 1 : end;
    }
    return text;
}

/* The first of "KEY|KEY" that is given, else the last. */
static const struct node *clash_blamed(const struct resolve *r, const char *at) {
    char key[KEY_MOST];
    const char *bar = strchr(at, '|');
    snprintf(key, sizeof key, "%.*s", (int)strcspn(at, "|"), at);
    const struct node *node = resolve_find(r, key);
    return !bar || resolve_is_given(node) ? node : clash_blamed(r, bar + 1);
}

void resolve_clash(struct resolve *r, bool when, const char *at, const char *why) {
    const char *text = when ? clash_text(r, why) : NULL;
    if (when) config_error(r->e, clash_blamed(r, at), false, "%s", text ? text : why);
}

/* ---- how numbers are computed ---- */

/* A trained network can be asked on any device, in f32 where that cannot compute in its own precision. */
static enum error precision_choose(struct resolve *r, bool able) {
    if (able || !r->c->asks || resolve_is_set(resolve_find(r, "precision"))) return ERR_NONE;
    r->c->precision = PRECISION_F32;
    return resolve_decide(r, "precision", "f32");
}

enum error resolve_numbers(struct resolve *r) {
    const struct run_config *c = r->c;
    const struct device_ops *ops = device_find(c->devices.kind);
    TRY(precision_choose(r, ops->precisions & 1u << c->precision));
    bool unable = !(ops->precisions & 1u << c->precision), sync = c->sync_batchnorm;
    const struct optim_ops *optim = optim_of(&c->optimizer.kind);
    resolve_clash(r, optim == &optim_plugin && ops->runtime->apart, "optimizer",
                  "an optimizer of one's own works on the host's memory, but devices are '{devices}' ({at devices})\n"
                  "use one that engine help optimizer lists, or devices: cpu:N");
    resolve_clash(
        r, optim->whole && ops->runtime->apart, "optimizer.name",
        "optimizer '{optimizer.name}' works on whole matrices in the host's memory, but devices are '{devices}' ({at "
        "devices})\nuse adamw, or devices: cpu:N");
    resolve_clash(
        r, run_cuts_matrices(c, &c->sharing.plan), "optimizer.name",
        "optimizer '{optimizer.name}' works on whole matrices, but mode '{mode}' ({at mode}) cuts them among ranks "
        "here\nuse mode ddp without optimizer.shard, mode dp with a server that is not sharded, or another optimizer");
    const struct exchange_plan *plan = &c->sharing.plan;
    bool noise = c->train.noise_scale.unit != SPAN_OFF;
    resolve_clash(r, noise && (plan->alone || plan->by_turns || c->sharing.compressed), "train.noise_scale",
                  "the noise scale compares the shards' gradients with that of the whole batch, which no device has "
                  "here (mode '{mode}', {at mode})\nleave out comm.compress, ddp.sync or staleness");
    resolve_clash(r, unable && c->precision == PRECISION_FP16, "precision",
                  "precision fp16 needs a GPU, and devices are '{devices}' ({at devices})\n"
                  "use bf16: it has the range of f32");
    resolve_clash(r, unable && c->precision != PRECISION_FP16, "precision",
                  "precision tf32 needs a GPU, and devices are '{devices}' ({at devices})\nuse f32");
    resolve_clash(
        r, sync && c->recompute != 1, "recompute",
        "recompute runs layers once more in backward, for which sync_batchnorm ({at sync_batchnorm}) would have "
        "ranks meet again\nuse recompute: 1, or sync_batchnorm: false");
    resolve_clash(r, sync && ops->runtime->asynchronous, "sync_batchnorm",
                  "sync_batchnorm is not possible on GPUs, and devices are '{devices}' ({at devices})\n"
                  "make the shards of a batch larger (batch.shards), or use groupnorm in place of batchnorm");
    resolve_clash(r, sync && c->batch.accumulate > 1, "sync_batchnorm",
                  "sync_batchnorm needs the whole batch at once, but batch.accumulate cuts it ({at batch.accumulate})");
    resolve_clash(r, sync && c->sharing.servers && c->sharing.place == PLACE_THREADS, "sync_batchnorm",
                  "sync_batchnorm is shared among all ranks, but a dedicated server ({at dp.server}) computes nothing\n"
                  "use dp.server shared or sharded");
    return ERR_NONE;
}

/* ---- what carries gradients on accelerators, and where their server computes ---- */

/* The server's GPU: one that the list of devices does not name, else the first of the list. */
static void server_place(struct resolve *r, const struct device_ops *ops) {
    struct device_choice *d = &r->c->devices;
    int here = 0;
    d->server = device_first_unit(d);
    if (!ops->units || ops->units(&here) != ERR_NONE) return;
    for (int unit = 0; unit < here; unit++) {
        bool named = !d->listed && unit < d->local;
        for (int i = 0; i < d->listed; i++) named = named || d->unit[i] == unit;
        if (named) continue;
        d->server = unit;
        return;
    }
}

void resolve_backend(struct resolve *r) {
    const struct comm_config *c = &r->c->comm;
    const struct device_ops *ops = device_find(r->c->devices.kind);
    enum place_kind place = r->c->sharing.place;
    bool peer = c->backend == BACKEND_PEER, nccl = c->backend == BACKEND_NCCL, apart = ops->runtime->apart;
    bool emulated = emulation_on(&c->emulate.as), fits = apart && !emulated;
    server_place(r, ops);
    resolve_clash(r, (peer || nccl) && !apart, "comm.backend",
                  "comm.backend '{comm.backend}': devices are '{devices}' ({at devices}), whose memory is the host's\n"
                  "use comm.backend auto or host");
    resolve_clash(r, (peer || nccl) && apart && emulated, "comm.backend",
                  "comm.backend '{comm.backend}': emulated links (comm.emulate) are the host's\n"
                  "use comm.backend auto or host");
    resolve_clash(r, peer && fits && place != PLACE_THREADS, "comm.backend",
                  "comm.backend 'peer': it is for the threads of mode dp, but mode is '{mode}' ({at mode})\n"
                  "use comm.backend auto");
    resolve_clash(r, peer && fits && place == PLACE_THREADS && r->c->sharing.on_host, "comm.backend",
                  "comm.backend 'peer': the server has no GPU (dp.server cpu, {at dp.server})\nuse comm.backend auto");
    resolve_clash(r, nccl && fits && place != PLACE_PROCESSES, "comm.backend",
                  "comm.backend 'nccl': it is for the processes of mode ddp, but mode is '{mode}' ({at mode})\n"
                  "use comm.backend auto");
}

/* ---- planted faults: the device must exist, and the mode must be able to show the fault ---- */

static void device_check(struct resolve *r, const char *path, int64_t device) {
    int n = r->c->devices.count;
    if (device < n) return;
    config_error(r->e, resolve_find(r, path), false,
                 "device %lld does not exist: there are %d device%s (%s), counted from 0", (long long)device, n,
                 n == 1 ? "" : "s", resolve_place(r, resolve_find(r, "devices")));
}

void resolve_inject(struct resolve *r) {
    const struct inject_config *c = &r->c->inject;
    enum place_kind place = r->c->sharing.place;
    bool one = r->c->devices.count == 1, stop = c->fault.kind == FAULT_STOP;
    if (resolve_is_rank(r)) return;
    resolve_needs(r, "inject.slow.device", "inject.slow.by");
    resolve_needs(r, "inject.slow.chance", "inject.slow.by");
    resolve_needs(r, "inject.fault.device", "inject.fault.kind");
    resolve_needs(r, "inject.fault.step", "inject.fault.kind");
    if (c->slow.by > 0) device_check(r, "inject.slow.device", c->slow.device);
    if (c->fault.kind) device_check(r, "inject.fault.device", c->fault.device);
    resolve_clash(r, stop && place == PLACE_PROCESSES && one, "inject.fault.kind",
                  "fault 'stop' with one device ({at devices}): no other device would notice it, so the run would hang "
                  "forever\nuse more devices, or another kind");
    resolve_clash(r, stop && place != PLACE_PROCESSES, "inject.fault.kind",
                  "fault 'stop' stops a device's process, but in mode '{mode}' ({at mode}) that is all of the run\n"
                  "use mode ddp, or another kind");
    resolve_clash(r, c->mistake && place == PLACE_ALONE, "inject.mistake",
                  "this mistake is one of several devices, but mode 'single' has one ({at mode})\n"
                  "use mode dp or ddp with more of them, or inject.mistake: none");
    resolve_clash(r, c->mistake && place != PLACE_ALONE && one, "inject.mistake",
                  "this mistake is one of several devices, but there is one ({at devices})\n"
                  "use mode dp or ddp with more of them, or inject.mistake: none");
    /* Ranks that step alone take the mean of their own samples by right. */
    resolve_clash(r, c->mistake == MISTAKE_MEAN_OF_MEANS && r->c->sharing.plan.alone, "inject.mistake",
                  "mean_of_means is the correct behaviour of local SGD (ddp.sync.every, {at ddp.sync.every})\n"
                  "use ddp.sync: 1, or inject.mistake: none");
}
