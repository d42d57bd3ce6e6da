/* One batch size of a graph, planned: which ops run in which order, and where everything lies. */
#pragma once
#include "engine/model/graph.h"

enum { TENSOR_BATCH = 0, NODE_LOSS = -1 };

/* An activation: tensor 0 is the batch, tensor k + 1 what node k puts out, the last one the loss's.
 * Nodes that are views of or fused with others have none of their own. */
struct plan_tensor {
    int64_t count;   /* floats of one sample */
    int64_t y, dy;   /* where it and its gradient lie: floats into their arenas */
    int producer;    /* step that writes it */
    bool wants_grad; /* a parameter precedes it */
};
struct plan_step {
    struct op *op;
    struct op_desc desc;
    int node;                           /* whose parameters and name it has, or NODE_LOSS */
    int ninputs, in[LAYER_INPUTS], out; /* tensors */
    int64_t saved;                      /* floats into the activations */
    int64_t dx[LAYER_INPUTS]; /* where backward writes: floats into the gradients; -1: nowhere */
    bool add[LAYER_INPUTS];   /* dx is a temporary that is then added to the tensor's gradient */
};
struct plan {
    struct plan *next;
    int64_t n;
    int nsteps, ntensors, output /* tensor */, fused;
    struct plan_step *steps;
    struct plan_tensor *tensors;
    int64_t activations, gradients; /* floats */
    size_t scratch;                 /* bytes */
    double flops;                   /* of one sample, forward and backward */
};
MUST_CHECK enum error plan_create(const struct model *m, struct device *dev, enum loss loss,
                                  int64_t n, struct plan **out);
void plan_free(struct plan *p);
