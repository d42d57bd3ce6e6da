/* Each op of a network as ONNX operators. Where ONNX has the op it is one node; gelu, rmsnorm, attention and a class token
 * are made of several. */
#include "engine/save/onnx_layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define IN(...) ONNX_LIST(__VA_ARGS__)
static const char *const none[] = {NULL};

static const char *unary(struct onnx_graph *g, const char *op, const char *out, const char *x) {
    return onnx_node(g, op, out, IN(x), none);
}

static const char *binary(struct onnx_graph *g, const char *op, const char *out, const char *a, const char *b) {
    return onnx_node(g, op, out, IN(a, b), none);
}

/* ---- activations ---- */

/* x (1 + erf(x / sqrt 2)) / 2 */
static const char *gelu(struct onnx_graph *g, const char *name, const char *x) {
    const char *e = unary(g, "Erf", onnx_name(g, name, "erf"),
                          binary(g, "Mul", onnx_name(g, name, "scaled"), x, onnx_float(g, (float)sqrt(0.5))));
    const char *one = binary(g, "Add", onnx_name(g, name, "up"), e, onnx_float(g, 1));
    const char *half = binary(g, "Mul", onnx_name(g, name, "half"), x, onnx_float(g, 0.5f));
    return binary(g, "Mul", name, half, one);
}

/* x / (1 + e^(-2 sqrt(2 / pi) (x + 0.044715 x^3))) */
static const char *gelu_tanh(struct onnx_graph *g, const char *name, const char *x) {
    const char *square = binary(g, "Mul", onnx_name(g, name, "square"), x, x);
    const char *bent = binary(g, "Mul", onnx_name(g, name, "bent"), square, onnx_float(g, 0.044715f));
    const char *up = binary(g, "Add", onnx_name(g, name, "up"), bent, onnx_float(g, 1));
    const char *inner = binary(g, "Mul", onnx_name(g, name, "inner"), x, up);
    const char *scaled = binary(g, "Mul", onnx_name(g, name, "scaled"), inner, onnx_float(g, 1.5957691216f));
    return binary(g, "Mul", name, x, unary(g, "Sigmoid", onnx_name(g, name, "gate"), scaled));
}

static const char *activation(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x) {
    char alpha[48];
    switch (d->act) {
    case ACT_NONE:
        return x;
    case ACT_RELU:
        return unary(g, "Relu", name, x);
    case ACT_LEAKY_RELU:
        snprintf(alpha, sizeof alpha, "alpha=f%.9g", (double)d->act_alpha);
        return onnx_node(g, "LeakyRelu", name, IN(x), IN(alpha));
    case ACT_GELU:
        return gelu(g, name, x);
    case ACT_GELU_TANH:
        return gelu_tanh(g, name, x);
    case ACT_SILU:
        return binary(g, "Mul", name, x, unary(g, "Sigmoid", onnx_name(g, name, "gate"), x));
    case ACT_SIGMOID:
        return unary(g, "Sigmoid", name, x);
    case ACT_TANH:
        return unary(g, "Tanh", name, x);
    }
    (void)FAIL(ERR_CONFIG, "the activation '%s' has no form in ONNX", act_name(d->act));
    return NULL;
}

/* ---- images ---- */

static void window_attributes(const struct window *w, char out[3][128]) {
    snprintf(out[0], 128, "kernel_shape=%d,%d", w->kernel[0], w->kernel[1]);
    snprintf(out[1], 128, "strides=%d,%d", w->stride[0], w->stride[1]);
    snprintf(out[2], 128, "pads=%d,%d,%d,%d", w->pad[0], w->pad[1], w->pad[0], w->pad[1]);
}

static const char *conv(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x,
                        const char *const *w) {
    char a[3][128], group[32];
    window_attributes(&d->conv.window, a);
    snprintf(group, sizeof group, "group=%d", d->conv.groups);
    return onnx_node(g, "Conv", name, IN(x, w[0], d->conv.bias ? w[1] : NULL), IN(a[0], a[1], a[2], group));
}

static const char *pool(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x) {
    char a[3][128];
    bool max = d->pool.kind == POOL_MAX;
    window_attributes(&d->pool.window, a);
    return onnx_node(g, max ? "MaxPool" : "AveragePool", name, IN(x),
                     IN(a[0], a[1], a[2], max ? NULL : "count_include_pad=1"));
}

static const char *mean(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x) {
    return onnx_node(g, "ReduceMean", name, IN(x), IN(d->x.ndim == 3 ? "axes=2,3" : "axes=1", "keepdims=0"));
}

/* ---- rows ---- */

static const char *linear(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x,
                          const char *const *w) {
    bool turned = d->linear.transposed;
    if (d->x.ndim == 1)
        return onnx_node(g, "Gemm", name, IN(x, w[0], d->linear.bias ? w[1] : NULL),
                         IN(turned ? "transB=0" : "transB=1"));
    const char *weight =
        turned ? w[0] : onnx_node(g, "Transpose", onnx_name(g, name, "turned"), IN(w[0]), IN("perm=1,0"));
    if (!d->linear.bias) return binary(g, "MatMul", name, x, weight);
    return binary(g, "Add", name, binary(g, "MatMul", onnx_name(g, name, "product"), x, weight), w[1]);
}

static const char *norm(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x,
                        const char *const *w) {
    char eps[48];
    snprintf(eps, sizeof eps, "epsilon=f%.9g", (double)d->norm.eps);
    if (d->kind == OP_BATCHNORM)
        return onnx_node(g, "BatchNormalization", name, IN(x, w[0], w[1], w[LAYER_PARAMS], w[LAYER_PARAMS + 1]),
                         IN(eps));
    if (d->kind == OP_LAYERNORM)
        return onnx_node(g, "LayerNormalization", name, IN(x, w[0], d->norm.bias ? w[1] : NULL), IN("axis=-1", eps));
    const char *squares =
        onnx_node(g, "ReduceMean", onnx_name(g, name, "mean"), IN(binary(g, "Mul", onnx_name(g, name, "square"), x, x)),
                  IN("axes=-1", "keepdims=1"));
    const char *sum = binary(g, "Add", onnx_name(g, name, "sum"), squares, onnx_float(g, d->norm.eps));
    const char *scaled =
        binary(g, "Div", onnx_name(g, name, "scaled"), x, unary(g, "Sqrt", onnx_name(g, name, "root"), sum));
    return binary(g, "Mul", name, scaled, w[0]);
}

/* ---- sequences ---- */

/* The row for each sample, and what follows it. */
static const char *prepend(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x,
                           const char *w) {
    const int64_t rest[] = {1, d->x.dim[1]};
    const char *samples = onnx_node(g, "Shape", onnx_name(g, name, "samples"), IN(x), IN("start=0", "end=1"));
    const char *shape =
        onnx_node(g, "Concat", onnx_name(g, name, "shape"), IN(samples, onnx_ints(g, rest, 2)), IN("axis=0"));
    const char *rows = binary(g, "Expand", onnx_name(g, name, "rows"), w, shape);
    return onnx_node(g, "Concat", name, IN(rows, x), IN("axis=1"));
}

static const char *image_rows(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x) {
    const int64_t shape[] = {0, d->x.dim[0], d->x.dim[1] * d->x.dim[2]};
    const char *flat = binary(g, "Reshape", onnx_name(g, name, "flat"), x, onnx_ints(g, shape, 3));
    return onnx_node(g, "Transpose", name, IN(flat), IN("perm=0,2,1"));
}

/* A third of the features, by head: (samples, heads, positions, size), or the last two the other way round. */
static const char *heads(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x, int which) {
    static const char *const parts[] = {"query", "key", "value"};
    int64_t features = d->y.dim[1], size = features / d->attention.heads;
    const int64_t from[] = {which * features}, to[] = {(which + 1) * features}, axis[] = {2};
    const int64_t shape[] = {0, 0, d->attention.heads, size};
    const char *base = onnx_name(g, name, parts[which]);
    const char *cut = onnx_node(g, "Slice", onnx_name(g, base, "cut"),
                                IN(x, onnx_ints(g, from, 1), onnx_ints(g, to, 1), onnx_ints(g, axis, 1)), none);
    const char *split = binary(g, "Reshape", onnx_name(g, base, "split"), cut, onnx_ints(g, shape, 4));
    return onnx_node(g, "Transpose", base, IN(split), IN(which == 1 ? "perm=0,2,3,1" : "perm=0,2,1,3"));
}

/* What a position does not see is so far below the others that softmax makes it nothing. */
static const char *mask(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x) {
    int64_t n = d->x.dim[0];
    const int64_t dim[] = {n, n};
    float *v = pool_alloc(g->pool, sizeof *v * (size_t)(n * n));
    if (!v) return NULL;
    for (int64_t i = 0; i < n * n; i++) v[i] = i % n > i / n ? -1e30f : 0;
    return binary(g, "Add", onnx_name(g, name, "masked"), x, onnx_tensor(g, onnx_name(g, name, "mask"), v, dim, 2));
}

static const char *attention(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x) {
    int64_t features = d->y.dim[1];
    const int64_t shape[] = {0, 0, features};
    float scale = (float)(1 / sqrt((double)(features / d->attention.heads)));
    const char *q = heads(g, d, name, x, 0), *k = heads(g, d, name, x, 1), *v = heads(g, d, name, x, 2);
    const char *score = binary(g, "Mul", onnx_name(g, name, "score"),
                               binary(g, "MatMul", onnx_name(g, name, "product"), q, k), onnx_float(g, scale));
    if (d->attention.causal) score = mask(g, d, name, score);
    const char *share = onnx_node(g, "Softmax", onnx_name(g, name, "share"), IN(score), IN("axis=-1"));
    const char *mixed = binary(g, "MatMul", onnx_name(g, name, "mixed"), share, v);
    const char *back = onnx_node(g, "Transpose", onnx_name(g, name, "back"), IN(mixed), IN("perm=0,2,1,3"));
    return binary(g, "Reshape", name, back, onnx_ints(g, shape, 3));
}

/* ---- all ---- */

const char *onnx_layer(struct onnx_graph *g, const struct model_node *n, const char *const x[LAYER_INPUTS],
                       const char *const w[LAYER_PARAMS + LAYER_BUFFERS]) {
    const struct op_desc *d = &n->plan.op;
    const char *name = onnx_name(g, n->name, "y"); /* a parameter may be called as its layer */
    if (n->plan.view)
        return n->plan.y.ndim == 1 && n->x.ndim > 1 ? onnx_node(g, "Flatten", name, IN(x[0]), IN("axis=1")) : x[0];
    switch (d->kind) {
    case OP_LINEAR:
        return linear(g, d, name, x[0], w);
    case OP_CONV2D:
        return conv(g, d, name, x[0], w);
    case OP_POOL2D:
        return pool(g, d, name, x[0]);
    case OP_MEAN:
        return mean(g, d, name, x[0]);
    case OP_ACTIVATION:
        return activation(g, d, name, x[0]);
    case OP_DROPOUT:
        return x[0]; /* nothing is dropped once training is over */
    case OP_BATCHNORM:
    case OP_LAYERNORM:
    case OP_RMSNORM:
        return norm(g, d, name, x[0], w);
    case OP_ADD:
        return binary(g, "Add", name, x[0], x[1]);
    case OP_EMBEDDING:
        return binary(g, "Gather", name, w[0], x[0]);
    case OP_POSITION:
        return binary(g, "Add", name, x[0], w[0]);
    case OP_PREPEND:
        return prepend(g, d, name, x[0], w[0]);
    case OP_SELECT:
        return onnx_node(g, "Gather", name, IN(x[0], onnx_ints(g, &d->select.row, -1)), IN("axis=1"));
    case OP_TOKENS:
        return image_rows(g, d, name, x[0]);
    case OP_ATTENTION:
        return attention(g, d, name, x[0]);
    default:
        (void)FAIL(ERR_CONFIG, "the layer '%s' (%s) has no form in ONNX", n->name, op_kind_name(d->kind));
        return NULL;
    }
}
