/* ONNX operators and tensors as messages. The numbers are those of onnx.proto. */
#include "engine/base/onnx_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_OP, NODE_ATTRIBUTE };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS = 8, ATTRIBUTE_TYPE = 20 };
enum { TYPE_FLOAT = 1, TYPE_INT, TYPE_INTS = 7 };
enum { TENSOR_DIM = 1, TENSOR_TYPE, TENSOR_NAME = 8, TENSOR_RAW };

const char *onnx_name(struct onnx_graph *g, const char *of, const char *what) {
    const char *name = of ? pool_printf(g->pool, "%s/%s", of, what) : NULL;
    g->failed |= !name;
    return name ? name : "";
}

/* "axis=1", "pads=1,1", "epsilon=f1e-05" */
static void onnx_attribute(struct proto *p, const char *text) {
    size_t at = proto_open(p, NODE_ATTRIBUTE), n = strcspn(text, "=");
    const char *value = text + n + 1;
    bool list = n > 1 && (text[n - 1] == 's' || !strncmp(text, "kernel_shape", n) || !strncmp(text, "perm", n)) &&
                strncmp(text, "axis", n) != 0 && strncmp(text, "keepdims", n) != 0;
    proto_bytes(p, ATTRIBUTE_NAME, text, n);
    if (*value == 'f') proto_float(p, ATTRIBUTE_FLOAT, strtof(value + 1, NULL));
    if (*value != 'f' && !list) proto_int(p, ATTRIBUTE_INT, strtoll(value, NULL, 10));
    for (char *end = NULL; list && *value; value = *end ? end + 1 : end)
        proto_int(p, ATTRIBUTE_INTS, strtoll(value, &end, 10));
    proto_int(p, ATTRIBUTE_TYPE, list ? TYPE_INTS : text[n + 1] == 'f' ? TYPE_FLOAT : TYPE_INT);
    proto_close(p, at);
}

const char *onnx_node(struct onnx_graph *g, const char *op, const char *out, const char *const *inputs,
                      const char *const *attributes) {
    struct proto *p = &g->nodes;
    if (!out) return NULL;
    size_t at = proto_open(p, ONNX_GRAPH_NODE);
    for (; *inputs; inputs++) proto_text(p, NODE_INPUT, *inputs);
    proto_text(p, NODE_OUTPUT, out);
    proto_text(p, NODE_NAME, out);
    proto_text(p, NODE_OP, op);
    for (; *attributes; attributes++) onnx_attribute(p, *attributes);
    proto_close(p, at);
    return out;
}

/* Adds a tensor of ONNX_FLOAT or ONNX_INT64; gives its name. */
static const char *tensor_add(struct onnx_graph *g, const char *name, int type, const void *data, const int64_t *dim,
                              int ndim) {
    struct proto *p = &g->tensors;
    size_t at = proto_open(p, ONNX_GRAPH_TENSOR), size = type == ONNX_FLOAT ? sizeof(float) : sizeof(int64_t);
    for (int i = 0; i < ndim; i++) size *= (size_t)dim[i];
    for (int i = 0; i < ndim; i++) proto_int(p, TENSOR_DIM, dim[i]);
    proto_int(p, TENSOR_TYPE, type);
    proto_text(p, TENSOR_NAME, name);
    proto_bytes(p, TENSOR_RAW, data, size);
    proto_close(p, at);
    return name;
}

const char *onnx_tensor(struct onnx_graph *g, const char *name, const float *data, const int64_t *dim, int ndim) {
    return tensor_add(g, name, ONNX_FLOAT, data, dim, ndim);
}

static const char *constant_name(struct onnx_graph *g) {
    char text[32];
    snprintf(text, sizeof text, "%d", g->constants++);
    return onnx_name(g, "constant", text);
}

const char *onnx_ints(struct onnx_graph *g, const int64_t *data, int count) {
    const int64_t dim[] = {count};
    return tensor_add(g, constant_name(g), ONNX_INT64, data, dim, count >= 0);
}

const char *onnx_float(struct onnx_graph *g, float value) {
    return onnx_tensor(g, constant_name(g), &value, NULL, 0);
}
