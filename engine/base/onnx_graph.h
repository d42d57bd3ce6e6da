/* A graph of ONNX operators in memory: what an op's row writes its form with (op_row.onnx), and onnx.c a file. */
#pragma once
#include "engine/base/memory.h"
#include "engine/base/proto.h"

enum { ONNX_FLOAT = 1, ONNX_INT64 = 7 };
struct onnx_graph {
    struct proto nodes, tensors; /* of GraphProto: its nodes, and its initializers */
    struct pool *pool;
    int constants;
    bool failed;
};
enum { ONNX_GRAPH_NODE = 1, ONNX_GRAPH_TENSOR = 5 }; /* their fields there */

/* One operator; inputs and attributes end with NULL. What it gives is called 'out', which is returned. An attribute is
 * written "axis=1", "pads=1,1,1,1" (a list where its name is in the plural), "epsilon=f1e-05". */
const char *onnx_node(struct onnx_graph *g, const char *op, const char *out, const char *const *inputs,
                      const char *const *attributes);
#define ONNX_LIST(...)                                                                                                 \
    (const char *const[]) {                                                                                            \
        __VA_ARGS__, NULL                                                                                              \
    }
#define ONNX_NONE                                                                                                      \
    (const char *const[]) {                                                                                            \
        NULL                                                                                                           \
    }
static inline const char *onnx_unary(struct onnx_graph *g, const char *op, const char *out, const char *x) {
    return onnx_node(g, op, out, ONNX_LIST(x), ONNX_NONE);
}
static inline const char *onnx_binary(struct onnx_graph *g, const char *op, const char *out, const char *a,
                                      const char *b) {
    return onnx_node(g, op, out, ONNX_LIST(a, b), ONNX_NONE);
}
/* A tensor of the file; shape of ndim dimensions. Gives its name. */
const char *onnx_tensor(struct onnx_graph *g, const char *name, const float *data, const int64_t *dim, int ndim);
const char *onnx_ints(struct onnx_graph *g, const int64_t *data, int count); /* a vector; count -1: a single number */
const char *onnx_float(struct onnx_graph *g, float value);
/* "of/what", in the pool. */
const char *onnx_name(struct onnx_graph *g, const char *of, const char *what);
