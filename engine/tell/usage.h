/* What a run takes of its machine: processor time and memory of this process, and the energy of the machine's processors
 * where Linux lets this user read it (RAPL, by its powercap files). */
#pragma once
#include <stdint.h>

struct usage_sample { /* since the one before; NaN: not known */
    double seconds;   /* 0: there is no sample */
    double cores;     /* processor time of this process, in each second */
    double rss_bytes; /* resident now */
    double watts;     /* of all processors of the machine, whoever uses them */
};
enum { USAGE_ZONES = 16 };
struct usage {
    int64_t at; /* ns */
    double cpu_s;
    int nzones; /* packages whose energy can be read */
    struct usage_zone {
        char path[256];
        double joules, range; /* the counter begins again there */
    } zone[USAGE_ZONES];
};
#define USAGE_POWERCAP "/sys/class/powercap"
/* powercap: USAGE_POWERCAP, or a folder like it. */
void usage_begin(struct usage *u, const char *powercap);
void usage_take(struct usage *u, struct usage_sample *out);
