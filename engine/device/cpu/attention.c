/* Attention, fused: the probabilities of a block of queries at a time, never all of them, so that
 * memory is linear in the positions. ref/attention.c has the formulas. A thread has a part of the
 * (sample, head) pairs, each with all its positions: no bit depends on threads.
 *
 * Queries, keys and values are copied out of x, where they are interleaved, into
 *   rows     (positions, wide), wide the head's size in whole vectors, zeros after it
 *   panels   PANEL positions each, turned: (size, PANEL)
 * Scores are kept turned, (keys, queries): then a vector has queries side by side, and what
 * softmax does along the keys is never done across a vector.
 *
 * forward, for a panel of queries at a time:
 *   s' = k q' / sqrt(size)   of all keys that they see
 *   p  = e^(s - max)         max and 1 / sum are saved: two floats for each query
 *   y  = p v / sum
 * backward, for blocks of BLOCK keys and BLOCK queries:
 *   p = e^(s - max) / sum, dp = dy v', ds = p (dp - D), D the query's sum of dy y
 *   dq += ds k, dk += ds' q, dv += p' dy
 * forward of one position, with a cache of keys and values:
 *   s = q k', p, y           the same chains as in a panel, so the same bits. In the cache each head has its keys turned,
 *                            (size, context), and its values in rows, (context, wide): a query reads them as they lie
 *
 * Multiply-adds: positions^2 * size * (2 forward, 5 backward), half of that when causal: blocks
 * that no query sees are skipped, and products stop at the diagonal, in steps of PRODUCT_ROWS.
 * Factors are f32 at every precision. */
#include "engine/base/whole.h"
#include "engine/device/cpu/block_product.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/fast_math.h"
#include "engine/device/cpu/gemm.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, PANEL = 32, BLOCK = 64, VALUES = 64, AHEAD = 16 };

struct attention {
    struct op op;
    int64_t positions, size, all; /* all: the floats of all heads' values */
    int64_t rows;                 /* positions in whole PANELs */
    int64_t wide;                 /* of rows */
    int64_t floats;               /* scratch of a thread */
    int64_t room;                 /* positions of a cache in whole vectors; 0: there is none */
    float scale;
    bool causal;
};
struct moments { /* of a panel of queries: saved */
    float max[PANEL], inverse[PANEL];
};

/* ---- packing -------------------------------------------------------------------------------- */
struct rows { /* of one head, 'ld' apart */
    int64_t count, size, ld;
};

/* to = from * by, row by row. A head's rows are short and far apart, which no prefetcher of the
 * processor's follows: they are asked for AHEAD of their turn. */
static void copy_rows(struct rows r, float by, const float *restrict from, float *restrict to, int64_t ld_to) {
    for (int64_t i = 0; i < r.count; i++) {
        const float *next = from + at_most(i + AHEAD, r.count - 1) * r.ld;
        for (int64_t k = 0; k < r.size; k += ALIGN_FLOATS) __builtin_prefetch(next + k);
        for (int64_t k = 0; k < r.size; k++) to[i * ld_to + k] = from[i * r.ld + k] * by;
    }
}

/* to (rows, wide) = by * from (positions, size); zeros after the last row, and after a row's 'size' values. */
static void pack_rows(const struct attention *t, int64_t ld, float by, const float *from, float *to) {
    int64_t after = t->wide > t->size ? 0 : t->positions;
    memset(to + after * t->wide, 0, (size_t)((t->rows - after) * t->wide) * sizeof *to);
    copy_rows((struct rows){t->positions, t->size, ld}, by, from, to, t->wide);
}

/* Packed rows as panels. */
static void pack_panels(const struct attention *t, const float *rows, float *to) {
    for (int64_t i = 0; i < t->positions; i += PANEL)
        transpose(PANEL, t->size, rows + i * t->wide, t->wide, to + i * t->size, PANEL);
}

/* to (positions, size), rows of the op's width apart, = by * from (rows, wide). */
static void unpack_rows(const struct attention *t, float by, const float *from, float *to) {
    copy_rows((struct rows){t->positions, t->size, t->wide}, by, from, to, 3 * t->all);
}

/* ---- scores --------------------------------------------------------------------------------- */
struct score_block { /* the queries [i0, i1) and the keys [j0, j1) */
    int64_t i0, i1, j0, j1;
};

/* c (keys, queries) = rows panel' for the keys of 's' and its queries, a panel of them. Where no query of half a panel
 * sees a key, c is not written. */
static void block_scores(const struct attention *t, struct score_block s, const float *rows, const float *panels,
                         float *c, int64_t ldc) {
    int64_t middle = t->causal ? at_most(s.j1, s.i0 + LANES) : s.j1;
    struct product p = {.m = round_up(middle - s.j0, PRODUCT_ROWS),
                        .n = PANEL,
                        .k = t->size,
                        .a = rows + s.j0 * t->wide,
                        .a_row = t->wide,
                        .a_step = 1,
                        .b = panels + s.i0 * t->size,
                        .ldb = PANEL,
                        .c = c,
                        .ldc = ldc};
    block_product(&p);
    if (middle == s.j1) return;
    p.m = round_up(s.j1 - middle, PRODUCT_ROWS);
    p.n = LANES;
    p.a = rows + middle * t->wide;
    p.b += LANES;
    p.c = c + (middle - s.j0) * ldc + LANES;
    block_product(&p);
}

/* The end of the keys that a query of [i, i + count) sees. */
static int64_t keys_end(const struct attention *t, int64_t i, int64_t count) {
    return t->causal ? at_most(t->positions, i + count) : t->positions;
}

/* ---- the cache ------------------------------------------------------------------------------ */
struct cache { /* of a head */
    float *keys, *values;
};

static struct cache cache_of(const struct cpu_pass *pass, int64_t head) {
    const struct attention *t = (const struct attention *)pass->op;
    float *keys = (float *)pass->a->cache + head * t->room * (t->size + t->wide);
    return (struct cache){keys, keys + t->room * t->size};
}

/* The keys and values of all rows of x, from the row 'at' on. */
static void cache_append(const struct cpu_pass *pass, int64_t head) {
    const struct attention *t = (const struct attention *)pass->op;
    struct cache c = cache_of(pass, head);
    int64_t at = pass->a->at;
    const float *k = pass->a->x[0] + t->all + head * t->size;
    transpose(t->positions, t->size, k, 3 * t->all, c.keys + at, t->room);
    copy_rows((struct rows){t->positions, t->size, 3 * t->all}, 1, k + t->all, c.values + at * t->wide, t->wide);
}

/* ---- forward -------------------------------------------------------------------------------- */
/* s (keys, PANEL) = e^(s - max) where a query sees the key, else 0; all see the first 'free' keys,
 * query c the c + 1 after them. */
static void panel_softmax(int64_t free, int64_t keys, float *restrict s, struct moments *restrict m) {
    float max[PANEL], sum[PANEL];
    for (int c = 0; c < PANEL; c++) max[c] = -INFINITY, sum[c] = 0;
    for (int64_t k = 0; k < free; k++)
        for (int c = 0; c < PANEL; c++) {
            float v = s[k * PANEL + c];
            max[c] = v > max[c] ? v : max[c];
        }
    for (int64_t k = free; k < keys; k++)
        for (int c = 0; c < PANEL; c++) {
            float v = c >= (int)(k - free) ? s[k * PANEL + c] : -INFINITY;
            max[c] = v > max[c] ? v : max[c];
        }
    for (int64_t k = 0; k < free; k++)
        for (int c = 0; c < PANEL; c++) {
            float e = fast_exp(s[k * PANEL + c] - max[c]);
            s[k * PANEL + c] = e;
            sum[c] += e;
        }
    for (int64_t k = free; k < keys; k++)
        for (int c = 0; c < PANEL; c++) {
            float e = fast_exp(s[k * PANEL + c] - max[c]);
            e = c >= (int)(k - free) ? e : 0;
            s[k * PANEL + c] = e;
            sum[c] += e;
        }
    for (int c = 0; c < PANEL; c++) m->max[c] = max[c], m->inverse[c] = 1 / sum[c];
}

struct forward { /* scratch of a thread */
    float *q, *k, *v, *panels, *s, *y;
};

static struct forward forward_scratch(const struct attention *t, float *at) {
    int64_t each = t->rows * t->wide;
    struct forward f = {.q = at};
    f.k = f.q + each, f.v = f.k + each, f.panels = f.v + each;
    f.s = f.panels + each, f.y = f.s + t->rows * PANEL;
    return f;
}

/* y (PANEL, wide) = p v, VALUES keys at a time, which stay in the first-level cache. */
static void weigh_values(const struct attention *t, const struct forward *f, int64_t i, int64_t end) {
    for (int64_t j = 0; j < end; j += VALUES)
        for (int64_t g = 0; g < PANEL; g += PRODUCT_ROWS) {
            int64_t upto = at_most(keys_end(t, i + g, PRODUCT_ROWS), j + VALUES);
            if (upto <= j) continue;
            struct product p = {.m = PRODUCT_ROWS,
                                .n = t->wide,
                                .k = upto - j,
                                .a = f->s + j * PANEL + g,
                                .a_row = 1,
                                .a_step = PANEL,
                                .b = f->v + j * t->wide,
                                .ldb = t->wide,
                                .c = f->y + g * t->wide,
                                .ldc = t->wide,
                                .add = j > 0};
            block_product(&p);
        }
}

static void unpack_values(const struct attention *t, int64_t rows, const struct moments *restrict m,
                          const float *restrict from, float *restrict y) {
    int64_t size = t->size, wide = t->wide, all = t->all;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < size; k++) y[i * all + k] = from[i * wide + k] * m->inverse[i];
}

static void forward_head(const struct cpu_pass *pass, int64_t i, float *scratch) {
    const struct attention *t = (const struct attention *)pass->op;
    int64_t heads = t->all / t->size, at = i % heads * t->size, ld = 3 * t->all;
    const float *x = pass->a->x[0] + i / heads * t->positions * ld + at;
    float *y = pass->a->y + i / heads * t->positions * t->all + at;
    struct moments *saved = (struct moments *)pass->a->saved + i * (t->rows / PANEL), m;
    struct forward f = forward_scratch(t, scratch);
    pack_rows(t, ld, t->scale, x, f.q);
    pack_rows(t, ld, 1, x + t->all, f.k);
    pack_rows(t, ld, 1, x + 2 * t->all, f.v);
    pack_panels(t, f.q, f.panels);
    for (int64_t q = 0; q < t->positions; q += PANEL) {
        int64_t end = keys_end(t, q, PANEL);
        block_scores(t, (struct score_block){q, q + PANEL, 0, end}, f.k, f.panels, f.s, PANEL);
        panel_softmax(t->causal ? q : end, end, f.s, &m);
        weigh_values(t, &f, q, end);
        unpack_values(t, at_most(PANEL, t->positions - q), &m, f.y, y + q * t->all);
        if (pass->a->training) saved[q / PANEL] = m;
    }
}

/* s = e^(s - max); gives 1 / sum. */
static float row_softmax(int64_t keys, float *s) {
    float max = -INFINITY, sum = 0;
    for (int64_t k = 0; k < keys; k++) max = s[k] > max ? s[k] : max;
    for (int64_t k = 0; k < keys; k++) s[k] = fast_exp(s[k] - max);
    for (int64_t k = 0; k < keys; k++) sum += s[k];
    return 1 / sum;
}

/* c (n) = a (k) B (k, n): a product whose rows are all the same one. */
static void row_product(int64_t n, int64_t k, const float *a, const float *b, int64_t ldb, float *c) {
    struct product p = {.m = PRODUCT_ROWS, .n = n, .k = k, .a = a, .a_step = 1, .b = b, .ldb = ldb, .c = c};
    block_product(&p);
}

static void forward_position(const struct cpu_pass *pass, int64_t head, float *scratch) {
    const struct attention *t = (const struct attention *)pass->op;
    const float *x = pass->a->x[0] + head * t->size;
    struct cache c = cache_of(pass, head);
    struct moments m;
    int64_t keys = pass->a->at + 1;
    float *s = scratch, *q = s + t->room, *y = q + t->wide;
    copy_rows((struct rows){1, t->size, t->size}, t->scale, x, q, t->wide);
    row_product(round_up(keys, PRODUCT_COLUMNS), t->size, q, c.keys, t->room, s);
    m.inverse[0] = row_softmax(keys, s);
    row_product(t->wide, keys, s, c.values, t->wide, y);
    unpack_values(t, 1, &m, y, pass->a->y + head * t->size);
}

static void forward_heads(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct attention *t = (const struct attention *)p->op;
    float *scratch = (float *)p->a->scratch + cpu_thread() * t->floats;
    for (int64_t i = begin; i < end; i++) {
        if (t->room) cache_append(p, i);
        if (t->room && t->positions == 1)
            forward_position(p, i, scratch);
        else
            forward_head(p, i, scratch);
    }
}

/* ---- backward ------------------------------------------------------------------------------- */
struct backward {                     /* scratch of a thread */
    float *q, *k, *v, *dy, *qs, *dys; /* of a head; the last two are panels */
    float *dq, *dk, *dv;              /* rows */
    float *p, *ds;                    /* (BLOCK keys, BLOCK queries) */
    float *d;                         /* (positions) */
    const struct moments *moments;    /* saved */
};

static struct backward backward_scratch(const struct attention *t, float *at) {
    int64_t each = t->rows * t->wide;
    struct backward b = {.q = at};
    b.k = b.q + each, b.v = b.k + each, b.dy = b.v + each, b.qs = b.dy + each;
    b.dys = b.qs + each, b.dq = b.dys + each, b.dk = b.dq + each, b.dv = b.dk + each;
    b.p = b.dv + each, b.ds = b.p + BLOCK * BLOCK, b.d = b.ds + BLOCK * BLOCK;
    return b;
}

/* p = e^(s - max) / sum and ds = p (ds - d) for 'keys' keys and a panel of queries; of key k only
 * those from k + skip on see it, the others get 0. */
static void panel_gradient(int64_t keys, int64_t skip, const struct moments *restrict m, const float *restrict d,
                           float *restrict s, float *restrict ds) {
    for (int64_t k = 0; k < keys; k++)
        for (int c = 0; c < PANEL; c++) {
            float p = fast_exp(s[k * BLOCK + c] - m->max[c]) * m->inverse[c];
            p = c >= (int)(k + skip) ? p : 0;
            s[k * BLOCK + c] = p;
            ds[k * BLOCK + c] = p * (ds[k * BLOCK + c] - d[c]);
        }
}

static void block_probabilities(const struct attention *t, const struct backward *b, struct score_block s) {
    for (int64_t i = s.i0; i < s.i1; i += PANEL) {
        const struct score_block part = {i, i + PANEL, s.j0, at_most(s.j1, keys_end(t, i, PANEL))};
        float *p = b->p + (i - s.i0), *ds = b->ds + (i - s.i0);
        block_scores(t, part, b->k, b->qs, p, BLOCK);
        block_scores(t, part, b->v, b->dys, ds, BLOCK);
        panel_gradient(part.j1 - s.j0, t->causal ? s.j0 - i : -PANEL - BLOCK, &b->moments[i / PANEL], b->d + i, p, ds);
    }
}

/* to += x rows of the queries of 's', x (keys, queries), for PRODUCT_ROWS keys at a time. */
static void block_keys(const struct attention *t, struct score_block s, const float *x, const float *rows, float *to) {
    for (int64_t j = s.j0; j < s.j1; j += PRODUCT_ROWS) {
        int64_t from = t->causal ? at_least(s.i0, j) : s.i0;
        struct product p = {.m = PRODUCT_ROWS,
                            .n = t->wide,
                            .k = s.i1 - from,
                            .a = x + (j - s.j0) * BLOCK + (from - s.i0),
                            .a_row = BLOCK,
                            .a_step = 1,
                            .b = rows + from * t->wide,
                            .ldb = t->wide,
                            .c = to + j * t->wide,
                            .ldc = t->wide,
                            .add = true};
        block_product(&p);
    }
}

/* dq += ds k, for PRODUCT_ROWS queries at a time. */
static void block_queries(const struct attention *t, const struct backward *b, struct score_block s) {
    for (int64_t i = s.i0; i < s.i1; i += PRODUCT_ROWS) {
        struct product p = {.m = PRODUCT_ROWS,
                            .n = t->wide,
                            .k = at_most(s.j1, keys_end(t, i, PRODUCT_ROWS)) - s.j0,
                            .a = b->ds + (i - s.i0),
                            .a_row = 1,
                            .a_step = BLOCK,
                            .b = b->k + s.j0 * t->wide,
                            .ldb = t->wide,
                            .c = b->dq + i * t->wide,
                            .ldc = t->wide,
                            .add = true};
        block_product(&p);
    }
}

static void backward_blocks(const struct attention *t, const struct backward *b) {
    memset(b->dq, 0, (size_t)(3 * t->rows * t->wide) * sizeof *b->dq);
    for (int64_t j0 = 0; j0 < t->positions; j0 += BLOCK)
        for (int64_t i0 = t->causal ? j0 : 0; i0 < t->positions; i0 += BLOCK) {
            const struct score_block s = {i0, at_most(t->positions, i0 + BLOCK), j0, at_most(t->positions, j0 + BLOCK)};
            block_probabilities(t, b, s);
            block_keys(t, s, b->p, b->dy, b->dv);
            block_keys(t, s, b->ds, b->q, b->dk);
            block_queries(t, b, s);
        }
}

/* d of each row is the sum of y dy in LANES partial sums, which are added in pairs. */
static void rows_dot(struct rows r, const float *restrict y, const float *restrict dy, int64_t ld_dy,
                     float *restrict d) {
    for (int64_t i = 0; i < r.count; i++, y += r.ld, dy += ld_dy) {
        float part[LANES] = {0};
        int64_t k = 0;
        const float *next = y + at_most(AHEAD, r.count - 1 - i) * r.ld;
        for (; k + LANES <= r.size; k += LANES) {
            __builtin_prefetch(next + k);
            for (int lane = 0; lane < LANES; lane++) part[lane] += y[k + lane] * dy[k + lane];
        }
        for (int lane = 0; k + lane < r.size; lane++) part[lane] += y[k + lane] * dy[k + lane];
        for (int lane = 0; lane < 8; lane++) part[lane] += part[lane + 8];
        for (int lane = 0; lane < 4; lane++) part[lane] += part[lane + 4];
        d[i] = (part[0] + part[1]) + (part[2] + part[3]);
    }
}

static void backward_head(const struct cpu_pass *pass, int64_t i, float *scratch) {
    const struct attention *t = (const struct attention *)pass->op;
    int64_t heads = t->all / t->size, at = i % heads * t->size, ld = 3 * t->all;
    int64_t in = i / heads * t->positions * ld + at, out = i / heads * t->positions * t->all + at;
    const float *x = pass->a->x[0] + in, *y = pass->a->y + out;
    float *dx = pass->a->dx[0] + in;
    struct backward b = backward_scratch(t, scratch);
    b.moments = (const struct moments *)pass->a->saved + i * (t->rows / PANEL);
    pack_rows(t, ld, t->scale, x, b.q);
    pack_rows(t, ld, 1, x + t->all, b.k);
    pack_rows(t, ld, 1, x + 2 * t->all, b.v);
    pack_rows(t, t->all, 1, pass->a->dy + out, b.dy);
    pack_panels(t, b.q, b.qs);
    pack_panels(t, b.dy, b.dys);
    memset(b.d, 0, (size_t)t->rows * sizeof *b.d);
    rows_dot((struct rows){t->positions, t->size, t->all}, y, b.dy, t->wide, b.d);
    backward_blocks(t, &b);
    unpack_rows(t, t->scale, b.dq, dx);
    unpack_rows(t, 1, b.dk, dx + t->all);
    unpack_rows(t, 1, b.dv, dx + 2 * t->all);
}

static void backward_heads(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct attention *t = (const struct attention *)p->op;
    float *scratch = (float *)p->a->scratch + cpu_thread() * t->floats;
    for (int64_t i = begin; i < end; i++) backward_head(p, i, scratch);
}

/* ---- the op --------------------------------------------------------------------------------- */
static enum error attention_forward(struct op *op, const struct op_args *a) {
    return cpu_run(op, a, op->desc.n * op->desc.attention.heads, 1, forward_heads);
}

static enum error attention_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op->desc.n * op->desc.attention.heads, 1, backward_heads) : ERR_NONE;
}

static enum error attention_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct attention *t = (struct attention *)op;
    t->positions = d->x.dim[0];
    t->all = shape_last(&d->y);
    t->size = t->all / d->attention.heads;
    t->rows = round_up(t->positions, PANEL);
    t->wide = round_up(t->size, PRODUCT_COLUMNS);
    t->scale = (float)(1 / sqrt((double)t->size));
    t->causal = d->attention.causal;
    int64_t forward = 4 * t->rows * t->wide + PANEL * (t->rows + t->wide);
    int64_t backward = 9 * t->rows * t->wide + 2 * BLOCK * BLOCK + t->rows;
    t->room = round_up(d->attention.context, PRODUCT_COLUMNS);
    t->floats = align_floats(at_least(at_least(forward, backward), t->room + 2 * t->wide));
    t->op.cache_bytes = (size_t)(d->attention.heads * t->room * (t->size + t->wide)) * sizeof(float);
    t->op.saved_bytes = (size_t)(d->n * d->attention.heads * (t->rows / PANEL)) * sizeof(struct moments);
    t->op.scratch_bytes = (size_t)(op->dev->params.threads * t->floats) * sizeof(float);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_attention) = {
    .name = "fused",
    .size = sizeof(struct attention),
    .plan = attention_plan,
    .forward = attention_forward,
    .backward = attention_backward,
};
