/* The device "cuda" of an engine that was built without the CUDA Toolkit: it says so. */
#include "engine/device/runtime.h"

extern const struct device_ops device_cuda;

static enum error cuda_no_units(int *count) {
    *count = 0;
    return FAIL(ERR_DEVICE, "this engine was built without CUDA\n"
                            "install the CUDA Toolkit and configure with -DENGINE_CUDA=ON");
}

static enum error cuda_no_open(const struct device_params *p, struct device **out) {
    int count;
    (void)p, (void)out;
    return cuda_no_units(&count);
}

static bool cuda_no_bf16(void) {
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

static const struct device_runtime nothing = {.asynchronous = true, .apart = true};
const struct device_ops device_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs (not in this build)",
    .open = cuda_no_open,
    .has_bf16 = cuda_no_bf16,
    .runtime = &nothing,
    .precisions = 1u << PRECISION_F32 | 1u << PRECISION_BF16 | 1u << PRECISION_FP16 | 1u << PRECISION_TF32,
    .units = cuda_no_units,
    .unit_about = nothing_about,
    .unit_reaches = nothing_reached,
};
