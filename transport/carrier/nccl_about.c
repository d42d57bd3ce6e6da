#include "transport/carrier/nccl_about.h"

#include <stdio.h>

#ifdef ENGINE_HAVE_NCCL
#include "transport/carrier/nccl_impl.h"

void nccl_software(struct device_software *out) {
    *out = (struct device_software){.name = "NCCL"};
    if (nccl_load() != ERR_NONE)
        snprintf(out->missing, sizeof out->missing, "%s\n%s", error_message(), error_hint());
    else
        nccl_version(out->version, out->where, sizeof out->where);
}

static enum error nccl_try(struct nccl_carrier *n, struct collective *c) {
    const struct carrier *cr = &n->carrier;
    ncclUniqueId id;
    TRY(nccl_settle(n, nccl.GetUniqueId(&id), "ncclGetUniqueId", NULL));
    TRY(nccl_join(n, &id, 0, 1));
    TRY(nccl_move(n, c, LANE_COMPUTE));
    TRY(cr->runtime->mark(cr->device, LANE_COMPUTE, cr->end[LANE_COMPUTE]));
    TRY(nccl_settle(n, ncclSuccess, "ncclAllReduce", cr->end[LANE_COMPUTE]));
    return device_wait(cr->device);
}

/* What hangs on the GPU would keep whoever waits for it, so it is asked, and aborted in the end. */
enum error nccl_probe(struct device *dev) {
    enum { FLOATS = 1000, SECONDS = 30 };
    struct nccl_carrier n = {.carrier = {.device = dev, .runtime = device_runtime(dev)},
                             .mutex = PTHREAD_MUTEX_INITIALIZER,
                             .timeout = SECONDS};
    struct device_mark **end = &n.carrier.end[LANE_COMPUTE];
    void *there;
    TRY(nccl_load());
    TRY(device_alloc(dev, FLOATS * sizeof(float), &there));
    struct collective c = {.kind = KIND_ALL_REDUCE, .sum = {.type = DTYPE_F32, .count = FLOATS}, .buf = there};
    enum error err = n.carrier.runtime->mark_create(dev, end);
    if (!err) err = nccl_try(&n, &c);
    if (n.comm && !nccl_abort(n.comm) && !err) /* nothing else ends what is under way */
        err = FAIL(ERR_TIMEOUT, "ncclCommAbort does not end");
    if (*end) n.carrier.runtime->mark_free(*end);
    device_free(dev, there);
    return err;
}
#else
void nccl_software(struct device_software *out) {
    *out = (struct device_software){.name = "NCCL", .missing = "this program was built without NCCL"};
}

enum error nccl_probe(struct device *dev) {
    (void)dev;
    return FAIL(ERR_DEVICE, "this program was built without NCCL");
}
#endif
