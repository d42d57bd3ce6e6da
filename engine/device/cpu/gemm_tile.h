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
#define TILE_TOGETHER (TILE_ROWS / 4) /* segments in registers, with tiles of four rows */
/* What is known of t before is found again after it: addresses that are found early push sums out of the registers. */
#define TILE_FORGET(t) __asm__ volatile("" : "+r"(t))
#ifndef TILE_PACKING
#define TILE_PACKING PACK_ROUNDED
#endif

/* sum (rows, vecs) += A (rows, k) B (k, vecs). 'grouped': A is packed, rows floats for each k. k goes in as many parts as
 * there are rows, so that the next tile's C is asked for row by row: all at once would hold up A and B. */
static inline __attribute__((always_inline)) void TILE(chain)(const int rows, const int vecs, const bool grouped,
                                                              const struct tile *t, struct strip s,
                                                              TILE(vector) sum[TILE_ROWS][3]) {
    const float *a = s.a, *b = s.b, *c_next = s.next, *left_row = a + rows * t->lda;
    int64_t k = s.k, part = c_next ? (k + rows - 1) / rows : k, p = 0;
    for (int64_t end = 0; p < k; c_next += t->ldc, left_row += t->lda) {
        const float *ahead = left_row;
        if (s.next) {
            UNROLL for (int v = 0; v < vecs; v++) __builtin_prefetch(c_next + v * TILE_LANES, 1);
        }
        end = end + part < k ? end + part : k;
        for (; p < end; p++, b += t->ldb, ahead += rows) {
            __builtin_prefetch(ahead);
            TILE(vector) line[3];
            UNROLL for (int v = 0; v < vecs; v++) line[v] = *(const TILE(loose) *)(b + v * TILE_LANES);
            UNROLL for (int r = 0; r < rows; r++) {
                float left = grouped ? a[p * rows + r] : a[r * t->lda + p];
                UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = TILE_ADD(sum[r][v], left, line[v]);
            }
        }
    }
}

static inline __attribute__((always_inline)) void TILE(zero)(const int rows, const int vecs,
                                                             TILE(vector) sum[TILE_ROWS][3]) {
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = (TILE(vector)){0};
    }
}

/* To C at c: 'ldc' stays where it is, as addresses of rows that are known early take registers from sums. */
static inline __attribute__((always_inline)) void TILE(store)(const int rows, const int vecs, const struct tile *t,
                                                              float *c, TILE(vector) sum[TILE_ROWS][3]) {
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vecs; v++) * (TILE(loose) *)(c + r * t->ldc + v * TILE_LANES) = sum[r][v];
    }
}

/* C = A B, or C += A B when 'more', tile by tile. */
static inline __attribute__((always_inline)) void TILE(body)(const int rows, const int vecs, const bool grouped,
                                                             const struct tile *t) {
    for (int64_t i = 0; i < t->count * rows; i += rows) {
        TILE(vector) sum[TILE_ROWS][3];
        const struct strip s = {t->k, t->a + i * t->lda, t->b, t->next + i * t->ldc};
        float *c = t->c + i * t->ldc;
        TILE(zero)(rows, vecs, sum);
        if (t->more) {
            UNROLL for (int r = 0; r < rows; r++) {
                UNROLL for (int v = 0; v < vecs; v++) sum[r][v] =
                    *(const TILE(loose) *)(c + r * t->ldc + v * TILE_LANES);
            }
        }
        TILE(chain)(rows, vecs, grouped, t, s, sum);
        TILE(store)(rows, vecs, t, c, sum);
    }
}

/* C = the tree's sum of A B of each segment, or of two of them, which stay side by side in registers until they are
 * added. */
static inline __attribute__((always_inline)) void TILE(tree)(const int rows, const int vecs, const struct tile *t) {
    const struct leaf *last = t->leaves + t->nleaves - 1;
    for (int64_t i = 0; i < t->count * rows; i += rows)
        for (const struct leaf *leaf = t->leaves; leaf <= last; leaf++) {
            TILE(vector) sum[TILE_ROWS][3], second[TILE_ROWS][3];
            struct strip s = {leaf->k[0], t->a + i * t->lda + leaf->at * rows, t->b + leaf->at * t->ldb, NULL};
            TILE(zero)(rows, vecs, sum);
            TILE(zero)(rows, vecs, second);
            TILE(chain)(rows, vecs, true, t, s, sum);
            TILE_FORGET(t);
            if (TILE_TOGETHER == 2) {
                s = (struct strip){leaf->k[1], s.a + s.k * rows, s.b + s.k * t->ldb, NULL};
                TILE(chain)(rows, vecs, true, t, s, second);
                TILE_FORGET(t);
                UNROLL for (int r = 0; r < rows; r++) {
                    UNROLL for (int v = 0; v < vecs; v++) sum[r][v] += second[r][v];
                }
            }
            for (int slot = leaf->slot; slot > leaf->bottom; slot--) {
                const float *from = t->slots + (slot - 1) * TILE_FLOATS;
                UNROLL for (int r = 0; r < rows; r++) {
                    UNROLL for (int v = 0; v < vecs; v++) sum[r][v] +=
                        *(const TILE(vector) *)(from + (r * vecs + v) * TILE_LANES);
                }
            }
            if (leaf == last) {
                TILE(store)(rows, vecs, t, t->c + i * t->ldc, sum);
                continue;
            }
            float *to = t->slots + leaf->bottom * TILE_FLOATS;
            UNROLL for (int r = 0; r < rows; r++) {
                UNROLL for (int v = 0; v < vecs; v++) {
                    *(TILE(vector) *)(to + (r * vecs + v) * TILE_LANES) = sum[r][v];
                    __builtin_prefetch(t->next + (i + r) * t->ldc + v * TILE_LANES, 1);
                }
            }
        }
}

#define TILE_FUNCTION(rows, vecs)                                                                                      \
    static void TILE(tile_##rows##x##vecs)(const struct tile *t) {                                                     \
        TILE(body)(rows, vecs, false, t);                                                                              \
    }                                                                                                                  \
    static void TILE(tile_grouped_##rows##x##vecs)(const struct tile *t) {                                             \
        TILE(body)(rows, vecs, true, t);                                                                               \
    }
#define TILE_TREE(rows, vecs)                                                                                          \
    static void TILE(tile_tree_##rows##x##vecs)(const struct tile *t) {                                                \
        TILE(tree)(rows, vecs, t);                                                                                     \
    }
#define TILE_FUNCTIONS(of, rows) of(rows, 1) of(rows, 2) of(rows, 3)
#define TILE_POINTERS(name)                                                                                            \
    { TILE(tile_##name##x1), TILE(tile_##name##x2), TILE(tile_##name##x3) }

TILE_FUNCTIONS(TILE_FUNCTION, 1)
TILE_FUNCTIONS(TILE_FUNCTION, 2)
TILE_FUNCTIONS(TILE_FUNCTION, 4)
#if TILE_ROWS == 8
TILE_FUNCTIONS(TILE_FUNCTION, 8)
#endif
TILE_FUNCTIONS(TILE_TREE, 1)
TILE_FUNCTIONS(TILE_TREE, 2)
TILE_FUNCTIONS(TILE_TREE, 4)

static const struct kind TILE(kind) = {
    .lanes = TILE_LANES,
    .rows = TILE_ROWS,
    .least_rows = 1,
    .together = TILE_TOGETHER,
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
             },
             {TILE_POINTERS(tree_1), TILE_POINTERS(tree_2), TILE_POINTERS(tree_4)}},
};

#undef TILE_FUNCTION
#undef TILE_TREE
#undef TILE_FORGET
#undef TILE_TOGETHER
#undef TILE_FUNCTIONS
#undef TILE_POINTERS
#undef TILE
#undef TILE_LANES
#undef TILE_ROWS
#undef TILE_PACKING
#undef TILE_ADD
