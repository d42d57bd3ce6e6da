/* What a group costs as ranks become more: this program is one host of bench/scale.py, which starts it in network
 * namespaces and makes a table of what all say.
 *
 *     bench_scale run HERE THREADS LINK --nnodes HOSTS --node-rank K --master-addr ADDRESS
 *
 * HERE ranks in processes of THREADS threads, a rank each; the last rank is a process by itself, so that it can die
 * alone, as that of host HOSTS / 2 does in the end. Lines on standard output, times in ns of CLOCK_MONOTONIC:
 *
 *     rank R BEGUN OPEN BARRIER SUM FAILED WORDS   the group was asked for and was open; a barrier and a sum of 4 KB, on
 *                                                  average; when R knew of the death, and how it was said
 *     process FIRST RANKS MEMORY SOCKETS           bytes that it grew by, streams that are open
 *     host K REST BARRIERS SUMS                    TCP segments with data that left: in a second of rest, in all barriers,
 *                                                  in all sums
 *     killed T                                     */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/base/thread.h"
#include "transport/launch/station.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 20, WORDS = 1024 /* of a sum */, REST = 1000000 /* us */ };
static const char secret[] = "00112233445566778899aabbccddeeff"; /* as random as a bench needs */

static struct plan {
    int here, threads, hosts, host;
    const char *link, *master;
} plan;
struct rank {
    int rank, threads; /* of its process */
    bool first;        /* of its process */
    long memory;       /* pages of it, before it had threads */
};

static void scale_need(enum error err, const char *what) {
    char words[ERROR_WORDS];
    if (!err) return;
    fprintf(stderr, "bench_scale: %s: %s\n", what, error_words(words, sizeof words));
    exit(error_exit_code(err));
}

/* ---- what the kernel knows ---- */

static long scale_resident_pages(void) {
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2) resident = -1;
    if (f) fclose(f);
    return resident;
}

static int scale_open_streams(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct sockaddr_storage a;
        socklen_t size = sizeof a;
        n += !getpeername(atoi(e->d_name), (struct sockaddr *)&a, &size) && a.ss_family == AF_INET;
    }
    if (d) closedir(d);
    return n;
}

/* TCPOrigDataSent of this network: a line of names, then a line of as many values. */
static long long scale_segments_sent(void) {
    char names[8192], values[8192];
    FILE *f = fopen("/proc/net/netstat", "r");
    long long sent = -1;
    while (f && sent < 0 && fgets(names, sizeof names, f) && fgets(values, sizeof values, f)) {
        char *name, *value, *at[2];
        for (name = strtok_r(names, " \n", &at[0]), value = strtok_r(values, " \n", &at[1]);
             name && value && strcmp(name, "TCPOrigDataSent") != 0;
             name = strtok_r(NULL, " \n", &at[0]), value = strtok_r(NULL, " \n", &at[1])) {
        }
        if (name && value) sent = atoll(value);
    }
    if (f) fclose(f);
    return sent;
}

/* ---- a rank ---- */

static void open_rank(int rank, struct station **station, struct group **group) {
    struct station_params at = {.rank = rank,
                                .size = plan.here * plan.hosts,
                                .meeting_fd = -1,
                                .link = plan.link,
                                .master = plan.master,
                                .serve = rank == 0,
                                .token = secret,
                                .run = "scale",
                                .round = "ranks",
                                .timeout = 300};
    scale_need(station_open(&at, station), "meet");
    struct group_params p = *station_group(*station);
    p.algorithm = "auto";
    p.timeout = 300;
    scale_need(group_open(&p, group), "open");
}

/* One kind of call, many times; between two rests, in which what the last calls have sent leaves. ns of one. */
static int64_t scale_time_calls(struct group *g, float *sum, long long *segments) {
    int64_t begun;
    long long before;
    scale_need(group_barrier(g), "barrier");
    usleep(REST);
    before = scale_segments_sent();
    begun = clock_ns();
    for (int i = 0; i < CALLS; i++)
        scale_need(sum ? group_all_reduce(g, GROUP_INLINE, sum, WORDS, DTYPE_F32, REDOP_SUM) : group_barrier(g),
                   "call");
    int64_t each = (clock_ns() - begun) / CALLS;
    usleep(REST);
    *segments = scale_segments_sent() - before;
    return each;
}

static void *rank_run(void *arg) {
    const struct rank *r = arg;
    struct station *station;
    struct group *g;
    char words[ERROR_WORDS];
    float *sum = calloc(WORDS, sizeof *sum);
    long long rest, barriers, sums;
    int64_t begun = clock_ns();
    open_rank(r->rank, &station, &g);
    int64_t open = clock_ns();
    for (int i = 0; i < 2; i++) {
        scale_need(group_barrier(g), "barrier");
        scale_need(group_all_reduce(g, GROUP_INLINE, sum, WORDS, DTYPE_F32, REDOP_SUM), "sum");
    }
    scale_need(group_barrier(g), "barrier");
    if (r->first)
        printf("process %d %d %ld %d\n", r->rank, r->threads,
               (scale_resident_pages() - r->memory) * sysconf(_SC_PAGESIZE), scale_open_streams());
    usleep(REST);
    rest = scale_segments_sent();
    usleep(REST);
    rest = scale_segments_sent() - rest;
    int64_t barrier = scale_time_calls(g, NULL, &barriers), each = scale_time_calls(g, sum, &sums);
    if (r->rank == plan.host * plan.here) printf("host %d %lld %lld %lld\n", plan.host, rest, barriers, sums);
    if (r->rank == (plan.hosts / 2 + 1) * plan.here - 1) {
        usleep(REST);
        printf("killed %lld\n", (long long)clock_ns());
        fflush(stdout);
        kill(getpid(), SIGKILL);
    }
    enum error err = group_barrier(g);
    int64_t failed = clock_ns();
    printf("rank %d %lld %lld %lld %lld %lld %s\n", r->rank, (long long)begun, (long long)open, (long long)barrier,
           (long long)each, (long long)failed, err ? error_words(words, sizeof words) : "no error");
    fflush(stdout);
    group_close(g);
    station_close(station);
    free(sum);
    return NULL;
}

/* ---- the processes of this host ---- */

static void scale_process_run(int first, int threads) {
    pthread_t thread[threads];
    struct rank rank[threads];
    long memory = scale_resident_pages();
    for (int i = 0; i < threads; i++) {
        rank[i] = (struct rank){first + i, threads, i == 0, memory};
        if (thread_start(&thread[i], rank_run, &rank[i])) scale_need(ERR_MEMORY, "thread");
    }
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
}

int main(int argc, char **argv) {
    static char master[128];
    if (argc != 11) {
        fprintf(stderr, "bench_scale is started by bench/scale.py\n");
        return 64;
    }
    plan = (struct plan){atoi(argv[2]), atoi(argv[3]), atoi(argv[6]), atoi(argv[8]), argv[4], master};
    snprintf(master, sizeof master, "tcp://%s:29500", argv[10]);
    for (int i = 0; i < plan.here;) {
        int most = i < plan.here - 1 ? plan.here - 1 - i : 1, threads = most < plan.threads ? most : plan.threads;
        fflush(stdout);
        if (fork() == 0) {
            scale_process_run(plan.host * plan.here + i, threads);
            fflush(stdout);
            _exit(0);
        }
        i += threads;
    }
    while (wait(NULL) > 0) {
    }
    return 0;
}
