#include "engine/tell/usage.h"

#include "engine/base/clock.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double usage_processor_seconds(void) {
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0) return (double)NAN;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* The n-th number of a file; NaN: there is none, or this user may not read it. */
static double usage_read_number(const char *folder, const char *file, int n) {
    char path[320];
    double v = (double)NAN;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "re");
    for (int i = 0; f && i < n; i++)
        if (fscanf(f, "%lf", &v) != 1) v = (double)NAN;
    if (f) fclose(f);
    return v;
}

/* "intel-rapl:0" is a package (of AMD's processors, too), "intel-rapl:0:1" a part of one; the zone psys holds the packages. */
static void usage_add_zone(struct usage *u, const char *powercap, const char *name) {
    static const char prefix[] = "intel-rapl:";
    struct usage_zone *z = &u->zone[u->nzones];
    char text[320], called[32] = "";
    if (strncmp(name, prefix, strlen(prefix)) != 0 || strchr(name + strlen(prefix), ':')) return;
    if (snprintf(z->path, sizeof z->path, "%s/%s", powercap, name) >= (int)sizeof z->path) return;
    snprintf(text, sizeof text, "%s/name", z->path);
    FILE *f = fopen(text, "re");
    if (f && fscanf(f, "%31s", called) != 1) *called = '\0';
    if (f) fclose(f);
    z->joules = usage_read_number(z->path, "energy_uj", 1) * 1e-6;
    z->range = usage_read_number(z->path, "max_energy_range_uj", 1) * 1e-6;
    u->nzones += !isnan(z->joules) && strcmp(called, "psys") != 0;
}

void usage_begin(struct usage *u, const char *powercap) {
    *u = (struct usage){.at = clock_ns(), .cpu_s = usage_processor_seconds()};
    DIR *d = opendir(powercap);
    for (struct dirent *e; d && u->nzones < USAGE_ZONES && (e = readdir(d));) usage_add_zone(u, powercap, e->d_name);
    if (d) closedir(d);
}

/* Joules since the last reading. */
static double usage_energy(struct usage *u) {
    double all = u->nzones ? 0 : (double)NAN;
    for (int i = 0; i < u->nzones; i++) {
        struct usage_zone *z = &u->zone[i];
        double now = usage_read_number(z->path, "energy_uj", 1) * 1e-6;
        all += now < z->joules ? now + z->range - z->joules : now - z->joules;
        z->joules = now;
    }
    return all;
}

void usage_take(struct usage *u, struct usage_sample *out) {
    int64_t now = clock_ns();
    double cpu = usage_processor_seconds(), seconds = clock_seconds(now - u->at);
    *out =
        (struct usage_sample){.seconds = seconds,
                              .cores = (cpu - u->cpu_s) / seconds,
                              .rss_bytes = usage_read_number("/proc/self", "statm", 2) * (double)sysconf(_SC_PAGESIZE),
                              .watts = usage_energy(u) / seconds};
    u->at = now, u->cpu_s = cpu;
}
