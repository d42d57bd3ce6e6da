/* Attention, plain. Of each sample and head, with queries q, keys k, values v (positions, size),
 * p = softmax(q k' / sqrt(size)) row by row, over the keys that a query may see:
 *   y  = p v
 *   dv = p' dy
 *   ds = p (dy v' - D), D the row's sum of dy y      (the softmax's gradient)
 *   dq = ds k / sqrt(size), dk = ds' q / sqrt(size)
 * Backward works the p of one query out again, so memory is linear in the positions.
 * A cache is (context, keys and values): rows of x without the queries. */
#include "engine/device/ref/ref.h"

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

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)a[k] * (double)b[k];
    return sum;
}

/* p of query t, over 'seen' keys. */
static void probabilities(const struct head *h, int64_t t, int64_t seen) {
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seen; j++) {
        h->p[j] = dot(h->q + t * h->ld, h->k + j * h->ld_k, h->size) / sqrt((double)h->size);
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
            probabilities(&h, t, seen);
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
    double scale = 1 / sqrt((double)h->size), d = dot(dy, h->y + t * h->ld / 3, h->size);
    double *dq = h->grad, *dk = dq + h->positions * h->size, *dv = dk + h->positions * h->size;
    probabilities(h, t, seen);
    for (int64_t j = 0; j < seen; j++) {
        double ds = h->p[j] * (dot(dy, h->v + j * h->ld_k, h->size) - d) * scale;
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

static enum error attention_create(struct device *dev, const struct op_desc *d, struct op **out) {
    TRY(op_create_plain(&ref_attention, dev, d, out));
    int64_t all = shape_last(&d->y), size = all / d->attention.heads, context = d->attention.context;
    int64_t keys = context ? context : d->x.dim[0];
    (*out)->scratch_bytes = (size_t)(keys + 3 * d->x.dim[0] * size) * sizeof(double);
    (*out)->cache_bytes = (size_t)(2 * context * all) * sizeof(float);
    return ERR_NONE;
}

const struct op_impl ref_attention = {
    .name = "ref",
    .takes = op_takes_plain,
    .create = attention_create,
    .forward = attention_forward,
    .backward = attention_backward,
    .free = op_release,
};
