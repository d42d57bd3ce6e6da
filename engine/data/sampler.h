/* Which samples a step takes, and which of them a shard takes. Plain data: it IS the position in a
 * checkpoint. The order of an epoch is a pure function of (seed, epoch); shard v of step s holds
 * positions s*B + i*V + v of it, which is PyTorch's DistributedSampler with num_replicas = V, rank
 * = v (same padding and drop_last arithmetic); with 'pytorch' it is its very samples. */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

struct sampler {
    int64_t size;          /* samples in the set */
    int64_t batch;         /* B, global */
    int shards;            /* V */
    bool shuffle, pytorch; /* pytorch: in the order that DistributedSampler gives, to the last sample */
    uint64_t seed;
    /* Without these, the last batch is ragged. pad: the order is padded to a multiple of V by its
     * own beginning (repeated if need be), as DistributedSampler does. drop_last: after that, a
     * last batch smaller than B is dropped. */
    bool pad, drop_last;
    /* (size): the sum of the weights of samples 0 to i, by which a sample is drawn for each position, whatever was drawn
     * for others; borrowed. NULL: each sample is taken once. */
    const double *upto;
    bool frozen; /* every epoch in the order of the first: as when nobody calls set_epoch */
};
/* Length of an epoch in samples (after padding, and dropping) and in steps. */
int64_t sampler_total(const struct sampler *s);
int64_t sampler_steps(const struct sampler *s);
/* Samples of step 'step' of an epoch, and of its shard v. */
int64_t sampler_batch_size(const struct sampler *s, int64_t step);
int64_t sampler_shard_size(const struct sampler *s, int64_t step, int shard);
/* order[0 .. sampler_total) of an epoch. The array has room for sampler_room, which also what is
 * dropped needs. */
int64_t sampler_room(const struct sampler *s);
void sampler_order(const struct sampler *s, int64_t epoch, int64_t *order);
/* The position in the epoch's order of sample i of shard v at step 'step'. */
static inline int64_t sampler_position(const struct sampler *s, int64_t step, int shard, int64_t i) {
    return step * s->batch + i * s->shards + shard;
}
