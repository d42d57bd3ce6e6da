/* The interface between the parts of 'engine advise': the options, the measurements, and the advice. */
#pragma once
#include "cli/advise/step_source.h"
#include "cli/line/lists.h"
#include "lab/advise/advise.h"

struct advise_options {
    const char *path;
    struct cli_config config;
    int64_t devices[LIST_MOST], memory; /* memory: bytes; 0: what a device here has */
    int ndevices;
    struct wire link;
    bool linked; /* else this machine's */
    int weak;
    bool json, quiet;
    const char *out;
};
struct advising {
    const struct advise_options *o;
    struct pool *pool;
    struct cli_config config;     /* as given, without what is not simulated */
    struct run_settings settings; /* of that */
    struct step_source source[ADVISE_MEASURED];
    int nsources;
    struct advise_notes notes; /* until there is advice to add them to */
    int64_t here;              /* devices that this machine has */
    int64_t check;             /* the most of the list that it has, from two on; 0: none */
    bool emulated;             /* the ports are described; else they are this machine's links */
    const char *ports;
    struct advise_ask ask;
    struct advice advice;
    const char *dir; /* for short runs; it is gone afterwards */
    bool printed;    /* what is wrong has been printed */
};
void advising_progress(const struct advising *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Loads the configuration, measures a step in each precision, and the links where these are asked for. */
MUST_CHECK enum error advise_measure(struct advising *g);
/* Runs the best of dp and of ddp as far as this machine can, beside what is predicted of them. */
MUST_CHECK enum error advise_check_here(struct advising *g);
