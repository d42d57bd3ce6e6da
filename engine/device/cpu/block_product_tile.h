/* block_product for one instruction level, stamped by including this with
 *   TILE(x)       the level's name for x
 *   TILE_TARGET   its target attribute, or nothing
 *   TILE_LANES    floats in a vector
 *   TILE_ROWS     rows of a tile: TILE_ROWS x 2 vectors of C stay in registers */

typedef float TILE(vector) __attribute__((vector_size(4 * TILE_LANES)));
typedef float TILE(loose) __attribute__((vector_size(4 * TILE_LANES), aligned(4), may_alias));

#if TILE_LANES == 16
#define PRODUCT_ADD MULTIPLY_ADD_16
#elif TILE_LANES == 8
#define PRODUCT_ADD MULTIPLY_ADD_8
#else
#define PRODUCT_ADD MULTIPLY_ADD_4
#endif

TILE_TARGET static inline __attribute__((always_inline)) void TILE(body)(const int vecs, const struct product *t,
                                                                         int64_t i, int64_t j) {
    TILE(vector) sum[TILE_ROWS][2];
    const float *a = t->a + i * t->a_row, *b = t->b + j;
    float *c = t->c + i * t->ldc + j;
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vecs; v++) {
            sum[r][v] = (TILE(vector)){0};
            if (t->add) sum[r][v] = *(const TILE(loose) *)(c + r * t->ldc + v * TILE_LANES);
        }
    int64_t row = t->a_row, step = t->a_step, ldb = t->ldb;
    for (int64_t p = t->k; p > 0; p--, a += step, b += ldb) {
        TILE(vector) line[2];
        for (int v = 0; v < vecs; v++) line[v] = *(const TILE(loose) *)(b + v * TILE_LANES);
        for (int r = 0; r < TILE_ROWS; r++)
            for (int v = 0; v < vecs; v++) sum[r][v] = PRODUCT_ADD(sum[r][v], a[r * row] - (TILE(vector)){0}, line[v]);
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vecs; v++) *(TILE(loose) *)(c + r * t->ldc + v * TILE_LANES) = sum[r][v];
}

TILE_TARGET static void TILE(product)(const struct product *t) {
    int64_t j = 0;
    for (; j + 2 * TILE_LANES <= t->n; j += 2 * TILE_LANES)
        for (int64_t i = 0; i < t->m; i += TILE_ROWS) TILE(body)(2, t, i, j);
    for (; j < t->n; j += TILE_LANES)
        for (int64_t i = 0; i < t->m; i += TILE_ROWS) TILE(body)(1, t, i, j);
}

#undef PRODUCT_ADD
#undef TILE
#undef TILE_TARGET
#undef TILE_LANES
#undef TILE_ROWS
