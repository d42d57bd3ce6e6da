/* Checks of planted faults: the device must exist, and the mode must be able to show the fault. */
#include "engine/settings/resolve.h"

static void check_device(struct resolve *r, const char *path, int64_t device) {
    int n = r->c->devices.count;
    if (device < n) return;
    config_error(r->e, resolve_find(r, path), false,
                 "device %lld does not exist: there are %d device%s (%s), counted from 0", (long long)device, n,
                 n == 1 ? "" : "s", resolve_place(r, resolve_find(r, "devices")));
}

/* Checks inject.stop: only a rank that is a process can be stopped alone, and only others notice. */
static void check_stop(struct resolve *r) {
    if (r->c->inject.fault.kind != FAULT_STOP) return;
    if (r->c->sharing.place == PLACE_PROCESSES) {
        if (r->c->devices.count > 1) return;
        config_error(r->e, resolve_find(r, "inject.fault.kind"), false,
                     "fault 'stop' with one device (%s): no other device would notice it, so the run would hang "
                     "forever\nuse more devices, or another kind",
                     resolve_place(r, resolve_find(r, "devices")));
        return;
    }
    config_error(r->e, resolve_find(r, "inject.fault.kind"), false,
                 "fault 'stop' stops a device's process, but in mode '%s' (%s) that is all of the "
                 "run\nuse mode ddp, or another kind",
                 r->c->mode, resolve_place(r, resolve_find(r, "mode")));
}

static void check_mistake(struct resolve *r) {
    const struct node *mode = resolve_find(r, "mode"), *devices = resolve_find(r, "devices");
    bool single = r->c->sharing.place == PLACE_ALONE;
    if (!r->c->inject.mistake || (!single && r->c->devices.count > 1)) return;
    config_error(r->e, resolve_find(r, "inject.mistake"), false,
                 "this mistake is one of several devices, but %s (%s)\nuse mode dp or ddp with more "
                 "of them, or inject.mistake: none",
                 single ? "mode 'single' has one" : "there is one", resolve_place(r, single ? mode : devices));
}

/* Ranks that step alone take the mean of their own samples by right. */
static void check_means(struct resolve *r) {
    if (r->c->inject.mistake != MISTAKE_MEAN_OF_MEANS || !r->c->sharing.plan.alone) return;
    config_error(r->e, resolve_find(r, "inject.mistake"), false,
                 "mean_of_means is the correct behaviour of local SGD (ddp.sync.every, %s)\nuse ddp.sync: "
                 "1, or inject.mistake: none",
                 resolve_place(r, resolve_find(r, "ddp.sync.every")));
}

void resolve_inject(struct resolve *r) {
    const struct inject_config *c = &r->c->inject;
    if (resolve_is_rank(r)) return;
    resolve_needs(r, "inject.slow.device", "inject.slow.by");
    resolve_needs(r, "inject.slow.chance", "inject.slow.by");
    resolve_needs(r, "inject.fault.device", "inject.fault.kind");
    resolve_needs(r, "inject.fault.step", "inject.fault.kind");
    if (c->slow.by > 0) check_device(r, "inject.slow.device", c->slow.device);
    if (c->fault.kind) check_device(r, "inject.fault.device", c->fault.device);
    check_stop(r);
    check_mistake(r);
    check_means(r);
}
