/* The carrier of gradients on accelerators, and the place where their server computes. */
#include "engine/device/runtime.h"
#include "engine/settings/resolve.h"

static const struct device_ops *kind_of(const struct resolve *r) {
    return device_find(r->c->devices.kind);
}

/* What each backend is between: threads, processes. */
static const char *wrong_backend(const struct resolve *r) {
    const struct comm_config *c = &r->c->comm;
    const char *devices = resolve_place(r, resolve_find(r, "devices"));
    enum place_kind place = r->c->sharing.place;
    if (!kind_of(r)->runtime->apart)
        return pool_printf(r->pool,
                           "devices are '%s' (%s), whose memory is the host's\nuse comm.backend "
                           "auto or host",
                           r->c->devices_text, devices);
    if (c->emulate.bandwidth > 0 || c->emulate.latency > 0)
        return "emulated links (comm.emulate) are the host's\nuse comm.backend auto or host";
    if (c->backend == BACKEND_PEER && place != PLACE_THREADS)
        return pool_printf(r->pool,
                           "it is for the threads of mode dp, but mode is '%s' (%s)\nuse "
                           "comm.backend auto",
                           r->c->mode, resolve_place(r, resolve_find(r, "mode")));
    if (c->backend == BACKEND_PEER && r->c->sharing.on_host)
        return pool_printf(r->pool, "the server has no GPU (dp.server cpu, %s)\nuse comm.backend auto",
                           resolve_place(r, resolve_find(r, "dp.server")));
    if (c->backend == BACKEND_NCCL && place != PLACE_PROCESSES)
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
        config_error(r->e, resolve_find(r, "comm.backend"), false, "comm.backend '%s': %s", names[backend], wrong);
    return ERR_NONE;
}

/* A GPU that the list does not name, else the first of the list. */
static void find_server(struct resolve *r) {
    struct device_choice *d = &r->c->devices;
    int here = 0;
    d->server = device_first_unit(d);
    if (!kind_of(r)->units || kind_of(r)->units(&here) != ERR_NONE) return;
    for (int unit = 0; unit < here; unit++) {
        bool named = !d->listed && unit < d->local;
        for (int i = 0; i < d->listed; i++) named = named || d->unit[i] == unit;
        if (named) continue;
        d->server = unit;
        return;
    }
}

enum error resolve_backend(struct resolve *r) {
    find_server(r);
    return check_backend(r);
}
