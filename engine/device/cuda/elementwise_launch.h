/* Launchers of elementwise.cu. Types: of x (f32 where it is data), and of all else that is as long as x. */
#pragma once
#include "engine/device/cuda/element.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y = act(x); ACT_NONE copies. */
cudaError_t act_launch(enum activation act, float alpha, enum element x_type, enum element type, const void *x, void *y,
                       int64_t n, cudaStream_t stream);
/* dx = dy act'(x); dx may be dy. */
cudaError_t act_back_launch(enum activation act, float alpha, enum element type, const void *x, const void *dy,
                            void *dx, int64_t n, cudaStream_t stream);
/* y = x0 + x1, or its relu. */
cudaError_t add_launch(bool relu, enum element x_type, enum element type, const void *x0, const void *x1, void *y,
                       int64_t n, cudaStream_t stream);
/* dx0 = dx1 = dy, where y > 0 if relu; either may be NULL or dy. */
cudaError_t add_back_launch(bool relu, enum element type, const void *y, const void *dy, void *dx0, void *dx1,
                            int64_t n, cudaStream_t stream);

/* to = from m / (1 - p). Element e of a sample is drawn by (key, id of the sample, stream, e / 4). */
struct dropout_call {
    uint32_t key[2];
    uint64_t stream; /* the layer's, 40 bits up */
    const uint64_t *ids;
    int64_t n, each;  /* samples, and elements of one */
    int64_t channels; /* above 1: an image in LAYOUT_LAST; elements are counted as if it were plain */
    float p, grow;
};
cudaError_t dropout_launch(const struct dropout_call *c, enum element from_type, enum element type, const void *from,
                           void *to, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
