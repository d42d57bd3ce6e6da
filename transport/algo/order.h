/* The order in which the ranks' elements are added; the one place where numbers of several ranks meet. Every algorithm
 * adds in the order of its group, so two algorithms of one order give the same bits. A rank is meant by its place
 * (struct places): its number, but where hosts are mixed.
 *
 * ORDER_TREE: along the tree of engine/base/leaves.h, so single, dp and ddp agree on any number of devices. A term of
 * the sum is what a rank has added of its run of leaves; where that run is not one subtree, a rank may give several
 * terms. Where ranks are leaves themselves: 0 with 1, 2 with 3, then these sums likewise.
 *
 * ORDER_RING: what a ring does anyway. Of count elements, chunk c is [c*count/n, (c+1)*count/n), and is added from left
 * to right in the order c, c+1, ..., n-1, 0, ..., c-1.
 *
 * The result of one element depends on its position in [0, count), never on how the work is cut. */
#pragma once
#include "engine/base/leaves.h"
#include "transport/base/types.h"

/* First element of chunk c. */
int64_t order_chunk(int64_t count, int ranks, int c);

struct sum {
    enum order order;
    enum dtype type;
    enum redop op;
    int first;           /* ranks below it give nothing; the others are numbered from it */
    int ranks;           /* that give */
    int64_t count;       /* elements of the whole buffer */
    int terms;           /* of ORDER_TREE: as many as ranks that give, or more */
    const uint8_t *adds; /* leaves_adds of them */
};
/* Combines elements [lo, hi). in[t] and out[i] point at element lo of term t, of the i-th result; a
 * result may be one of the inputs. outs >= 1. */
void order_sum(const struct sum *s, int64_t lo, int64_t hi, const char *const *in, char *const *out, int outs);

/* dst[i] = a[i] op b[i]; dst may be a or b. AVERAGE: adds. */
void combine(enum dtype t, enum redop op, int64_t n, void *dst, const void *a, const void *b);
/* The step after the last addition of a sum: the division of an average. It is done once for each element, by the
 * rank that made the last addition; order_sum includes it. */
void sum_complete(const struct sum *s, int64_t n, void *data);
