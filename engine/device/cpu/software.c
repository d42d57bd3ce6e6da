/* What the device "cpu" stands on: oneDNN, and the instructions that it will use here. */
#include "engine/device/cpu/cpu.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

static const struct {
    dnnl_cpu_isa_t isa;
    const char *name;
} levels[] = {
    /* best first; each is a set of bits that holds the next */
    {dnnl_cpu_isa_avx512_core_amx, "AMX"}, {dnnl_cpu_isa_avx512_core_bf16, "AVX-512 with bf16"},
    {dnnl_cpu_isa_avx512_core, "AVX-512"}, {dnnl_cpu_isa_avx2, "AVX2"},
    {dnnl_cpu_isa_sse41, "SSE4.1"},
};

bool cpu_software(int i, struct device_software *out) {
    const dnnl_version_t *v = dnnl_version();
    unsigned here = (unsigned)dnnl_get_effective_cpu_isa();
    const char *best = "plain code";
    if (i > 0) return false;
    *out = (struct device_software){.name = "oneDNN"};
    for (size_t k = sizeof levels / sizeof *levels; k-- > 0;)
        if ((here & (unsigned)levels[k].isa) == (unsigned)levels[k].isa) best = levels[k].name;
    snprintf(out->version, sizeof out->version, "%d.%d.%d, %s", v->major, v->minor, v->patch, best);
    return true;
}
