/* update.cu: starting its kernels. */
#pragma once
#include "engine/base/rule.h"
#include "engine/device/cuda/launch.h"

enum { UPDATE_CHUNK = 4096 };
/* One line of the table that lies in the GPU's memory. No gaps: tables are compared byte by byte. */
struct update_span {
    float *w, *g, *slot[RULE_SLOTS];
    int64_t n, first; /* its first chunk, counted over all spans */
    float rate;
    uint16_t kind, aligned; /* aligned: all its pointers, to 16 bytes */
};
struct update_numbers { /* struct rule's */
    float number[RULE_KINDS][RULE_NUMBERS];
    bool adapts[RULE_KINDS];
};
/* What there is of a formula. step: of all elements of all spans. direct: the same, then two sums of squares a span. */
struct update_kernels {
    const char *name;
    cudaError_t (*step)(const struct update_numbers *r, const struct update_span *spans, int count, int64_t chunks,
                        cudaStream_t stream);
    cudaError_t (*direct)(const struct update_numbers *r, const struct update_span *spans, int count, double *squares,
                          cudaStream_t stream);
};
/* By the name of a struct formula; that of NULL takes the sums of squares alone. NULL: there is none. */
LAUNCHER const struct update_kernels *update_find(const char *formula);
