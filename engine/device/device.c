/* The kinds of devices, and how many cores there are for them. */
#include "engine/device/device.h"

#include "engine/base/file.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE(name) extern const struct device_ops device_##name;
#include "engine/device/devices.def"

static const struct device_ops *const kinds[] = {
#define DEVICE(name) &device_##name,
#include "engine/device/devices.def"
};

const struct device_ops *const *device_kinds(int *count) {
    *count = (int)(sizeof kinds / sizeof *kinds);
    return kinds;
}

const struct device_ops *device_find(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i]->name, name)) return kinds[i];
    return NULL;
}

/* ---- cores ---------------------------------------------------------------------------------- */
static bool folder_line(const char *folder, const char *file, char *line, size_t size) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return file_line(path, line, size);
}

/* Cores that the quota of one cgroup folder allows, rounded up; 0: no quota there. */
static int quota_of_folder(const char *folder) {
    char a[64], b[64];
    long long quota = 0, period = 0;
    if (folder_line(folder, "cpu.max", a, sizeof a)) { /* version 2: "200000 100000" or "max 100000" */
        if (sscanf(a, "%lld %lld", &quota, &period) != 2) return 0;
    } else if (folder_line(folder, "cpu.cfs_quota_us", a, sizeof a) &&
               folder_line(folder, "cpu.cfs_period_us", b, sizeof b)) {
        quota = strtoll(a, NULL, 10), period = strtoll(b, NULL, 10);
    }
    if (quota <= 0 || period <= 0) return 0;
    long long cores = quota / period + (quota % period != 0);
    return cores > 1 << 20 ? 0 : (int)cores;
}

/* The least quota from a group's folder up to the mount's root; the group's path is cut as we
 * climb. */
static int quota_of_group(const char *root, char *group) {
    int least = 0;
    for (;;) {
        char folder[400];
        snprintf(folder, sizeof folder, "%s%s", root, group);
        int quota = quota_of_folder(folder);
        if (quota && (!least || quota < least)) least = quota;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* Whether "cpu" is one of the names in "cpu,cpuacct"; the list is cut up. */
static bool names_cpu(char *list) {
    char *rest = NULL;
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        if (!strcmp(name, "cpu")) return true;
    return false;
}

/* A line of /proc/self/cgroup is "hierarchy:controllers:path"; version 2 has no controllers. */
static int quota_of_process(void) {
    char line[300];
    int least = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        bool v2 = controllers[1] == '\0';
        if (!v2 && !names_cpu(controllers + 1)) continue;
        int quota = quota_of_group(v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", group);
        if (quota && (!least || quota < least)) least = quota;
    }
    fclose(f);
    return least;
}

/* A machine may have more processors than a cpu_set_t has bits. */
static int cores_of_affinity(void) {
    for (int bits = CPU_SETSIZE; bits <= 1 << 18; bits *= 4) {
        cpu_set_t *set = CPU_ALLOC(bits);
        if (!set) break;
        size_t size = CPU_ALLOC_SIZE(bits);
        int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (count) return count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int device_host_cores(void) {
    int cores = cores_of_affinity(), quota = quota_of_process();
    return quota && quota < cores ? quota : cores;
}
