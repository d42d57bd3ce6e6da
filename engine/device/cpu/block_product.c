/* A tile, ROWS x 2 vectors of C, stays in registers. */
#include "engine/device/cpu/block_product.h"
#include "engine/device/cpu/lanes.h"

enum { ROWS = REGISTERS / 4 };
typedef float vector __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline __attribute__((always_inline)) void tile_product(const int vecs, const struct product *t, int64_t i,
                                                               int64_t j) {
    vector sum[ROWS][2];
    const float *a = t->a + i * t->a_row, *b = t->b + j;
    float *c = t->c + i * t->ldc + j;
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < vecs; v++) {
            sum[r][v] = (vector){0};
            if (t->add) sum[r][v] = *(const loose *)(c + r * t->ldc + v * LANES);
        }
    int64_t row = t->a_row, step = t->a_step, ldb = t->ldb;
    for (int64_t p = t->k; p > 0; p--, a += step, b += ldb) {
        vector line[2];
        for (int v = 0; v < vecs; v++) line[v] = *(const loose *)(b + v * LANES);
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < vecs; v++) sum[r][v] = MULTIPLY_ADD(sum[r][v], a[r * row] - (vector){0}, line[v]);
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < vecs; v++) *(loose *)(c + r * t->ldc + v * LANES) = sum[r][v];
}

void block_product(const struct product *t) {
    int64_t j = 0;
    for (; j + 2 * LANES <= t->n; j += 2 * LANES)
        for (int64_t i = 0; i < t->m; i += ROWS) tile_product(2, t, i, j);
    for (; j < t->n; j += LANES)
        for (int64_t i = 0; i < t->m; i += ROWS) tile_product(1, t, i, j);
}
