/* conv_direct_product.h's kernels. A vector is some of the channels of a block; every multiply-add is written out, so
 * that the bits do not depend on how many. */
#include "engine/base/whole.h"
#include "engine/device/cpu/conv_direct_product.h"
#include "engine/device/cpu/vectors.h"

/* The largest tile of a product: ROWS rows, or WIDE_ROWS of WIDE vectors. With vectors of a block
 * these are of several blocks, else of one. */
enum { B = LAYOUT_BLOCK, ONE_BLOCK = LANES < B, WIDE = REGISTERS == 32 ? DIRECT_PANEL : 2, WIDE_ROWS = 6, ROWS = 8 };

/* ---- products ------------------------------------------------------------------------------- */
enum way { SINGLY, PAIRWISE, LANEWISE };

INLINE void tile_step(const int rows, const int vecs, const enum way way, const float *const row[ROWS], int64_t at,
                      const float *b, int64_t apart, vec sum[ROWS][WIDE]) {
    vec line[WIDE];
    UNROLL for (int v = 0; v < vecs; v++) line[v] = load(b + v * apart);
    UNROLL for (int r = 0; r < rows; r++) {
        vec left = all(row[r][at]);
        UNROLL for (int v = 0; v < vecs; v++) {
            if (way == LANEWISE) left = load(row[r] + at + v * LANES);
            sum[r][v] = way == PAIRWISE ? pairs_added(sum[r][v], left, line[v]) : fused(left, line[v], sum[r][v]);
        }
    }
}

/* Ends a row's chains: 'column' is the first of its columns. */
INLINE void tile_store(const int vecs, const struct direct_product *p, const vec sum[WIDE], int64_t column, float *c) {
    const int64_t apart = ONE_BLOCK ? LANES : p->c_block;
    UNROLL for (int v = 0; v < vecs; v++) {
        vec value = sum[v];
        if (p->add) value += load(c + v * apart);
        if (p->bias) value += load(p->bias + column + v * LANES);
        if (p->relu) value = larger(value, (vec){0}); /* NaN stays */
        store(c + v * apart, value);
    }
}

/* Rows from i on, of which the last may be repeated, and columns from 'column' on; 'depth', unless 0: of all runs, whose
 * factors lie side by side. */
INLINE void tile_run(const int rows, const int vecs, const int depth, const enum way way,
                     const struct direct_product *p, int64_t i, int64_t column) {
    const int64_t apart = ONE_BLOCK ? LANES : p->b_block;
    const int steps = ONE_BLOCK ? 1 : depth % 2 ? depth : 2;
    const float *row[ROWS], *first = p->b + column / B * p->b_block + column % B;
    vec sum[ROWS][WIDE];
    UNROLL for (int r = 0; r < rows; r++) {
        row[r] = p->a + p->a_at[at_most(i + r, p->rows - 1)] + (way == LANEWISE ? column % B : 0);
        UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = (vec){0};
    }
    const int64_t ahead = p->a_at[at_most(i + rows, p->rows - 1)] - p->a_at[i];
    float *c = p->c + column / B * p->c_block + column % B;
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vecs; v++)
            __builtin_prefetch(c + p->c_at[at_most(i + r, p->rows - 1)] + v * (ONE_BLOCK ? LANES : p->c_block), 1);
    }
    for (int64_t s = 0; s < p->runs; s++) {
        const float *b = first + p->run[s].b;
        int64_t at = p->run[s].a;
        if (depth) {
            UNROLL for (int r = 0; r < rows; r++) __builtin_prefetch(row[r] + at + ahead);
        }
        if (depth)
            for (int k = 0; k < depth; k += steps, at += steps, b += steps * B) {
                UNROLL for (int j = 0; j < steps; j++) tile_step(rows, vecs, way, row, at + j, b + j * B, apart, sum);
            }
        else
            for (int64_t k = 0; k < p->depth; k++, at += p->a_next, b += B)
                tile_step(rows, vecs, way, row, at, b, apart, sum);
    }
    UNROLL for (int r = 0; r < rows; r++) if (i + r < p->rows) tile_store(vecs, p, sum[r], column, c + p->c_at[i + r]);
}

/* All rows of a product, and the columns of 'vecs' vectors. */
INLINE void columns_run(const int rows, const int vecs, const int depth, const enum way way,
                        const struct direct_product *p, int64_t column) {
    int64_t i = 0;
    for (; i + rows / 2 < p->rows; i += rows) tile_run(rows, vecs, depth, way, p, i, column);
    if (i < p->rows) tile_run(rows / 2, vecs, depth, way, p, i, column);
}

/* Depths that are usual: of the channels of a block, and of a row of 3 taps. */
#define COLUMNS(rows, vecs)                                                                                            \
    static void columns_of_##vecs(const struct direct_product *p, int64_t column) {                                    \
        const int64_t depth = p->a_next == 1 ? p->depth : 0;                                                           \
        if (HAS_PAIRS && p->pairs && depth == B / 2)                                                                   \
            columns_run(rows, vecs, B / 2, PAIRWISE, p, column);                                                       \
        else if (HAS_PAIRS && p->pairs && depth == 3)                                                                  \
            columns_run(rows, vecs, 3, PAIRWISE, p, column);                                                           \
        else if (HAS_PAIRS && p->pairs)                                                                                \
            columns_run(rows, vecs, 0, PAIRWISE, p, column);                                                           \
        else if (depth == B)                                                                                           \
            columns_run(rows, vecs, B, SINGLY, p, column);                                                             \
        else if (depth == 3)                                                                                           \
            columns_run(rows, vecs, 3, SINGLY, p, column);                                                             \
        else                                                                                                           \
            columns_run(rows, vecs, 0, SINGLY, p, column);                                                             \
    }
COLUMNS(WIDE_ROWS, WIDE)
#if defined(__AVX512F__)
COLUMNS(ROWS, 1)
COLUMNS(ROWS, 2)
COLUMNS(ROWS, 3)
#endif

#if HAS_TILES
#include "engine/device/cpu/conv_direct_amx.h"
#endif

void direct_multiply(const struct direct_product *p) {
#if HAS_TILES
    if (amx_takes(p)) return amx_multiply(p);
#endif
    if (p->lanewise) {
        for (int64_t column = 0; column < B; column += LANES) columns_run(ROWS, 1, 0, LANEWISE, p, column);
        return;
    }
#if defined(__AVX512F__)
    static void (*const of[])(const struct direct_product *, int64_t) = {columns_of_1, columns_of_2, columns_of_3,
                                                                         columns_of_WIDE};
    of[p->blocks - 1](p, 0);
#else
    for (int64_t column = 0; column < p->blocks * B; column += WIDE * LANES) columns_of_WIDE(p, column);
#endif
}

/* ---- weights -------------------------------------------------------------------------------- */
/* The row of a packed block that holds an output's next weight. */
struct place {
    int64_t channel, tap;
};
INLINE int64_t row_next(const struct direct_weights *s, struct place *at) {
    int64_t plain = at->channel * s->taps + at->tap;
    int64_t row = (at->channel / B * s->taps + at->tap) * B + at->channel % B;
    if (++at->tap == s->taps) at->tap = 0, at->channel++;
    return s->flat ? plain : row;
}

/* 'count' of 'whole' things, from 'first' on, at most a vector. */
INLINE int lanes_there(int64_t whole, int64_t first) {
    return first >= whole ? 0 : (int)at_most(whole - first, LANES);
}

/* 'columns' weights of each of a vector of outputs, of which 'outs' are there, from 'w' on. */
INLINE void square_load(const float *w, int64_t apart, const int outs, const int columns, bool round, vec m[LANES]) {
    UNROLL for (int k = 0; k < LANES; k++) {
        m[k] = (vec){0};
        if (k < outs) m[k] = few_load(w + k * apart, columns);
    }
    UNROLL for (int k = 0; k < LANES && round; k++) m[k] = rounded(m[k]);
    lanes_turn(m);
}

void direct_pack(const struct direct_weights *s, const float *w, int64_t first, int64_t begin, int64_t count,
                 float *to) {
    const int64_t each = s->in * s->taps, there = each - begin * s->taps;
    struct place at = {0};
    for (int64_t j = 0; j < count * s->taps; j += LANES) {
        struct place rows = at;
        for (int lane = 0; lane < B; lane += LANES) {
            vec m[LANES];
            int outs = lanes_there(s->out, first + lane), columns = lanes_there(there, j);
            const float *from = w + (first + lane) * each + begin * s->taps + j;
            at = rows;
            if (outs == LANES && columns == LANES)
                square_load(from, each, LANES, LANES, s->round, m);
            else
                square_load(from, each, outs, columns, s->round, m);
            UNROLL for (int k = 0; k < LANES; k++) if (j + k < count * s->taps)
                store(to + row_next(s, &at) * B + lane, m[k]);
        }
    }
}

void direct_unpack(const struct direct_weights *s, const float *from, int64_t first, int64_t begin, int64_t count,
                   float *w) {
    const int64_t each = s->in * s->taps, there = at_most(each - begin * s->taps, count * s->taps);
    struct place at = {0};
    for (int64_t j = 0; j < there; j += LANES) {
        struct place rows = at;
        for (int lane = 0; lane < B; lane += LANES) {
            vec m[LANES];
            at = rows;
            UNROLL for (int k = 0; k < LANES; k++) {
                m[k] = (vec){0};
                if (j + k < there) m[k] = load(from + row_next(s, &at) * B + lane);
            }
            lanes_turn(m);
            UNROLL for (int k = 0; k < LANES; k++) if (first + lane + k < s->out)
                few_store(w + (first + lane + k) * each + begin * s->taps + j, m[k], lanes_there(there, j));
        }
    }
}

/* Packs weights of one tap, whose rows are copied as they lie. */
static void tap_pack(const struct direct_weights *s, const float *w, int64_t first, int64_t begin, int64_t count,
                     float *to) {
    for (int64_t out = begin; out < begin + count; out++)
        for (int lane = 0; lane < B; lane += LANES, to += LANES) {
            int there = out < s->out ? lanes_there(s->in, first + lane) : 0;
            vec m = {0};
            if (there) m = few_load(w + out * s->in + first + lane, there);
            store(to, s->round ? rounded(m) : m);
        }
}

void direct_pack_turned(const struct direct_weights *s, const float *w, int64_t first, int64_t begin, int64_t count,
                        float *to) {
    if (s->taps == 1) return tap_pack(s, w, first, begin, count, to);
    for (int64_t out = 0; out < count; out++)
        for (int lane = 0; lane < B; lane += LANES)
            for (int64_t t = 0; t < s->taps; t += LANES) {
                vec m[LANES];
                int channels = begin + out < s->out ? lanes_there(s->in, first + lane) : 0,
                    columns = lanes_there(s->taps, t);
                const float *from = w + ((begin + out) * s->in + first + lane) * s->taps + t;
                float *rows = to + ((out / B * s->taps + t) * B + out % B) * B + lane;
                if (channels == LANES)
                    square_load(from, s->taps, LANES, columns, s->round, m);
                else
                    square_load(from, s->taps, channels, columns, s->round, m);
                UNROLL for (int k = 0; k < LANES; k++) if (k < columns) store(rows + k * B * B, m[k]);
            }
}

void direct_pair(int64_t rows, int64_t apart, float *packed) {
    for (int64_t at = 0; at < rows; at += 2 * apart)
        for (int64_t i = 0; i < apart * B; i += LANES) {
            const float *first = packed + at * B + i;
            store(packed + at / 2 * B + i, pairs_of(load(first), load(first + apart * B)));
        }
}

/* ---- rows ----------------------------------------------------------------------------------- */
enum filling { KEPT, ROUNDED, ALONG, ACROSS, HALF }; /* HALF: the second of each pair is zero */

/* A vector of elements from the i-th of what is inside on. */
INLINE vec row_elements(const enum filling how, const float *from, const float *other, int64_t i) {
    enum { AHEAD = 32 * B };
    if (how == ALONG) i *= 2, __builtin_prefetch(from + i + LANES + AHEAD);
    __builtin_prefetch(from + i + AHEAD);
    if (how == ACROSS) __builtin_prefetch(other + i + AHEAD);
    if (how == ALONG) return pairs_along(load(from + i), load(from + i + LANES));
    if (how == ACROSS) return pairs_of(load(from + i), load(other + i));
    if (how == HALF) return pairs_of(load(from + i), (vec){0});
    return how == ROUNDED ? rounded(load(from + i)) : load(from + i);
}

/* One of the last, which are fewer than a vector. */
INLINE float row_element(const enum filling how, const float *from, const float *other, int64_t i) {
    if (how == ALONG) return pairs_of(all(from[2 * i]), all(from[2 * i + 1]))[0];
    if (how == ACROSS) return pairs_of(all(from[i]), all(other[i]))[0];
    if (how == HALF) return pairs_of(all(from[i]), (vec){0})[0];
    return how == ROUNDED ? rounded(all(from[i]))[0] : from[i];
}

INLINE void row_as(const struct direct_row *r, const enum filling how, const float *from, const float *other,
                   float *to) {
    int64_t k = 0, begin = r->left, end = begin + r->inside;
    for (; k < begin; k++) to[k] = 0;
    for (; k + LANES <= end; k += LANES) store(to + k, row_elements(how, from, other, k - begin));
    for (; k < end; k++) to[k] = row_element(how, from, other, k - begin);
    for (; k < r->all; k++) to[k] = 0;
}

void direct_row(const struct direct_row *r, const float *from, const float *other, float *to) {
    if (r->how == PACK_FLOATS)
        row_as(r, KEPT, from, NULL, to);
    else if (r->how == PACK_ROUNDED)
        row_as(r, ROUNDED, from, NULL, to);
    else if (!r->across)
        row_as(r, ALONG, from, NULL, to);
    else if (other)
        row_as(r, ACROSS, from, other, to);
    else
        row_as(r, HALF, from, NULL, to);
}
