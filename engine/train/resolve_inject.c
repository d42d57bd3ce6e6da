/* What may be planted in which run: a device that is there, and a mode in which it can show. */
#include "engine/train/resolve_impl.h"

static void check_device(struct resolve *r, const char *path, int64_t device) {
    int n = r->c->devices.count;
    if (device < n) return;
    config_error(r->e, resolve_find(r, path), false,
                 "there is no device %lld: %d device%s (%s), counted from 0", (long long)device, n,
                 n == 1 ? "" : "s", resolve_place(r, resolve_find(r, "devices")));
}

void resolve_inject(struct resolve *r) {
    const struct inject_config *c = &r->c->inject;
    if (c->slow.by > 0) check_device(r, "inject.slow.device", c->slow.device);
}
