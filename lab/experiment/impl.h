/* Inside of reading an experiment. */
#pragma once
#include "lab/experiment/experiment.h"

struct experiment_reader {
    struct experiment *x;
    struct config_errors *e;
    const struct node *base;    /* a configuration; what cells change is put on copies */
    const struct node *exclude; /* NULL: none */
    const struct node *repeats; /* where the number stands */
    int given_repeats;          /* 0: auto */
    int given_most;             /* of auto; 0: not given */
    bool quick;                 /* they may be too few for verdicts */
    const struct experiment_search *search;
    struct tune_try first; /* where something is tuned */
};
/* The axes, sides first, and the keys that are asked. */
MUST_CHECK enum error experiment_axes(struct experiment_reader *r, const struct node *root, const struct node *sides,
                                      const struct node *matrix);
MUST_CHECK enum error experiment_axis_add(struct experiment_reader *r, struct experiment_axis *axis,
                                          const struct node *value);
/* A key is the question, or a part of it. */
void experiment_ask(struct experiment_reader *r, const struct node *at, const char *key);
/* The section 'tune', after axes and seeds; of a search, its tries as an axis. */
MUST_CHECK enum error experiment_tune(struct experiment_reader *r, const struct node *tune);
/* The tuned values of a cell, as a map of keys; NULL: none, or an axis has them. */
MUST_CHECK enum error experiment_tuned_values(struct experiment_reader *r, int cell, const struct node **out);
/* The cells and pairs of the matrix, each checked. Errors go to e. */
MUST_CHECK enum error experiment_expand(struct experiment_reader *r);
/* Takes the keys that say how a cell's runs are started (command, env, under, hosts) out of its tree. */
MUST_CHECK enum error experiment_start_take(struct experiment_reader *r, struct node *tree,
                                            struct experiment_start *out);
/* A key's value into a tree; a map at 'env' adds to what is there. */
MUST_CHECK enum error experiment_put(struct experiment_reader *r, struct node *tree, const struct node *value,
                                     const char *key);
/* The size and time of every file that a word of the command names, for its digest. NULL: no memory. */
char *experiment_start_files(const struct experiment *x, const struct experiment_start *s);
