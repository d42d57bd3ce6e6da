/* The device "cuda" of an engine that was built without the CUDA Toolkit: it says so. */
#include "engine/device/accel.h"

#include <stddef.h>

extern const struct device_ops device_cuda;

static enum error no_units(int *count) {
    *count = 0;
    return FAIL(ERR_DEVICE, "this engine was built without CUDA\n"
                            "install the CUDA Toolkit and configure with -DENGINE_CUDA=ON");
}

static enum error no_open(const struct device_params *p, struct device **out) {
    int count;
    (void)p, (void)out;
    return no_units(&count);
}

static bool no_bf16(void) {
    return false;
}

static bool nothing_about(int i, struct device_unit *out) {
    (void)i, (void)out;
    return false;
}

static bool nothing_reached(int i, int j) {
    (void)i, (void)j;
    return false;
}

static const struct accel_ops nothing = {0};
const struct device_ops device_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs (not in this build)",
    .open = no_open,
    .has_bf16 = no_bf16,
    .accel = &nothing,
    .units = no_units,
    .unit_about = nothing_about,
    .unit_reaches = nothing_reached,
};
