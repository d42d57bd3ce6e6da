/* What seals cost between hosts: this program is one of two ranks, which bench/seals.py starts in two network namespaces.
 *
 *     bench_seals run SECURE --nnodes 2 --node-rank K --master-addr ADDRESS
 *
 * SECURE: off, sealed or encrypted. On standard output: the processor time (all threads, user and system) and the time of
 * one all-reduce of 64 MB, and the median time of one of 1 KB, in us. */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "transport/launch/station.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LARGE = 16 << 20, LARGE_CALLS = 8, SMALL = 256, SMALL_CALLS = 2001 }; /* elements of 4 bytes */

static void seals_need(enum error err, const char *what) {
    char words[ERROR_WORDS];
    if (!err) return;
    fprintf(stderr, "bench_seals: %s: %s\n", what, error_words(words, sizeof words));
    exit(error_exit_code(err));
}

static double processor_us(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return 1e6 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void seals_reduce(struct group *g, float *buf, int64_t n) {
    seals_need(group_all_reduce(g, GROUP_INLINE, buf, n, DTYPE_F32, REDOP_SUM), "all_reduce");
}

static int double_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void seals_measure_large(struct group *g, float *buf) {
    for (int i = 0; i < 2; i++) seals_reduce(g, buf, LARGE);
    double used = processor_us();
    int64_t began = clock_ns();
    for (int i = 0; i < LARGE_CALLS; i++) seals_reduce(g, buf, LARGE);
    double took = (double)(clock_ns() - began) / 1e3;
    printf("%.0f %.0f ", (processor_us() - used) / LARGE_CALLS, took / LARGE_CALLS);
}

static void seals_measure_small(struct group *g, float *buf) {
    static double us[SMALL_CALLS];
    for (int i = 0; i < SMALL_CALLS; i++) {
        int64_t began = clock_ns();
        seals_reduce(g, buf, SMALL);
        us[i] = (double)(clock_ns() - began) / 1e3;
    }
    qsort(us, SMALL_CALLS, sizeof *us, double_compare);
    printf("%.1f\n", us[SMALL_CALLS / 2]);
}

int main(int argc, char **argv) {
    static const char secret[] = "00112233445566778899aabbccddeeff"; /* as random as a bench needs */
    char master[128];
    struct station *station;
    struct group *g;
    if (argc != 9) {
        fprintf(stderr, "bench_seals is started by bench/seals.py\n");
        return 64;
    }
    snprintf(master, sizeof master, "tcp://%s:29500", argv[8]);
    struct station_params at = {.rank = atoi(argv[6]),
                                .size = 2,
                                .meeting_fd = -1,
                                .link = "tcp",
                                .master = master,
                                .serve = atoi(argv[6]) == 0,
                                .token = secret,
                                .round = "ranks",
                                .timeout = 60};
    seals_need(station_open(&at, &station), "meet");
    struct group_params p = *station_group(station);
    p.algorithm = "auto";
    p.timeout = 60;
    for (p.secure = SECURE_OFF; strcmp(secure_names[p.secure], argv[2]) != 0;) p.secure++;
    seals_need(group_open(&p, &g), "open");
    float *buf = calloc(LARGE, sizeof *buf);
    seals_measure_large(g, buf);
    seals_measure_small(g, buf);
    group_close(g);
    station_close(station);
    free(buf);
    return 0;
}
