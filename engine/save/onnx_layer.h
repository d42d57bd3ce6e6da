/* The operators of each layer, and what they are written with (onnx.c). */
#pragma once
#include "engine/model/model.h"
#include "engine/save/proto.h"

enum { ONNX_FLOAT = 1, ONNX_INT64 = 7 };
enum { ONNX_NAME = 256 };
struct onnx_graph {
    struct proto nodes, tensors; /* of GraphProto: its nodes, and its initializers */
    struct pool *pool;
    int constants;
    bool failed;
};
/* One operator; inputs and attributes end with NULL. What it gives is called 'out', which is returned. An attribute is
 * written "axis=1", "pads=1,1,1,1" (a list where its name is in the plural), "epsilon=f1e-05". */
const char *onnx_node(struct onnx_graph *g, const char *op, const char *out, const char *const *inputs,
                      const char *const *attributes);
#define ONNX_LIST(...)                                                                                                 \
    (const char *const[]) {                                                                                            \
        __VA_ARGS__, NULL                                                                                              \
    }
/* A tensor of the file; shape of ndim dimensions. Gives its name. */
const char *onnx_tensor(struct onnx_graph *g, const char *name, const float *data, const int64_t *dim, int ndim);
const char *onnx_ints(struct onnx_graph *g, const int64_t *data, int count); /* a vector; count -1: a single number */
const char *onnx_float(struct onnx_graph *g, float value);
/* "of/what", in the pool. */
const char *onnx_name(struct onnx_graph *g, const char *of, const char *what);

/* The operators that compute a node from its inputs; gives the name of what comes out, NULL where there is no such form
 * (ERR_CONFIG has been recorded) or no memory. w: names of its parameters and buffers, in their order. */
const char *onnx_layer(struct onnx_graph *g, const struct model_node *n, const char *const x[LAYER_INPUTS],
                       const char *const w[LAYER_PARAMS + LAYER_BUFFERS]);
