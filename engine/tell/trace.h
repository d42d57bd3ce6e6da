/* The trace: what every rank did in some steps of a run (log.trace), each with begin and end.
 *
 *   recording   in memory that was there before, by the rank's thread and by whoever runs its communication lane;
 *               without a lock. NULL instead of a struct trace: nothing is recorded, at the price of one branch
 *   writing     behind the last step of the range every rank writes RUN_DIR/trace/rankN.bin
 *   reading     what is in such a file; it may be cut, or hold anything
 *   merging     RUN_DIR/trace.json: all ranks on one clock, in the form that Perfetto and Chrome show */
#pragma once
#include "engine/base/memory.h"
#include "engine/tell/phases.h"

enum trace_kind {
#define X(name, metric, key, words, traced) TRACE_##name, /* as in enum phase */
    STEP_PHASES(X)
#undef X
        TRACE_STEP,
    TRACE_EVALUATION,
    TRACE_CHECKPOINT,
    TRACE_LAYER, /* a layer's part of a forward or backward */
    TRACE_CALL,  /* of the group */
    TRACE_WAIT,  /* for a call on the communication lane */
    TRACE_READY, /* no span: so many bytes of gradients are final */
    TRACE_KINDS
};
enum trace_lane { TRACE_COMPUTE, TRACE_EXCHANGE, TRACE_DEVICE, TRACE_LANES };
struct trace_event {
    int64_t begin, end; /* ns of the rank's clock; once read, of rank 0's */
    int64_t step;       /* from 1; of what lies between steps, the last one */
    int64_t bytes;      /* of a call, or a wait for it: its payload; of TRACE_READY */
    const char *name;   /* of a layer or a call; else NULL */
    int32_t bucket;     /* that a call carries; -1: none */
    uint8_t kind, lane; /* enum trace_kind, trace_lane */
    bool backward;      /* of a layer */
    bool weights;       /* a call carries the bucket's weights, not its gradients */
};
struct trace_clock {    /* how a rank's clock is compared with rank 0's */
    int64_t offset;     /* ns to be added to it */
    int64_t round_trip; /* ns of the message that has told; 0: it is the same clock */
};

/* ---- recording: engine/tell/trace.c ---- */
struct trace;
struct trainer;
/* Rank 0, before the others are told of its range: whether there is one ahead. What an earlier run has left is removed
 * while nobody can have written yet. What goes wrong, here and later, is only told: a run is as good without. */
bool trace_range(const struct trainer *t);
/* Every rank, with rank 0's range. Gives t->trace, also where this rank will have nothing to write, since it is one of
 * those that compare clocks; NULL where 'first' is 0. */
MUST_CHECK enum error trace_open(struct trainer *t, int64_t first, int64_t last);
void trace_close(struct trainer *t);
/* Before a step begins, and when it has ended. Collective at the first step of the range. */
MUST_CHECK enum error trace_step_begin(struct trainer *t);
void trace_step_end(struct trainer *t, int64_t began);
/* No more steps: what has been recorded is written, if it is not yet. */
void trace_finish(struct trainer *t);
/* Rank 0, when all ranks have written: merges. Of how many ranks there is a trace.json now. */
int trace_conclude(struct trainer *t);

/* Any of these may be called with NULL, and outside of the range. The step is filled in. */
void trace_put(struct trace *tr, const struct trace_event *e);
void trace_span(struct trace *tr, enum trace_kind kind, enum trace_lane lane, int64_t begin, int64_t end);
/* So many of the arena now; leave: what is done next is to send them. */
void trace_ready(struct trace *tr, int64_t floats, bool leave);

/* ---- reading: engine/tell/trace_read.c ---- */
struct trace_rank {
    int rank, size;
    int worker;         /* which of the computing devices; -1: none */
    bool serves, accel; /* it is dp's server; its device is an accelerator */
    char mode[16], host[64], run_id[24];
    int64_t first, last; /* steps that were asked for */
    int64_t dropped;     /* events that there was no room for */
    struct trace_clock clock;
    int64_t *bucket; /* bytes of each; their ends are those of TRACE_READY */
    int nbuckets;
    struct trace_event *events; /* by their begin; what contains another stands before it */
    int nevents;
};
/* ERR_DATA: not of the form, or damaged. */
MUST_CHECK enum error trace_read(const char *path, struct pool *pool, struct trace_rank *out);
/* What one bucket did in one step. */
struct trace_bucket {
    int64_t step, bytes;
    int bucket;
    int64_t ready;       /* backward had finished it */
    int64_t start, done; /* its call; of several the first's and the last's */
    int64_t taken;       /* the step has seen that it is done */
    int64_t waited;      /* ns that the step waited for it, of those before 'taken' */
    bool beside;         /* the call ran on the communication lane */
};
/* By step and bucket; those that the trace has all of. */
MUST_CHECK enum error trace_buckets(const struct trace_rank *r, struct pool *pool, struct trace_bucket **out, int *n);
/* All files of RUN_DIR/trace, by rank; *n 0: there are none. ERR_DATA: one is damaged, or not of the same run. */
MUST_CHECK enum error trace_read_all(const char *run_dir, struct pool *pool, struct trace_rank **out, int *n);

/* ---- merging: engine/tell/trace_merge.c ---- */
/* Writes path, or replaces it. */
MUST_CHECK enum error trace_merge(const struct trace_rank *ranks, int n, struct pool *pool, const char *path);
