/* Matrix products on vector units.
 *
 * C is cut into tiles that fit the registers (8 x 48 floats with AVX-512, 4 x 24 with AVX2, 8 x 12 with NEON). B is
 * packed into panels that are at most 3 vectors wide, so that a tile reads it in one stream; if C has
 * too few rows for that to pay, B is read in place. A is read in place, row by row, one float
 * broadcast to a vector. If A is transposed or rounded it is packed, too: a transposed one in groups
 * of as many rows as a tile has. The loops, from outside in:
 *
 *   columns of C in blocks of N_BLOCK
 *     k in blocks of K_BLOCK         pack the block of B: 1 float moved for 2m operations
 *       rows of C in blocks          of A, packed or not: it stays in the second-level cache
 *         columns of C in panels     a panel of B stays in the first-level cache, or almost
 *           rows of C in tiles       gemm_tile.h; each asks for the next one's C and A
 *
 * A tile of a later k block continues the C of the block before, so each element of C is one chain of
 * fused multiply-adds in order of k, whatever the sizes.
 *
 * If k has segments, a block takes as many of them as fit. A tile sums each segment by itself, two of them side by side
 * where there are registers for both, and adds the sums along the tree, in slots in the first-level cache. The rest of
 * the tree is added block by block, in slots in the second-level cache, for a piece of C that fits there. Pieces below
 * each other have the same columns of B, whose segments stay as they were packed for the first piece, if there is room.
 *
 * bf16: the packed elements are pairs, two neighbours in k, and the tile's multiply-add is the
 * machine's product of pairs; the same tiles with half the k. Without that instruction the packed
 * floats are rounded, and the rest is as in f32. AMX takes larger tiles of pairs, all of them whole:
 * A, B and k are padded with zeros, and what lies beyond C is dropped. */
#include "engine/device/cpu/gemm.h"
#include "engine/base/whole.h"
#include "engine/device/cpu/gemm_pack.h"
#include "engine/device/cpu/lanes.h"

#include <string.h>

/* K_BLOCK counts rows of packed elements. */
enum { K_BLOCK = 384, VECS = 3, LANES_MAX = 16, ROWS_MAX = 8, TILE_FLOATS = ROWS_MAX * VECS * LANES_MAX };
enum { EDGE_FLOATS = 32 * 2 * LANES_MAX }; /* of the largest tile of any kind */

struct leaf { /* a segment, or two that follow each other: k[0] and k[1] rows of k, from 'at' on */
    int64_t at, k[2];
    int slot, bottom; /* of the sum, see segments.h */
};
struct tile { /* what the innermost loops need for 'count' tiles, one below the other */
    int64_t count, k, lda, ldb, ldc;
    const float *a, *b;
    float *c;
    const float *next; /* where the next tile's C is */
    bool more;
    const struct leaf *leaves; /* of k, where it has segments */
    int nleaves;
    float *slots; /* for the leaves' sums */
};
struct strip { /* of a tile: k rows. next: where the next tile's C is, to be asked for meanwhile; NULL: nowhere */
    int64_t k;
    const float *a, *b, *next;
};
typedef void tile_fn(const struct tile *t);

enum { A_ROWS, A_GROUPS, TREE };
struct
    kind { /* of tiles; tile[a][i][v] has 1 << i rows and v + 1 vectors; a: how A lies; TREE: in groups, by segments */
    int lanes, rows, vecs;
    int least_rows;                      /* of a tile; rows beyond C's are zeros */
    int together;                        /* segments of a leaf */
    enum packing bf16;                   /* how rounded factors are packed */
    void (*enter)(void), (*leave)(void); /* around a thread's tiles; NULL: nothing */
    tile_fn *tile[3][6][VECS];
};

#if defined(__AVX512BF16__)
#define TILE(x) x##_pairs
#define TILE_LANES LANES
#define TILE_ROWS 8
#define TILE_PACKING PACK_PAIRS
#define TILE_ADD(sum, a, b) (vector_pairs) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_ps(a), (__m512bh)(b))
#include "engine/device/cpu/gemm_tile.h"
#endif
#define TILE(x) x##_floats
#define TILE_LANES LANES
#define TILE_ROWS (REGISTERS / 4)
#include "engine/device/cpu/gemm_tile.h"

#if HAS_TILES
#include "engine/device/cpu/gemm_amx.h"
#endif

static const struct kind *kind_of(bool bf16) {
#if HAS_TILES
    if (bf16) return &kind_amx;
#elif defined(__AVX512BF16__)
    if (bf16) return &kind_pairs;
#endif
    (void)bf16;
    return &kind_floats;
}

/* The size of a count's even parts: at most 'most', and a multiple of 'grain'. */
static int64_t even_part(int64_t count, int64_t most, int64_t grain) {
    return round_up(parts_of(count, parts_of(count, most)), grain);
}

/* ---- tiles ---------------------------------------------------------------------------------- */
struct run { /* a thread's part of a product, or a piece of that */
    const struct gemm *g;
    const struct kind *kind;
    enum packing how;
    bool packs_a, packs_b;
    int64_t i0, i1, j0, j1, p0, p1;
    int first, segments; /* those of [p0, p1), which tiles sum; none: one chain */
    int rows;            /* of a tile, at most */
    float *c;            /* of (i0, j0) */
    int64_t ldc;
    float *b, *work, *a, *slots; /* a block of B, its scratch, a block of A, pieces of C */
    int64_t kept;                /* floats of a row of B as packed, where all of its blocks stay; else 0 */
    bool there;                  /* they were packed before */
};

struct block { /* of the product: rows [i, i + rows), k rows as packed from p, columns [j, end) */
    int64_t i, rows, p, k, j, end;
    int64_t columns, wide; /* the panel's at j, and its width as packed */
    float *panel;
    bool last; /* in k */
    struct leaf leaf[SEGMENTS_MAX];
    int leaves;
};

/* A tile's left factor: in place, or packed as rows or in groups. */
static void tile_left(const struct run *r, const struct block *b, int64_t i, struct tile *t) {
    const struct gemm *g = r->g;
    t->a = r->packs_a ? r->a + (i - b->i) * b->k : g->a + i * g->lda + b->p;
    t->lda = r->packs_a ? b->k : g->lda;
}

static float *tile_target(const struct run *r, const struct block *b, int64_t i) {
    return r->c + (i - r->i0) * r->ldc + b->j - r->j0;
}

/* Runs 'count' whole tiles, or one tile that reaches beyond C and goes through a buffer. */
static void tile_run(const struct run *r, const struct block *b, int64_t i, int log_rows, int64_t count) {
    _Alignas(ALIGNMENT) float edge[EDGE_FLOATS], slots[SEGMENT_SLOTS - 1][TILE_FLOATS];
    const struct gemm *g = r->g;
    int64_t vecs = b->wide / r->kind->lanes, wide = b->wide, rows = at_most(b->i + b->rows - i, 1 << log_rows);
    bool whole = wide == b->columns && rows == 1 << log_rows;
    float *c = tile_target(r, b, i);
    struct tile t = {.count = count,
                     .k = b->k,
                     .ldc = whole ? r->ldc : wide,
                     .ldb = r->packs_b ? wide : g->ldb,
                     .b = r->packs_b ? b->panel : g->b + b->p * g->ldb + b->j,
                     .c = whole ? c : edge,
                     .next = c + rows * r->ldc,
                     .more = g->add || b->p > r->p0,
                     .leaves = b->leaf,
                     .nleaves = b->leaves,
                     .slots = slots[0]};
    size_t bytes = (size_t)b->columns * sizeof *c;
    tile_left(r, b, i, &t);
    for (int row = 0; row < rows && !whole && t.more; row++) memcpy(edge + row * wide, c + row * r->ldc, bytes);
    r->kind->tile[r->segments ? TREE : g->a_transposed ? A_GROUPS : A_ROWS][log_rows][vecs - 1](&t);
    for (int row = 0; row < rows && !whole; row++) memcpy(c + row * r->ldc, edge + row * wide, bytes);
}

static void tiles_run(const struct run *r, const struct block *b) {
    int log_rows = __builtin_ctz((unsigned)r->rows);
    for (int64_t i = b->i, end = b->i + b->rows, count = 1; i < end; i += count << log_rows) {
        while (i + (1 << log_rows) > end && 1 << log_rows > r->kind->least_rows) log_rows--;
        bool whole = b->wide == b->columns && i + (1 << log_rows) <= end;
        count = whole ? (end - i) >> log_rows : 1;
        tile_run(r, b, i, log_rows, count);
    }
}

/* ---- blocks --------------------------------------------------------------------------------- */
enum {
    N_BLOCK = 768,
    /* Packing B pays with more rows of C than this. AVX2's panels are 1.5 cache lines wide, others' are whole lines. */
    PACK_B_ROWS = LANES == 8 ? 64 : 256,
    KEPT_ROWS = 1024, /* of B, whose segments stay as they were packed */
    WORK_FLOATS = K_BLOCK * VECS * LANES_MAX,
    A_FLOATS = K_BLOCK * 256, /* with all that passes through it, a usual second-level cache */
    SLOT_ROWS = 192, /* about as many as columns: each row and each column of factors is packed for few pieces */
    SLOT_COLUMNS = 240,
    SLOT_FLOATS = SLOT_ROWS * SLOT_COLUMNS,
    REST_FLOATS = WORK_FLOATS + A_FLOATS + (SEGMENT_SLOTS - 1) * SLOT_FLOATS
};

/* Of packed B a thread has a block, and room for more where 'rows' of k that have segments are more. */
static int64_t right_floats(int64_t rows) {
    return (rows > K_BLOCK ? at_most(rows, KEPT_ROWS) : K_BLOCK) * N_BLOCK;
}

static int64_t thread_floats(int64_t rows) {
    return right_floats(rows) + REST_FLOATS;
}

/* The next panel of a block's columns, as far as b->end. The vectors are dealt evenly to the
 * panels: 4 make 2 + 2, not 3 + 1. */
static void next_panel(const struct run *r, struct block *b) {
    int64_t lanes = r->kind->lanes, vecs = (b->end - b->j + lanes - 1) / lanes;
    int64_t panels = (vecs + r->kind->vecs - 1) / r->kind->vecs;
    b->wide = (vecs + panels - 1) / panels * lanes;
    b->columns = at_most(b->end - b->j, b->wide);
}

static void pack_right(const struct run *r, struct block b, int64_t k) {
    const struct gemm *g = r->g;
    for (; b.j < b.end; b.panel += b.k * b.wide, b.j += b.columns) {
        next_panel(r, &b);
        if (g->b_transposed)
            pack_turned((struct pack_source){r->how, k, b.columns, g->b + b.j * g->ldb + b.p, g->ldb}, b.panel, b.wide,
                        r->work);
        else
            pack_across((struct pack_source){r->how, k, b.columns, g->b + b.p * g->ldb + b.j, g->ldb}, b.panel, b.wide);
    }
}

static void pack_left(const struct run *r, const struct block *b, int64_t k) {
    const struct gemm *g = r->g;
    if (g->a_transposed)
        pack_groups((struct pack_source){r->how, k, b->rows, g->a + b->p * g->lda + b->i, g->lda}, r->a, r->rows,
                    r->work);
    else
        pack_along((struct pack_source){r->how, k, b->rows, g->a + b->i * g->lda + b->p, g->lda}, r->a);
    int64_t beyond = -b->rows & (r->kind->least_rows - 1);
    memset(r->a + b->rows * b->k, 0, (size_t)(beyond * b->k) * sizeof *r->a);
}

/* Computes the block's tiles of C, panel of B by panel of B. */
static void panels_run(const struct run *r, struct block b) {
    for (; b.j < b.end; b.panel += b.k * b.wide, b.j += b.columns) {
        const struct gemm *g = r->g;
        next_panel(r, &b);
        tiles_run(r, &b);
        if (g->done && b.last) g->done(g->ctx, b.i, b.rows, b.j, b.columns);
    }
}

/* The run's segments, in rows of k as packed. */
static void leaves_list(const struct run *r, struct block *b) {
    const int halved = r->how == PACK_PAIRS, together = r->kind->together;
    for (int i = 0; i < r->segments; i += together) {
        const int64_t *begin = r->g->segments->begin + r->first, *of = begin + i, each = r->g->each;
        struct leaf *leaf = &b->leaf[b->leaves];
        *leaf = (struct leaf){(of[0] - begin[0]) * each >> halved, .slot = segment_slot(b->leaves),
                              .bottom = segment_bottom(b->leaves)};
        for (int k = 0; k < together; k++) leaf->k[k] = ((of[k + 1] - of[k]) * each + halved) >> halved;
        b->leaves++;
    }
}

/* Columns [j, j + n) and k [p, p + k). */
static void block_run(const struct run *r, int64_t j, int64_t n, int64_t p, int64_t k) {
    struct block b = {.p = p, .k = pack_rows(r->how, k), .j = j, .end = j + n};
    b.panel = r->b + pack_rows(r->how, p - r->p0) * r->kept;
    int64_t grain = r->kind->rows > ROWS_MAX ? r->kind->rows : ROWS_MAX;
    int64_t rows = even_part(r->i1 - r->i0, A_FLOATS / b.k / grain * grain, grain);
    b.last = p + k == r->g->k;
    leaves_list(r, &b);
    if (r->packs_b && !r->there) pack_right(r, b, k);
    for (b.i = r->i0; b.i < r->i1; b.i += rows) {
        b.rows = at_most(r->i1 - b.i, rows);
        if (r->packs_a) pack_left(r, &b, k);
        panels_run(r, b);
    }
}

/* The most rows of k in a block. */
static int64_t block_depth(const struct run *r) {
    return r->how == PACK_PAIRS || r->how == PACK_TILES ? 2 * K_BLOCK : K_BLOCK;
}

static void range_run(const struct run *r) {
    int64_t k = r->p1 - r->p0, k_part = r->segments ? k : even_part(k, block_depth(r), 2 * LANES_MAX);
    int64_t n_part = even_part(r->j1 - r->j0, N_BLOCK, VECS * LANES_MAX);
    for (int64_t j = r->j0; j < r->j1; j += n_part)
        for (int64_t p = r->p0; p < r->p1; p += k_part)
            block_run(r, j, at_most(r->j1 - j, n_part), p, at_most(r->p1 - p, k_part));
}

/* ---- segments ------------------------------------------------------------------------------- */
/* How many segments a block takes: as many as fit, but one with AMX or if any segment begins inside a pair. */
static int segments_together(const struct run *r) {
    const struct segments *s = r->g->segments;
    if (r->how == PACK_TILES) return 1;
    for (int i = 0; i < s->count && r->how == PACK_PAIRS; i++)
        if (s->begin[i] * r->g->each % 2) return 1;
    return segments_within(s, r->g->each, block_depth(r));
}

/* The product of 'count' segments from 'first' on, in r's rows and columns. */
static void segments_run(struct run r, int first, int count) {
    const int64_t *begin = r.g->segments->begin + first;
    r.p0 = begin[0] * r.g->each, r.p1 = begin[count] * r.g->each;
    r.first = first, r.segments = count > 1 ? count : 0;
    if (r.segments) r.rows /= r.kind->together;
    if (r.p0 < r.p1)
        range_run(&r);
    else
        for (int64_t i = 0; i < r.i1 - r.i0; i++) memset(r.c + i * r.ldc, 0, (size_t)(r.j1 - r.j0) * sizeof *r.c);
}

static void slot_add(const struct run *to, const struct run *from) {
    for (int64_t i = 0; i < to->i1 - to->i0; i++)
        for (int64_t j = 0; j < to->j1 - to->j0; j++) to->c[i * to->ldc + j] += from->c[i * from->ldc + j];
}

/* Rows of 'count' segments from 'first' on, as packed. */
static int64_t segments_rows(const struct run *r, int first, int count) {
    const int64_t *begin = r->g->segments->begin + first;
    return pack_rows(r->how, (begin[count] - begin[0]) * r->g->each);
}

/* A piece of C for all segments: slot 0 is that piece itself. */
static void piece_run(const struct run *r, int count) {
    struct run slots[SEGMENT_SLOTS];
    float *b = r->b;
    for (int k = 0; k < SEGMENT_SLOTS; k++) {
        slots[k] = *r;
        if (k > 0) slots[k].c = r->slots + (k - 1) * SLOT_FLOATS, slots[k].ldc = r->j1 - r->j0;
    }
    for (int i = 0; i < r->g->segments->count / count; i++) {
        slots[segment_slot(i)].b = b;
        segments_run(slots[segment_slot(i)], i * count, count);
        b += segments_rows(r, i * count, count) * r->kept;
        for (int k = segment_slot(i); k > segment_bottom(i); k--) slot_add(&slots[k - 1], &slots[k]);
    }
}

static bool packs_right(const struct run *r) {
    const struct gemm *g = r->g;
    bool as_it_lies = !g->b_transposed && r->how == PACK_FLOATS && (r->j1 - r->j0) % r->kind->lanes == 0;
    return !as_it_lies || r->i1 - r->i0 > PACK_B_ROWS;
}

/* Columns of C for which all segments of B have room, at most a block of them. */
static int64_t columns_kept(const struct run *r, int count) {
    int64_t rows = 0;
    for (int i = 0; i < r->g->segments->count; i += count) rows += segments_rows(r, i, count);
    return at_most(right_floats(r->g->k) / rows, N_BLOCK) / (VECS * LANES_MAX) * (VECS * LANES_MAX);
}

static void pieces_run(const struct run *r) {
    int count = segments_together(r);
    if (count == r->g->segments->count) {
        segments_run(*r, 0, count);
        return;
    }
    struct run piece = *r;
    int64_t most = columns_kept(r, count);
    bool keeps = most >= SLOT_COLUMNS;
    int64_t columns = even_part(r->j1 - r->j0, keeps ? most : SLOT_COLUMNS, VECS * LANES_MAX);
    int64_t rows = even_part(r->i1 - r->i0, SLOT_FLOATS / columns / ROWS_MAX * ROWS_MAX, ROWS_MAX);
    for (piece.j0 = r->j0; piece.j0 < r->j1; piece.j0 = piece.j1) {
        piece.j1 = at_most(r->j1, piece.j0 + columns);
        piece.kept = keeps ? round_up(piece.j1 - piece.j0, r->kind->lanes) : 0;
        for (piece.i0 = r->i0; piece.i0 < r->i1; piece.i0 = piece.i1) {
            piece.i1 = at_most(r->i1, piece.i0 + rows);
            piece.packs_b = packs_right(keeps ? r : &piece);
            piece.there = keeps && piece.i0 > r->i0;
            piece.c = r->c + (piece.i0 - r->i0) * r->ldc + piece.j0 - r->j0;
            piece_run(&piece, count);
        }
    }
}

/* ---- threads: by columns, each packing its own of B; by rows if columns are few or a transposed A is packed. A part is
 * not cut in pieces, which would pack what they share once more. */
struct job {
    const struct gemm *g;
    float *pack;
    int64_t grain, parts;
};

static void run_part(const struct job *job, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    const struct gemm *g = job->g;
    bool bf16 = g->precision == PRECISION_BF16;
    struct run r = {g, kind_of(bf16), .i0 = i0, .i1 = i1, .j0 = j0, .j1 = j1, .p1 = g->k};
    r.c = g->c + i0 * g->ldc + j0, r.ldc = g->ldc;
    r.rows = r.kind->rows;
    r.how = bf16 ? r.kind->bf16 : PACK_FLOATS;
    r.packs_a = g->a_transposed || r.how != PACK_FLOATS;
    r.packs_b = packs_right(&r);
    int64_t rows = g->segments ? g->k : 0;
    r.b = job->pack + cpu_thread() * thread_floats(rows);
    r.work = r.b + right_floats(rows);
    r.a = r.work + WORK_FLOATS;
    r.slots = r.a + A_FLOATS;
    if (r.kind->enter) r.kind->enter();
    if (g->segments)
        pieces_run(&r);
    else
        range_run(&r);
    if (r.kind->leave) r.kind->leave();
}

/* Where a part of n rows or columns begins. */
static int64_t job_edge(const struct job *job, int64_t n, int64_t part) {
    return at_most(parts_of(n, job->grain) * part / job->parts * job->grain, n);
}

static void columns_part(void *ctx, int64_t begin, int64_t end) {
    const struct job *job = ctx;
    int64_t n = job->g->n;
    run_part(job, 0, job->g->m, job_edge(job, n, begin), job_edge(job, n, end));
}

static void rows_part(void *ctx, int64_t begin, int64_t end) {
    const struct job *job = ctx;
    int64_t m = job->g->m;
    run_part(job, job_edge(job, m, begin), job_edge(job, m, end), 0, job->g->n);
}

size_t gemm_pack_bytes(const struct device *dev, int64_t rows) {
    return (size_t)(dev->params.threads * thread_floats(rows)) * sizeof(float);
}

void gemm_run(const struct device *dev, const struct gemm *g, void *pack) {
    int64_t threads = dev->params.threads;
    bool turned = g->a_transposed && g->m >= 4 * ROWS_MAX * threads && g->m >= g->n / 2; /* no row is packed twice */
    bool by_columns = !turned && g->n >= 2 * LANES_MAX * threads;
    struct job job = {g, pack, .grain = by_columns ? LANES_MAX : ROWS_MAX};
    job.parts = at_most(parts_of(by_columns ? g->n : g->m, job.grain), threads);
    cpu_parallel(dev, job.parts, 1, by_columns ? columns_part : rows_part, &job);
}
