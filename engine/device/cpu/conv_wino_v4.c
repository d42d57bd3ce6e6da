/* conv_wino.h's kernels for AVX-512. A vector is 16 channels.
 *
 * The points are 0, +-a, +-b and infinity with a = 5/8, b = 3/2: half the rounding errors of 1 and
 * 2, and every constant of the transforms of tiles is exact. Along one axis:
 *
 *   input     B' d   (6 -> 6)       output    A' m   (6 -> 4)       weights   G w   (3 -> 6)
 *   and for the gradient of the weights the adjoints: A dy (4 -> 6), G' u (6 -> 3) */
#include "engine/device/cpu/conv_wino.h"

#if defined(__AVX512F__)
#include <immintrin.h>

enum { B = LAYOUT_BLOCK, OUT = WINO_OUT, IN = WINO_IN };
typedef float vec __attribute__((vector_size(B * sizeof(float))));
typedef float loose __attribute__((vector_size(B * sizeof(float)), aligned(4), may_alias));
#define LOAD(p) (*(const loose *)(p))
#define STORE(p, v) (*(loose *)(p) = (v))
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 36")
#endif

#define PA 0.625f
#define PB 1.5f
#define PA2 (PA * PA)
#define PB2 (PB * PB)
#define PA3 (PA2 * PA)
#define PB3 (PB2 * PB)
#define GA (1 / (2 * PA2 * (PA2 - PB2)))
#define GB (1 / (2 * PB2 * (PB2 - PA2)))

/* ---- along one axis: 'd' and 'o' are 'step' vectors apart ----------------------------------- */
INLINE void transform_input(const vec *d, int from, vec *o, int to) {
    vec d0 = d[0], d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from];
    vec d5 = d[5 * from];
    vec even_a = d4 - PB2 * d2, odd_a = PA * (d3 - PB2 * d1);
    vec even_b = d4 - PA2 * d2, odd_b = PB * (d3 - PA2 * d1);
    o[0] = PA2 * PB2 * d0 - (PA2 + PB2) * d2 + d4;
    o[to] = even_a + odd_a;
    o[2 * to] = even_a - odd_a;
    o[3 * to] = even_b + odd_b;
    o[4 * to] = even_b - odd_b;
    o[5 * to] = PA2 * PB2 * d1 - (PA2 + PB2) * d3 + d5;
}

INLINE void transform_output(const vec *m, int from, vec *o, int to) {
    vec sum_a = m[from] + m[2 * from], less_a = m[from] - m[2 * from];
    vec sum_b = m[3 * from] + m[4 * from], less_b = m[3 * from] - m[4 * from];
    o[0] = m[0] + sum_a + sum_b;
    o[to] = PA * less_a + PB * less_b;
    o[2 * to] = PA2 * sum_a + PB2 * sum_b;
    o[3 * to] = PA3 * less_a + PB3 * less_b + m[5 * from];
}

INLINE void transform_gradient(const vec *y, int from, vec *o, int to) {
    vec y0 = y[0], y1 = y[from], y2 = y[2 * from], y3 = y[3 * from];
    vec even_a = y0 + PA2 * y2, odd_a = PA * y1 + PA3 * y3;
    vec even_b = y0 + PB2 * y2, odd_b = PB * y1 + PB3 * y3;
    o[0] = y0;
    o[to] = even_a + odd_a;
    o[2 * to] = even_a - odd_a;
    o[3 * to] = even_b + odd_b;
    o[4 * to] = even_b - odd_b;
    o[5 * to] = y3;
}

INLINE void transform_weights(const vec *w, int from, vec *o, int to) {
    vec w0 = w[0], w1 = w[from], w2 = w[2 * from];
    vec even_a = GA * (w0 + PA2 * w2), odd_a = GA * PA * w1;
    vec even_b = GB * (w0 + PB2 * w2), odd_b = GB * PB * w1;
    o[0] = w0 * (1 / (PA2 * PB2));
    o[to] = even_a + odd_a;
    o[2 * to] = even_a - odd_a;
    o[3 * to] = even_b + odd_b;
    o[4 * to] = even_b - odd_b;
    o[5 * to] = w2;
}

INLINE void transform_weights_back(const vec *u, int from, vec *o, int to) {
    vec sum_a = GA * (u[from] + u[2 * from]), less_a = GA * PA * (u[from] - u[2 * from]);
    vec sum_b = GB * (u[3 * from] + u[4 * from]), less_b = GB * PB * (u[3 * from] - u[4 * from]);
    o[0] = u[0] * (1 / (PA2 * PB2)) + sum_a + sum_b;
    o[to] = less_a + less_b;
    o[2 * to] = PA2 * sum_a + PB2 * sum_b + u[5 * from];
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

/* To the nearest bf16, of two the even one; NaN stays NaN. */
INLINE vec rounded(vec v) {
    const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
    __m512i bits = _mm512_castps_si512((__m512)v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(half, odd));
    __mmask16 number = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_ORD_Q);
    bits = _mm512_mask_mov_epi32(bits, number, near);
    return (vec)_mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-0x10000)));
}

/* 'side' x 'side' vectors of a tile, zero outside the image. */
INLINE void tile_load(const struct wino_image *g, const float *image, struct spot s, const int side,
                      vec *d) {
    static const float nothing[B] = {0};
    bool inside = s.y >= 0 && s.x >= 0 && s.y + side <= g->h && s.x + side <= g->w;
    const float *first = image + (s.y * g->w + s.x) * B;
    for (int r = 0; r < side; r++)
        for (int c = 0; c < OUT; c++) __builtin_prefetch(first + (r * g->w + side + OUT + c) * B);
    for (int r = 0; r < side; r++)
        for (int c = 0; c < side; c++) {
            bool here =
                inside || (s.y + r >= 0 && s.y + r < g->h && s.x + c >= 0 && s.x + c < g->w);
            d[r * side + c] = LOAD(here ? first + (r * g->w + c) * B : nothing);
        }
    for (int k = 0; g->round && k < side * side; k++) d[k] = rounded(d[k]);
}

INLINE void planes_store(const vec *o, const struct wino_tiles *to, int64_t at) {
    for (int p = 0; p < WINO_PLANES; p++) STORE(to->at + p * to->plane + at, o[p]);
}

static void input(const struct wino_image *g, const float *x, int64_t begin, int64_t end,
                  const struct wino_tiles *to) {
    for (int64_t block = 0; block < g->blocks; block++)
        for (int64_t t = begin; t < end; t++) {
            vec d[IN * IN], half[IN * IN];
            struct spot s = spot_of(g, t);
            tile_load(g, x + (s.sample * g->blocks + block) * g->h * g->w * B, s, IN, d);
            for (int c = 0; c < IN; c++) transform_input(d + c, IN, half + c, IN);
            for (int r = 0; r < IN; r++) transform_input(half + r * IN, 1, d + r * IN, 1);
            planes_store(d, to, (t - begin) * to->row + block * B);
        }
}

static void gradient(const struct wino_image *g, const float *dy, int64_t begin, int64_t end,
                     const struct wino_tiles *to) {
    for (int64_t block = 0; block < g->blocks; block++)
        for (int64_t t = begin; t < end; t++) {
            vec d[OUT * OUT], half[IN * OUT], o[IN * IN];
            struct spot s = spot_of(g, t);
            tile_load(g, dy + (s.sample * g->blocks + block) * g->h * g->w * B, s, OUT, d);
            for (int c = 0; c < OUT; c++) transform_gradient(d + c, OUT, half + c, OUT);
            for (int r = 0; r < IN; r++) transform_gradient(half + r * OUT, 1, o + r * IN, 1);
            planes_store(o, to, (t - begin) * to->row + block * B);
        }
}

INLINE void tile_store(const struct wino_image *g, float *image, struct spot s, const vec *o,
                       vec bias, bool relu) {
    const vec zero = {0};
    for (int r = 0; r < OUT && s.y + r < g->h; r++)
        for (int c = 0; c < OUT && s.x + c < g->w; c++) {
            vec v = o[r * OUT + c] + bias;
            if (relu) v = (vec)_mm512_max_ps((__m512)zero, (__m512)v); /* NaN stays */
            STORE(image + ((s.y + r) * g->w + s.x + c) * B, v);
        }
}

static void output(const struct wino_image *g, float *y, int64_t begin, int64_t end, int64_t block,
                   int64_t count, const struct wino_tiles *from, struct wino_finish finish) {
    for (int64_t k = block; k < block + count; k++) {
        vec bias = {0};
        if (finish.bias) bias = LOAD(finish.bias + k * B);
        for (int64_t t = begin; t < end; t++) {
            vec m[WINO_PLANES], half[OUT * IN], o[OUT * OUT];
            const float *at = from->at + (t - begin) * from->row + (k - block) * B;
            struct spot s = spot_of(g, t);
            for (int p = 0; p < WINO_PLANES; p++) m[p] = LOAD(at + p * from->plane);
            for (int c = 0; c < IN; c++) transform_output(m + c, IN, half + c, IN);
            for (int r = 0; r < OUT; r++) transform_output(half + r * IN, 1, o + r * OUT, 1);
            tile_store(g, y + (s.sample * g->blocks + k) * g->h * g->w * B, s, o, bias,
                       finish.relu);
        }
    }
}

/* ---- weights -------------------------------------------------------------------------------- */
enum { TAPS = 9 };

/* Row i, lane j <-> row j, lane i: at each step blocks of half the size change places. */
INLINE void transpose(__m512 m[B]) {
    UNROLL for (int step = B / 2; step > 0; step /= 2) {
        int upper[B], lower[B];
        UNROLL for (int lane = 0; lane < B; lane++) {
            upper[lane] = lane & step ? B + lane - step : lane;
            lower[lane] = lane & step ? B + lane : lane + step;
        }
        __m512i to_upper = _mm512_loadu_si512(upper), to_lower = _mm512_loadu_si512(lower);
        UNROLL for (int i = 0; i < B; i++) {
            if (i & step) continue;
            __m512 a = m[i], b = m[i + step];
            m[i] = _mm512_permutex2var_ps(a, to_upper, b);
            m[i + step] = _mm512_permutex2var_ps(a, to_lower, b);
        }
    }
}

enum { TAPS_MASK = (1 << TAPS) - 1 };

/* The windows of 16 lanes that belong to summed channel 'channel', a vector a tap. */
INLINE void taps_load(const struct wino_weights *s, const float *w, int64_t lane, int64_t channel,
                      vec taps[TAPS]) {
    const float *first = w + (s->turned ? channel * s->in + lane : lane * s->in + channel) * TAPS;
    int64_t next = (s->turned ? 1 : s->in) * TAPS;
    __m512 m[B];
    int64_t ahead = s->turned ? 2 * s->in * TAPS : 8 * TAPS;
    UNROLL for (int k = 0; k < B; k++) {
        m[k] = _mm512_maskz_loadu_ps(TAPS_MASK, first + k * next);
        __builtin_prefetch(first + k * next + ahead);
    }
    transpose(m);
    UNROLL for (int j = 0; j < TAPS; j++) taps[j] = (vec)m[s->turned ? TAPS - 1 - j : j];
    for (int j = 0; s->round && j < TAPS; j++) taps[j] = rounded(taps[j]);
}

INLINE void taps_store(const vec taps[TAPS], float *to) {
    __m512 m[B];
    UNROLL for (int j = 0; j < B; j++) m[j] = j < TAPS ? (__m512)taps[j] : _mm512_setzero_ps();
    transpose(m);
    UNROLL for (int k = 0; k < B; k++) _mm512_mask_storeu_ps(to + k * TAPS, TAPS_MASK, m[k]);
}

static void weights(const struct wino_weights *s, const float *w, int64_t begin, int64_t end,
                    int64_t first, int64_t width, const struct wino_tiles *to) {
    for (int64_t c = begin; c < end; c++)
        for (int64_t lane = 0; lane < width; lane += B) {
            vec taps[TAPS], half[IN * 3], o[WINO_PLANES];
            taps_load(s, w, first + lane, c, taps);
            for (int k = 0; k < 3; k++) transform_weights(taps + k, 3, half + k, 3);
            for (int r = 0; r < IN; r++) transform_weights(half + r * 3, 1, o + r * IN, 1);
            planes_store(o, to, (c - begin) * to->row + lane);
        }
}

static void weights_gradient(const struct wino_weights *s, float *dw, int64_t begin, int64_t end,
                             int64_t first, int64_t width, const struct wino_tiles *from) {
    for (int64_t out = begin; out < end; out++)
        for (int64_t lane = 0; lane < width; lane += B) {
            vec u[WINO_PLANES], half[3 * IN], taps[TAPS];
            const float *at = from->at + (out - begin) * from->row + lane;
            for (int p = 0; p < WINO_PLANES; p++) u[p] = LOAD(at + p * from->plane);
            for (int c = 0; c < IN; c++) transform_weights_back(u + c, IN, half + c, IN);
            for (int r = 0; r < 3; r++) transform_weights_back(half + r * IN, 1, taps + r * 3, 1);
            taps_store(taps, dw + (out * s->in + first + lane) * TAPS);
        }
}

/* ---- products: tiles of up to 6 rows x 4 vectors of c stay in registers ---------------------- */
enum { ROWS = 6, VECS = WINO_PANEL / B };

INLINE void tile_product(const int rows, const int vecs, const struct wino_product *p,
                         const float *a, float *c) {
    vec sum[ROWS][VECS];
    const float *row[ROWS], *b = p->b;
    UNROLL for (int r = 0; r < rows; r++) {
        row[r] = a + r * p->a_row;
        UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = (vec){0};
    }
    if (p->add) {
        UNROLL for (int r = 0; r < rows; r++) {
            UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = LOAD(c + r * p->c_row + v * B);
        }
    }
    for (int64_t k = 0, at = 0; k < p->depth; k++, at += p->a_depth, b += p->b_row) {
        vec line[VECS];
        UNROLL for (int v = 0; v < vecs; v++) line[v] = LOAD(b + v * B);
        UNROLL for (int r = 0; r < rows; r++) {
            UNROLL for (int v = 0; v < vecs; v++) sum[r][v] += row[r][at] * line[v];
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vecs; v++) STORE(c + r * p->c_row + v * B, sum[r][v]);
    }
}

typedef void (*tile_fn)(const struct wino_product *p, const float *a, float *c);
#define TILE(rows, vecs)                                                                           \
    static void tile_##rows##x##vecs(const struct wino_product *p, const float *a, float *c) {     \
        tile_product(rows, vecs, p, a, c);                                                         \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3) TILE(rows, 4)
#define NAMES(rows)                                                                                \
    { tile_##rows##x1, tile_##rows##x2, tile_##rows##x3, tile_##rows##x4 }
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)

static void product(const struct wino_product *p) {
    static const tile_fn tiles[ROWS][VECS] = {NAMES(1), NAMES(2), NAMES(3),
                                              NAMES(4), NAMES(5), NAMES(6)};
    for (int64_t r = 0; r < p->rows; r += ROWS) {
        int64_t rows = p->rows - r < ROWS ? p->rows - r : ROWS;
        tiles[rows - 1][p->width / B - 1](p, p->a + r * p->a_row, p->c + r * p->c_row);
    }
}

const struct wino_kernels wino_kernels_v4 = {
    .input = input,
    .gradient = gradient,
    .output = output,
    .weights = weights,
    .weights_gradient = weights_gradient,
    .product = product,
};
#else
const struct wino_kernels wino_kernels_v4 = {0}; /* never asked for */
#endif
