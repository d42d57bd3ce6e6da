/* What the device "cuda" stands on: the driver, the runtime that is linked in, and the libraries that are opened. */
#include "engine/device/cuda/library.h"
#include "engine/device/cuda/parts.h"

#include <dlfcn.h>
#include <stdio.h>

static void put_missing(struct device_software *out) {
    const char *hint = error_hint();
    snprintf(out->missing, sizeof out->missing, "%s%s%s", error_message(), *hint ? "\n" : "", hint);
}

/* The driver's own number is in a file of its; what it can do is a version of CUDA. */
static void about_driver(struct device_software *out) {
    char words[32] = "";
    int cuda = 0, units;
    FILE *f = fopen("/sys/module/nvidia/version", "re");
    if (f && fscanf(f, "%31s", words) != 1) words[0] = '\0';
    if (f) fclose(f);
    snprintf(out->name, sizeof out->name, "driver");
    (void)cudaDriverGetVersion(&cuda);
    (void)cudaGetLastError();
    if (cuda)
        snprintf(out->version, sizeof out->version, "%s%sCUDA %d.%d", words, *words ? ", " : "", cuda / 1000,
                 cuda % 1000 / 10);
    if (cuda_units(&units) != ERR_NONE) put_missing(out);
}

static void about_runtime(struct device_software *out) {
    int cuda = 0;
    snprintf(out->name, sizeof out->name, "CUDA runtime");
    (void)cudaRuntimeGetVersion(&cuda);
    (void)cudaGetLastError();
    snprintf(out->version, sizeof out->version, "%d.%d, linked in", cuda / 1000, cuda % 1000 / 10);
}

/* Which file a function of it came from. */
static void put_file(struct device_software *out, void (*function)(void)) {
    Dl_info from;
    if (dladdr(*(void **)&function, &from) && from.dli_fname)
        snprintf(out->where, sizeof out->where, "%s", from.dli_fname);
}

/* The first library that fails keeps those after it from being looked for: these report it, too. */
static void about_library(struct device_software *out, const char *name, size_t (*version)(void),
                          void (*const *function)(void)) {
    snprintf(out->name, sizeof out->name, "%s", name);
    enum error err = library_load();
    size_t v = version();
    if (v) {
        snprintf(out->version, sizeof out->version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
        put_file(out, *function);
    } else if (err != ERR_NONE) {
        put_missing(out);
    }
}

bool cuda_software(int i, struct device_software *out) {
    *out = (struct device_software){0};
    if (i == 0) about_driver(out);
    if (i == 1) about_runtime(out);
    if (i == 2) about_library(out, "cuBLASLt", library_blaslt_version, (void (*const *)(void)) & blaslt.GetVersion);
    if (i == 3) about_library(out, "cuDNN", library_cudnn_version, (void (*const *)(void)) & dnn.GetVersion);
    return i < 4;
}
