/* Which samples a step takes, and which of them a shard takes. Plain data: it IS the position in a checkpoint. The order of
 * an epoch is a pure function of (seed, epoch); shard v of step s holds positions s*B + i*V + v of it, which is PyTorch's
 * DistributedSampler with num_replicas = V, rank = v (same padding and drop_last arithmetic). */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

enum sampler_rest { REST_KEEP, REST_PAD, REST_DROP }; /* what becomes of samples beyond whole multiples */
struct sampler {
    int64_t size;   /* samples in the set */
    int64_t batch;  /* B, global */
    int shards;     /* V */
    bool shuffle;
    uint64_t seed;
    /* REST_KEEP: the last batch is ragged. REST_PAD: the order is padded to a multiple of V by its own beginning (repeated
     * if need be), as DistributedSampler does. drop_last: a last batch smaller than B is dropped. */
    bool pad, drop_last;
};
/* Length of an epoch in samples (after padding, and dropping) and in steps. */
int64_t sampler_total(const struct sampler *s);
int64_t sampler_steps(const struct sampler *s);
/* Samples of step 'step' of an epoch, and of its shard v. */
int64_t sampler_batch_size(const struct sampler *s, int64_t step);
int64_t sampler_shard_size(const struct sampler *s, int64_t step, int shard);
/* order[0 .. sampler_total) of an epoch. */
void sampler_order(const struct sampler *s, int64_t epoch, int64_t *order);
/* The position in the epoch's order of sample i of shard v at step 'step'. */
static inline int64_t sampler_position(const struct sampler *s, int64_t step, int shard, int64_t i) {
    return step * s->batch + i * s->shards + shard;
}
/* DistributedSampler(size, num_replicas, rank, shuffle, seed, drop_last) to the letter (its own padding and its own
 * drop_last, which drops to a multiple of replicas): indices into out (room for ceil(size/replicas)); returns how many. */
int64_t sampler_distributed(int64_t size, int replicas, int rank, bool shuffle, uint64_t seed, int64_t epoch,
                            bool drop_last, int64_t *out);
