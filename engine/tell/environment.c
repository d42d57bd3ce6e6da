#include "engine/tell/environment.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/version.h"
#include "engine/device/device.h"
#include "engine/tell/processor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

bool environment_load(double out[LOADS]) {
    return getloadavg(out, LOADS) == LOADS;
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

static void put_machine(struct json *j) {
    char text[512];
    struct utsname system;
    bool known = uname(&system) == 0;
    json_string(j, "processor", processor_here(text, sizeof text));
    json_int(j, "cores", device_host_cores());
    json_int(j, "cores_online", sysconf(_SC_NPROCESSORS_ONLN));
    json_string(j, "governor",
                file_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text) ? text : NULL);
    json_string(j, "quota", file_line("/sys/fs/cgroup/cpu.max", text, sizeof text) ? text : NULL);
    json_int(j, "memory", (int64_t)host_memory());
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
    json_put(j, JSON_TEXT("engine", ENGINE_VERSION), JSON_TEXT("commit", version_commit()),
             JSON_TEXT("compiler", ENGINE_COMPILER), JSON_TEXT("build", ENGINE_BUILD_TYPE));
    json_close(j, '}');
}

enum error environment_save(const char *dir, struct pool *pool) {
    struct json j = {0};
    const char *path = pool_printf(pool, "%s/env.json", dir);
    if (!path) return ERR_MEMORY;
    environment_json(&j, NULL);
    return json_place(&j, ERR_NONE, path);
}
