/* What the engine asks of NVIDIA's management library: which links of a GPU are up. ENGINE_EMULATED_NVLINKS=n: so many
 * of 18; standard: none. */
#include "tests/emulated/emulated.h"

#include <stdio.h>
#include <stdlib.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, LINKS = 18 };
static bool started;

__attribute__((visibility("default"))) int nvmlInit_v2(void);
__attribute__((visibility("default"))) int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **gpu);
__attribute__((visibility("default"))) int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, int *active);

int nvmlInit_v2(void) {
    started = true;
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **gpu) {
    static char handles[16];
    int count = 0;
    char known[32];
    if (!started) return UNINITIALIZED;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return NOT_FOUND;
    for (int i = 0; i < count && i < 16; i++) {
        unsigned domain, card, slot, d, c, s;
        if (cudaDeviceGetPCIBusId(known, sizeof known, i) != cudaSuccess) continue;
        if (sscanf(known, "%x:%x:%x", &domain, &card, &slot) != 3) continue;
        if (sscanf(bus, "%x:%x:%x", &d, &c, &s) != 3) return INVALID_ARGUMENT;
        if (d != domain || c != card || s != slot) continue;
        *gpu = &handles[i];
        return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, int *active) {
    const char *text = getenv("ENGINE_EMULATED_NVLINKS");
    long up = text ? strtol(text, NULL, 10) : 0;
    if (!started) return UNINITIALIZED;
    if (!gpu || link >= LINKS) return INVALID_ARGUMENT;
    if (!up) return NOT_SUPPORTED;
    *active = (long)link < up;
    return SUCCESS;
}
