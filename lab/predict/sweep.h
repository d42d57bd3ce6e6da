/* One way of sharing gradients, tried on devices and on a network that are only described: a measured step is replayed
 * there. 'engine simulate' and 'engine advise' try many. */
#pragma once
#include "lab/predict/measured.h"
#include "modes/modes.h"

struct way {
    const struct mode_row *mode;
    const struct mode_way *of;
    enum scheme scheme;         /* of its all-reduces; SCHEMES: auto */
    int count;                  /* of what the way counts, servers or stages; 0: as configured */
    const struct algo_ops *own; /* of SCHEME_OWN */
};
/* Opens the plug-in with this path, for 'own'. */
MUST_CHECK enum error way_open(const char *path, const struct algo_ops **own);
/* The name of s, which is what a way has come to; of a plug-in, that of its file. */
const char *way_scheme_name(const struct way *w, enum scheme s);
struct sweep_place {
    const struct run_config *config;
    struct simulate_plan plan; /* but for what the way decides */
    int shards;                /* shards of the batch; 0, or too few: the least that this many devices can share */
    int overlap;               /* -1: as the configuration has it in the way's mode */
    int64_t first, cap;        /* bytes of buckets */
    bool strong;               /* the devices share the batch of the step; else each has as much as one of the run */
};
struct sweep_answer {
    struct simulated result;
    double formula; /* seconds; NaN: there is none */
    double memory;  /* bytes of the busiest device */
    double speed_up;
    int buckets;
};
/* What it makes of the configuration: servers, owners, cut, and whether it streams. */
struct sharing way_sharing(const struct way *w, const struct run_config *c);
/* Whether layers are in stages. */
bool way_is_staged(const struct way *w);
/* Whether it has an all-reduce, so that its algorithm matters. */
bool way_reduces(const struct way *w);
/* The configured way, on this many devices that each have a host, cores and a port without limits. */
struct sweep_place sweep_place(const struct run_config *c, int64_t devices);
/* Whether it is a way to add there; for hierarchical hosts must be full, and several. */
bool way_suits(const struct way *w, const struct sweep_place *p);
/* ERR_CONFIG: the layers cannot be cut into stages so, or what is too much to be simulated. */
MUST_CHECK enum error sweep_try(const struct measured_step *m, const struct way *w, const struct sweep_place *p,
                                struct sweep_answer *out);
