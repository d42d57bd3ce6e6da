/* A measured step, replayed on other devices: the same buckets, ready at the same times of backward, over a simulated
 * network. */
#pragma once
#include "lab/predict/network.h"
#include "lab/predict/pipe.h"

enum { SIMULATE_DEVICES = 4096, SIMULATE_BUCKETS = 4096 };
enum { SIMULATE_DRAWN = 60 }; /* steps that show what is drawn, where nothing else says how many */

struct step_shape {  /* of a device that has its cores to itself */
    double before;   /* seconds until the last backward begins: loading, forwards, earlier backwards */
    double backward; /* of the last shard, after which nothing is computed */
    double update;   /* of all weights */
    double forward;  /* within 'before': of all passes */
    int passes;      /* that a step is computed in */
    int buckets;
    double bytes[SIMULATE_BUCKETS]; /* in the order in which they leave */
    double ready[SIMULATE_BUCKETS]; /* share of backward that is then done */
    struct step_stages stages;      /* where there are some, 'before' is the loading, and passes are micro-batches of
                                       a copy; backward, forward and buckets are those of the stages */
};

struct simulate_plan {
    struct network_plan net; /* devices: those that compute */
    bool near;
    int leaves; /* shards of the batch: struct ground */
    struct exchange_plan moves;
    int64_t every;                     /* as sharing.every */
    int servers;                       /* that only serve, each on a host of its own */
    int owners;                        /* as in struct sharing */
    enum scheme scheme;                /* of all-reduces; SCHEMES: the cheapest by formula, for each bucket */
    const struct algo_ops *own;        /* of SCHEME_OWN */
    bool ring_order, overlap, streams; /* streams: as in struct sharing */
    int cores;                         /* that all devices together have; 0: each has its own */
    double moving;                     /* seconds that one of these cores works for each byte that is sent; 0: none */
    double slow_by;                    /* stragglers: in each step a device computes this many times longer, */
    double slow_share;                 /* with this probability */
    uint64_t seed;
    int steps;  /* to replay (meetings, where ranks step alone); where nothing is drawn, all are alike */
    bool plain; /* see struct exchange */
};
/* What a core of today takes to put a byte into a link in memory, take it out and add it: 0.08 ns. Where links are
 * emulated the cores that compute do that, too. */
static const double SIMULATE_MOVING = 8e-11;

struct simulated {
    double step;    /* seconds: the mean over the steps */
    double compute; /* of which the slowest device computes and updates */
    double exposed; /* the rest */
    struct busiest port;
    double busy;        /* share of the time that it is */
    enum scheme scheme; /* of the largest bucket */
};
MUST_CHECK enum error simulate(const struct step_shape *shape, const struct simulate_plan *plan, struct simulated *out);
/* The formulas' answer to the same question: no stragglers, no ports that are shared. NaN: they have none. */
double simulate_formula(const struct step_shape *shape, const struct simulate_plan *plan);
