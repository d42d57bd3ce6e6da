/* An ONNX file is one message: of the model, which has a graph, which has nodes (operators) and initializers (tensors). All
 * of it is made in memory, since a message's length comes before it. The numbers are those of onnx.proto. */
#include "engine/save/onnx.h"

#include "engine/base/file.h"
#include "engine/base/onnx_graph.h"
#include "engine/base/version.h"
#include <stdlib.h>

enum { OPSET = 17, IR_VERSION = 8 };
enum {
    MODEL_IR = 1,
    MODEL_PRODUCER,
    MODEL_PRODUCER_VERSION,
    MODEL_DOC = 6,
    MODEL_GRAPH,
    MODEL_OPSET,
    MODEL_PROPERTY = 14
};
enum { GRAPH_NAME = 2, GRAPH_INPUT = 11, GRAPH_OUTPUT };

/* ---- the graph ---- */

/* (x - mean) * scale, one pair for all or one for each channel. */
static const char *onnx_normalise(struct onnx_graph *g, const struct model *m, const struct normalization *norm) {
    int64_t dim[SHAPE_MAX] = {norm->channels, 1, 1, 1};
    int ndim = norm->channels > 1 ? m->input.ndim : 0;
    const char *mean = onnx_tensor(g, "input/mean", norm->mean, dim, ndim);
    const char *scale = onnx_tensor(g, "input/scale", norm->scale, dim, ndim);
    const char *shifted = onnx_binary(g, "Sub", "input/shifted", "input", mean);
    return onnx_binary(g, "Mul", "input/normalized", shifted, scale);
}

/* y / scale + mean: the outputs in the unit of the targets. */
static void onnx_undo_targets(struct onnx_graph *g, const struct normalization *norm, const char *y,
                              const char *output) {
    int64_t dim[] = {norm->targets};
    const char *mean = onnx_tensor(g, "output/mean", norm->target_mean, dim, norm->targets > 1);
    const char *scale = onnx_tensor(g, "output/scale", norm->target_scale, dim, norm->targets > 1);
    const char *wide = onnx_binary(g, "Div", "output/scaled", y, scale);
    onnx_binary(g, "Add", output, wide, mean);
}

static void add_tensors(struct onnx_graph *g, const struct tensor_info *t, int n, const float *data) {
    for (int i = 0; i < n; i++) onnx_tensor(g, t[i].name, data + t[i].offset, t[i].shape.dim, t[i].shape.ndim);
}

/* Names of a node's parameters, then of its buffers. */
static void names_of(const struct model *m, const struct model_node *n, const char *w[LAYER_PARAMS + LAYER_BUFFERS]) {
    for (int i = 0; i < LAYER_PARAMS; i++) {
        int k = i == 0 && n->tied >= 0 ? m->nodes[n->tied].param[0] : n->param[i];
        w[i] = k >= 0 ? m->params[k].name : NULL;
    }
    for (int i = 0; i < LAYER_BUFFERS; i++)
        w[LAYER_PARAMS + i] = n->buffer[i] >= 0 ? m->buffers[n->buffer[i]].name : NULL;
}

/* The operators that compute a node from its inputs x; w: names of its parameters and buffers. Gives the name of its
 * output; NULL: as op_row.onnx. */
static const char *add_node(struct onnx_graph *g, const struct model_node *n, const char *const x[LAYER_INPUTS],
                            const char *const w[LAYER_PARAMS + LAYER_BUFFERS]) {
    const struct op_row *row = op_row(n->plan.op.kind);
    const char *name = onnx_name(g, n->name, "y"); /* a parameter may be called as its layer */
    if (n->plan.view)
        return n->plan.y.ndim == 1 && n->x.ndim > 1
                   ? onnx_node(g, "Flatten", name, ONNX_LIST(x[0]), ONNX_LIST("axis=1"))
                   : x[0];
    if (row->onnx) return row->onnx(&(struct onnx_form){g, &n->plan.op, name, x, w});
    (void)FAIL(ERR_CONFIG, "the layer '%s' (%s) has no form in ONNX", n->name, row->name);
    return NULL;
}

static enum error add_nodes(struct onnx_graph *g, const struct model *m, const struct normalization *norm,
                            const char *input, const char *output) {
    const char **y = pool_alloc(g->pool, sizeof *y * (size_t)(m->nnodes + 1)), *last = input;
    if (!y) return ERR_MEMORY;
    for (int i = 0; i < m->nnodes; i++) {
        const struct model_node *n = &m->nodes[i];
        const char *x[LAYER_INPUTS], *w[LAYER_PARAMS + LAYER_BUFFERS];
        for (int k = 0; k < LAYER_INPUTS; k++) x[k] = n->input[k] >= 0 ? y[n->input[k]] : input;
        names_of(m, n, w);
        if (!(y[i] = add_node(g, n, x, w))) return ERR_CONFIG;
        last = y[i];
    }
    if (norm->targets)
        onnx_undo_targets(g, norm, last, output);
    else
        onnx_unary(g, "Identity", output, last);
    return g->failed ? FAIL(ERR_MEMORY, "no memory for the ONNX graph") : ERR_NONE;
}

/* An input or output: its name, type, and shape with any number of samples before it. */
static void add_value(struct proto *p, int field, const char *name, int type, const struct shape *s) {
    enum { VALUE_NAME = 1, VALUE_TYPE, TYPE_TENSOR = 1, ELEMENT = 1, SHAPE, DIM = 1, DIM_VALUE = 1, DIM_NAME };
    size_t at = proto_open(p, field);
    proto_text(p, VALUE_NAME, name);
    size_t of = proto_open(p, VALUE_TYPE), tensor_at = proto_open(p, TYPE_TENSOR);
    proto_int(p, ELEMENT, type);
    size_t shape = proto_open(p, SHAPE);
    for (int i = -1; i < s->ndim; i++) {
        size_t dim = proto_open(p, DIM);
        if (i < 0)
            proto_text(p, DIM_NAME, "samples");
        else
            proto_int(p, DIM_VALUE, s->dim[i]);
        proto_close(p, dim);
    }
    proto_close(p, shape);
    proto_close(p, tensor_at);
    proto_close(p, of);
    proto_close(p, at);
}

static void add_graph(struct proto *p, const struct onnx_graph *g, const struct model *m, bool tokens,
                      const char *output) {
    size_t at = proto_open(p, MODEL_GRAPH);
    proto_text(p, GRAPH_NAME, m->name);
    proto_append(p, &g->nodes);
    proto_append(p, &g->tensors);
    add_value(p, GRAPH_INPUT, "input", tokens ? ONNX_INT64 : ONNX_FLOAT, &m->input);
    add_value(p, GRAPH_OUTPUT, output, ONNX_FLOAT, &m->output);
    proto_close(p, at);
}

/* ---- the file ---- */

static void add_property(struct proto *p, const char *key, const char *value) {
    size_t at = proto_open(p, MODEL_PROPERTY);
    proto_text(p, 1, key);
    proto_text(p, 2, value);
    proto_close(p, at);
}

static enum error add_properties(struct proto *p, const struct dataset *d, const struct normalization *norm,
                                 struct pool *pool) {
    const char *text;
    struct json j = {0};
    TRY(preprocessing_text(d, norm, pool, &text));
    if (text) add_property(p, "preprocessing", text);
    if (d->type == SAMPLE_TOKENS || d->classes == 0 || !dataset_class_name(d, 0)) return ERR_NONE;
    json_array(&j, NULL, k, d->classes) json_string(&j, NULL, dataset_class_name(d, k));
    enum error err = json_done(&j);
    if (err == ERR_NONE) add_property(p, "class_names", j.text);
    json_fini(&j);
    return err;
}

static const char *doc_of(const struct dataset *d) {
    return d->type == SAMPLE_U8 ? "input: (samples, shape), bytes as floats from 0 to 255; it is normalised inside"
           : d->type == SAMPLE_TOKENS
               ? "input: (samples, positions), tokens as int64"
               : "input: (samples, shape), values as they lie in the data; they are normalised inside";
}

static enum error file_make(struct onnx_graph *g, struct proto *p, const struct onnx_source *s) {
    const struct model *m = s->model;
    bool tokens = s->data->type == SAMPLE_TOKENS;
    const char *output = s->data->classes ? "logits" : "output";
    add_tensors(g, m->params, m->nparams, s->values);
    add_tensors(g, m->buffers, m->nbuffers, s->buffers);
    TRY(add_nodes(g, m, s->norm, tokens ? "input" : onnx_normalise(g, m, s->norm), output));
    proto_int(p, MODEL_IR, IR_VERSION);
    proto_text(p, MODEL_PRODUCER, "engine");
    proto_text(p, MODEL_PRODUCER_VERSION, ENGINE_VERSION);
    proto_text(p, MODEL_DOC, doc_of(s->data));
    add_graph(p, g, m, tokens, output);
    size_t opset = proto_open(p, MODEL_OPSET);
    proto_int(p, 2, OPSET);
    proto_close(p, opset);
    TRY(add_properties(p, s->data, s->norm, g->pool));
    return p->failed
               ? FAIL(ERR_DATA, "the network does not fit into memory, or not into the 2 GB that an ONNX file may have")
               : ERR_NONE;
}

enum error onnx_write(const struct onnx_source *s, const char *path, size_t *bytes) {
    struct onnx_graph g = {0};
    struct proto p = {0};
    TRY(pool_create(&g.pool));
    enum error err = file_make(&g, &p, s);
    if (err == ERR_NONE) err = file_replace(path, p.data, *bytes = p.n);
    free(g.nodes.data);
    free(g.tensors.data);
    free(p.data);
    pool_free(g.pool);
    return err;
}
