/* A graph is a model planned on one device: ops, fusions, activations and their gradients in static
 * memory. Plans are kept per batch size; forward and backward of a prepared size allocate nothing.
 */
#pragma once
#include "engine/device/device.h"
#include "engine/model/model_part.h"

enum loss { LOSS_CROSS_ENTROPY, LOSS_MSE, LOSS_BCE };
struct graph;

struct graph_batch { /* what one forward works on */
    int64_t n;
    const float *x;        /* (n, input) */
    const int32_t *labels; /* (n, rows of the output), or NULL */
    const int32_t *others; /* with labels, of samples that are mixed of two: as op_args; else NULL */
    const float *shares;   /* (n), likewise */
    const float *target;   /* (n, output), or NULL */
    const uint64_t *ids;   /* (n) counters for dropout; may be NULL when not training */
    uint64_t seed;
    float scale;                     /* of each sample's gradient: 1 / samples in the global batch */
    const struct segments *segments; /* of its samples, which then are sums of their own; NULL: the batch is one */
    bool training, update_buffers;
    bool top;   /* graph_sums.top is asked for */
    int64_t at; /* the position of the first row, where the model is for a part of a sequence; else 0 */
};
struct graph_sums {
    double loss, correct; /* sums over the samples of the batch, in sample order */
    double top;           /* rows whose label is among the LOSS_TOP largest outputs */
};

MUST_CHECK enum error graph_create(const struct model *m, struct device *dev, enum loss loss, enum precision precision,
                                   struct graph **out);
/* Before anything is planned: the graph is of a part of the model, borrowed, and exchanges with those before and after
 * it: the output of a part is the input of the next, and the gradient goes back. 'take' fills 'to', 'give' has passed on
 * or copied what lies at 'from' when it returns. Both are called on the thread that computes, in the memory of the
 * device, which is the host's. A batch of no samples exchanges nothing. */
struct crossing {
    enum {
        CROSS_OUTPUT,   /* taken from the part before in a forward, given to the one after */
        CROSS_GRADIENT, /* of that: the other way, in a backward */
        CROSS_WEIGHTS   /* the gradient of a parameter that a later part borrows: given to the next part before it that
                           has the parameter, which adds its own */
    } what;
    int param;     /* of CROSS_WEIGHTS */
    bool training; /* of its batch */
    int64_t bytes;
};
struct graph_ends {
    enum error (*take)(void *user, const struct crossing *c, void *to);
    enum error (*give)(void *user, const struct crossing *c, const void *from);
    void *user;
};
void graph_part(struct graph *g, const struct model_part *part, const struct graph_ends *ends);
/* Before anything is prepared: so many batches, at least one, may be between their forward and their backward, each in
 * a place of its own. graph_turn: the calls from here on are of the batch in this place, from 0. */
MUST_CHECK enum error graph_hold(struct graph *g, int batches);
void graph_turn(struct graph *g, int place);
/* Before anything is planned: cross-entropy's smoothing and classes' weights, copied; see op_args. NULL: 1 each. */
MUST_CHECK enum error graph_soften(struct graph *g, float smoothing, const float *class_weights);
void graph_free(struct graph *g);
/* Before anything is prepared: parameters that stay as they are (by number, borrowed; NULL: none). Their gradients are
 * zero. 'stops': backward ends where no parameter that is trained precedes. */
void graph_freeze(struct graph *g, const int *frozen, bool stops);
/* Before any batch is prepared: keeps activations only at the borders of this many stretches of steps, and computes the
 * others again when backward needs them. STRETCHES_AUTO takes the number that needs the least memory; 1, the default,
 * keeps all. The bits do not depend on it. Batches that are computed together cannot have it. */
enum { STRETCHES_AUTO = 0 };
void graph_stretches(struct graph *g, int stretches);
/* Plans for batches of n samples in these segments (NULL: one), if that is not done yet. */
MUST_CHECK enum error graph_prepare(struct graph *g, int64_t n, const struct segments *segments);
/* How many of a device's shards (a power of two) one batch has, a segment each. One, where the device cannot keep their
 * sums apart, or where shards are cut finer to save memory: in 'pieces'. */
int graph_together(const struct device_runtime *runtime, int64_t shards, int64_t pieces);

/* Values, grads and buffers lie in the device's memory, and a batch on the host, which must stay as it is until the
 * device has passed the forward. Nothing waits for the device but what gives numbers to the host: graph_forward where
 * sums are asked for, graph_output. */

/* values, grads: the model's arena (arena_floats); buffers: buffer_floats. sums may be NULL: see graph_head. */
MUST_CHECK enum error graph_forward(struct graph *g, const struct graph_batch *b, const float *values, float *buffers,
                                    struct graph_sums *sums);
/* What rides with the gradients, in the order of header_slot: loss (times scale) and correct of the last forward,
 * and its samples, each segment's for itself and then added as gradients are; the rest is zero but for 'stop'. */
MUST_CHECK enum error graph_head(struct graph *g, float *header, float scale, bool stop);
/* The values are no longer those of the last forward, though they lie where they lay. */
void graph_values_changed(struct graph *g);
/* Begins to bring a batch to the device, beside what that computes: the next forward of a batch with this x, which
 * must follow, finds it there. One batch at a time. Nothing to do, nor is it worth having one early, where the device
 * reads the host's memory: graph_stages is false. */
MUST_CHECK enum error graph_stage(struct graph *g, const struct graph_batch *b);
bool graph_stages(const struct graph *g);
/* Returns when no staged batch is still being read. */
MUST_CHECK enum error graph_staged(struct graph *g);
/* Called from backward when all parameters below 'upto' floats of the arena have their gradients:
 * upto only grows, and reaches arena_floats at the end. Must not block for long. */
typedef enum error (*grad_ready_fn)(void *user, int64_t upto);
/* Backward of the last forward (training). Overwrites every parameter's gradient in grads, not the
 * header. */
MUST_CHECK enum error graph_backward(struct graph *g, const struct graph_batch *b, const float *values, float *grads,
                                     grad_ready_fn ready, void *user);
/* From now on 'ready' is called only where upto reaches one of these (ascending, borrowed; the last is arena_floats);
 * of none, at the end alone. That is for asynchronous devices, which are then asked for much at once: others go on
 * calling it at every parameter, as all do that have no cuts yet. */
void graph_cuts(struct graph *g, const int64_t *cuts, int count);
/* Memory for attentions with a context, by node; borrowed. */
void graph_caches(struct graph *g, void *const *caches);
/* Where the device records: passes that repeat are recorded, and run at the cost of a few calls. */
MUST_CHECK enum error graph_record(struct graph *g);
/* Who brings the weights, where they are not all there all the time. 'pass' is told that a forward begins, of no samples
 * too; trains: its backward follows. 'need' returns when the parameters of that node (of model.nodes) are there: before
 * each of its steps. */
enum graph_pass { PASS_FORWARD, PASS_BACKWARD, PASS_AGAIN /* forward once more, within backward */ };
struct graph_source {
    enum error (*pass)(void *user, const float *values, bool trains);
    enum error (*need)(void *user, int node, enum graph_pass pass);
    bool lends; /* they go again when another node is asked for */
    void *user;
};
void graph_source(struct graph *g, const struct graph_source *s); /* borrowed; NULL: they are there */
/* Several batches together, whose batchnorms normalise by the moments of all of them and of those on
 * other ranks: shards of one batch. Every rank with a graph takes part, one of empty batches too. */
struct graph_sync {
    int shards; /* of the whole batch */
    /* v[0..n) becomes its sum over the ranks; exact, since all but one hold zero. */
    enum error (*sum)(void *user, double *v, int n);
    void *user;
};
struct graph_member {
    struct graph_batch batch; /* n may be 0 */
    int shard;                /* which of them it is */
    float *grads;             /* an arena of its own */
    double both[2];           /* loss and correct, after forward */
};
MUST_CHECK enum error graph_forward_together(struct graph *g, struct graph_member *members, int count,
                                             const float *values, float *buffers, const struct graph_sync *sync);
MUST_CHECK enum error graph_backward_together(struct graph *g, struct graph_member *members, int count,
                                              const float *values, const struct graph_sync *sync);

/* The last forward's outputs, (n, output): logits for cross-entropy. Not of one that trains by labels or targets: there the
 * loss may have put its gradient in their place. The graph's until the next call. */
MUST_CHECK enum error graph_output(struct graph *g, const float **out);
/* The layer that is being computed, for "last seen in backward of conv4". Any thread may read it. */
const char *graph_where(const struct graph *g, bool *backward);

struct graph_info { /* what was planned, for the banner and for tests */
    int64_t activation_bytes, scratch_bytes;
    int stretches; /* 1: nothing is recomputed */
    double flops;  /* of one sample, forward and backward */
    int ops, fused;
};
void graph_info(const struct graph *g, struct graph_info *out);

/* ---- for those who measure ---- */
struct graph_step {   /* one op of a plan, with what is fused into it; borrowed from the graph */
    const char *name; /* of its layer; "loss" */
    const char *impl; /* what computes it */
    const struct op_desc *desc;
    int inputs;
    double flops[2]; /* of a batch: forward, backward */
    double bytes[2]; /* that it reads and writes, each once, likewise */
};
/* The number of steps for batches that were prepared as this one. */
int graph_steps(const struct graph *g, const struct graph_batch *b);
void graph_step(const struct graph *g, const struct graph_batch *b, int step, struct graph_step *out);
/* Called before each op of each pass and after it ('done'), when the device has reached this point. NULL: no watcher,
 * which costs nothing. */
typedef void (*graph_watch_fn)(void *user, int step, bool backward, bool done);
void graph_watch(struct graph *g, graph_watch_fn watch, void *user);
