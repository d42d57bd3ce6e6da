/* The cost of sharing gradients by formula, shown beside measured costs (reports) and used in place of them
 * (crossover). If a formula belongs to an algorithm (transport/algo), it is taken from there, so 'auto' chooses by
 * the same formula. */
#pragma once
#include "engine/settings/sharing.h"

#include <stdbool.h>

struct wire {     /* a port, full duplex */
    double alpha; /* seconds a message takes longer */
    double beta;  /* seconds a byte takes to cross it */
};

/* Ways of sharing K bytes among N devices: those of textbooks, then the algorithms, each by its own formula. */
enum scheme {
    SCHEME_STAR_SERIAL, /* a server that does one thing at a time */
    SCHEME_STAR_DUPLEX, /* one that sends while it still receives */
    SCHEME_SHARDED,     /* every device serves 1/N */
#define ALGO(name) SCHEME_##name,
#include "transport/algo/algos.def"
    SCHEMES,
    SCHEME_OWN /* a plug-in's: of no formula, by its rehearsal */
};
const char *scheme_name(enum scheme s);
/* SCHEMES: there is none of that name. */
enum scheme scheme_find(const char *name);
/* Whether it is an algorithm that has a formula of its own: a library's has none. */
bool scheme_is_known(enum scheme s);

struct ground {         /* where the devices are */
    int devices, hosts; /* as many devices on each host */
    struct wire wire;
    bool near;           /* devices of a host reach each other's memory */
    int leaves;          /* shards that they share out; 0, or too few: the least that they can */
    int servers, owners; /* as in struct sharing; servers are among the devices */
};
/* The number of shards for this many devices: the given one, or the next power of two. */
int cost_leaves(int leaves, int devices);
/* Seconds until all devices have the sum of 'bytes' bytes; INFINITY: not a way to do it there. */
double cost_share(enum scheme s, const struct ground *g, double bytes);
/* The way 'auto' takes there for an all-reduce. */
enum scheme cost_cheapest(const struct ground *g, bool ring_order, double bytes);
/* The size at which b begins to be as cheap as a; 0: it always is, INFINITY: never. */
double cost_crossover(enum scheme a, enum scheme b, const struct ground *g);

/* ---- the port, from measured calls ---- */
struct cost_point {
    enum scheme scheme;
    int devices;
    double bytes, seconds;
};
/* Calls of one host's devices; such as have no formula there do not count. At most 1024 do. */
struct wire cost_fit(const struct cost_point *points, int n);

/* ---- a step ---- */
struct step_cost {
    double before;   /* seconds until the backward whose gradients leave begins */
    double backward; /* of which */
    double forward;  /* of each pass */
    int passes;      /* that a step is computed in */
    double update;   /* on the device that updates */
    int buckets;
    const double *ready; /* of each, seconds after backward began */
    const double *bytes;
    bool overlap, streams;
    const struct exchange_plan *plan; /* what moves */
    int64_t every;                    /* steps between two meetings of ranks that step alone; else 1 */
    bool ring_order;
};
/* Seconds of a step. s: the scheme of the all-reduces; SCHEMES takes for each bucket the cheapest. */
double cost_step(const struct step_cost *c, enum scheme s, const struct ground *g);
/* Of ranks that swap all they have (MOVE_PAIRS): rounds one after another; *messages, unless NULL: of all ranks. */
int cost_swaps(int ranks, int *messages);
/* Bytes that all ranks together send in a step, for each byte of the gradients; passes: that a step
 * is computed in; servers: those that only serve; again: the share of the weights that backward gathers (cost_again). */
double cost_bytes(const struct exchange_plan *plan, int64_t every, int passes, int ranks, int servers, double again);
double cost_again(const double *bytes, int buckets, bool overlap);

/* ---- laws of scaling, fitted to the times t[i] on n[i] devices ---- */
/* The share p of the work that is divided: t(N) = t(1) ((1 - p) + p / N). NaN: all are on as many devices;
 * below 0: more devices take longer. */
double scaling_amdahl(const int *n, const double *t, int count);
/* "97.3 %"; of a share that is none, since more devices take longer or less than their share, in words. */
const char *scaling_share_text(double p, char out[32]);
/* The same where work grows with N, so that the speed-up N t(1) / t(N) is N - (1 - p) (N - 1). NaN: one device is not
 * among them, or nothing else is. */
double scaling_gustafson(const int *n, const double *t, int count);
/* The serial share that one speed-up betrays. Where it rises with N, it is not serial work but communication. */
double scaling_karp_flatt(double speed_up, int n);
