/* A step of mode pipeline over a simulated network, forward by forward and backward by backward (the essay:
 * modes/pipeline.c). */
#pragma once
#include "lab/predict/exchange.h"

enum { SIMULATE_STAGES = 256 };
struct step_stages { /* of the network, each on a device of its own (mode pipeline) */
    int count;       /* 0: every device has all layers */
    bool ahead;      /* as sharing.ahead */
    double forward[SIMULATE_STAGES], backward[SIMULATE_STAGES]; /* seconds of a micro-batch */
    double border[SIMULATE_STAGES]; /* bytes of a micro-batch between this stage and the next one, each way */
    double bytes[SIMULATE_STAGES];  /* of its gradients, which several copies add in as many messages: */
    int messages[SIMULATE_STAGES];
};

/* How many more micro-batches than one stage s has between their forward and their backward, at most. */
int pipe_ahead(int stages, bool ahead, int passes, int s);

struct pipe_copies {    /* how several copies add their gradients */
    enum scheme scheme; /* SCHEMES: the cheapest by formula */
    int leaves;         /* shards of the batch */
};
/* Moves e->at from when each rank begins to compute to when it has the gradients of its stage, summed over the copies.
 * slow: how many times longer each rank computes. */
MUST_CHECK enum error pipe_replay(struct exchange *e, const struct step_stages *s, int passes, const double *slow,
                                  const struct pipe_copies *how);
