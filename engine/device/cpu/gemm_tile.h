/* The innermost loops of gemm.c for one kind of elements, stamped by including this with
 *   TILE(x)       the kind's name for x
 *   TILE_LANES    floats in a vector
 *   TILE_ROWS     rows of the largest tile (4 or 8): TILE_ROWS x 3 vectors of C stay in registers
 *   TILE_PACKING  how it takes rounded factors; PACK_ROUNDED when not defined
 *   TILE_ADD      sum + a b for a float and a vector, if that is not what its elements mean
 * For each k a tile of 'rows' x 'vecs' vectors costs a load for each row and each vector, and rows
 * x vecs multiply-adds: the largest tile is bound by arithmetic, not by loads. */

typedef float TILE(vector) __attribute__((vector_size(4 * TILE_LANES)));
typedef float TILE(loose) __attribute__((vector_size(4 * TILE_LANES), aligned(4), may_alias));

#ifndef TILE_ADD
#define TILE_ADD(sum, a, b) MULTIPLY_ADD(sum, (a) - (TILE(vector)){0}, b)
#endif
#ifndef TILE_PACKING
#define TILE_PACKING PACK_ROUNDED
#endif

/* C (rows, vecs) = A (rows, k) B (k, vecs), or C += when 'more': the tile at c. 'grouped': A is packed, rows floats
 * for each k. k goes in as many parts as there are rows, so that the next tile's C is asked for row
 * by row: all at once would hold up A and B. */
static inline __attribute__((always_inline)) void TILE(one)(const int rows, const int vecs, const bool grouped,
                                                            const struct tile *t, const float *a, float *c,
                                                            const float *next) {
    TILE(vector) sum[TILE_ROWS][3];
    const float *row[TILE_ROWS], *b = t->b;
    UNROLL for (int r = 0; r < rows; r++) {
        row[r] = a + r * t->lda;
        UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = (TILE(vector)){0};
    }
    if (t->more) {
        UNROLL for (int r = 0; r < rows; r++) {
            UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = *(const TILE(loose) *)(c + r * t->ldc + v * TILE_LANES);
        }
    }
    int64_t part = next ? (t->k + rows - 1) / rows : t->k, p = 0;
    const float *c_next = next, *left_row = a + rows * t->lda;
    for (int64_t end = 0; p < t->k; c_next += t->ldc, left_row += t->lda) {
        const float *ahead = left_row;
        if (next) {
            UNROLL for (int v = 0; v < vecs; v++) __builtin_prefetch(c_next + v * TILE_LANES, 1);
        }
        end = end + part < t->k ? end + part : t->k;
        for (; p < end; p++, b += t->ldb, ahead += rows) {
            __builtin_prefetch(ahead);
            TILE(vector) line[3];
            UNROLL for (int v = 0; v < vecs; v++) line[v] = *(const TILE(loose) *)(b + v * TILE_LANES);
            UNROLL for (int r = 0; r < rows; r++) {
                float left = grouped ? a[p * rows + r] : row[r][p];
                UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = TILE_ADD(sum[r][v], left, line[v]);
            }
        }
    }
    for (const float *slot = t->slots, *end = slot - t->adds * TILE_FLOATS; slot > end; slot -= TILE_FLOATS) {
        UNROLL for (int r = 0; r < rows; r++) {
            UNROLL for (int v = 0; v < vecs; v++) sum[r][v] +=
                *(const TILE(vector) *)(slot + (r * vecs + v) * TILE_LANES);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vecs; v++) * (TILE(loose) *)(c + r * t->ldc + v * TILE_LANES) = sum[r][v];
    }
}

static inline __attribute__((always_inline)) void TILE(body)(const int rows, const int vecs, const bool grouped,
                                                             const struct tile *t) {
    for (int64_t i = 0; i < t->count * rows; i += rows)
        TILE(one)(rows, vecs, grouped, t, t->a + i * t->lda, t->c + i * t->ldc, t->next ? t->next + i * t->ldc : NULL);
}

#define TILE_FUNCTION(rows, vecs)                                                                                      \
    static void TILE(tile_##rows##x##vecs)(const struct tile *t) {                                                     \
        TILE(body)(rows, vecs, false, t);                                                                              \
    }                                                                                                                  \
    static void TILE(tile_grouped_##rows##x##vecs)(const struct tile *t) {                                             \
        TILE(body)(rows, vecs, true, t);                                                                               \
    }
#define TILE_FUNCTIONS(rows)                                                                                           \
    TILE_FUNCTION(rows, 1)                                                                                             \
    TILE_FUNCTION(rows, 2)                                                                                             \
    TILE_FUNCTION(rows, 3)
#define TILE_POINTERS(name)                                                                                            \
    { TILE(tile_##name##x1), TILE(tile_##name##x2), TILE(tile_##name##x3) }

TILE_FUNCTIONS(1)
TILE_FUNCTIONS(2)
TILE_FUNCTIONS(4)
#if TILE_ROWS == 8
TILE_FUNCTIONS(8)
#endif

static const struct kind TILE(kind) = {
    .lanes = TILE_LANES,
    .rows = TILE_ROWS,
    .least_rows = 1,
    .vecs = VECS,
    .bf16 = TILE_PACKING,
    .tile = {{TILE_POINTERS(1), TILE_POINTERS(2), TILE_POINTERS(4),
#if TILE_ROWS == 8
              TILE_POINTERS(8)
#endif
             },
             {TILE_POINTERS(grouped_1), TILE_POINTERS(grouped_2), TILE_POINTERS(grouped_4),
#if TILE_ROWS == 8
              TILE_POINTERS(grouped_8)
#endif
             }},
};

#undef TILE_FUNCTION
#undef TILE_FUNCTIONS
#undef TILE_POINTERS
#undef TILE
#undef TILE_LANES
#undef TILE_ROWS
#undef TILE_PACKING
#undef TILE_ADD
