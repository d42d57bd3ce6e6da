/* The interface between the parts of 'engine bench comm': the options, the measurement of one rank, and the report. */
#pragma once
#include "cli/line/cli.h"
#include "transport/algo/algo.h"
#include "transport/group.h"

#include <stdio.h>

extern const struct command command_bench_comm;

struct bench_collective;
struct bench_comm { /* the options */
    const struct bench_collective *collective;
    const struct link_ops *link;
    const char *algorithm; /* a name, "auto" or "all" */
    const char *order;     /* "tree", "ring"; NULL: what the algorithm can */
    int64_t ranks, from, to, factor;
    enum dtype type;
    enum redop op;
    int64_t calls;  /* a size; 0: as many as fit in 'seconds' */
    double seconds; /* a size */
    struct emulation emulate;
    enum secure secure;
    bool json;
    const char *save; /* a file that takes it as JSON as well; or NULL */
};

/* ---- measuring (bench_comm_measure.c) ---- */

/* How much of the buffer's size crosses each port, as nccl-tests counts it, so that its bus
 * bandwidths compare. */
struct bench_collective {
    const char *name;
    enum kind kind;
    bool adds;         /* so the operation counts */
    int rounds;        /* bus bytes are the buffer's, times this, */
    bool but_own_part; /* and times (n - 1) / n */
};
const struct bench_collective *bench_collectives(int *count);
double bench_bus_factor(const struct bench_collective *c, int64_t ranks);

enum { BENCH_SIZES = 64 };
struct bench_row {
    char algorithm[24];
    int64_t bytes, count;
    double seconds; /* a call: the slowest rank's, the median of some batches */
    int64_t wrong;  /* elements, on all ranks */
    double model;   /* seconds that the fit below gives */
};
struct bench_series { /* one algorithm */
    const char *algorithm;
    enum order order;
    struct bench_row row[BENCH_SIZES];
    int rows;
    double alpha, beta; /* time = alpha + beta * bytes */
};
/* Runs one rank with s->algorithm and order. p: rank, size and place are set. All ranks get the same rows. */
MUST_CHECK enum error bench_measure(const struct bench_comm *o, const struct group_params *p, struct bench_series *s);
/* The bytes of buffers that one rank needs. */
double bench_memory(const struct bench_comm *o);

/* ---- where ranks that are threads meet (bench_comm_place.c) ---- */

struct bench_places {
    int size;
    struct meeting *meeting[2]; /* of each host; a far link may have none */
    struct port **port;         /* of each rank */
    struct seat_of *seat;
    struct roster roster;
};
/* Fills *out also when it fails; bench_places_close in any case. */
MUST_CHECK enum error bench_places_open(const struct bench_comm *o, struct bench_places *out);
void bench_places_close(struct bench_places *p);
/* Rank, size and place of one. */
struct group_params bench_place(const struct bench_places *p, int rank);

/* ---- reporting (bench_comm_report.c) ---- */

/* Sets alpha, beta and the rows' model. */
void bench_fit(struct bench_series *s);
MUST_CHECK enum error bench_report(const struct bench_comm *o, const struct bench_series *series, int n, FILE *out);
