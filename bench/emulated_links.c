/* Emulated links against the textbook: bench_emulated_links [MAX_RANKS]
 * For star, ring and tree, at three rates and three sizes, on 2, 4 and 8 thread ranks: the measured
 * time of an all-reduce of K bytes, the formula's, and how far they are apart. With N ranks, rate B
 * and latency L:
 *
 *     ring    2 (N-1) (L + K / (N B))          star    2 L + 2 (N-1) K / B
 *     tree    2 ceil(log2 N) (L + K / B)
 *
 * The time is the median of some calls, each from when the first rank begins to when the last has
 * ended. */
#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "transport/algo/algo.h"
#include "transport/group.h"
#include "transport/launch/launch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 5, RANKS = 64 };
static const double rates[] = {100e6 / 8, 1e9 / 8, 10e9 / 8};
static const int64_t sizes[] = {16 << 10, 256 << 10, 1 << 20};
static const double latency = 50e-6;

struct job {
    int size;
    const char *algorithm;
    enum order order;
    int64_t count; /* of floats */
    struct emulation as;
    struct meeting *meeting;
    int64_t start[CALLS][RANKS], end[CALLS][RANKS];
};

static enum error run_calls(struct job *j, struct group *g, int rank) {
    void *buf;
    TRY(group_alloc(g, (size_t)j->count * sizeof(float), &buf));
    for (int i = -1; i < CALLS; i++) { /* the first warms up */
        TRY(group_barrier(g));
        int64_t start = clock_ns();
        TRY(group_all_reduce(g, GROUP_INLINE, buf, j->count, DTYPE_F32, REDOP_SUM));
        if (i < 0) continue;
        j->start[i][rank] = start;
        j->end[i][rank] = clock_ns();
    }
    return ERR_NONE;
}

static enum error run_rank(void *user, int rank) {
    struct job *j = user;
    struct group *g;
    struct group_params p = {.rank = rank,
                             .size = j->size,
                             .link = "thread",
                             .algorithm = j->algorithm,
                             .order = j->order,
                             .timeout = 60,
                             .meeting = j->meeting,
                             .emulate = j->as};
    TRY(group_open(&p, &g));
    enum error err = run_calls(j, g, rank);
    group_close(g);
    return err;
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_of(const struct job *j) {
    double seconds[CALLS];
    for (int i = 0; i < CALLS; i++) {
        int64_t first = j->start[i][0], last = j->end[i][0];
        for (int r = 1; r < j->size; r++) {
            if (j->start[i][r] < first) first = j->start[i][r];
            if (j->end[i][r] > last) last = j->end[i][r];
        }
        seconds[i] = clock_seconds(last - first);
    }
    qsort(seconds, CALLS, sizeof *seconds, by_value);
    return seconds[CALLS / 2];
}

static double formula(const struct job *j) {
    double n = j->size, k = (double)j->count * sizeof(float), b = j->as.bandwidth;
    if (!strcmp(j->algorithm, "ring")) return 2 * (n - 1) * (latency + k / (n * b));
    if (!strcmp(j->algorithm, "star")) return 2 * latency + 2 * (n - 1) * k / b;
    return 2 * ceil(log2(n)) * (latency + k / b);
}

static enum error measure(struct job *j) {
    char size[32];
    TRY(meeting_create(j->size, &j->meeting));
    enum error err = launch_threads(j->size, run_rank, j);
    meeting_free(j->meeting);
    if (err) return err;
    double measured = median_of(j), expected = formula(j);
    printf("%-5s %d ranks %7.0f Mbit/s %9s  measured %10.1f us  formula %10.1f us  %+6.1f %%\n", j->algorithm, j->size,
           j->as.bandwidth * 8e-6, text_of_bytes((double)j->count * sizeof(float), size), measured * 1e6,
           expected * 1e6, (measured / expected - 1) * 100);
    fflush(stdout);
    return ERR_NONE;
}

static enum error measure_all(const char *algorithm, int ranks) {
    const struct algo_ops *algo = algo_find(algorithm);
    if (!algo) return ERR_NONE;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            struct job j = {.size = ranks,
                            .algorithm = algorithm,
                            .order = algo->orders[ORDER_TREE] ? ORDER_TREE : ORDER_RING,
                            .count = sizes[s] / (int64_t)sizeof(float),
                            .as = {.bandwidth = rates[r], .latency = latency}};
            TRY(measure(&j));
        }
    return ERR_NONE;
}

int main(int argc, char **argv) {
    static const char *const algorithms[] = {"star", "ring", "tree"};
    int64_t most = 8;
    if (argc > 2 || (argc == 2 && (!text_int(argv[1], &most) || most < 2 || most > RANKS))) {
        fprintf(stderr, "usage: bench_emulated_links [MAX_RANKS]\n");
        return 64;
    }
    enum error err = ERR_NONE;
    for (int n = 2; n <= most && !err; n *= 2)
        for (int a = 0; a < 3 && !err; a++) err = measure_all(algorithms[a], n);
    if (err) fprintf(stderr, "bench_emulated_links: %s\n", error_message());
    return error_exit_code(err);
}
