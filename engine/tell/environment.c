#include "engine/tell/environment.h"

#include "engine/base/digest.h"
#include "engine/base/version.h"
#include "engine/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

bool environment_load(double out[LOADS]) {
    return getloadavg(out, LOADS) == LOADS;
}

/* The value behind the first line that begins with 'name', or the first line when name is "". */
static const char *line_of(const char *path, const char *name, char *out, size_t n) {
    FILE *f = fopen(path, "re");
    char line[512];
    const char *found = NULL;
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, name, strlen(name)) != 0) continue;
        const char *value = strchr(line, ':') && *name ? strchr(line, ':') + 1 : line;
        value += strspn(value, " \t");
        snprintf(out, n, "%.*s", (int)strcspn(value, "\n"), value);
        found = out;
    }
    if (f) fclose(f);
    return found;
}

static void put_host(struct json *j) {
    char name[256] = "", hex[SHA256_TEXT];
    struct sha256 s;
    gethostname(name, sizeof name - 1);
    sha256_init(&s);
    sha256_update(&s, name, strlen(name));
    sha256_hex(s, hex);
    hex[12] = '\0';
    json_string(j, "host", hex);
}

/* x86 has a name for it; ARM64 has the numbers of who designed it and of the design, or the board's
 * name; others at least the architecture. */
static const char *processor(const struct utsname *system, char *out, size_t n) {
    char implementer[64], part[64];
    const char *cpuinfo = "/proc/cpuinfo";
    if (line_of(cpuinfo, "model name", out, n) || line_of(cpuinfo, "Model", out, n)) return out;
    if (line_of(cpuinfo, "CPU implementer", implementer, sizeof implementer) &&
        line_of(cpuinfo, "CPU part", part, sizeof part))
        snprintf(out, n, "%s, implementer %s, part %s", system->machine, implementer, part);
    else
        snprintf(out, n, "%s", system->machine);
    return out;
}

static void put_machine(struct json *j) {
    char text[512];
    struct utsname system;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    bool known = uname(&system) == 0;
    json_string(j, "processor", known ? processor(&system, text, sizeof text) : NULL);
    json_int(j, "cores", device_host_cores());
    json_int(j, "cores_online", sysconf(_SC_NPROCESSORS_ONLN));
    json_string(j, "governor", line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", text, sizeof text));
    json_string(j, "quota", line_of("/sys/fs/cgroup/cpu.max", "", text, sizeof text));
    json_int(j, "memory", pages > 0 && page > 0 ? (int64_t)pages * page : 0);
    json_string(j, "kernel", known ? system.release : NULL);
    put_host(j);
}

void environment_json(struct json *j, const char *key) {
    double load[LOADS];
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    json_open(j, key, '{');
    json_string(j, "time", stamp);
    put_machine(j);
    json_open(j, "load", '[');
    for (int i = 0; i < LOADS && environment_load(load); i++) json_real(j, NULL, load[i]);
    json_close(j, ']');
    json_string(j, "engine", ENGINE_VERSION);
    json_string(j, "commit", version_commit());
    json_string(j, "compiler", ENGINE_COMPILER);
    json_string(j, "build", ENGINE_BUILD_TYPE);
    json_close(j, '}');
}
