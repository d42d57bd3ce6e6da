/* What the device "cpu" stands on, with the instructions that it will use here: oneDNN, and its own kernels. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/onednn.h"

#include <stdio.h>

static const struct {
    dnnl_cpu_isa_t isa;
    const char *name;
} sets[] = {
    /* best first; each is a set of bits that holds the next */
    {dnnl_cpu_isa_avx512_core_amx, ", AMX"}, {dnnl_cpu_isa_avx512_core_bf16, ", AVX-512 with bf16"},
    {dnnl_cpu_isa_avx512_core, ", AVX-512"}, {dnnl_cpu_isa_avx2, ", AVX2"},
    {dnnl_cpu_isa_sse41, ", SSE4.1"},
};

/* What follows the version: nothing where no set is known, as on other processors than x86. */
static const char *best_set(void) {
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++)
        if (onednn_uses(sets[k].isa)) return sets[k].name;
    return "";
}

bool cpu_software(int i, struct device_software *out) {
    const dnnl_version_t *v = dnnl_version();
    const struct cpu_level *level;
    enum error err = cpu_level_choose(&level); /* first, since oneDNN may have to be kept to it */
    if (i == 0) {
        *out = (struct device_software){.name = "oneDNN"};
        snprintf(out->version, sizeof out->version, "%d.%d.%d%s", v->major, v->minor, v->patch, best_set());
    } else if (i == 1) {
        *out = (struct device_software){.name = "own kernels"};
        if (err == ERR_NONE)
            snprintf(out->version, sizeof out->version, "%s, %s", level->name, level->instructions);
        else
            snprintf(out->missing, sizeof out->missing, "%s\n%s", error_message(), error_hint());
    }
    return i < 2;
}
