/* The kernels of conv_small.c.
 *
 * Flat planes. A channel of a padded image is one line of floats, in rows of pitch = w + pw: pixel
 * (i, j) is at (i + ph) * pitch + pw + j. One gap of pw zeros between two rows is the right border
 * of the one and the left border of the other. A tap of the kernel is then a constant offset:
 * output (i, j) is position p = i * pitch + j, and its tap (r, k) reads p + r * pitch + k. Vectors
 * run along p over the ends of rows, so that no width wastes lanes; what they compute for the gaps
 * is never used. The gradient of y has the same pitch: ow + its own border, kw - 1 - pw.
 *
 * There are three ways through a convolution, each a block of sums held in registers.
 *
 * - Pixel lanes: M channels' weights, broadcast, times vectors of pixels. For forward, and for dx,
 *   which is dy convolved with the weights turned round.
 *
 * - Channel lanes: the same block with the roles changed, M pixels, broadcast, times vectors of
 *   output channels. For the forward of small images with many output channels.
 *
 * - Pixel dots: dw[o][t] = sum over p of dy[o][p] x[p + offset[t]], in CONV_SUMS partial sums, p in sum p mod
 *   CONV_SUMS whatever the vectors' width; they add up after the batch.
 *
 * Behind a max-pool at least three gradients of four are zero, and the sparse backward visits only
 * the others. With x and dx channel-last a row of the kernel is kw * c floats in one run, and each
 * chosen pixel adds d times its patch of x to dw, and d times the weights to its patch of dx.
 *
 * bf16: x and the gradient are rounded where they are laid out, the weights by conv_small.c; all that follows is as in
 * f32. */
#include "engine/device/bf16.h"
#include "engine/device/cpu/conv_small_lanes.h"
#include "engine/device/cpu/layout.h"

#include <string.h>

/* Loops over M, N, R, T and V are unrolled, so that arrays of sums become registers. */
#define BLOCK static inline __attribute__((always_inline)) void
#define UP_TO_7(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define UP_TO_14(X) UP_TO_7(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14)

/* ---- planes ---------------------------------------------------------------------------------- */

/* Rows of x, and how far apart they are in a plane. With no border between them all are one. */
struct rows {
    int count, length, pitch;
};
static inline struct rows rows_of(const struct conv_plan *p) {
    return p->pw == 0 ? (struct rows){1, p->h * p->w, 0} : (struct rows){p->h, p->w, p->pitch};
}

/* A sample into flat planes whose borders are zero already. */
static void planes_fill(const struct conv_plan *p, const float *x, float *planes) {
    struct rows rows = rows_of(p);
    for (int c = 0; c < p->c; c++, planes += p->x_plane) {
        float *to = planes + p->ph * p->pitch + p->pw;
        for (int i = 0; i < rows.count; i++, x += rows.length, to += rows.pitch) row_move(to, x, rows.length);
    }
}

static void x_round(const struct conv_plan *p, float *x) {
    if (p->round) bf16_round_all((int64_t)p->c * p->x_plane, x, x);
}

/* The same, channel-last. */
static void pixels_fill(const struct conv_plan *p, const float *x, float *pixels) {
    struct rows rows = rows_of(p);
    for (int c = 0; c < p->c; c++) {
        float *to = pixels + (size_t)(p->ph * p->pitch + p->pw) * p->c + c;
        for (int i = 0; i < rows.count; i++, x += rows.length, to += (size_t)rows.pitch * p->c)
            channel_write(to, x, p->c, rows.length);
    }
}

static void pixels_read(const struct conv_plan *p, const float *pixels, float *x) {
    struct rows rows = rows_of(p);
    for (int c = 0; c < p->c; c++) {
        const float *from = pixels + (size_t)(p->ph * p->pitch + p->pw) * p->c + c;
        for (int i = 0; i < rows.count; i++, x += rows.length, from += (size_t)rows.pitch * p->c)
            channel_read(x, from, p->c, rows.length);
    }
}

/* ---- sums of taps: forward and dx ------------------------------------------------------------ */

/* A block of out: M rows, out_step apart, of N vectors. Pixel lanes: M channels, and pixels along
 * the row. Channel lanes: M pixels, and channels along the row. */
struct sum {
    const struct conv_flat *flat;
    const float *in, *w, *init; /* at the block's first pixel and channel */
    float *out;
    int w_step, out_step;
};

BLOCK sum_taps(const int M, const int N, const bool pixel_lanes, const struct sum *s) {
    vec sum[WIDE_M][CONV_VECTORS];
    UNROLL for (int m = 0; m < M; m++) {
        UNROLL for (int n = 0; n < N; n++) {
            sum[m][n] = pixel_lanes ? s->init[m] - (vec){0} : load(s->init + n * LANES);
        }
    }
    const float *w = s->w;
    for (int t = 0; t < s->flat->taps; t++, w += s->w_step) {
        const float *pixels = s->in + s->flat->offset[t];
        __asm__("" : "+r"(pixels)); /* indexed, the loads would not fuse with the FMAs */
        const float *one = pixel_lanes ? w : pixels, *many = pixel_lanes ? pixels : w;
        UNROLL for (int m = 0; m < M; m++) {
            UNROLL for (int n = 0; n < N; n++) sum[m][n] = fused(load(many + n * LANES), one[m] - (vec){0}, sum[m][n]);
        }
    }
    UNROLL for (int m = 0; m < M; m++) {
        UNROLL for (int n = 0; n < N; n++) store(s->out + m * s->out_step + n * LANES, sum[m][n]);
    }
}

BLOCK sum_block(const int most, const int N, const bool pixel_lanes, int m, const struct sum *s) {
#define X(M)                                                                                                           \
    case M:                                                                                                            \
        if (M <= most) sum_taps(M, N, pixel_lanes, s);                                                                 \
        break;
    switch (m) { UP_TO_14(X) }
#undef X
}

/* Rows of every channel of out, by pixel lanes. 'all' is at the first row and channel. */
static void rows_make(const struct sum *all, int pitch, int width, int rows) {
    int positions = (rows - 1) * pitch + width, channels = all->flat->channels, groups = (channels + ROW_M - 1) / ROW_M;
    for (int p = 0; p < positions; p += CONV_VECTORS * LANES)
        for (int g = 0; g < groups; g++) {
            int o = channels * g / groups, m = channels * (g + 1) / groups - o;
            struct sum s = *all;
            s.in += p, s.w += o, s.init += o;
            s.out += (size_t)o * s.out_step + p;
            sum_block(ROW_M, CONV_VECTORS, true, m, &s);
        }
}

/* One row of the convolution's output, channel-last, by channel lanes. The last block of pixels
 * begins early enough to be full. */
static void row_make(const struct conv_plan *p, const float *shared, const float *in, float *out) {
    int most = p->oc_step > LANES ? PAIR_M : WIDE_M;
    int blocks = (p->ow + most - 1) / most, m = (p->ow + blocks - 1) / blocks;
    for (int b = 0; b < blocks; b++) {
        int j = b * m < p->ow - m ? b * m : p->ow - m;
        for (int o = 0; o < p->oc_step; o += 2 * LANES) {
            struct sum s = {
                &p->forward, in + j,    shared + o, shared + p->init_at + o, out + (size_t)j * p->oc_step + o,
                p->oc_step,  p->oc_step};
            if (p->oc_step - o > LANES)
                sum_block(PAIR_M, 2, false, m, &s);
            else
                sum_block(WIDE_M, 1, false, m, &s);
        }
    }
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* Two rows of the convolution's output to n pooled pixels and codes; up to a vector more of each is
 * written. */
static void pool_rows(const float *u, const float *v, int n, bool relu, float *y, uint8_t *codes) {
    for (int j = 0; j < n; j += LANES, u += 2 * LANES, v += 2 * LANES) {
        vec u0 = load(u), u1 = load(u + LANES), v0 = load(v), v1 = load(v + LANES);
        ints code;
        store(y + j,
              pool_max(__builtin_shufflevector(u0, u1, EVEN), __builtin_shufflevector(u0, u1, ODD),
                       __builtin_shufflevector(v0, v1, EVEN), __builtin_shufflevector(v0, v1, ODD), relu, &code));
        store_codes(codes + j, code);
    }
}

/* The gradient of one of the two rows (row 0 or 1) that n pooled pixels come from; what is written beyond
 * 2 n, less than two vectors, is zero. */
static void unpool_row(const float *dy, const uint8_t *codes, int n, int row, float *to) {
    const ints lane = {COUNT};
    for (int j = 0; j < n; j += LANES, to += 2 * LANES) {
        ints d = (ints)load(dy + j) & (lane < n - j), code = load_codes(codes + j);
        vec left = (vec)(d & (code == 2 * row)), right = (vec)(d & (code == 2 * row + 1));
        store(to, __builtin_shufflevector(left, right, LOW));
        store(to + LANES, __builtin_shufflevector(left, right, HIGH));
    }
}

/* ---- forward --------------------------------------------------------------------------------- */
static void row_copy(const float *from, int n, bool relu, float *to) {
    for (int j = 0; j < n; j++) to[j] = relu && from[j] < 0 ? 0 : from[j];
}

/* Band by band: all channels of some rows, then their ReLU and pool. Pooled pixels are collected in
 * 'copy', as whole vectors are stored over the ends of its rows. */
static void small_forward_by_pixels(const struct conv_plan *p, const float *shared, float *work, float *y,
                                    uint8_t *codes) {
    const struct conv_flat *f = &p->forward;
    float *out = work + p->out_at, *pooled = work + p->copy_at;
    for (int i = 0; i < p->rows; i += f->band) {
        int rows = p->rows - i < f->band ? p->rows - i : f->band;
        const float *in = work + p->x_at + (size_t)i * p->pitch;
        rows_make(&(struct sum){f, in, shared, shared + p->init_at, out, p->oc_step, f->out_step}, p->pitch, p->ow,
                  rows);
        for (int o = 0; o < p->oc; o++)
            for (int r = 0; r < rows; r += p->pool ? 2 : 1) {
                const float *u = out + (size_t)o * f->out_step + (size_t)r * p->pitch;
                size_t row = (size_t)(p->pool ? (i + r) / 2 : i + r) * p->yw;
                size_t at = (size_t)o * p->y_plane + row;
                if (p->pool)
                    pool_rows(u, u + p->pitch, p->yw, p->relu, pooled + at, codes + at);
                else
                    row_copy(u, p->ow, p->relu, y + (size_t)o * p->yh * p->yw + row);
            }
    }
    size_t area = (size_t)p->yh * p->yw;
    for (int o = 0; p->pool && o < p->oc; o++) memcpy(y + o * area, pooled + (size_t)o * p->y_plane, area * sizeof *y);
}

/* Channels of one pixel of y from the rows u and v of the convolution's output, channel-last. */
static void pixel_finish(const struct conv_plan *p, const float *u, const float *v, float *y, uint8_t *codes) {
    for (int o = 0; o < p->oc_step; o += LANES) {
        vec most = load(u + o);
        if (p->pool) {
            ints code;
            most = pool_max(most, load(u + p->oc_step + o), load(v + o), load(v + p->oc_step + o), p->relu, &code);
            store_codes(codes + o, code);
        } else if (p->relu) {
            most = larger(most, (vec){});
        }
        store(y + o, most);
    }
}

/* y and codes are collected channel-last, then turned. */
static void small_forward_by_channels(const struct conv_plan *p, const float *shared, float *work, float *y,
                                      uint8_t *codes) {
    float *u = work + p->out_at, *v = u + (size_t)p->ow * p->oc_step;
    float *pixels = work + p->copy_at;
    size_t area = (size_t)p->yh * p->yw, count = area * p->oc_step;
    uint8_t *pixel_codes = (uint8_t *)(pixels + count);
    int window = p->pool ? 2 : 1;
    for (int i = 0; i < p->yh; i++) {
        const float *in = work + p->x_at + (size_t)i * window * p->pitch;
        row_make(p, shared, in, u);
        if (p->pool) row_make(p, shared, in + p->pitch, v);
        for (int j = 0; j < p->yw; j++) {
            size_t at = ((size_t)i * p->yw + j) * p->oc_step, from = (size_t)j * window * p->oc_step;
            pixel_finish(p, u + from, v + from, pixels + at, pixel_codes + at);
        }
    }
    for (int o = 0; o < p->oc; o++) channel_read(y + o * area, pixels + o, p->oc_step, (int)area);
    for (int o = 0; p->pool && o < p->oc; o++) {
        uint8_t *to = codes + (size_t)o * p->y_plane;
        for (size_t at = 0; at < area; at++) to[at] = pixel_codes[at * p->oc_step + o];
    }
}

void conv_small_forward(const struct conv_plan *p, const float *shared, float *work, const float *x, float *y,
                        uint8_t *codes) {
    planes_fill(p, x, work + p->x_at);
    x_round(p, work + p->x_at);
    if (p->channel_lanes)
        small_forward_by_channels(p, shared, work, y, codes);
    else
        small_forward_by_pixels(p, shared, work, y, codes);
}

/* ---- backward, every pixel ------------------------------------------------------------------- */

/* The gradient of the convolution's own output into flat planes; its gaps are zero already. */
static void gradient_fill(const struct conv_plan *p, float *work, const float *y, const float *dy,
                          const uint8_t *codes) {
    size_t area = (size_t)p->yh * p->yw;
    float *copy = work + p->copy_at;
    for (int o = 0; o < p->oc; o++, y += area, dy += area, codes += p->y_plane) {
        float *to = work + p->dy_at + (size_t)o * p->dy_plane + p->dy_origin;
        if (p->pool) memcpy(copy, dy, area * sizeof *dy); /* whole vectors of it are read */
        for (int i = 0; i < p->yh; i++) {
            size_t at = (size_t)i * p->yw;
            if (p->pool) {
                float *u = to + (size_t)2 * i * p->pitch;
                unpool_row(copy + at, codes + at, p->yw, 0, u);
                unpool_row(copy + at, codes + at, p->yw, 1, u + p->pitch);
            } else {
                float *u = to + (size_t)i * p->pitch;
                for (int j = 0; j < p->yw; j++) u[j] = p->relu && !(y[at + j] > 0) ? 0 : dy[at + j];
            }
        }
    }
}

/* Rounds the gradient. db is the sum of what it was before: in bf16 the tap of ones is one of zeros. */
static void gradient_round(const struct conv_plan *p, float *work, float *sums) {
    for (int o = 0; o < p->oc; o++) {
        float *dy = work + p->dy_at + p->dy_origin + (size_t)o * p->dy_plane;
        float *db = sums + ((size_t)o * p->dw_taps + p->forward.taps) * CONV_SUMS;
        for (int lane = 0; lane < CONV_SUMS; lane += LANES) {
            vec sum = load(db + lane);
            for (int at = lane; at < p->positions; at += CONV_SUMS) {
                vec d = load(dy + at);
                sum += d;
                store(dy + at, rounded(d));
            }
            store(db + lane, sum);
        }
    }
}

/* Sums of some channels' dy with CONV_DOT_TAPS taps of x over the positions [from, to), into dw. */
struct dots {
    const float *x, *dy; /* planes of the channels; dy's first one */
    const int *offset;   /* of the taps */
    int from, to;
    float *dw;
};

/* The partial sums of one vector of positions, of M channels: from 'lane' on, CONV_SUMS apart. */
BLOCK dot_taps(const int M, const struct conv_plan *p, const struct dots *s, int lane) {
    const float *x = s->x, *dy = s->dy;
    float *dw = s->dw + lane;
    vec sum[DOT_M][CONV_DOT_TAPS];
    size_t step = (size_t)p->dw_taps * CONV_SUMS;
    UNROLL for (int m = 0; m < M; m++) {
        UNROLL for (int t = 0; t < CONV_DOT_TAPS; t++) sum[m][t] = load(dw + m * step + t * CONV_SUMS);
    }
    for (int at = s->from + lane; at < s->to; at += CONV_SUMS) {
        vec d[DOT_M];
        UNROLL for (int m = 0; m < M; m++) d[m] = load(dy + (size_t)m * p->dy_plane + at);
        UNROLL for (int t = 0; t < CONV_DOT_TAPS; t++) {
            vec v = load(x + s->offset[t] + at);
            UNROLL for (int m = 0; m < M; m++) sum[m][t] = fused(d[m], v, sum[m][t]);
        }
    }
    UNROLL for (int m = 0; m < M; m++) {
        UNROLL for (int t = 0; t < CONV_DOT_TAPS; t++) store(dw + m * step + t * CONV_SUMS, sum[m][t]);
    }
}

static void dot_channels(int m, const struct conv_plan *p, const struct dots *s) {
#define X(M)                                                                                                           \
    case M:                                                                                                            \
        for (int lane = 0; M <= DOT_M && lane < CONV_SUMS; lane += LANES) dot_taps(M, p, s, lane);                     \
        break;
    switch (m) { UP_TO_7(X) }
#undef X
}

/* dw and db in partial sums: db is the tap of a plane of ones. A few thousand positions at a time, so that
 * they stay in cache for all taps. */
static void weights_by_pixels(const struct conv_plan *p, const float *work, float *sums) {
    enum { BAND = 128 * CONV_SUMS };
    const float *x = work + p->x_at, *dy = work + p->dy_at + p->dy_origin;
    int groups = (p->oc + DOT_M - 1) / DOT_M;
    for (int from = 0; from < p->positions; from += BAND) {
        int to = p->positions - from < BAND ? p->positions : from + BAND;
        for (int g = 0; g < groups; g++) {
            int o = p->oc * g / groups, m = p->oc * (g + 1) / groups - o;
            for (int t = 0; t < p->dw_taps; t += CONV_DOT_TAPS) {
                float *dw = sums + ((size_t)o * p->dw_taps + t) * CONV_SUMS;
                const struct dots s = {x, dy + (size_t)o * p->dy_plane, p->forward.offset + t, from, to, dw};
                dot_channels(m, p, &s);
            }
        }
    }
}

static void dx_by_pixels(const struct conv_plan *p, const float *shared, float *work, float *dx) {
    const struct conv_flat *f = &p->backward;
    float *out = work + p->out_at;
    for (int i = 0; i < p->h; i += f->band) {
        int rows = p->h - i < f->band ? p->h - i : f->band;
        const float *in = work + p->dy_at + (size_t)i * p->pitch;
        rows_make(&(struct sum){f, in, shared, shared + p->init_at, out, p->c, f->out_step}, p->pitch, p->w, rows);
        for (int c = 0; c < p->c; c++)
            for (int r = 0; r < rows; r++)
                row_move(dx + ((size_t)c * p->h + i + r) * p->w, out + (size_t)c * f->out_step + (size_t)r * p->pitch,
                         p->w);
    }
}

/* ---- backward, chosen pixels ----------------------------------------------------------------- */

/* A gradient d in some channel; at is the channel's weights, and its dw. */
struct chosen {
    int32_t at;
    float d;
};
/* The gradients of a 2x2 window's channels by the pixel they chose, and the first pixel's patch:
 * rows of x and dx are x_step apart, those of w and dw lie together. */
struct window_patch {
    struct chosen list[CONV_CUT + 1][CONV_OUT_MAX];
    int count[CONV_CUT + 1];
    const float *x, *w;
    float *dx, *dw;
    size_t x_step, pixel_step;
    int row_vectors;
};

/* dw += d x and dx += d w for R rows of V vectors, from 'vector' of row 'row' on; of several rows, V is all of one. The
 * pixel's patches of x and dx are loaded once for all its channels. */
BLOCK add_patches(const int R, const int V, const bool first, int row, int vector, const struct window_patch *s) {
    int from = (row * s->row_vectors + vector) * LANES;
    for (int code = 0; code < CONV_CUT; code++) {
        const struct chosen *e = s->list[code], *end = e + s->count[code];
        if (e == end) continue;
        size_t pixel = ((code >> 1) + row) * s->x_step + (code & 1) * s->pixel_step + vector * LANES;
        const float *x = s->x + pixel;
        float *dx = s->dx + pixel;
        vec in[7][7], out[7][7];
        UNROLL for (int r = 0; r < R; r++) {
            UNROLL for (int v = 0; v < V; v++) {
                in[r][v] = load(x + r * s->x_step + v * LANES);
                if (!first) out[r][v] = load(dx + r * s->x_step + v * LANES);
            }
        }
        do {
            const float *w = s->w + e->at + from;
            float *dw = s->dw + e->at + from;
            vec d = e->d - (vec){0};
            UNROLL for (int r = 0; r < R; r++) {
                UNROLL for (int v = 0; v < V; v++) {
                    int at = (r * V + v) * LANES;
                    store(dw + at, fused(in[r][v], d, load(dw + at)));
                    if (!first) out[r][v] = fused(load(w + at), d, out[r][v]);
                }
            }
        } while (++e < end);
        UNROLL for (int r = 0; r < R && !first; r++) {
            UNROLL for (int v = 0; v < V; v++) store(dx + r * s->x_step + v * LANES, out[r][v]);
        }
    }
}

BLOCK add_rows(const int V, bool first, int rows, int row, int vector, const struct window_patch *s) {
#define X(R)                                                                                                           \
    case R:                                                                                                            \
        if (R * V > PATCH) break;                                                                                      \
        if (first)                                                                                                     \
            add_patches(R, V, true, row, vector, s);                                                                   \
        else                                                                                                           \
            add_patches(R, V, false, row, vector, s);                                                                  \
        break;
    switch (rows) { UP_TO_7(X) }
#undef X
}

/* The whole kernel, as many rows or vectors of one at a time as there are registers, last ones first: what a place of dx
 * is given by the window's four pixels then comes in order of these, however the kernel is cut. */
static void window_add(const struct conv_plan *p, const struct window_patch *s) {
    int most_rows = PATCH / p->row_vectors, most = p->row_vectors < PATCH ? p->row_vectors : PATCH;
    if (most > CONV_SIDE_MAX) most = CONV_SIDE_MAX;
    if (most_rows < 1) most_rows = 1;
    for (int rows, row = p->kh; row > 0; row -= rows) {
        rows = row < most_rows ? row : most_rows;
        for (int vectors, end = p->row_vectors; end > 0; end -= vectors) {
            vectors = end < most ? end : most;
#define X(V)                                                                                                           \
    case V:                                                                                                            \
        if (V <= PATCH) add_rows(V, p->first, rows, row - rows, end - vectors, s);                                     \
        break;
            switch (vectors) { UP_TO_7(X) }
#undef X
        }
    }
}

/* The sort by pixels has no branches, as what is chosen is as random as the data. */
static void backward_by_patches(const struct conv_plan *p, const float *shared, float *work, float *sums,
                                const float *dy, const uint8_t *codes) {
    size_t area = (size_t)p->yh * p->yw, x_step = (size_t)p->pitch * p->c;
    int32_t weights = p->kh * p->row_vectors * LANES;
    float *db = sums + p->db_at;
    struct window_patch s = {
        .w = shared, .dw = sums, .x_step = x_step, .pixel_step = (size_t)p->c, .row_vectors = p->row_vectors};
    for (size_t at = 0; at < area; at++) {
        size_t pixel = at / p->yw * 2 * x_step + at % p->yw * 2 * p->c;
        s.x = work + p->x_at + pixel;
        s.dx = work + p->out_at + pixel; /* not used when first */
        memset(s.count, 0, sizeof s.count);
        for (int o = 0; o < p->oc; o++) {
            int code = codes[(size_t)o * p->y_plane + at];
            float d = dy[o * area + at];
            s.list[code][s.count[code]++] = (struct chosen){o * weights, p->round ? bf16_round(d) : d};
            db[o] += code < CONV_CUT ? d : 0;
        }
        window_add(p, &s);
    }
}

void conv_small_backward(const struct conv_plan *p, const float *shared, float *work, float *sums,
                         const struct conv_sample *s) {
    (p->sparse ? pixels_fill : planes_fill)(p, s->x, work + p->x_at);
    x_round(p, work + p->x_at);
    if (p->sparse) {
        if (!p->first) memset(work + p->out_at, 0, p->x_size * sizeof *work);
        backward_by_patches(p, shared, work, sums, s->dy, s->codes);
        if (!p->first) pixels_read(p, work + p->out_at, s->dx);
    } else {
        gradient_fill(p, work, s->y, s->dy, s->codes);
        if (p->round) gradient_round(p, work, sums);
        weights_by_pixels(p, work, sums);
        if (!p->first) dx_by_pixels(p, shared, work, s->dx);
    }
}
