/* Declarations that running one batch and running several together share. */
#pragma once
#include "engine/device/runtime.h"
#include "engine/model/graph_plan.h"

#include <stdatomic.h>

enum { SUMS_BYTES = SEGMENTS_MAX * LOSS_SUMS * sizeof(double) }; /* of member_arenas.both */
struct arena {
    void *base;
    size_t bytes;
};
struct member_arenas {       /* one of the batches that are computed together; usually there is one */
    const struct plan *plan; /* of the last forward; NULL: it had no samples */
    struct graph_batch last; /* what that worked on, where it lies */
    double *both;            /* loss, correct and top of it, by segment: the device's memory */
    struct arena activations, gradients;
};
/* ---- a batch in memory apart from the host's: graph_input.c ---- */
enum { INPUT_SLOTS = 2 };
struct input_slot {
    struct arena memory;
    const float *staged;               /* x of the batch that LANE_COPY brings or has brought; NULL: none */
    struct graph_batch there;          /* the batch, where it lies */
    struct device_mark *filled, *left; /* by LANE_COPY; by LANE_COMPUTE, which has read it */
};

/* ---- stretches of work that run again: graph_record.c ---- */
struct pass_key { /* compared bytewise: what a stretch's calls depend on */
    const void *plan, *values, *grads, *x, *labels, *others, *shares, *target, *buffers;
    uint64_t seed;
    int64_t at;
    float scale;
    uint8_t training, update_buffers, backward, top;
    int32_t from, to; /* steps */
};
struct pass_record {
    struct pass_key key;
    struct device_recording *recording; /* NULL: it has been seen once */
    int64_t used;
};
enum { RECORDS = 256 };
struct pass_records {
    bool on;
    struct pass_record *of;
    int64_t clock;
};

struct graph {
    const struct model *m;
    struct device *dev;
    const struct device_runtime *runtime; /* the device's */
    enum loss loss;
    enum precision precision;
    const int *frozen; /* by parameter; NULL: none is */
    bool stops;        /* backward does not go beyond the first layer that is trained */
    struct plan *plans;
    int stretches;
    struct model_part part;
    const struct graph_ends *ends; /* NULL: it is the whole model */
    int nmembers;
    struct member_arenas *members;
    int turn;   /* whose it is, of members */
    bool holds; /* members are batches one after another, of which one at a time is backward */
    struct arena scratch, apart;
    struct arena class_weights; /* of the loss; base NULL: none */
    float smoothing;
    double *parts, *sums; /* of batchnorms together: (shards, 1 + 2 channels), (channels, 2) of all */
    struct input_slot input[INPUT_SLOTS];
    int inputs, slot;     /* how many there are, 0 where ops read the host's memory; that of the last forward */
    struct arena low;     /* the values in the type of activations, where that is not f32 */
    const float *lowered; /* the values that it was made of; NULL: they have changed since */
    struct arena raised;  /* outputs as f32 on the device, */
    void *output;         /* and on the host, where that is elsewhere */
    const int64_t *cuts;  /* where gradients are awaited; ncuts below 0: at each parameter */
    int ncuts;
    void *const *caches;               /* of attentions, by node; NULL: none */
    const struct graph_source *source; /* NULL: all weights are there */
    struct pass_records records;
    graph_watch_fn watch; /* NULL: none */
    void *watcher;
    atomic_int where; /* 0: nowhere; 2 * (node + 2), + 1 in backward */
};
struct graph_run { /* what a pass over a member reads and writes */
    const struct graph_batch *batch;
    const float *values;
    float *buffers, *grads;
    double *sums; /* loss, correct, and if the batch asks for it top: of the device */
    bool again;   /* forward once more, for backward */
};

static inline struct member_arenas *graph_now(const struct graph *g) {
    return &g->members[g->turn];
}
/* Makes room for this many members; graph_prepare then gives them their arenas. */
MUST_CHECK enum error graph_members(struct graph *g, int count);
/* NULL: not prepared. */
struct plan *graph_plan(const struct graph *g, int64_t n, const struct segments *segments);
/* sync: NULL, or what a batchnorm does in this pass. */
MUST_CHECK enum error graph_step_forward(struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                                         const struct graph_run *r, struct norm_sync *sync);
MUST_CHECK enum error graph_step_backward(struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                                          const struct graph_run *r, struct norm_sync *sync);
/* The backward of a step whose weights lie apart in a few rows. */
MUST_CHECK enum error few_backward(struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                                   const struct op_args *a);
/* Adds what 'segments' segments have, 'each' floats side by side, along the tree; the first then has the sum. */
MUST_CHECK enum error apart_sum(struct graph *g, float *of, int64_t each, int segments);
MUST_CHECK enum error gradients_clear(struct graph *g, float *grads); /* of no samples: all are zero */
MUST_CHECK enum error arena_grow(struct graph *g, struct arena *a, size_t bytes);

/* What lies at a place of an arena. */
static inline void *arena_at(const struct arena *a, int64_t place) {
    return (char *)a->base + place;
}

/* ---- of a part, at its ends: graph_ends.c; of a whole model these do nothing ---- */
MUST_CHECK enum error ends_input(struct graph *g); /* before a forward, and after it */
MUST_CHECK enum error ends_output(struct graph *g);
MUST_CHECK enum error ends_backward(struct graph *g, float *grads); /* before a backward, and after it */
MUST_CHECK enum error ends_back(struct graph *g, float *grads);

/* Room for batches of n samples. */
MUST_CHECK enum error inputs_prepare(struct graph *g, int64_t n);
void inputs_free(struct graph *g);
/* now->last: b, where the device can read it. */
MUST_CHECK enum error input_take(struct graph *g, const struct graph_batch *b);

/* Runs steps [from, to) of the last plan, or what was recorded of them; backward from the last one. */
MUST_CHECK enum error stretch_run(struct graph *g, const struct graph_run *r, bool backward, int from, int to);
void records_drop(struct graph *g); /* memory has moved */
void records_free(struct graph *g);
void graph_where_set(struct graph *g, int node, bool backward);
