/* A tile, ROWS x 2 vectors of C, stays in registers. */
#include "engine/device/cpu/block_product.h"
#include "engine/device/cpu/vectors.h"

enum { ROWS = REGISTERS / 4 };

INLINE void tile_product(const int vecs, const struct product *t, int64_t i, int64_t j) {
    vec sum[ROWS][2];
    const float *a = t->a + i * t->a_row, *b = t->b + j;
    float *c = t->c + i * t->ldc + j;
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < vecs; v++) {
            sum[r][v] = (vec){0};
            if (t->add) sum[r][v] = load(c + r * t->ldc + v * LANES);
        }
    int64_t row = t->a_row, step = t->a_step, ldb = t->ldb;
    for (int64_t p = t->k; p > 0; p--, a += step, b += ldb) {
        vec line[2];
        for (int v = 0; v < vecs; v++) line[v] = load(b + v * LANES);
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < vecs; v++) sum[r][v] = fused(all(a[r * row]), line[v], sum[r][v]);
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < vecs; v++) store(c + r * t->ldc + v * LANES, sum[r][v]);
}

void block_product(const struct product *t) {
    int64_t j = 0;
    for (; j + 2 * LANES <= t->n; j += 2 * LANES)
        for (int64_t i = 0; i < t->m; i += ROWS) tile_product(2, t, i, j);
    for (; j < t->n; j += LANES)
        for (int64_t i = 0; i < t->m; i += ROWS) tile_product(1, t, i, j);
}
