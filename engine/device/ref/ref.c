/* The ref device: plain C on the calling thread. */
#include "engine/device/ref/ref.h"
#include "engine/device/runtime.h"

#include <stdlib.h>

static enum error ref_open(const struct device_params *p, struct device **out) {
    struct device *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "cannot allocate a device");
    d->ops = &device_ref;
    d->params = *p;
    *out = d;
    return ERR_NONE;
}

static void ref_close(struct device *d) {
    free(d);
}

static bool ref_has_bf16(void) {
    return false;
}

const struct device_ops device_ref = {
    .name = "ref",
    .summary = "plain C on one thread: the specification",
    .open = ref_open,
    .close = ref_close,
    .runtime = &host_runtime,
    .precisions = 1u << PRECISION_F32 | 1u << PRECISION_BF16,
    .has_bf16 = ref_has_bf16,
};
