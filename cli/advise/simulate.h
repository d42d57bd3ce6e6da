/* The interface between the parts of 'engine simulate': the options, the measured step, and the rows of the answer. */
#pragma once
#include "cli/advise/step_source.h"
#include "cli/line/lists.h"
#include "lab/predict/sweep.h"

#include <stdio.h>

enum { MODES = 8, WAYS = 32 };
struct simulate_options {
    const char *path;
    struct cli_config config;
    int64_t devices[LIST_MOST], buckets[LIST_MOST];
    int ndevices, nbuckets; /* 0: what the configuration says, of buckets */
    bool modes[MODES];      /* by their place in mode_kinds */
    bool named;             /* --mode was given */
    bool usual;             /* devices were not */
    bool all_schemes;
    enum scheme scheme; /* of all-reduces; SCHEMES: auto */
    const char *own;    /* the path of SCHEME_OWN */
    bool algorithm;     /* --algorithm was given */
    int server;         /* of the words of --server; SERVERS_ALL; -1: the configuration's */
    int overlap;        /* 0, 1; -1: the configuration's */
    int64_t per_host, per_rack, cores, steps, seed;
    double oversubscription, slow_share, slow_by, quantile;
    struct wire outside, inside;
    struct network_plan described; /* by the configuration */
    bool linked, insided;          /* --link, --inside were given */
    int strong;
    bool json;
    const char *bench; /* a file of 'engine bench comm --json', or NULL */
    double fit_error;
};
enum { SERVERS_ALL = 3 };
extern const struct option simulate_table[];
extern const struct simulate_options simulate_standard;

struct simulate_row {
    const char *mode;
    const struct mode_way *of;
    int line;     /* rows that differ in their devices alone have the same */
    char way[32]; /* the algorithm, or the kind of server */
    int64_t devices, bucket;
    struct sweep_answer answer;
};
MUST_CHECK enum error simulate_show(const struct simulate_options *o, const struct step_source *s,
                                    const struct simulate_row *rows, int n, FILE *out);
