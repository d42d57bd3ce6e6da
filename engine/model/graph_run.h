/* What running one batch and running several together share. */
#pragma once
#include "engine/model/graph_plan.h"

#include <stdatomic.h>

struct arena {
    void *base;
    size_t bytes;
};
struct member { /* one of the batches that are computed together; usually there is one */
    const struct plan *plan; /* of the last forward; NULL: it had no samples */
    struct arena activations, gradients;
};
struct graph {
    const struct model *m;
    struct device *dev;
    enum loss loss;
    enum precision precision;
    struct plan *plans;
    int nmembers;
    struct member *members;
    struct arena scratch;
    double *parts,
        *sums; /* of batchnorms together: (shards, 1 + 2 channels), (channels, 2) of all */
    graph_watch_fn watch; /* NULL: none */
    void *watcher;
    atomic_int where; /* 0: nowhere; 2 * (node + 2), + 1 in backward */
};
struct graph_run { /* what a pass over a member reads and writes */
    const struct graph_batch *batch;
    const float *values;
    float *buffers, *grads;
    double *sums; /* loss, correct */
};

/* Makes room for so many members; graph_prepare then gives them their arenas. */
MUST_CHECK enum error graph_members(struct graph *g, int count);
struct plan *graph_plan(const struct graph *g, int64_t n); /* NULL: not prepared */
/* sync: NULL, or what a batchnorm does in this pass. */
MUST_CHECK enum error graph_step_forward(struct graph *g, const struct member *m,
                                         const struct plan_step *s, const struct graph_run *r,
                                         struct norm_sync *sync);
MUST_CHECK enum error graph_step_backward(struct graph *g, const struct member *m,
                                          const struct plan_step *s, const struct graph_run *r,
                                          struct norm_sync *sync);
void gradients_clear(const struct model *m, float *grads); /* of no samples: all are zero */
