/* Winograd's algorithm for 3x3 windows, F(4x4, 3x3): what conv_wino.c needs of the kernels. Images are blocked; a tile is 4x4 of an output and the
 * 6x6 of the input that it needs. "Planes" are the 36 places of a transformed tile. */
#pragma once
#include "engine/device/device.h"

enum { WINO_PLANES = 36, WINO_OUT = 4, WINO_IN = 6, WINO_PANEL = 64 };

struct wino_image { /* (n, blocks, h, w, LAYOUT_BLOCK), and how tiles lie on it */
    int64_t blocks, h, w;
    int64_t down, across; /* tiles of a sample */
    int64_t pad;          /* how far the first tile begins outside */
    bool round;           /* what is loaded is rounded to bf16 */
};

/* Transformed tiles: place p of tile t is a row of channels at p * plane + t * row. */
struct wino_tiles {
    float *at;
    int64_t plane, row;
};

/* Rows [row, row + rows) of channels or tiles, and of each the lanes [first, first + width). */
struct wino_part {
    int64_t row, rows, first, width;
};

struct wino_weights { /* (out, in, 3, 3), plain */
    int64_t out, in;
    bool turned; /* for the gradient of the input: windows rotated, sums over 'out' */
    bool round;  /* to bf16 */
};

struct wino_product {           /* c (rows, width) = or += a (rows, depth) b (depth, width) */
    int64_t rows, depth, width; /* width: a multiple of LAYOUT_BLOCK, at most WINO_PANEL */
    const float *a;
    int64_t a_row, a_depth; /* the distances of a's elements */
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    bool add;
};

struct wino_finish { /* what follows an output: + bias (NULL: none), then relu */
    const float *bias;
    bool relu;
};

/* Tiles [begin, end) of the whole batch 'x', each 6x6, to rows 0 ... of 'to'; the adjoint of wino_output for
 * gradients: tiles of 4x4. */
void wino_input(const struct wino_image *g, const float *x, int64_t begin, int64_t end, const struct wino_tiles *to);
void wino_gradient(const struct wino_image *g, const float *dy, int64_t begin, int64_t end,
                   const struct wino_tiles *to);
/* y's tiles at->row ... and its channels at->first ..., from rows 0 ... of 'from'. */
void wino_output(const struct wino_image *g, float *y, const struct wino_part *at, const struct wino_tiles *from,
                 struct wino_finish finish);
/* The weights of summed channels at->row ... and lanes at->first ..., to rows 0 ... of 'to'. */
void wino_weights_in(const struct wino_weights *s, const float *w, const struct wino_part *at,
                     const struct wino_tiles *to);
/* dw of outputs at->row ... and input channels at->first ..., from rows 0 ... of 'from'. */
void wino_weights_out(const struct wino_weights *s, float *dw, const struct wino_part *at,
                      const struct wino_tiles *from);
/* The same in two steps, between which gradients can be added: to (rows, 9, width), and from there to dw. */
void wino_taps_out(float *to, const struct wino_part *at, const struct wino_tiles *from);
void wino_weights_from_taps(const struct wino_weights *s, float *dw, const struct wino_part *at, const float *from);
void wino_multiply(const struct wino_product *p);
