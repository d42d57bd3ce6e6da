/* conv_direct_kernels.c's products of pairs by AMX: 16 windows by up to four blocks of columns. The factors of a run are 8
 * pairs; those of two runs that follow each other in memory, as of neighbouring taps, fill a tile.
 *
 *   0 1 2 3  +=  4 * 5 (16 pairs)    or    6 * 7 (8 pairs)
 */
#include "engine/device/cpu/amx.h"

#include <string.h>

enum { TAP = B / 2, ROW_BYTES = B * 4 };

/* 16 windows: where they lie, if they are evenly apart, else gathered. The last may be repeated. */
struct windows {
    const float *row[AMX_ROWS];
    int64_t apart; /* floats; 0: not evenly */
    _Alignas(64) float gathered[AMX_ROWS * B];
};

INLINE void windows_find(struct windows *w, const struct direct_product *p, int64_t i) {
    for (int64_t r = 0; r < AMX_ROWS; r++) w->row[r] = p->a + p->a_at[at_most(i + r, p->rows - 1)];
    w->apart = w->row[1] - w->row[0];
    for (int r = 2; r < AMX_ROWS; r++)
        if (w->row[r] - w->row[r - 1] != w->apart) w->apart = 0;
}

/* Their factors from 'at' on, and how many bytes these are apart. */
INLINE const float *windows_at(struct windows *w, const int pairs, int64_t at, int64_t *apart) {
    *apart = w->apart ? w->apart * (int64_t)sizeof(float) : ROW_BYTES;
    if (w->apart) return w->row[0] + at;
    for (int r = 0; r < AMX_ROWS; r++) memcpy(w->gathered + r * B, w->row[r] + at, (size_t)pairs * sizeof(float));
    TILES_SEE(w->gathered);
    return w->gathered;
}

#define AMX_COLUMNS(block, left, right)                                                                                \
    if (blocks > block) {                                                                                              \
        TILE_LOAD(right, b + (block)*p->b_block, ROW_BYTES);                                                           \
        TILE_DOT(block, left, right);                                                                                  \
    }
#define AMX_TERMS(pairs, left, right)                                                                                  \
    {                                                                                                                  \
        const float *a = windows_at(w, pairs, run->a, &apart);                                                         \
        TILE_LOAD(left, a, apart);                                                                                     \
        AMX_COLUMNS(0, left, right)                                                                                    \
        AMX_COLUMNS(1, left, right)                                                                                    \
        AMX_COLUMNS(2, left, right)                                                                                    \
        AMX_COLUMNS(3, left, right)                                                                                    \
    }

INLINE void amx_terms(const int blocks, const struct direct_product *p, struct windows *w) {
    int64_t apart;
    for (int64_t s = 0; s < p->runs; s++) {
        const struct direct_run *run = &p->run[s];
        const float *b = p->b + run->b;
        bool two = s + 1 < p->runs && run[1].a == run->a + TAP && run[1].b == run->b + TAP * B;
        if (two)
            AMX_TERMS(B, 4, 5)
        else
            AMX_TERMS(TAP, 6, 7)
        s += two;
    }
}

INLINE void amx_tile(const int blocks, const struct direct_product *p, int64_t i) {
    struct windows w;
    _Alignas(64) float sums[DIRECT_PANEL][AMX_ROWS * B];
    windows_find(&w, p, i);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    amx_terms(blocks, p, &w);
    TILE_STORE(0, sums[0], ROW_BYTES);
    if (blocks > 1) TILE_STORE(1, sums[1], ROW_BYTES);
    if (blocks > 2) TILE_STORE(2, sums[2], ROW_BYTES);
    if (blocks > 3) TILE_STORE(3, sums[3], ROW_BYTES);
    TILES_SEE(sums);
    for (int64_t r = 0; r < AMX_ROWS && i + r < p->rows; r++)
        for (int v = 0; v < blocks; v++)
            for (int lane = 0; lane < B; lane += LANES) {
                const vec sum[WIDE] = {load(sums[v] + r * B + lane)};
                tile_store(1, p, sum, v * B + lane, p->c + p->c_at[i + r] + v * p->c_block + lane);
            }
}

/* Whether a run's factors are 8 pairs, side by side. */
static bool amx_takes(const struct direct_product *p) {
    return p->pairs && p->a_next == 1 && p->depth == TAP;
}

static void amx_multiply(const struct direct_product *p) {
    static const uint8_t rows[AMX_TILES] = {16, 16, 16, 16, 16, 16, 16, TAP};
    static const uint8_t columns[AMX_TILES] = {16, 16, 16, 16, 16, 16, TAP, 16};
    amx_begin(rows, columns);
    TILES_SEE(p);
    for (int64_t i = 0; i < p->rows; i += AMX_ROWS) switch (p->blocks) {
        case 1:
            amx_tile(1, p, i);
            break;
        case 2:
            amx_tile(2, p, i);
            break;
        case 3:
            amx_tile(3, p, i);
            break;
        default:
            amx_tile(4, p, i);
        }
    amx_end();
}
