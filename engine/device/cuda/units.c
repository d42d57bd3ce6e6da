/* What GPUs this process may use, what they are, and what is missing where there is none. */
#include "engine/device/cuda/parts.h"

#include <stdio.h>
#include <stdlib.h>

/* The runtime calls a driver that is missing one that is too old. */
static enum error no_driver(void) {
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    if (driver == 0)
        return FAIL(ERR_DEVICE, "no GPU can be used: there is no NVIDIA driver\n"
                                "install it, version 580 or later, so that nvidia-smi lists the GPU; a container "
                                "must be started with its GPUs (docker run --gpus all)");
    return FAIL(ERR_DEVICE,
                "no GPU can be used: the NVIDIA driver knows CUDA %d.%d, this engine was built with %d.%d\n"
                "install a driver of version 580 or later, or build with an older CUDA Toolkit",
                driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

static enum error no_gpu(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible)
        return FAIL(ERR_DEVICE,
                    "no GPU can be used: CUDA_VISIBLE_DEVICES is '%s', which leaves none\n"
                    "unset it, or set it to numbers that nvidia-smi lists",
                    visible);
    return FAIL(ERR_DEVICE, "no GPU can be used: the NVIDIA driver sees none\n"
                            "see that nvidia-smi lists one; a container must be started with its GPUs "
                            "(docker run --gpus all)");
}

enum error cuda_units(int *count) {
    *count = 0;
    cudaError_t e = cudaGetDeviceCount(count);
    if (e == cudaSuccess && *count > 0) return ERR_NONE;
    *count = 0;
    (void)cudaGetLastError();
    if (e == cudaErrorInsufficientDriver) return no_driver();
    if (e == cudaErrorNoDevice || e == cudaSuccess) return no_gpu();
    return cuda_failed(e, "no GPU can be used");
}

/* ---- what they are --------------------------------------------------------------------------- */
static int unit_attribute(int unit, enum cudaDeviceAttr which) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, which, unit) != cudaSuccess) (void)cudaGetLastError();
    return value;
}

static bool find_properties(int unit, struct device_unit *out) {
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, unit) != cudaSuccess) return false;
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    out->memory = p.totalGlobalMem;
    out->major = unit_attribute(unit, cudaDevAttrComputeCapabilityMajor);
    out->minor = unit_attribute(unit, cudaDevAttrComputeCapabilityMinor);
    out->processors = unit_attribute(unit, cudaDevAttrMultiProcessorCount);
    snprintf(out->bus, sizeof out->bus, "%04x:%02x:%02x.0", (unsigned)p.pciDomainID, (unsigned)p.pciBusID,
             (unsigned)p.pciDeviceID);
    return true;
}

/* What is free can only be asked of the current GPU. */
static void unit_free_bytes(int unit, struct device_unit *out) {
    size_t total;
    int before = cuda_current;
    if (cudaSetDevice(unit) != cudaSuccess) return;
    cuda_current = unit;
    if (cudaMemGetInfo(&out->memory_free, &total) != cudaSuccess) out->memory_free = 0;
    if (before >= 0 && before != unit && cudaSetDevice(before) == cudaSuccess) cuda_current = before;
}

bool cuda_unit_about(int i, struct device_unit *out) {
    *out = (struct device_unit){0};
    bool found = find_properties(i, out);
    if (found) unit_free_bytes(i, out);
    if (found) cuda_link(out);
    (void)cudaGetLastError();
    return found;
}

bool cuda_unit_reaches(int i, int j) {
    int can = i == j;
    if (i != j && cudaDeviceCanAccessPeer(&can, i, j) != cudaSuccess) can = 0;
    (void)cudaGetLastError();
    return can;
}
