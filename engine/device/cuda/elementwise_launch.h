/* Launchers of elementwise.cu and dropout.cu. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/launch.h"

struct elements {
    enum activation act;
    float alpha;               /* the activation's */
    enum element x_type, type; /* of x (f32 where it is data); of all else */
    int64_t n;
    const void *x[2], *y, *dy;
    void *to[2];
    bool aligned; /* all that is there: the launchers fill it in */
};
/* to[0] = act(x[0]); ACT_NONE copies. */
LAUNCHER cudaError_t act_launch(const struct elements *e, cudaStream_t stream);
/* to[0] = dy act'(x[0]); it may be dy. */
LAUNCHER cudaError_t act_back_launch(const struct elements *e, cudaStream_t stream);
/* to[0] = x[0] + x[1], or its relu. */
LAUNCHER cudaError_t add_launch(const struct elements *e, cudaStream_t stream);
/* to[0] = to[1] = dy, where y > 0 if relu; either may be NULL or dy. */
LAUNCHER cudaError_t add_back_launch(const struct elements *e, cudaStream_t stream);

/* to = from m / (1 - p). Element e of a sample is drawn by (key, id of the sample, stream, e / 4). */
struct dropout_call {
    enum element from_type, type; /* of from; of to */
    const void *from;
    void *to;
    uint32_t key[2];
    uint64_t stream; /* the layer's, 40 bits up */
    const uint64_t *ids;
    int64_t n, each;  /* samples, and elements of one */
    int64_t channels; /* above 1: an image in LAYOUT_LAST; elements are counted as if it were plain */
    float p, grow;
};
LAUNCHER cudaError_t dropout_launch(const struct dropout_call *c, cudaStream_t stream);
