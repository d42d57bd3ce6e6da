/* PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727, algorithm 2 with warm start). The
 * gradient of each matrix, n x m (a convolution's is out x the rest), plus what the last step left
 * of it, is M; one step of power iteration finds thin factors of the sum of all ranks' M:
 *
 *     P = M Q               n x r    all-reduced, then its columns are made orthonormal
 *     Q = M^T P             m x r    all-reduced; it starts the next step's iteration
 *     sum ~ P Q^T                    what the optimizer gets
 *     left = M - P Q^T / N           on each rank; over the ranks that is what the sum lacks
 *
 * (n + m) r floats travel, twice (N-1)/N of them, instead of n m: an all-reduce, so the bytes do not
 * grow with the number of ranks. Tensors of one dimension, and matrices that their factors would be
 * larger than, travel as they are, beside P.
 *
 * Factors are kept as r rows, so that all loops run over whole rows. A column that is lost in the
 * others (the gradient's rank is below r, or it is zero) becomes zero in P, and is drawn anew in Q:
 * the same on every rank. */
#include "engine/base/rng.h"
#include "engine/base/vector.h"
#include "engine/settings/compress.h"
#include "engine/settings/run_config.h"
#include "modes/share/compress.h"

#include <math.h>
#include <string.h>

enum { DOTS = 32 };
struct matrix { /* of a tensor, in the order of the model's */
    int64_t n, m;
    int64_t r;    /* 0: it travels as it is */
    int64_t p, q; /* where its factors begin in wire (or the tensor itself) and in back */
};

static struct matrix *matrices_of(struct compress *c) {
    return c->own;
}

/* ---- vectors ---- */

VECTORISED static float rows_dot(const float *restrict a, const float *restrict b, int64_t n) {
    float sum[DOTS] = {0};
    int64_t whole = n / DOTS * DOTS;
    for (int64_t i = 0; i < whole; i += DOTS)
        for (int k = 0; k < DOTS; k++) sum[k] += a[i + k] * b[i + k];
    for (int64_t i = whole; i < n; i++) sum[i - whole] += a[i] * b[i];
    for (int half = DOTS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) sum[k] += sum[k + half];
    return sum[0];
}

/* y += a x */
VECTORISED static void add_times(float *restrict y, float a, const float *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

/* left -= sum / ranks */
VECTORISED static void take_off(float *restrict left, const float *restrict sum, float share, int64_t n) {
    for (int64_t i = 0; i < n; i++) left[i] -= sum[i] * share;
}

/* Makes row x orthogonal to the rows before it and of length 1. False: nothing is left of it. */
static bool row_orthonormal(float *rows, int64_t n, int64_t at) {
    enum { TWICE = 2 }; /* once more, for what rounding has left */
    static const double lost = 1e-10;
    float *x = rows + at * n;
    double before = squares_sum(x, n), after = before;
    if (!(before > 0)) return isnan(before);
    for (int pass = 0; pass < TWICE; pass++)
        for (int64_t k = 0; k < at; k++) add_times(x, -rows_dot(x, rows + k * n, n), rows + k * n, n);
    after = squares_sum(x, n);
    if (after <= lost * before) return false;
    floats_scale(x, (float)(1 / sqrt(after)), n);
    return true;
}

static void column_draw(struct compress *c, float *row, int64_t n, uint64_t tensor, uint64_t column) {
    struct rng_key key = rng_key((uint64_t)c->t->config->seed, RNG_COMPRESS);
    uint64_t step = (uint64_t)c->t->at.step << 32 | column << 24;
    rng_normals(key, step + tensor, 0, n, row);
}

/* ---- what lies where ---- */

static struct matrix shape_of(const struct compress *c, const struct tensor_info *t) {
    struct matrix x = {.n = t->shape.dim[0]};
    int64_t r = c->config->rank;
    if (t->shape.ndim < 2 || t->count == 0) return x;
    x.m = t->count / x.n;
    if (r > x.n) r = x.n;
    if (r > x.m) r = x.m;
    if ((x.n + x.m) * r < t->count) x.r = r;
    return x;
}

static bool is_within(const struct packet *p, const struct tensor_info *t) {
    return t->offset >= p->begin && t->offset < p->begin + p->n;
}

static enum error lay_out(struct compress *c) {
    const struct model *m = c->t->model;
    TRY_MEMORY(c->own = memory_new((size_t)m->nparams * sizeof(struct matrix)));
    for (int i = 0; i < m->nparams; i++) matrices_of(c)[i] = shape_of(c, &m->params[i]);
    return ERR_NONE;
}

static enum error powersgd_open(struct compress *c, struct packet *p) {
    if (!c->own) TRY(lay_out(c));
    for (int i = 0; i < c->t->model->nparams; i++) {
        const struct tensor_info *t = &c->t->model->params[i];
        struct matrix *x = &matrices_of(c)[i];
        if (!is_within(p, t)) continue;
        x->p = p->nwire, x->q = p->nback;
        p->nwire += x->r ? x->n * x->r : t->count;
        p->nback += x->m * x->r;
    }
    TRY(compress_alloc(c, (size_t)p->nwire * sizeof(float), &p->wire));
    return compress_alloc(c, (size_t)p->nback * sizeof(float), &p->back);
}

/* ---- one matrix ---- */

struct factors {
    const struct matrix *x;
    float *left, *g; /* M, and the gradients */
    float *p, *q;    /* r rows of n, r rows of m */
};

static void make_p(struct compress *c, const struct factors *f, int tensor) {
    int64_t n = f->x->n, m = f->x->m;
    for (int64_t k = 0; k < f->x->r; k++)
        if (!row_orthonormal(f->q, m, k)) {
            column_draw(c, f->q + k * m, m, (uint64_t)tensor, (uint64_t)k);
            if (!row_orthonormal(f->q, m, k)) memset(f->q + k * m, 0, (size_t)m * sizeof(float));
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < f->x->r; k++) f->p[k * n + i] = rows_dot(f->left + i * m, f->q + k * m, m);
}

static void make_q(const struct factors *f) {
    int64_t n = f->x->n, m = f->x->m;
    for (int64_t k = 0; k < f->x->r; k++)
        if (!row_orthonormal(f->p, n, k)) memset(f->p + k * n, 0, (size_t)n * sizeof(float));
    memset(f->q, 0, (size_t)(m * f->x->r) * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < f->x->r; k++) add_times(f->q + k * m, f->p[k * n + i], f->left + i * m, m);
}

static void factors_sum(const struct factors *f, int ranks) {
    int64_t n = f->x->n, m = f->x->m;
    memset(f->g, 0, (size_t)(n * m) * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < f->x->r; k++) add_times(f->g + i * m, f->p[k * n + i], f->q + k * m, m);
    take_off(f->left, f->g, 1 / (float)ranks, n * m);
}

/* ---- one bucket ---- */

enum stage { SEND, TURN, RECEIVE };

static void run_matrix(struct compress *c, struct packet *p, int tensor, enum stage stage) {
    const struct tensor_info *t = &c->t->model->params[tensor];
    const struct matrix *x = &matrices_of(c)[tensor];
    int64_t at = t->offset - p->begin;
    struct factors f = {x, p->rest + at, p->g + at, (float *)p->wire + x->p, (float *)p->back + x->q};
    size_t bytes = (size_t)t->count * sizeof(float);
    if (!x->r) {
        if (stage == SEND) memcpy(f.p, f.g, bytes);
        if (stage == RECEIVE) memcpy(f.g, f.p, bytes);
        return;
    }
    if (stage == SEND) {
        add_times(f.left, 1, f.g, t->count);
        make_p(c, &f, tensor);
    } else if (stage == TURN)
        make_q(&f);
    else
        factors_sum(&f, c->t->standing.ranks);
}

static void run_bucket(struct compress *c, struct packet *p, enum stage stage) {
    for (int i = 0; i < c->t->model->nparams; i++)
        if (is_within(p, &c->t->model->params[i])) run_matrix(c, p, i, stage);
}

static enum error powersgd_send(struct compress *c, struct packet *p, struct dispatch how) {
    run_bucket(c, p, SEND);
    return group_all_reduce(c->group, how, p->wire, p->nwire, DTYPE_F32, REDOP_SUM);
}

static enum error powersgd_turn(struct compress *c, struct packet *p, struct dispatch how) {
    run_bucket(c, p, TURN);
    return group_all_reduce(c->group, how, p->back, p->nback, DTYPE_F32, REDOP_SUM);
}

static void powersgd_receive(struct compress *c, struct packet *p) {
    run_bucket(c, p, RECEIVE);
}

static void powersgd_close(struct compress *c) {
    memory_free(c->own);
}

const struct compress_ops compress_powersgd = {.feedback = true,
                                               .open = powersgd_open,
                                               .send = powersgd_send,
                                               .turn = powersgd_turn,
                                               .receive = powersgd_receive,
                                               .close = powersgd_close};
