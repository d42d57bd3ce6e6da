/* gemm.c's innermost loops by AMX: tiles of 16 rows by 16 floats of C, 16 rows by 16 pairs of A, and 16 rows of pairs by
 * 16 columns of B. Of eight tiles four are C, so that a tile that is read is multiplied twice:
 *
 *   0 1      4      6 7
 *   2 3  +=  5  *
 */
#include "engine/device/cpu/amx.h"

static void amx_enter(void) {
    static const uint8_t whole[AMX_TILES] = {16, 16, 16, 16, 16, 16, 16, 16};
    amx_begin(whole, whole);
}

/* One tile of a product, like TILE(one) of gemm_tile.h; k is a multiple of 16. */
static inline __attribute__((always_inline)) void amx_one(const bool low, const bool right, const struct tile *t,
                                                          const float *a, float *c) {
    const int64_t size = sizeof(float), lda = t->lda * size, ldb = t->ldb * size, ldc = t->ldc * size;
    const float *b = t->b;
    float *under = c + AMX_ROWS * t->ldc;
    TILES_SEE(t);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    if (t->more) {
        TILE_LOAD(0, c, ldc);
        if (right) TILE_LOAD(1, c + 16, ldc);
        if (low) TILE_LOAD(2, under, ldc);
        if (low && right) TILE_LOAD(3, under + 16, ldc);
    }
    for (int64_t p = 0; p < t->k; p += 16, a += 16, b += 16 * t->ldb) {
        TILE_LOAD(6, b, ldb);
        if (right) TILE_LOAD(7, b + 16, ldb);
        TILE_LOAD(4, a, lda);
        if (low) TILE_LOAD(5, a + AMX_ROWS * t->lda, lda);
        TILE_DOT(0, 4, 6);
        if (right) TILE_DOT(1, 4, 7);
        if (low) TILE_DOT(2, 5, 6);
        if (low && right) TILE_DOT(3, 5, 7);
    }
    TILE_STORE(0, c, ldc);
    if (right) TILE_STORE(1, c + 16, ldc);
    if (low) TILE_STORE(2, under, ldc);
    if (low && right) TILE_STORE(3, under + 16, ldc);
    TILES_SEE(t);
}

static inline __attribute__((always_inline)) void amx_body(const bool low, const bool right, const struct tile *t) {
    const int64_t rows = low ? 2 * AMX_ROWS : AMX_ROWS;
    for (int64_t i = 0; i < t->count * rows; i += rows) amx_one(low, right, t, t->a + i * t->lda, t->c + i * t->ldc);
}

static void amx_16x1(const struct tile *t) {
    amx_body(false, false, t);
}
static void amx_16x2(const struct tile *t) {
    amx_body(false, true, t);
}
static void amx_32x1(const struct tile *t) {
    amx_body(true, false, t);
}
static void amx_32x2(const struct tile *t) {
    amx_body(true, true, t);
}

static const struct kind kind_amx = {
    .lanes = 16,
    .rows = 2 * AMX_ROWS,
    .least_rows = AMX_ROWS,
    .together = 1,
    .vecs = 2,
    .bf16 = PACK_TILES,
    .enter = amx_enter,
    .leave = amx_end,
    .tile = {{[4] = {amx_16x1, amx_16x2}, [5] = {amx_32x1, amx_32x2}},
             {[4] = {amx_16x1, amx_16x2}, [5] = {amx_32x1, amx_32x2}}},
};
