/* How long an all-reduce takes: bench_all_reduce [--threads] [--comm] [--private] [--algorithm
 * NAME] [--order NAME] [WORLD] [MAX_MB] Ranks are processes (or threads), each bound to a core
 * while there are enough. Prints the lines of the yardsticks: bytes, median and least time, and bus
 * bandwidth 2(N-1)/N bytes/time. --comm: on the communication lane; --private: memory that peers
 * cannot reach. */
#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "transport/group.h"
#include "transport/launch/launch.h"

#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEETING_FD = 100, TIMES = 400 };

extern char **environ;

struct options {
    int world, rank; /* rank -1: this process starts the ranks */
    int64_t max_bytes;
    bool threads, comm, private;
    const char *algorithm, *order;
    struct meeting *meeting;
};

static void bind_core(int rank, int world) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < world) return;
    CPU_ZERO(&one);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && seen++ == rank) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum error one(struct group *g, const struct options *o, float *buf, int64_t n, double *seconds) {
    struct work *w;
    for (int64_t i = 0; i < n; i++) buf[i] = 1;
    TRY(group_barrier(g));
    int64_t start = clock_ns();
    TRY(group_all_reduce(g, GROUP_ON(o->comm ? LANE_COMM : LANE_INLINE, &w), buf, n, DTYPE_F32, REDOP_SUM));
    TRY(work_wait(w));
    *seconds = clock_seconds(clock_ns() - start);
    return buf[n - 1] == (float)group_size(g) && buf[0] == buf[n / 2]
               ? ERR_NONE
               : FAIL(ERR_RESULT, "wrong sum %g", (double)buf[n - 1]);
}

static enum error measure(struct group *g, const struct options *o, float *buf, int64_t bytes) {
    double times[TIMES], ignored;
    int n = (int)((256 << 20) / bytes);
    n = n > TIMES ? TIMES : n < 8 ? 8 : n;
    for (int i = 0; i < 2; i++) TRY(one(g, o, buf, bytes / 4, &ignored));
    for (int i = 0; i < n; i++) TRY(one(g, o, buf, bytes / 4, &times[i]));
    qsort(times, (size_t)n, sizeof *times, by_value);
    double busbw = (double)bytes / times[n / 2] * 2 * (o->world - 1) / o->world * 1e-9;
    if (group_rank(g) == 0)
        printf("engine world=%d bytes=%10lld median_us=%10.1f min_us=%10.1f busbw_GBs=%.3f\n", o->world,
               (long long)bytes, times[n / 2] * 1e6, times[0] * 1e6, busbw);
    fflush(stdout);
    return ERR_NONE;
}

static enum error bench(const struct options *o, int rank, struct meeting *m) {
    struct group *g;
    void *buf = NULL;
    enum error err;
    struct group_params p = {.rank = rank,
                             .size = o->world,
                             .link = o->threads ? "thread" : "shm",
                             .algorithm = o->algorithm,
                             .order = !strcmp(o->order, "ring") ? ORDER_RING : ORDER_TREE,
                             .timeout = 60,
                             .meeting = m};
    bind_core(rank, o->world);
    TRY(group_open(&p, &g));
    size_t bytes = (size_t)o->max_bytes;
    TRY_GOTO(err, o->private ? memory_alloc(bytes, &buf) : group_alloc(g, bytes, &buf), done);
    for (int64_t b = 1024; b <= o->max_bytes; b *= 4) TRY_GOTO(err, measure(g, o, buf, b), done);
done:
    if (o->private) memory_free(buf);
    group_close(g);
    return err;
}

static int report(enum error err) {
    if (err) fprintf(stderr, "bench_all_reduce: %s: %s\n", error_text(err), error_message());
    return error_exit_code(err);
}

struct thread {
    pthread_t id;
    const struct options *o;
    int rank, code;
};

static void *thread_main(void *arg) {
    struct thread *t = arg;
    t->code = report(bench(t->o, t->rank, t->o->meeting));
    return NULL;
}

static int run_threads(const struct options *o) {
    struct thread t[64] = {0};
    int code = 0;
    for (int r = 0; r < o->world; r++) {
        t[r] = (struct thread){.o = o, .rank = r};
        if (pthread_create(&t[r].id, NULL, thread_main, &t[r]) != 0) return 71;
    }
    for (int r = 0; r < o->world; r++) {
        pthread_join(t[r].id, NULL);
        if (t[r].code) code = t[r].code;
    }
    return code;
}

/* Each rank is this program again, with --rank and the meeting's descriptor. */
static int run_processes(const struct options *o, int argc, char **argv) {
    char rank[16], *again[32];
    int code = 0, started = 0;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, meeting_fd(o->meeting), MEETING_FD);
    for (int i = 0; i < argc && i < 28; i++) again[i] = argv[i];
    again[argc] = (char[]){"--rank"};
    again[argc + 1] = rank;
    again[argc + 2] = NULL;
    for (; started < o->world && code == 0; started++) {
        pid_t pid;
        snprintf(rank, sizeof rank, "%d", started);
        if (posix_spawn(&pid, "/proc/self/exe", &files, NULL, again, environ) != 0) code = 71;
    }
    for (int status; wait(&status) > 0;)
        if (!WIFEXITED(status) || WEXITSTATUS(status)) code = 75;
    posix_spawn_file_actions_destroy(&files);
    return code;
}

static bool parse(int argc, char **argv, struct options *o) {
    int64_t numbers[2] = {2, 64}, rank;
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads"))
            o->threads = true;
        else if (!strcmp(argv[i], "--comm"))
            o->comm = true;
        else if (!strcmp(argv[i], "--private"))
            o->private = true;
        else if (!strcmp(argv[i], "--algorithm") && i + 1 < argc)
            o->algorithm = argv[++i];
        else if (!strcmp(argv[i], "--order") && i + 1 < argc)
            o->order = argv[++i];
        else if (!strcmp(argv[i], "--rank") && i + 1 < argc && text_int(argv[i + 1], &rank))
            o->rank = (int)rank, i++;
        else if (n == 2 || !text_int(argv[i], &numbers[n++]))
            return false;
    }
    o->world = (int)numbers[0];
    o->max_bytes = numbers[1] << 20;
    return numbers[0] >= 1 && numbers[0] <= 64 && numbers[1] >= 1 && numbers[1] <= 4096 && argc < 28;
}

static enum error join_bench(struct options *o) {
    TRY(meeting_join(MEETING_FD, o->world, &o->meeting));
    enum error err = bench(o, o->rank, o->meeting);
    meeting_free(o->meeting);
    return err;
}

int main(int argc, char **argv) {
    struct options o = {.rank = -1, .algorithm = "auto", .order = "tree"};
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: bench_all_reduce [--threads] [--comm] [--private] [--algorithm NAME]"
                        " [--order tree|ring] [WORLD] [MAX_MB]\n");
        return 64;
    }
    if (o.rank >= 0) return report(join_bench(&o));
    enum error err = (o.threads ? meeting_create : meeting_create_shared)(o.world, &o.meeting);
    if (err) return report(err);
    int code = o.threads ? run_threads(&o) : run_processes(&o, argc, argv);
    meeting_free(o.meeting);
    return code;
}
