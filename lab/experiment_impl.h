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
    bool quick;                 /* they may be too few for verdicts */
};
/* The cells and pairs of the matrix, each checked. Errors go to e. */
MUST_CHECK enum error experiment_expand(struct experiment_reader *r);
