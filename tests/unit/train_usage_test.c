/* Cores, memory and energy beside what other counters of the system say, and beside a folder of counters that is ours. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/tell/usage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A zone's file. */
static void zone_put(const char *zone, const char *file, const char *text) {
    char path[512], name[64];
    snprintf(name, sizeof name, "powercap/%s", zone);
    assert_ok(file_make_folders(scratch_path(name)));
    snprintf(path, sizeof path, "%s/%s", scratch_path(name), file);
    assert_ok(file_replace(path, text, strlen(text)));
}

static void zone_make(const char *zone, const char *name, const char *joules) {
    zone_put(zone, "name", name);
    zone_put(zone, "energy_uj", joules);
    zone_put(zone, "max_energy_range_uj", "262143000000\n");
}

/* Of packages alone: their parts and psys, which holds all, would count twice. One of the counters begins again. */
static void energy_is_that_of_packages(void **state) {
    struct usage u;
    struct usage_sample s;
    (void)state;
    zone_make("intel-rapl:0", "package-0\n", "1000000\n");
    zone_make("intel-rapl:1", "package-1\n", "262142000000\n");
    zone_make("intel-rapl:0:0", "core\n", "500000\n");
    zone_make("intel-rapl:2", "psys\n", "7000000\n");
    zone_make("intel-rapl-mmio:0", "package-0\n", "1000000\n");
    usage_begin(&u, scratch_path("powercap"));
    assert_int_equal(u.nzones, 2);
    zone_put("intel-rapl:0", "energy_uj", "3500000\n");
    zone_put("intel-rapl:1", "energy_uj", "250000\n");
    zone_put("intel-rapl:0:0", "energy_uj", "900000\n");
    zone_put("intel-rapl:2", "energy_uj", "90000000\n");
    usage_take(&u, &s);
    assert_true(fabs(s.watts * s.seconds - (2.5 + 1.25)) < 1e-6);
    usage_take(&u, &s);
    assert_true(s.watts == 0);
}

static void without_counters_there_is_no_energy(void **state) {
    struct usage u;
    struct usage_sample s;
    (void)state;
    usage_begin(&u, scratch_path("nothing"));
    usage_take(&u, &s);
    assert_true(u.nzones == 0 && isnan(s.watts) && s.cores >= 0 && s.rss_bytes > 0);
}

static double status_rss(void) {
    char line[256];
    double kilobytes = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmRSS: %lf", &kilobytes);
    if (f) fclose(f);
    return kilobytes * 1024;
}

/* Beside the C library's clock of processor time, and the kernel's other account of memory. */
static void cores_and_memory_are_this_process_own(void **state) {
    enum { SIZE = 64 << 20 };
    struct usage u;
    struct usage_sample s, after;
    (void)state;
    clock_t began = clock();
    usage_begin(&u, scratch_path("nothing"));
    while (clock() - began < CLOCKS_PER_SEC / 5) {
    }
    usage_take(&u, &s);
    double used = (double)(clock() - began) / CLOCKS_PER_SEC;
    assert_true(s.cores * s.seconds > 0.18 && s.cores * s.seconds < used + 0.02);
    char *memory = malloc(SIZE);
    assert_non_null(memory);
    for (int i = 0; i < SIZE; i += 4096) ((volatile char *)memory)[i] = 1;
    usage_take(&u, &after);
    double kernel = status_rss();
    assert_true(fabs(after.rss_bytes - kernel) < 4e6);
    assert_true(after.rss_bytes - s.rss_bytes > 0.9 * SIZE);
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(energy_is_that_of_packages),
        cmocka_unit_test(without_counters_there_is_no_energy),
        cmocka_unit_test(cores_and_memory_are_this_process_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
