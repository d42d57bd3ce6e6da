/* Convolutions as matrix products over windows: what conv_direct.c needs of the kernels. Images are blocked: a pixel is LAYOUT_BLOCK channels side by
 * side. */
#pragma once
#include "engine/device/cpu/gemm_pack.h"
#include "engine/device/device.h"

enum { DIRECT_PANEL = 4 }; /* most blocks of a product's columns */

/* c (rows, blocks of columns) = or += a (rows, k) b (k, blocks of columns), each element one chain
 * of multiply-adds in order of k. The terms come in runs: run s has 'depth' terms, whose factors are
 *   a[a_at[row] + run[s].a + k * a_next]    and    the block at b[run[s].b + k * LAYOUT_BLOCK]
 * When lanewise, a's factor is a block too: lane by lane. In pairs every factor is two bf16, and a multiply-add adds both
 * products. */
struct direct_run {
    int64_t a, b;
};
struct direct_product {
    int64_t rows, runs, depth, a_next;
    const int64_t *a_at, *c_at; /* of each row */
    const struct direct_run *run;
    const float *a, *b;
    int64_t blocks, b_block, c_block; /* how many, and the distances of blocks in b and c */
    float *c;
    bool add, lanewise, pairs;
    const float *bias; /* added at last (NULL: none), and then relu */
    bool relu;
};

/* The weights of a group (out, in, taps), plain; those of lanes and channels beyond are zeros. */
struct direct_weights {
    int64_t out, in, taps;
    bool flat;  /* rows of a packed block are (channel, tap); else (block of channels, tap, channel) */
    bool round; /* to bf16 */
};

/* A row of an image with its padding: zeros to the left, then from the image, then zeros; all counted as packed. Pairs
 * are of two neighbours in the row or, 'across', of the places of two rows. */
struct direct_row {
    int64_t left, inside, all;
    enum packing how;
    bool across;
};

void direct_multiply(const struct direct_product *p);
/* Packed: for each pair of an input channel and a tap a row of LAYOUT_BLOCK outputs from 'first' on. The channels are
 * from 'begin' on, 'count' of them (whole blocks unless flat). */
void direct_pack(const struct direct_weights *s, const float *w, int64_t first, int64_t begin, int64_t count,
                 float *to);
/* The same rows back to their weights. */
void direct_unpack(const struct direct_weights *s, const float *from, int64_t first, int64_t begin, int64_t count,
                   float *w);
/* For each (block of outputs, tap, output) a row of LAYOUT_BLOCK input channels from 'first' on; 'count' outputs from
 * 'begin' on, whole blocks. */
void direct_pack_turned(const struct direct_weights *s, const float *w, int64_t first, int64_t begin, int64_t count,
                        float *to);
/* 'other': the second row of pairs across; NULL: zeros. */
void direct_row(const struct direct_row *r, const float *from, const float *other, float *to);
/* 'rows' packed rows, in place, as half as many of pairs: of each 2 * apart rows the first 'apart' pair up
 * with the others, as two bfloats in the room of a float. */
void direct_pair(int64_t rows, int64_t apart, float *packed);
