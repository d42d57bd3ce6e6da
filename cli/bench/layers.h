/* The interface between the parts of 'engine bench layers'. */
#pragma once
#include "cli/line/cli.h"
#include "engine/model/graph.h"

#include <stdio.h>

extern const struct command command_bench_layers;

enum { PASSES_MOST = 400 };
struct layer_row {
    struct graph_step step;
    double seconds[2]; /* forward, backward: medians */
};
struct layers_result {
    const char *model, *isa; /* isa: struct device's, may be NULL */
    char input[96];
    int64_t n, classes, threads;
    enum precision precision;
    double gemm; /* FLOP/s of a large product, measured */
    int side;    /* of that product's matrices */
    int passes, count, fused;
    struct layer_row *rows;
    double pass[2];       /* whole passes, medians */
    bool json, processor; /* processor: times are processor time */
};
/* The clock to measure by: the thread's processor time where there is one thread, since other programs disturb it less;
 * else the wall time. */
int64_t (*bench_clock(const struct device *dev))(void);
/* FLOP/s of a product of square matrices on the device. */
int peak_side(const struct device *dev);
MUST_CHECK enum error peak_gemm(struct device *dev, enum precision precision, int64_t (*now)(void), double *out);
MUST_CHECK enum error layers_report(const struct layers_result *r, FILE *out);
