/* The trace: what every rank did in some steps of a run (log.trace), each with begin and end.
 *
 *   recording   in memory that was there before, by the rank's thread and by whoever runs its communication lane;
 *               without a lock. NULL instead of a struct trace: nothing is recorded, at the price of one branch
 *   writing     after the last step of the range every rank writes RUN_DIR/trace/rankN.bin
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
    TRACE_READY, /* not a span: this many bytes of gradients are final */
    TRACE_STALL, /* a wait for another part of the model */
    TRACE_KINDS  /* files have the numbers: a new kind is the last */
};
enum trace_lane { TRACE_COMPUTE, TRACE_EXCHANGE, TRACE_DEVICE, TRACE_AHEAD, TRACE_LANES };
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
    int64_t round_trip; /* ns of the message that compared them; 0: it is the same clock */
};

/* ---- recording: engine/tell/trace.c ---- */
struct trace;
enum { TRACE_WRITERS = 3 }; /* the rank's thread, its communication lane, the lane of weights that come ahead */
/* A trace with room for the events of 'steps' steps, events[w] a step from writer w; nothing is recorded yet. */
MUST_CHECK enum error trace_create(int64_t steps, const int64_t events[TRACE_WRITERS], struct trace **out);
void trace_free(struct trace *tr); /* NULL is fine */
/* Starts or stops recording, and says whether it was on. */
bool trace_turn(struct trace *tr, bool on);
bool trace_is_on(const struct trace *tr);
void trace_step(struct trace *tr, int64_t step); /* what follows is of this step */
/* Around a layer's op: first with NULL, then with its name. */
void trace_layer(struct trace *tr, const char *name, bool backward);
int64_t trace_dropped(const struct trace *tr); /* events that there was no room for */

/* Any of these may be called with NULL, and outside of the range. The step is filled in. */
void trace_put(struct trace *tr, const struct trace_event *e);
void trace_span(struct trace *tr, enum trace_kind kind, enum trace_lane lane, int64_t begin, int64_t end);
/* Records that 'floats' of the arena are ready; leave: the next work is to send them. */
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
/* The times of one bucket in one step. */
struct trace_bucket {
    int64_t step, bytes;
    int bucket;
    int64_t ready;       /* backward had finished it */
    int64_t start, done; /* its call; of several the first's and the last's */
    int64_t taken;       /* the step has seen that it is done */
    int64_t waited;      /* ns that the step waited for it, of those before 'taken' */
    bool beside;         /* the call ran on the communication lane */
};
/* The buckets of a rank by step and bucket, those of which the trace has all events. */
MUST_CHECK enum error trace_buckets(const struct trace_rank *r, struct pool *pool, struct trace_bucket **out, int *n);
/* Reads all files of RUN_DIR/trace, by rank; *n 0: there are none. ERR_DATA: one is damaged, or not of the same run. */
MUST_CHECK enum error trace_read_all(const char *run_dir, struct pool *pool, struct trace_rank **out, int *n);

/* Writes all that was recorded as a file of the rank 'as', of which all but the events is taken. */
MUST_CHECK enum error trace_write(const struct trace *tr, const struct trace_rank *as, const char *path);

/* ---- merging: engine/tell/trace_merge.c ---- */
/* Writes path, or replaces it. */
MUST_CHECK enum error trace_merge(const struct trace_rank *ranks, int n, struct pool *pool, const char *path);
