/* Matrix products on vector units.
 *
 * C is cut into tiles that fit the registers (8 x 48 floats with AVX-512, 4 x 24 with AVX2). B is
 * packed, a panel of 3 vectors' width at a time, so that a tile reads it in one stream; A is read
 * where it lies, row by row, one float broadcast to a vector. The loops, from outside in:
 *
 *   k in blocks of K_BLOCK         a packed panel stays in the second-level cache
 *     columns of C in panels       pack (K_BLOCK, panel) of B: 1 float moved for 2m operations
 *       rows of C in tiles         gemm_tile.h
 *
 * A tile of a later k block goes on from the C that the block before left, so each element of C is
 * one chain of fused multiply-adds in order of k, whatever the sizes. This file is compiled with
 * -ffp-contract=fast for that: the one expression in it that can contract is the tile's. */
#include "engine/device/cpu/gemm.h"

#include <string.h>

enum { K_BLOCK = 1024, VECS = 3, LANES_MAX = 16, ROWS_MAX = 8 };

struct tile { /* what the innermost loops need */
    int64_t k, lda, ldc;
    const float *a, *b;
    float *c;
    bool more;
};
typedef void tile_fn(const struct tile *t);

struct level { /* of instructions; tile[i][v] has 1 << i rows and v + 1 vectors */
    int lanes, rows;
    tile_fn *tile[4][VECS];
};

#if defined(__x86_64__)
#define TILE(x) x##_avx512
#define TILE_TARGET __attribute__((target("avx512f")))
#define TILE_LANES 16
#define TILE_ROWS 8
#include "engine/device/cpu/gemm_tile.h"
#define TILE(x) x##_avx2
#define TILE_TARGET __attribute__((target("avx2,fma")))
#define TILE_LANES 8
#define TILE_ROWS 4
#include "engine/device/cpu/gemm_tile.h"
#endif
#define TILE(x) x##_basic
#define TILE_TARGET
#define TILE_LANES 4
#define TILE_ROWS 4
#include "engine/device/cpu/gemm_tile.h"

static const struct level *level_of_host(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return &level_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &level_avx2;
#endif
    return &level_basic;
}

/* ---- packing -------------------------------------------------------------------------------- */
/* (k, columns) of B from (p0, j0) into 'wide' floats for each k, zeros behind the last column. */
static void pack(const struct gemm *g, int64_t p0, int64_t k, int64_t j0, int64_t columns,
                 int64_t wide, float *to) {
    if (columns < wide) memset(to, 0, (size_t)(k * wide) * sizeof *to);
    if (g->b_transposed) {
        transpose(columns, k, g->b + j0 * g->ldb + p0, g->ldb, to, wide);
        return;
    }
    for (int64_t p = 0; p < k; p++)
        memcpy(to + p * wide, g->b + (p0 + p) * g->ldb + j0, (size_t)columns * sizeof *to);
}

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

static void transpose_4x4(const float *from, int64_t ld_from, float *to, int64_t ld_to) {
    four a = *(const four *)from, b = *(const four *)(from + ld_from);
    four c = *(const four *)(from + 2 * ld_from), d = *(const four *)(from + 3 * ld_from);
    four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(four *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(four *)(to + ld_to) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(four *)(to + 2 * ld_to) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(four *)(to + 3 * ld_to) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

void transpose(int64_t rows, int64_t cols, const float *from, int64_t ld_from, float *to,
               int64_t ld_to) {
    enum { BLOCK = 16 }; /* a cache line each way */
    int64_t whole_rows = rows & ~(int64_t)3, whole_cols = cols & ~(int64_t)3;
    for (int64_t c0 = 0; c0 < whole_cols; c0 += BLOCK)
        for (int64_t r = 0; r < whole_rows; r += 4)
            for (int64_t c = c0; c < c0 + BLOCK && c < whole_cols; c += 4)
                transpose_4x4(from + r * ld_from + c, ld_from, to + c * ld_to + r, ld_to);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            to[c * ld_to + r] = from[r * ld_from + c];
}

static int64_t at_most(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- tiles ---------------------------------------------------------------------------------- */
struct block { /* a range of C's columns that one packed panel serves */
    int64_t j, columns, p, k;
    const float *panel;
};

/* A tile that sticks out of C to the right goes through a buffer. */
static void tile_run(const struct level *l, const struct gemm *g, const struct block *b, int64_t i,
                     int log_rows) {
    _Alignas(ALIGNMENT) float edge[ROWS_MAX * VECS * LANES_MAX];
    int64_t vecs = (b->columns + l->lanes - 1) / l->lanes, wide = vecs * l->lanes;
    int rows = 1 << log_rows;
    bool whole = wide == b->columns;
    float *c = g->c + i * g->ldc + b->j;
    struct tile t = {.k = b->k,
                     .lda = g->lda,
                     .ldc = whole ? g->ldc : wide,
                     .a = g->a + i * g->lda + b->p,
                     .b = b->panel,
                     .c = whole ? c : edge,
                     .more = g->add || b->p > 0};
    size_t bytes = (size_t)b->columns * sizeof *c;
    for (int r = 0; r < rows && !whole && t.more; r++)
        memcpy(edge + r * wide, c + r * g->ldc, bytes);
    l->tile[log_rows][vecs - 1](&t);
    for (int r = 0; r < rows && !whole; r++) memcpy(c + r * g->ldc, edge + r * wide, bytes);
}

static void columns_run(const struct level *l, const struct gemm *g, const struct block *b,
                        int64_t i0, int64_t i1) {
    int log_rows = l->rows == 8 ? 3 : 2;
    for (int64_t i = i0; i < i1; i += 1 << log_rows) {
        while (i + (1 << log_rows) > i1) log_rows--;
        tile_run(l, g, b, i, log_rows);
    }
}

/* Rows [i0, i1) and columns [j0, j1) of C, by one thread. The vectors of a row are dealt evenly to
 * the panels: 4 make 2 + 2, not 3 + 1. */
static void part_run(const struct gemm *g, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                     float *panel) {
    const struct level *l = level_of_host();
    int64_t all = (j1 - j0 + l->lanes - 1) / l->lanes, panels = (all + VECS - 1) / VECS;
    for (int64_t p = 0; p < g->k; p += K_BLOCK)
        for (int64_t i = 0, vec = 0, vecs; i < panels; i++, vec += vecs) {
            vecs = (all - vec + panels - i - 1) / (panels - i);
            struct block b = {.j = j0 + vec * l->lanes, .p = p, .panel = panel};
            b.columns = at_most(j1 - b.j, vecs * l->lanes);
            b.k = at_most(g->k - p, K_BLOCK);
            pack(g, p, b.k, b.j, b.columns, vecs * l->lanes, panel);
            columns_run(l, g, &b, i0, i1);
        }
}

/* ---- threads: by columns, each packing its own; by rows, where columns are few --------------- */
enum { PANEL_FLOATS = K_BLOCK * VECS * LANES_MAX };

struct job {
    const struct gemm *g;
    float *pack;
};

static void columns_part(void *ctx, int64_t begin, int64_t end) {
    const struct job *job = ctx;
    part_run(job->g, 0, job->g->m, begin, end, job->pack + cpu_thread() * PANEL_FLOATS);
}

static void rows_part(void *ctx, int64_t begin, int64_t end) {
    const struct job *job = ctx;
    part_run(job->g, begin, end, 0, job->g->n, job->pack + cpu_thread() * PANEL_FLOATS);
}

size_t gemm_pack_bytes(const struct device *dev) {
    return (size_t)dev->params.threads * PANEL_FLOATS * sizeof(float);
}

void gemm_run(const struct device *dev, const struct gemm *g, void *pack) {
    struct job job = {g, pack};
    bool by_columns = g->n >= 2 * LANES_MAX * (int64_t)dev->params.threads;
    if (by_columns)
        cpu_parallel(dev, g->n, LANES_MAX, columns_part, &job);
    else
        cpu_parallel(dev, g->m, ROWS_MAX, rows_part, &job);
}
