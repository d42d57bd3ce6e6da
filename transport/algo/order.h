/* The order in which the ranks' elements are added; the one place where numbers of several ranks
 * meet. Every algorithm adds in the order of its group, so two algorithms of one order give the
 * same bits. A rank is meant by its place (struct places): its number, but where several hosts are
 * alike.
 *
 * ORDER_TREE: n ranks are folded in two, h = ceil(n/2): rank r takes in rank r + h while r + h < n;
 * then the first h are folded in the same way. For a power of two: r with r + n/2, then r with r +
 * n/4, ... so single, dp and ddp agree on any number of devices.
 *
 * ORDER_RING: what a ring does anyway. Of count elements, chunk c is [c*count/n, (c+1)*count/n),
 * and is added from left to right in the order c, c+1, ..., n-1, 0, ..., c-1.
 *
 * The result of one element depends on its position in [0, count), never on how the work is cut. */
#pragma once
#include "transport/types.h"

/* First element of chunk c. */
int64_t order_chunk(int64_t count, int ranks, int c);

struct sum {
    enum order order;
    enum dtype type;
    enum redop op;
    int first;     /* ranks below it give nothing; the others are numbered from it */
    int ranks;     /* that give */
    int64_t count; /* elements of the whole buffer */
};
/* Combines elements [lo, hi). in[r] and out[i] point at element lo of rank r's buffer, of the i-th
 * result; a result may be one of the inputs. outs >= 1. */
void order_sum(const struct sum *s, int64_t lo, int64_t hi, const char *const *in, char *const *out, int outs);

/* dst[i] = a[i] op b[i]; dst may be a or b. AVERAGE: adds. */
void combine(enum dtype t, enum redop op, int64_t n, void *dst, const void *a, const void *b);
/* What follows the last addition of a sum: the division of an average. Once for each element, by
 * whoever made that addition; order_sum has done it. */
void sum_complete(const struct sum *s, int64_t n, void *data);
