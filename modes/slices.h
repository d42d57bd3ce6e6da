/* Slices: every rank steps the optimizer on a part of the arena, and keeps the state of that part
 * alone (the first stage of ZeRO, arXiv:1910.02054; a parameter server that is spread over all
 * ranks). ddp with optimizer.shard and dp with server sharded share it.
 *
 *   gradients   reduce_scatter   every rank has the sum of its parts, one of each bucket
 *   update      of these parts
 *   weights     all_gather       every rank has them all again
 *
 * An all-reduce is just these two exchanges, so the bytes are the same; the state of the optimizer
 * is 1/W of it on each rank, and so is the work of a step. Parts are whole blocks of the norm, and
 * whatever is measured of several parts is added in the order of the arena: the bits are those of
 * one rank that steps all. */
#pragma once
#include "modes/bucket.h"
#include "modes/team.h"

struct slices {
    struct trainer *t;
    struct group *group;
    struct buckets buckets; /* ends at multiples of NORM_BLOCK */
    int64_t *part;          /* of bucket b rank r has [part(b)[r], part(b)[r + 1]) of the arena */
    struct slice *own;      /* of each bucket this rank's part: the trainer's slices */
    struct flight flight;   /* of weights that are gathered */
};
/* first, cap: of buckets_init. Makes them the trainer's slices. */
MUST_CHECK enum error slices_init(struct slices *s, struct trainer *t, struct group *g,
                                  int64_t first, int64_t cap);
void slices_fini(struct slices *s);
/* Starts the sum of bucket b, each part to its owner. */
MUST_CHECK enum error slices_reduce(struct slices *s, int b, enum lane lane, struct work **out);
/* When all parts are summed: update and weights. On LANE_COMM the weights of a bucket travel while
 * the next is updated. */
MUST_CHECK enum error slices_update(struct slices *s, enum lane lane);
/* mode_ops.start and collect, as far as they are about the state. */
MUST_CHECK enum error slices_start(struct slices *s);
MUST_CHECK enum error slices_collect(struct slices *s);
/* ", optimizer state in 4 slices of 1.2 MB" */
void slices_describe(const struct slices *s, char *out, size_t size);
