/* Each side at its best: the keys of an experiment whose values are chosen, for each cell of the comparison by itself, in
 * runs on seeds of their own, before the cells are compared on other seeds.
 *
 *   tune:
 *     optimizer.lr: log 1e-4..1e-1       a range, by factors; 1..9: by differences; or a list [0.001, 0.01]
 *     budget: 16 runs                    of each cell: that many whole trainings, at most
 *     search: grid                       or random: values drawn from the ranges
 *                                        or halving: all begin, and the better half of them goes on, three times
 *
 * All cells try the same values with the same seeds. The score of a try is the first metric of the experiment, as the mean
 * of its seeds. These are pure functions: the same scores give the same choice. */
#pragma once
#include "engine/config/tree.h"

enum { TUNE_KEYS = 6, TUNE_TRIES = 32, TUNE_SEEDS = 16, TUNE_PARTS = 4, TUNE_WIDER = 4 };
enum tune_search { TUNE_GRID, TUNE_RANDOM, TUNE_HALVING };
extern const char *const tune_searches[];
struct tune_key {
    const struct node *at; /* its place in the file, and its name: the path of a key of the configuration */
    bool range, log, whole;
    double low, high; /* of a range; whole: both are whole numbers, and so are all values between */
    int count;        /* of a list */
    const char *value[TUNE_TRIES];
};
struct tune {
    int nkeys; /* 0: nothing is tuned */
    struct tune_key key[TUNE_KEYS];
    int search; /* enum tune_search */
    int budget; /* whole runs of a cell; 0: as many as the lists have */
    bool widen;
    int nseeds;
    int64_t seeds[TUNE_SEEDS];
};
struct tune_try { /* the values of all keys, as they are written in a configuration */
    const char *value[TUNE_KEYS];
};

/* The number of values that a grid has of each range: as many as the budget allows; 0: not even two. */
int tune_points(const struct tune *t);
/* The first tries: all of the grid, or those that are drawn from the seed, each once. At most TUNE_TRIES, and as many as the
 * budget allows. */
MUST_CHECK enum error tune_first(const struct tune *t, uint64_t seed, struct pool *pool, struct tune_try *out, int *n);
/* The same try, but of one key the value that follows beyond the lowest (end -1) or the highest (1) that was tried. */
MUST_CHECK enum error tune_beyond(const struct tune *t, const struct tune_try *tries, int n, int of, int key, int end,
                                  struct pool *pool, struct tune_try *out);
/* Whether two tries are the same. */
bool tune_same(const struct tune *t, const struct tune_try *a, const struct tune_try *b);

/* A stage of the search: that many tries train until this share of the training. */
struct tune_part {
    double until;
    int tries;
};
/* The parts of a search: one, or of halving up to TUNE_PARTS, in each of which half of the tries of the one before go on. */
int tune_parts(enum tune_search search, int tries, struct tune_part out[TUNE_PARTS]);
/* What the search takes of one cell, in whole runs. */
double tune_cost(const struct tune *t, int tries);
/* Leaves the best 'keep' of the tries that are 'in'. cost: less is better, infinity is a training that diverged. Of equal
 * ones the first are kept. */
void tune_keep(const double *cost, bool *in, int n, int keep);
/* The best of those that are in; -1: all have diverged. */
int tune_best(const double *cost, const bool *in, int n);
/* -1: the try has the lowest value of the key that was tried, 1: the highest; 0: neither, or the values are no numbers. */
int tune_edge(const struct tune_try *tries, int n, int of, int key);

/* ---- what has come of it ---- */

struct tuned_try {
    double score[TUNE_PARTS]; /* at the end of each part that it made, in the measure's unit; infinity: it diverged */
    int diverged;             /* runs that did */
    int parts;                /* that it made, one at least */
};
static inline double tuned_score(const struct tuned_try *t) {
    return t->score[t->parts - 1];
}
struct tuned_cell {
    int chosen;          /* -1: all tries have diverged */
    int edge[TUNE_KEYS]; /* of the chosen one */
    struct tuned_try *tried;
};
struct tuned {
    const struct tune *tune;
    bool done; /* false: it was stopped on its way */
    int ntries;
    struct tune_try tries[TUNE_TRIES];
    struct tuned_cell *cell; /* of each cell of the comparison */
    int widened;             /* how often values beyond the edges were added */
    const char *narrow;      /* why no more were, where the best is still at an edge; NULL */
};
