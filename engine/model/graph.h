/* A graph is a model planned on one device: ops, fusions, activations and their gradients in static
 * memory. Plans are kept per batch size; forward and backward of a prepared size allocate nothing.
 */
#pragma once
#include "engine/device/device.h"
#include "engine/model/model.h"

enum loss { LOSS_CROSS_ENTROPY, LOSS_MSE };
struct graph;

struct graph_batch { /* what one forward works on */
    int64_t n;
    const float *x;        /* (n, input) */
    const int32_t *labels; /* (n), or NULL */
    const float *target;   /* (n, output), or NULL */
    const uint64_t *ids;   /* (n) counters for dropout; may be NULL when not training */
    uint64_t seed;
    float scale; /* of each sample's gradient: 1 / samples in the global batch */
    bool training, update_buffers;
};
struct graph_sums {
    double loss, correct; /* sums over the samples of the batch, in sample order */
};

MUST_CHECK enum error graph_create(const struct model *m, struct device *dev, enum loss loss,
                                   struct graph **out);
void graph_free(struct graph *g);
/* Plans for batches of n samples, if that is not done yet. */
MUST_CHECK enum error graph_prepare(struct graph *g, int64_t n);

/* values, grads: the model's arena (arena_floats); buffers: buffer_floats. */
MUST_CHECK enum error graph_forward(struct graph *g, const struct graph_batch *b,
                                    const float *values, float *buffers, struct graph_sums *sums);
/* Called from backward when all parameters below 'upto' floats of the arena have their gradients:
 * upto only grows, and reaches arena_floats at the end. Must not block for long. */
typedef enum error (*grad_ready_fn)(void *user, int64_t upto);
/* Backward of the last forward (training). Overwrites every parameter's gradient in grads, not the
 * header. */
MUST_CHECK enum error graph_backward(struct graph *g, const struct graph_batch *b,
                                     const float *values, float *grads, grad_ready_fn ready,
                                     void *user);
/* The last forward's outputs, (n, output): logits for cross-entropy. */
const float *graph_output(const struct graph *g);
/* Which layer is being computed: for "last seen in backward of conv4". Any thread may read it. */
const char *graph_where(const struct graph *g, bool *backward);

struct graph_info { /* what was planned, for the banner and for tests */
    int64_t activation_bytes, scratch_bytes;
    double flops; /* of one sample, forward and backward */
    int ops, fused;
};
void graph_info(const struct graph *g, struct graph_info *out);
