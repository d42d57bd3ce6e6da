/* One batch size of a graph, planned: which ops run in which order, and where everything lies. */
#pragma once
#include "engine/device/runtime.h"
#include "engine/model/graph.h"

enum { TENSOR_BATCH = 0, NODE_LOSS = -1 };

/* An activation: tensor 0 is the batch, the others what steps put out, in their order. Nodes that are
 * views of or fused with others have none of their own. All places are bytes into their arenas. */
struct plan_tensor {
    int64_t count; /* elements of one sample, with those between its rows */
    int64_t unit;  /* bytes of an element */
    int64_t y, dy; /* where it and its gradient lie; -1: nowhere */
    enum layout layout;
    int other;       /* tensor that holds the same in the other layout; 0: none */
    int producer;    /* step that writes it */
    bool wants_grad; /* a parameter that is trained precedes it */
    bool judged;     /* the loss alone reads it, also in backward */
    bool replaced;   /* by its gradient, as soon as the loss has read it: that lies nowhere else */
    bool is_data;    /* none precedes it at all */
};
struct plan_step {
    struct op *op;
    struct op_desc desc;
    int node;                           /* whose name it has, or NODE_LOSS */
    int nparams;                        /* of the node's, that it has: all, or none when it is a reorder */
    int ninputs, in[LAYER_INPUTS], out; /* tensors */
    int64_t saved;                      /* among the activations */
    int64_t dx[LAYER_INPUTS];           /* where backward writes, among the gradients; -1: nowhere */
    bool add_dw;                        /* a step behind it has written the gradient of its tied weights */
    int64_t apart;                      /* where that of each segment lies by itself, among those apart; -1: nowhere */
    struct few *few;                    /* instead, of tied weights: a few rows by segment. NULL: none */
    bool add[LAYER_INPUTS];             /* dx is a temporary that is then added to the tensor's gradient */
    bool add_dx;                        /* the op adds to that of its first input by itself */
    int stretch;                        /* which one it belongs to */
    bool again;                         /* it runs forward once more, before the backward of its stretch */
};
struct plan {
    struct plan *next;
    int64_t n;
    struct segments segments;
    int nsteps, ntensors, output /* tensor */, fused, reorders;
    struct plan_step *steps;
    struct plan_tensor *tensors;
    int64_t unit, line;             /* bytes of an element that has a gradient; every place is a multiple of line */
    int64_t activations, gradients; /* bytes, as are apart and scratch */
    int64_t apart;                  /* gradients of tied weights by segment, until the last of their steps adds them */
    int64_t input; /* bytes of the part's input among the activations, where it has one: the first of them */
    size_t scratch;
    double flops;        /* of one sample, forward and backward, each once */
    int stretches;       /* 1: nothing is recomputed */
    int64_t unstretched; /* bytes that the activations would take with one stretch */
    double again_flops;  /* of one sample, what is recomputed */
};
/* What is planned, for batches of any size. */
struct plan_work {
    const struct model *m;
    const struct model_part *part;
    struct device *dev;
    enum loss loss;
    enum precision precision;
    const int *frozen; /* by parameter, whether it stays as it is; NULL: all are trained */
    int stretches;     /* at most, of which only the borders are kept; 1: nothing is recomputed */
};
/* The first part of plan_create: allocates and fills p's steps (but for their ops and places) and tensors. */
MUST_CHECK enum error plan_lower(const struct plan_work *w, struct plan *p);
MUST_CHECK enum error plan_create(const struct plan_work *w, const struct segments *segments, struct plan **out);
void plan_free(struct plan *p);
/* Before ops are created: whose weights need only a few rows apart. graph_few.c */
MUST_CHECK enum error few_plan(const struct plan_work *w, struct plan *p);
void few_free(struct few *f);
/* What a step reads and writes, each once, where an activation has 'unit' bytes: forward reads inputs and parameters and
 * writes y; backward reads dy, inputs and parameters and writes what gradients are wanted, of which those that another step
 * has written before are added by a pass of their own. What ops keep for themselves is not known here. */
void plan_step_bytes(const struct model *m, const struct plan_step *s, int64_t n, double unit, double bytes[2]);
/* Whether the last step is the loss. */
static inline bool plan_judges(const struct plan *p) {
    return p->steps[p->nsteps - 1].node == NODE_LOSS;
}
/* After the ops are created: cuts the steps into at most this many stretches (STRETCHES_AUTO: the number that needs the
 * least memory), and gives the activations their places. */
MUST_CHECK enum error plan_stretches(struct plan *p, int stretches);
/* plan_lines rounds bytes up to whole lines. plan_place takes the next place of an arena; ERR_MEMORY: the total cannot be
 * counted in 63 bits. */
int64_t plan_lines(const struct plan *p, int64_t bytes);
MUST_CHECK enum error plan_place(const struct plan *p, int64_t *total, int64_t bytes, int64_t *out);
