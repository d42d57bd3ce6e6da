/* update.cu: starting its kernels. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
enum { UPDATE_CHUNK = 4096, UPDATE_NUMBERS = 9 };
enum update_kind {
    UPDATE_SGD,
    UPDATE_MOMENTUM,
    UPDATE_NESTEROV,
    UPDATE_ADAM,
    UPDATE_LAMB,
    UPDATE_LARS,
    UPDATE_LION
};
/* One line of the table that lies in the GPU's memory. No gaps: tables are compared byte by byte. */
struct update_span {
    float *w, *g, *slot[2];
    int64_t n, first;  /* its first chunk, counted over all spans */
    float rate, decay; /* lamb, lars: of this tensor */
    uint16_t decays, adapts;
    uint32_t aligned; /* all its pointers, to 16 bytes */
};
struct update_rule { /* struct rule, rounded */
    float number[UPDATE_NUMBERS], lr, scale;
};
/* One step of all elements of all spans. */
cudaError_t update_step(enum update_kind kind, const struct update_rule *r,
                        const struct update_span *spans, int count, int64_t chunks,
                        cudaStream_t stream);
/* Two sums of squares a span; lamb also makes its direction where the gradient was. */
cudaError_t update_measure(enum update_kind kind, const struct update_rule *r,
                           const struct update_span *spans, int count, double *squares,
                           cudaStream_t stream);
#ifdef __cplusplus
}
#endif
