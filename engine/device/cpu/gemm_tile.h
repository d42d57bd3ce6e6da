/* The innermost loops of gemm.c for one instruction level, stamped by including this with
 *   TILE(x)       the level's name for x
 *   TILE_TARGET   its target attribute, or nothing
 *   TILE_LANES    floats in a vector
 *   TILE_ROWS     rows of the largest tile (4 or 8): TILE_ROWS x 3 vectors of C stay in registers
 * For each k a tile of 'rows' x 'vecs' vectors costs a load for each row and each vector, and rows
 * x vecs multiply-adds: the largest tile is bound by arithmetic, not by loads. */

typedef float TILE(vector) __attribute__((vector_size(4 * TILE_LANES)));
typedef float TILE(loose) __attribute__((vector_size(4 * TILE_LANES), aligned(4), may_alias));

/* C (rows, vecs) = A (rows, k) B (k, vecs), or C += when 'more'. B is packed: vecs vectors for each
 * k. */
TILE_TARGET static inline __attribute__((always_inline)) void
TILE(body)(const int rows, const int vecs, const struct tile *t) {
    TILE(vector) sum[TILE_ROWS][3];
    const float *row[TILE_ROWS], *b = t->b;
    for (int r = 0; r < rows; r++) {
        row[r] = t->a + r * t->lda;
        for (int v = 0; v < vecs; v++) {
            const float *c = t->c + r * t->ldc + v * TILE_LANES;
            __builtin_prefetch(c, 1); /* it is written at the end */
            sum[r][v] = (TILE(vector)){0};
            if (t->more) sum[r][v] = *(const TILE(loose) *)c;
        }
    }
    for (int64_t p = 0; p < t->k; p++, b += vecs * TILE_LANES) {
        TILE(vector) line[3];
        for (int v = 0; v < vecs; v++) line[v] = *(const TILE(vector) *)(b + v * TILE_LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vecs; v++) sum[r][v] += row[r][p] * line[v];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++)
            *(TILE(loose) *)(t->c + r * t->ldc + v * TILE_LANES) = sum[r][v];
}

#define TILE_FUNCTION(rows, vecs)                                                                  \
    TILE_TARGET static void TILE(tile_##rows##x##vecs)(const struct tile *t) {                     \
        TILE(body)(rows, vecs, t);                                                                 \
    }
#define TILE_FUNCTIONS(rows)                                                                       \
    TILE_FUNCTION(rows, 1)                                                                         \
    TILE_FUNCTION(rows, 2)                                                                         \
    TILE_FUNCTION(rows, 3)
#define TILE_POINTERS(rows)                                                                        \
    { TILE(tile_##rows##x1), TILE(tile_##rows##x2), TILE(tile_##rows##x3) }

TILE_FUNCTIONS(1)
TILE_FUNCTIONS(2)
TILE_FUNCTIONS(4)
#if TILE_ROWS == 8
TILE_FUNCTIONS(8)
#endif

static const struct level TILE(level) = {
    .lanes = TILE_LANES,
    .rows = TILE_ROWS,
    .tile = {TILE_POINTERS(1), TILE_POINTERS(2), TILE_POINTERS(4),
#if TILE_ROWS == 8
             TILE_POINTERS(8)
#endif
    },
};

#undef TILE_FUNCTION
#undef TILE_FUNCTIONS
#undef TILE_POINTERS
#undef TILE
#undef TILE_TARGET
#undef TILE_LANES
#undef TILE_ROWS
