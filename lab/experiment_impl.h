/* Inside of reading an experiment. */
#pragma once
#include "lab/experiment.h"

struct experiment_reader {
    struct experiment *x;
    struct config_errors *e;
    const struct node *base;    /* a configuration; what cells change is put on copies */
    const struct node *exclude; /* NULL: none */
    const struct node *repeats; /* where the number stands */
    int given_repeats;          /* 0: auto */
    int given_most;             /* of auto; 0: not given */
    bool quick;                 /* they may be too few for verdicts */
};
/* The axes, sides first, and the keys that are asked. */
MUST_CHECK enum error experiment_axes(struct experiment_reader *r, const struct node *root, const struct node *sides,
                                      const struct node *matrix);
/* The cells and pairs of the matrix, each checked. Errors go to e. */
MUST_CHECK enum error experiment_expand(struct experiment_reader *r);
