/* What is known of links that no cell emulates: a short 'engine bench comm' on each of them, before the runs, over as
 * many ranks and with the algorithm of the cells that it is for.
 *
 *   FOLDER/fit/shm-auto-4-DIGEST.json     what it said; an experiment that goes on does not measure again */
#pragma once
#include "lab/experiment/experiment.h"
#include "lab/predict/cost.h"

struct link_fit {
    struct wire wire;
    double off;        /* the median of the fit's errors, as a share */
    const char *words; /* "shm, 4 ranks: 58 us, 1.5 GB/s" */
};
/* The measurement that a run needs: its link, among its ranks, with its algorithm. */
struct link {
    const char *name, *algorithm; /* name: NULL: nothing that this program could start ranks for */
    int ranks;
};
struct link link_of(const struct run_config *c);
/* Measures it into a file, PATH.log beside it; reads that. program: the engine's. */
MUST_CHECK enum error link_measure(const struct link *l, const char *program, const char *path, struct pool *pool);
MUST_CHECK enum error link_read(const struct link *l, const char *path, struct pool *pool, struct link_fit *out);

/* Whether a cell sends over a link that it does not emulate. */
bool link_fit_needed(const struct experiment *x, int cell);
/* Measures the links. A warning names links that cannot be measured: their cells are then not predicted. program: the
 * engine's. */
void link_fits_measure(const struct experiment *x, const char *folder, const char *program, bool quiet);
/* ERR_INPUT: it was not measured. */
MUST_CHECK enum error link_fit_read(const struct experiment *x, const char *folder, int cell, struct link_fit *out);
