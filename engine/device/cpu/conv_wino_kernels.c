/* conv_wino.h's kernels. A vector is some of the channels of a block; every multiply-add is written out, so that
 * the bits do not depend on how many.
 *
 * The points are 0, +-a, +-b and infinity with a = 5/8, b = 3/2: half the rounding errors of 1 and
 * 2, and every constant of the transforms of tiles is exact. Along one axis:
 *
 *   input     B' d   (6 -> 6)       output    A' m   (6 -> 4)       weights   G w   (3 -> 6)
 *   and for the gradient of the weights the adjoints: A dy (4 -> 6), G' u (6 -> 3) */
#include "engine/device/cpu/conv_wino.h"
#include "engine/device/cpu/vectors.h"

enum { B = LAYOUT_BLOCK, OUT = WINO_OUT, IN = WINO_IN };
#define PA 0.625f
#define PB 1.5f
#define PA2 (PA * PA)
#define PB2 (PB * PB)
#define PA3 (PA2 * PA)
#define PB3 (PB2 * PB)
#define GA (1 / (2 * PA2 * (PA2 - PB2)))
#define GB (1 / (2 * PB2 * (PB2 - PA2)))

/* ---- along one axis: 'd' and 'o' are 'step' vectors apart ----------------------------------- */
/* o = e + f k and e - f k. */
INLINE void sum_and_difference(vec e, float k, vec f, vec *plus, vec *minus) {
    *plus = fused(all(k), f, e);
    *minus = fused(all(-k), f, e);
}

INLINE void transform_input(const vec *d, int from, vec *o, int to) {
    vec d0 = d[0], d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from];
    vec d5 = d[5 * from];
    o[0] = fused(all(PA2 * PB2), d0, fused(all(-(PA2 + PB2)), d2, d4));
    sum_and_difference(fused(all(-PB2), d2, d4), PA, fused(all(-PB2), d1, d3), &o[to], &o[2 * to]);
    sum_and_difference(fused(all(-PA2), d2, d4), PB, fused(all(-PA2), d1, d3), &o[3 * to], &o[4 * to]);
    o[5 * to] = fused(all(PA2 * PB2), d1, fused(all(-(PA2 + PB2)), d3, d5));
}

INLINE void transform_output(const vec *m, int from, vec *o, int to) {
    vec sum_a = m[from] + m[2 * from], less_a = m[from] - m[2 * from];
    vec sum_b = m[3 * from] + m[4 * from], less_b = m[3 * from] - m[4 * from];
    o[0] = m[0] + sum_a + sum_b;
    o[to] = fused(all(PA), less_a, all(PB) * less_b);
    o[2 * to] = fused(all(PA2), sum_a, all(PB2) * sum_b);
    o[3 * to] = fused(all(PA3), less_a, fused(all(PB3), less_b, m[5 * from]));
}

INLINE void transform_gradient(const vec *y, int from, vec *o, int to) {
    vec y0 = y[0], y1 = y[from], y2 = y[2 * from], y3 = y[3 * from];
    o[0] = y0;
    sum_and_difference(fused(all(PA2), y2, y0), PA, fused(all(PA2), y3, y1), &o[to], &o[2 * to]);
    sum_and_difference(fused(all(PB2), y2, y0), PB, fused(all(PB2), y3, y1), &o[3 * to], &o[4 * to]);
    o[5 * to] = y3;
}

INLINE void transform_weights(const vec *w, int from, vec *o, int to) {
    vec w0 = w[0], w1 = w[from], w2 = w[2 * from];
    o[0] = w0 * (1 / (PA2 * PB2));
    sum_and_difference(all(GA) * fused(all(PA2), w2, w0), GA * PA, w1, &o[to], &o[2 * to]);
    sum_and_difference(all(GB) * fused(all(PB2), w2, w0), GB * PB, w1, &o[3 * to], &o[4 * to]);
    o[5 * to] = w2;
}

INLINE void transform_weights_back(const vec *u, int u_stride, vec *o, int o_stride) {
    vec sum_a = u[u_stride] + u[2 * u_stride], less_a = u[u_stride] - u[2 * u_stride];
    vec sum_b = u[3 * u_stride] + u[4 * u_stride], less_b = u[3 * u_stride] - u[4 * u_stride];
    o[0] = fused(all(1 / (PA2 * PB2)), u[0], fused(all(GA), sum_a, all(GB) * sum_b));
    o[o_stride] = fused(all(GA * PA), less_a, all(GB * PB) * less_b);
    o[2 * o_stride] = fused(all(GA * PA2), sum_a, fused(all(GB * PB2), sum_b, u[5 * u_stride]));
}

/* ---- tiles ---------------------------------------------------------------------------------- */
struct spot { /* a tile's sample, and its first row and column */
    int64_t sample, y, x;
};

INLINE struct spot spot_of(const struct wino_image *g, int64_t tile) {
    int64_t place = tile % (g->down * g->across);
    return (struct spot){.sample = tile / (g->down * g->across),
                         .y = place / g->across * OUT - g->pad,
                         .x = place % g->across * OUT - g->pad};
}

/* The offset of a sample's channels from 'lane' of 'block' on. */
INLINE int64_t image_at(const struct wino_image *g, int64_t sample, int64_t block, int lane) {
    return (sample * g->blocks + block) * g->h * g->w * B + lane;
}

/* 'side' x 'side' vectors of a tile, zero outside the image. */
INLINE void tile_load(const struct wino_image *g, const float *image, struct spot s, const int side, vec *d) {
    static const float nothing[B] = {0};
    bool inside = s.y >= 0 && s.x >= 0 && s.y + side <= g->h && s.x + side <= g->w;
    const float *first = image + (s.y * g->w + s.x) * B;
    for (int r = 0; r < side; r++)
        for (int c = 0; c < OUT; c++) __builtin_prefetch(first + (r * g->w + side + OUT + c) * B);
    for (int r = 0; r < side; r++)
        for (int c = 0; c < side; c++) {
            bool here = inside || (s.y + r >= 0 && s.y + r < g->h && s.x + c >= 0 && s.x + c < g->w);
            d[r * side + c] = load(here ? first + (r * g->w + c) * B : nothing);
        }
    for (int k = 0; g->round && k < side * side; k++) d[k] = rounded(d[k]);
}

INLINE void planes_load(vec *o, const struct wino_tiles *from, int64_t at) {
    for (int p = 0; p < WINO_PLANES; p++) o[p] = load(from->at + p * from->plane + at);
}

INLINE void planes_store(const vec *o, const struct wino_tiles *to, int64_t at) {
    for (int p = 0; p < WINO_PLANES; p++) store(to->at + p * to->plane + at, o[p]);
}

INLINE void tile_input(const struct wino_image *g, const float *x, struct spot s, const struct wino_tiles *to,
                       int64_t at) {
    vec d[IN * IN], half[IN * IN];
    tile_load(g, x, s, IN, d);
    for (int c = 0; c < IN; c++) transform_input(d + c, IN, half + c, IN);
    for (int r = 0; r < IN; r++) transform_input(half + r * IN, 1, d + r * IN, 1);
    planes_store(d, to, at);
}

void wino_input(const struct wino_image *g, const float *x, int64_t begin, int64_t end, const struct wino_tiles *to) {
    for (int64_t block = 0; block < g->blocks; block++)
        for (int64_t t = begin; t < end; t++) {
            struct spot s = spot_of(g, t);
            for (int lane = 0; lane < B; lane += LANES)
                tile_input(g, x + image_at(g, s.sample, block, lane), s, to, (t - begin) * to->row + block * B + lane);
        }
}

INLINE void tile_gradient(const struct wino_image *g, const float *dy, struct spot s, const struct wino_tiles *to,
                          int64_t at) {
    vec d[OUT * OUT], half[IN * OUT], o[IN * IN];
    tile_load(g, dy, s, OUT, d);
    for (int c = 0; c < OUT; c++) transform_gradient(d + c, OUT, half + c, OUT);
    for (int r = 0; r < IN; r++) transform_gradient(half + r * OUT, 1, o + r * IN, 1);
    planes_store(o, to, at);
}

void wino_gradient(const struct wino_image *g, const float *dy, int64_t begin, int64_t end,
                   const struct wino_tiles *to) {
    for (int64_t block = 0; block < g->blocks; block++)
        for (int64_t t = begin; t < end; t++) {
            struct spot s = spot_of(g, t);
            for (int lane = 0; lane < B; lane += LANES)
                tile_gradient(g, dy + image_at(g, s.sample, block, lane), s, to,
                              (t - begin) * to->row + block * B + lane);
        }
}

INLINE void tile_store(const struct wino_image *g, float *image, struct spot s, const vec *o, vec bias, bool relu) {
    const vec zero = {0};
    for (int r = 0; r < OUT && s.y + r < g->h; r++)
        for (int c = 0; c < OUT && s.x + c < g->w; c++) {
            vec v = o[r * OUT + c] + bias;
            if (relu) v = larger(v, zero); /* NaN stays */
            store(image + ((s.y + r) * g->w + s.x + c) * B, v);
        }
}

INLINE void tile_output(const struct wino_image *g, float *y, struct spot s, const vec *m, vec bias, bool relu) {
    vec half[OUT * IN], o[OUT * OUT];
    for (int c = 0; c < IN; c++) transform_output(m + c, IN, half + c, IN);
    for (int r = 0; r < OUT; r++) transform_output(half + r * IN, 1, o + r * OUT, 1);
    tile_store(g, y, s, o, bias, relu);
}

void wino_output(const struct wino_image *g, float *y, const struct wino_part *at, const struct wino_tiles *from,
                 struct wino_finish finish) {
    for (int64_t c = 0; c < at->width; c += B)
        for (int64_t t = 0; t < at->rows; t++) {
            struct spot s = spot_of(g, at->row + t);
            for (int lane = 0; lane < B; lane += LANES) {
                vec m[WINO_PLANES], bias = {0};
                if (finish.bias) bias = load(finish.bias + at->first + c + lane);
                planes_load(m, from, t * from->row + c + lane);
                tile_output(g, y + image_at(g, s.sample, (at->first + c) / B, lane), s, m, bias, finish.relu);
            }
        }
}

/* ---- weights -------------------------------------------------------------------------------- */
enum { TAPS = 9 };

INLINE int taps_of(int first) { /* of the taps from 'first' on, at most a vector */
    return TAPS - first < LANES ? TAPS - first : LANES;
}

/* The windows of a vector of lanes that belong to summed channel 'channel', a vector a tap. */
INLINE void taps_load(const struct wino_weights *s, const float *w, int64_t lane, int64_t channel, vec taps[TAPS]) {
    const float *first = w + (s->turned ? channel * s->in + lane : lane * s->in + channel) * TAPS;
    int64_t next = (s->turned ? 1 : s->in) * TAPS;
    int64_t ahead = s->turned ? 2 * s->in * TAPS : 8 * TAPS;
    vec plain[TAPS];
    UNROLL for (int k = 0; k < LANES; k++) __builtin_prefetch(first + k * next + ahead);
    UNROLL for (int j = 0; j < TAPS; j += LANES) {
        vec m[LANES];
        UNROLL for (int k = 0; k < LANES; k++) m[k] = few_load(first + k * next + j, taps_of(j));
        lanes_turn(m);
        UNROLL for (int k = 0; k < taps_of(j); k++) plain[j + k] = m[k];
    }
    UNROLL for (int j = 0; j < TAPS; j++) taps[j] = plain[s->turned ? TAPS - 1 - j : j];
    for (int j = 0; s->round && j < TAPS; j++) taps[j] = rounded(taps[j]);
}

INLINE void taps_store(const vec taps[TAPS], float *to) {
    UNROLL for (int j = 0; j < TAPS; j += LANES) {
        vec m[LANES];
        UNROLL for (int k = 0; k < LANES; k++) m[k] = k < taps_of(j) ? taps[j + k] : (vec){0};
        lanes_turn(m);
        UNROLL for (int k = 0; k < LANES; k++) few_store(to + k * TAPS + j, m[k], taps_of(j));
    }
}

void wino_weights_in(const struct wino_weights *s, const float *w, const struct wino_part *at,
                     const struct wino_tiles *to) {
    for (int64_t c = 0; c < at->rows; c++)
        for (int64_t lane = 0; lane < at->width; lane += LANES) {
            vec taps[TAPS], half[IN * 3], o[WINO_PLANES];
            taps_load(s, w, at->first + lane, at->row + c, taps);
            for (int k = 0; k < 3; k++) transform_weights(taps + k, 3, half + k, 3);
            for (int r = 0; r < IN; r++) transform_weights(half + r * 3, 1, o + r * IN, 1);
            planes_store(o, to, c * to->row + lane);
        }
}

INLINE void taps_from(const struct wino_tiles *from, int64_t at, vec taps[TAPS]) {
    vec u[WINO_PLANES], half[3 * IN];
    planes_load(u, from, at);
    for (int c = 0; c < IN; c++) transform_weights_back(u + c, IN, half + c, IN);
    for (int r = 0; r < 3; r++) transform_weights_back(half + r * IN, 1, taps + r * 3, 1);
}

void wino_weights_out(const struct wino_weights *s, float *dw, const struct wino_part *at,
                      const struct wino_tiles *from) {
    for (int64_t out = 0; out < at->rows; out++)
        for (int64_t lane = 0; lane < at->width; lane += LANES) {
            vec taps[TAPS];
            taps_from(from, out * from->row + lane, taps);
            taps_store(taps, dw + ((at->row + out) * s->in + at->first + lane) * TAPS);
        }
}

void wino_taps_out(float *to, const struct wino_part *at, const struct wino_tiles *from) {
    for (int64_t out = 0; out < at->rows; out++)
        for (int64_t lane = 0; lane < at->width; lane += LANES) {
            vec taps[TAPS];
            taps_from(from, out * from->row + lane, taps);
            for (int k = 0; k < TAPS; k++) store(to + (out * TAPS + k) * at->width + lane, taps[k]);
        }
}

void wino_weights_from_taps(const struct wino_weights *s, float *dw, const struct wino_part *at, const float *from) {
    for (int64_t out = at->row; out < at->row + at->rows; out++, from += TAPS * at->width)
        for (int64_t lane = 0; lane < at->width; lane += LANES) {
            vec taps[TAPS];
            for (int k = 0; k < TAPS; k++) taps[k] = load(from + k * at->width + lane);
            taps_store(taps, dw + (out * s->in + at->first + lane) * TAPS);
        }
}

/* ---- products: tiles of up to ROWS rows x VECS vectors of c stay in registers ---------------- */
/* A sum is made of chains of at most CHAIN multiply-adds: one chain over 512 channels would have
 * two and a half times the error. */
enum { ROWS = 6, VECS = REGISTERS / 8, CHAIN = 64 };

struct chain { /* steps [begin, end) of the sums of rows from i on and columns from j on */
    int64_t i, j, begin, end;
};

INLINE void tile_product(const int rows, const int vecs, const struct wino_product *p, const struct chain *chain) {
    const int64_t begin = chain->begin, end = chain->end;
    vec sum[ROWS][VECS];
    const float *row[ROWS], *b = p->b + begin * p->b_row + chain->j;
    float *c = p->c + chain->i * p->c_row + chain->j;
    UNROLL for (int r = 0; r < rows; r++) {
        row[r] = p->a + (chain->i + r) * p->a_row;
        UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = (vec){0};
    }
    for (int64_t k = begin, at = k * p->a_depth; k < end; k++, at += p->a_depth, b += p->b_row) {
        vec line[VECS];
        UNROLL for (int v = 0; v < vecs; v++) line[v] = load(b + v * LANES);
        UNROLL for (int r = 0; r < rows; r++) {
            UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = fused(all(row[r][at]), line[v], sum[r][v]);
        }
    }
    if (p->add || begin > 0) {
        UNROLL for (int r = 0; r < rows; r++) {
            UNROLL for (int v = 0; v < vecs; v++) sum[r][v] += load(c + r * p->c_row + v * LANES);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vecs; v++) store(c + r * p->c_row + v * LANES, sum[r][v]);
    }
}

typedef void (*tile_fn)(const struct wino_product *p, const struct chain *chain);
#define TILE(rows, vecs)                                                                                               \
    static void tile_##rows##x##vecs(const struct wino_product *p, const struct chain *chain) {                        \
        tile_product(rows, vecs, p, chain);                                                                            \
    }
#if defined(__AVX512F__)
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3) TILE(rows, 4)
#define NAMES(rows)                                                                                                    \
    { tile_##rows##x1, tile_##rows##x2, tile_##rows##x3, tile_##rows##x4 }
#else /* a width is always whole VECS */
#define TILES(rows) TILE(rows, VECS)
#define NAMES(rows)                                                                                                    \
    { [VECS - 1] = tile_##rows##xVECS }
#endif
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)

void wino_multiply(const struct wino_product *p) {
    static const tile_fn tiles[ROWS][VECS] = {NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6)};
    for (int64_t j = 0; j < p->width; j += VECS * LANES) {
        int64_t vecs = (p->width - j) / LANES < VECS ? (p->width - j) / LANES : VECS;
        for (int64_t begin = 0; begin < p->depth; begin += CHAIN) {
            int64_t end = begin + CHAIN < p->depth ? begin + CHAIN : p->depth;
            for (int64_t i = 0; i < p->rows; i += ROWS) {
                int64_t rows = p->rows - i < ROWS ? p->rows - i : ROWS;
                tiles[rows - 1][vecs - 1](p, &(struct chain){i, j, begin, end});
            }
        }
    }
}
