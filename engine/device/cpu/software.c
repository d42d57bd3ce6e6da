/* What the device "cpu" stands on: oneDNN, and the instructions that it will use here. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/onednn.h"

#include <stdio.h>

static const struct {
    dnnl_cpu_isa_t isa;
    const char *name;
} levels[] = {
    /* best first; each is a set of bits that holds the next */
    {dnnl_cpu_isa_avx512_core_amx, ", AMX"}, {dnnl_cpu_isa_avx512_core_bf16, ", AVX-512 with bf16"},
    {dnnl_cpu_isa_avx512_core, ", AVX-512"}, {dnnl_cpu_isa_avx2, ", AVX2"},
    {dnnl_cpu_isa_sse41, ", SSE4.1"},
};

/* What follows the version: nothing where no level is known, as on other processors than x86. */
static const char *best_level(void) {
    for (size_t k = 0; k < sizeof levels / sizeof *levels; k++)
        if (onednn_uses(levels[k].isa)) return levels[k].name;
    return "";
}

bool cpu_software(int i, struct device_software *out) {
    const dnnl_version_t *v = dnnl_version();
    if (i > 0) return false;
    *out = (struct device_software){.name = "oneDNN"};
    snprintf(out->version, sizeof out->version, "%d.%d.%d%s", v->major, v->minor, v->patch, best_level());
    return true;
}
