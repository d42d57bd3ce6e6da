/* Where the ranks are: their devices and processes, sections run and cuda. */
#pragma once
#include "engine/base/limits.h"
#include "engine/config/schema.h"

enum { RUN_DEVICES_MAX = RANKS_MOST };
enum cuda_graph { CUDA_GRAPH_AUTO, CUDA_GRAPH_OFF };
struct device_choice { /* auto | cpu:4 | ref:2 | cuda | cuda:0,2 */
    const char *kind;
    int count;      /* of the whole run */
    int local;      /* of this node; the same on all */
    bool automatic; /* the count was chosen by us */
    int listed;     /* of an accelerator: how many units are named in 'unit'; 0: all, from 0 on */
    int *unit;      /* NULL: none is named */
    int server;     /* of an accelerator: the unit of a rank that only serves */
};
static inline int device_first_unit(const struct device_choice *d) {
    return d->listed ? d->unit[0] : 0;
}

/* This process was started as one rank of many. */
struct run_launched {
    const char *by;        /* a launcher other than ours: "torchrun", ...; NULL: 'engine run', of whose ranks size and
                              locals alone are told, or (size 0) nobody */
    const char *variables; /* by which it was recognised: "RANK, WORLD_SIZE, ..." */
    int rank, size;
    int local, locals;   /* of those on this host; -1, 0: not known */
    const char *master;  /* HOST:PORT or file:///PATH, where the ranks meet; NULL: unknown */
    const char *job;     /* distinguishes this run from others; "" if nothing does */
    const char *problem; /* why its variables cannot be used; NULL: they can */
};
struct place_config { /* section run */
    int64_t nodes, node_rank;
    const char *master;       /* HOST or HOST:PORT */
    int64_t port;             /* of master */
    const char *init;         /* auto | none | env:// | tcp://HOST:PORT | file:///PATH */
    int64_t rank, world_size; /* with init tcp:// and file://; -1, 0: from the environment */
    int64_t restarts;
    struct elastic_config {
        int64_t min;   /* devices that are enough to go on when others are lost; 0: all are needed */
        int64_t nodes; /* hosts that are enough to begin and to go on, of run.nodes; 0: all are needed to begin */
    } elastic;
    const char *token; /* auto | none | env:NAME | file:PATH */
    double join_timeout;
};
struct cuda_config {
    int graph; /* enum cuda_graph */
};
extern const struct config_section place_section;
extern const struct config_section cuda_section;
