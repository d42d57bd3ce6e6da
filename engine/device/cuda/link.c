/* How a GPU reaches the others: by NVLink, which NVIDIA's management library knows (it comes with the driver, and is
 * not needed), else over PCIe, which Linux describes. */
#include "engine/base/library.h"
#include "engine/device/cuda/parts.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The library's functions; all give 0 when they have succeeded. Its header need not be there. */
static struct {
    int (*init)(void);
    int (*by_bus)(const char *bus, void **gpu);
    int (*link_state)(void *gpu, unsigned link, int *active);
} management;

static void open_management(void) {
    void *handle = library_open("libnvidia-ml.so.1");
    if (!handle) return;
    *(void **)&management.init = dlsym(handle, "nvmlInit_v2");
    *(void **)&management.by_bus = dlsym(handle, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&management.link_state = dlsym(handle, "nvmlDeviceGetNvLinkState");
    if (!management.init || management.init() != 0) management.by_bus = NULL;
}

static int count_nvlinks(const char *bus) {
    enum { LINKS_MOST = 36 };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *gpu;
    int count = 0, active = 0;
    pthread_once(&once, open_management);
    if (!management.by_bus || !management.link_state || management.by_bus(bus, &gpu) != 0) return 0;
    for (unsigned i = 0; i < LINKS_MOST && management.link_state(gpu, i, &active) == 0; i++) count += active == 1;
    return count;
}

static bool bus_word(const char *bus, const char *file, char word[32]) {
    char path[128];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", bus, file);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool got = fscanf(f, "%31s", word) == 1;
    fclose(f);
    return got;
}

/* The rate of one lane gives the generation: 32.0 GT/s is the fifth. */
static void find_pcie(struct device_unit *u) {
    static const double rates[] = {2.5, 5, 8, 16, 32, 64, 128};
    char rate[32], width[32];
    snprintf(u->link, sizeof u->link, "PCIe");
    if (!bus_word(u->bus, "max_link_speed", rate)) return;
    if (!bus_word(u->bus, "max_link_width", width)) return;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (strtod(rate, NULL) == rates[i]) snprintf(u->link, sizeof u->link, "PCIe %d x%.8s", (int)i + 1, width);
}

void cuda_link(struct device_unit *u) {
    int nvlinks = count_nvlinks(u->bus);
    if (nvlinks)
        snprintf(u->link, sizeof u->link, "NVLink x%d", nvlinks);
    else
        find_pcie(u);
}
