/* A stand-in for cuDNN 9: the backend's descriptors, checked as cuDNN checks them, and convolutions on images with what
 * follows them, computed by the host in the stream's order. */
#pragma once
#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

struct cudnnContext {
    cudaStream_t stream;
};

enum { ATTRIBUTES = 12 };
struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t count;
    void *values;
};
struct engine;
struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final;
    struct attribute at[ATTRIBUTES];
    int count;
    const struct engine *engine;    /* of engines and of their settings */
    const struct descriptor *graph; /* that they are for */
};

/* A proposal for a graph. Engines that must not be taken compute something else than was asked. */
struct engine {
    int64_t number, space; /* -1: no plan comes of it */
    unsigned notes;        /* bits of cudnnBackendNumericalNote_t */
    enum { FACTORS_AS_THEY_ARE, FACTORS_TF32, FACTORS_BF16, RESULTS_LOST } how;
};

/* The values of an attribute; NULL: not set. */
const void *attribute_of(const struct descriptor *d, cudnnBackendAttributeName_t name, int64_t *count);
int64_t number_of(const struct descriptor *d, cudnnBackendAttributeName_t name); /* 0: not set */
const struct descriptor *part_of(const struct descriptor *d, cudnnBackendAttributeName_t name);
int kind_of(const struct descriptor *d, cudnnBackendAttributeName_t name); /* an enum's value; -1: not set */

/* What a finished operation graph computes. */
struct work {
    cudnnBackendDescriptorType_t pass;
    const struct descriptor *x, *w, *y, *convolution, *bias;
};
/* false: not a pattern that is supported. */
bool work_of(const struct descriptor *graph, struct work *out);
/* Proposals for it in one way of asking; their count. */
int engines_for(const struct descriptor *graph, cudnnBackendHeurMode_t mode, const struct engine *out[8]);
cudnnStatus_t work_check(const struct descriptor *operation); /* dimensions that fit each other */
cudnnStatus_t work_run(cudnnHandle_t handle, const struct descriptor *plan, const struct descriptor *pack);
