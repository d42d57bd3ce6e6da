/* Attention, plain. Of each sample and head, with queries q, keys k, values v (positions, size),
 * p = softmax(q k' / sqrt(size)) row by row, over the keys that a query may see:
 *   y  = p v
 *   dv = p' dy
 *   ds = p (dy v' - D), D the row's sum of dy y      (the softmax's gradient)
 *   dq = ds k / sqrt(size), dk = ds' q / sqrt(size)
 * Backward works the p of one query out again, so memory is linear in the positions.
 * A cache is (context, keys and values): rows of x without the queries. */
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"

#include "engine/base/real.h"

#include <math.h>
#include <string.h>

struct head { /* of one sample: rows lie 'ld' (x, dx), 'ld / 3' (y, dy) and 'ld_k' (k, v) floats apart */
    int64_t positions, size, ld, ld_k;
    const float *q, *k, *v, *y, *dy;
    float *to, *dx;
    double *p, *grad; /* scratch: p of one query; dq, dk, dv (positions, size) each */
};

static struct head head_of(const struct op_desc *d, const struct op_args *a, int64_t i) {
    int64_t heads = d->attention.heads, all = shape_last(&d->y), size = all / heads;
    int64_t positions = d->x.dim[0], at = i / heads * positions * all + i % heads * size;
    int64_t in = i / heads * positions * 3 * all + i % heads * size;
    struct head h = {.positions = positions, .size = size, .ld = 3 * all, .ld_k = 3 * all, .p = a->scratch};
    h.q = a->x[0] + in, h.k = h.q + all;
    if (d->attention.context) h.k = (const float *)a->cache + i * size, h.ld_k = 2 * all;
    h.v = h.k + all;
    h.to = a->y + at, h.y = h.to;
    if (a->dy) h.dy = a->dy + at;
    if (a->dx[0]) h.dx = a->dx[0] + in;
    h.grad = h.p + positions;
    return h;
}

static double floats_dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)a[k] * (double)b[k];
    return sum;
}

/* p of query t, over 'seen' keys. */
static void query_probabilities(const struct head *h, int64_t t, int64_t seen) {
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seen; j++) {
        h->p[j] = floats_dot(h->q + t * h->ld, h->k + j * h->ld_k, h->size) / sqrt((double)h->size);
        if (h->p[j] > most) most = h->p[j];
    }
    for (int64_t j = 0; j < seen; j++) {
        h->p[j] = real_exp(h->p[j] - most);
        sum += h->p[j];
    }
    for (int64_t j = 0; j < seen; j++) h->p[j] /= sum;
}

static void cache_append(const struct op_desc *d, const struct op_args *a) {
    int64_t all = shape_last(&d->y);
    for (int64_t t = 0; t < d->x.dim[0]; t++)
        memcpy((float *)a->cache + (a->at + t) * 2 * all, a->x[0] + t * 3 * all + all,
               (size_t)(2 * all) * sizeof(float));
}

static enum error attention_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    if (d->attention.context) cache_append(d, a);
    for (int64_t i = 0; i < d->n * d->attention.heads; i++) {
        struct head h = head_of(d, a, i);
        for (int64_t t = 0; t < h.positions; t++) {
            int64_t seen = d->attention.causal ? a->at + t + 1 : h.positions;
            query_probabilities(&h, t, seen);
            for (int64_t k = 0; k < h.size; k++) {
                double sum = 0;
                for (int64_t j = 0; j < seen; j++) sum += h.p[j] * (double)h.v[j * h.ld_k + k];
                h.to[t * h.ld / 3 + k] = (float)sum;
            }
        }
    }
    return ERR_NONE;
}

/* What query t gives to dq, dk and dv. */
static void query_backward(const struct head *h, int64_t t, int64_t seen) {
    const float *dy = h->dy + t * h->ld / 3;
    double scale = 1 / sqrt((double)h->size), d = floats_dot(dy, h->y + t * h->ld / 3, h->size);
    double *dq = h->grad, *dk = dq + h->positions * h->size, *dv = dk + h->positions * h->size;
    query_probabilities(h, t, seen);
    for (int64_t j = 0; j < seen; j++) {
        double ds = h->p[j] * (floats_dot(dy, h->v + j * h->ld_k, h->size) - d) * scale;
        for (int64_t k = 0; k < h->size; k++) {
            dv[j * h->size + k] += h->p[j] * (double)dy[k];
            dq[t * h->size + k] += ds * (double)h->k[j * h->ld_k + k];
            dk[j * h->size + k] += ds * (double)h->q[t * h->ld + k];
        }
    }
}

static void head_backward(const struct op_desc *d, const struct head *h) {
    int64_t each = h->positions * h->size;
    for (int64_t k = 0; k < 3 * each; k++) h->grad[k] = 0;
    for (int64_t t = 0; t < h->positions; t++) query_backward(h, t, d->attention.causal ? t + 1 : h->positions);
    for (int64_t k = 0; k < 3 * each; k++) {
        int64_t row = k % each / h->size * h->ld, part = k / each * (h->ld / 3);
        h->dx[row + part + k % h->size] = (float)h->grad[k];
    }
}

static enum error attention_backward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    for (int64_t i = 0; i < d->n * d->attention.heads && a->dx[0]; i++) {
        struct head h = head_of(d, a, i);
        head_backward(d, &h);
    }
    return ERR_NONE;
}

static enum error attention_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    int64_t all = shape_last(&d->y), size = all / d->attention.heads, context = d->attention.context;
    int64_t keys = context ? context : d->x.dim[0];
    op->scratch_bytes = (size_t)(keys + 3 * d->x.dim[0] * size) * sizeof(double);
    op->cache_bytes = (size_t)(2 * context * all) * sizeof(float);
    return ERR_NONE;
}

static bool cache_fits(const struct op_desc *d) {
    int64_t context = d->attention.context;
    return context == 0 || (d->attention.causal && d->n == 1 && d->x.dim[0] <= context);
}

static bool attention_fits(const struct op_desc *d) {
    int64_t all = shape_last(&d->y);
    return d->x.ndim == 2 && shape_last(&d->x) == 3 * all && d->attention.heads >= 1 && all % d->attention.heads == 0 &&
           op_rows_fit(d, all) && cache_fits(d);
}

/* Multiply-adds of q k' and p v; half of them where it is causal. */
static double attention_products(const struct op_desc *d) {
    return (double)shape_count(&d->y) * (double)d->y.dim[0] * (d->attention.causal ? 1 : 2);
}

/* A third of the features, by head: (samples, heads, positions, size), or the last two the other way round. */
static const char *heads_onnx(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x,
                              int which) {
    static const char *const parts[] = {"query", "key", "value"};
    int64_t features = d->y.dim[1], size = features / d->attention.heads;
    const int64_t from[] = {which * features}, to[] = {(which + 1) * features}, axis[] = {2};
    const int64_t shape[] = {0, 0, d->attention.heads, size};
    const char *base = onnx_name(g, name, parts[which]);
    const char *cut =
        onnx_node(g, "Slice", onnx_name(g, base, "cut"),
                  ONNX_LIST(x, onnx_ints(g, from, 1), onnx_ints(g, to, 1), onnx_ints(g, axis, 1)), ONNX_NONE);
    const char *split = onnx_binary(g, "Reshape", onnx_name(g, base, "split"), cut, onnx_ints(g, shape, 4));
    return onnx_node(g, "Transpose", base, ONNX_LIST(split), ONNX_LIST(which == 1 ? "perm=0,2,3,1" : "perm=0,2,1,3"));
}

/* What a position does not see is so far below the others that softmax makes it nothing. */
static const char *mask_onnx(struct onnx_graph *g, const struct op_desc *d, const char *name, const char *x) {
    int64_t n = d->x.dim[0];
    const int64_t dim[] = {n, n};
    float *v = pool_alloc(g->pool, sizeof *v * (size_t)(n * n));
    if (!v) return NULL;
    for (int64_t i = 0; i < n * n; i++) v[i] = i % n > i / n ? -1e30f : 0;
    return onnx_binary(g, "Add", onnx_name(g, name, "masked"), x,
                       onnx_tensor(g, onnx_name(g, name, "mask"), v, dim, 2));
}

static const char *attention_onnx(const struct onnx_form *f) {
    struct onnx_graph *g = f->g;
    const char *x = f->x[0];
    int64_t features = f->d->y.dim[1];
    const int64_t shape[] = {0, 0, features};
    float scale = (float)(1 / sqrt((double)(features / f->d->attention.heads)));
    const char *q = heads_onnx(g, f->d, f->name, x, 0), *k = heads_onnx(g, f->d, f->name, x, 1),
               *v = heads_onnx(g, f->d, f->name, x, 2);
    const char *score =
        onnx_binary(g, "Mul", onnx_name(g, f->name, "score"),
                    onnx_binary(g, "MatMul", onnx_name(g, f->name, "product"), q, k), onnx_float(g, scale));
    if (f->d->attention.causal) score = mask_onnx(g, f->d, f->name, score);
    const char *share = onnx_node(g, "Softmax", onnx_name(g, f->name, "share"), ONNX_LIST(score), ONNX_LIST("axis=-1"));
    const char *mixed = onnx_binary(g, "MatMul", onnx_name(g, f->name, "mixed"), share, v);
    const char *back =
        onnx_node(g, "Transpose", onnx_name(g, f->name, "back"), ONNX_LIST(mixed), ONNX_LIST("perm=0,2,1,3"));
    return onnx_binary(g, "Reshape", f->name, back, onnx_ints(g, shape, 3));
}

const struct op_row op_attention = {
    .name = "attention",
    .sees = SEES_BEFORE,
    .fits = attention_fits,
    .products = attention_products,
    .onnx = attention_onnx,
    .plain = {.name = "ref", .plan = attention_plan, .forward = attention_forward, .backward = attention_backward},
};
