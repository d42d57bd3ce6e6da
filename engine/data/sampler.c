/* The sampler's arithmetic. Steps and shards are cut from the epoch's order by sampler_position
 * alone; all else follows:
 *
 *   order   a permutation of the set (or its own order), padded by its beginning to a multiple of V
 * where asked for total   its length, less the last batch where that is short and dropped step s
 * positions [s*B, min(s*B + B, total)); of these, shard v takes every V-th from v on
 *
 * With B = V every step takes one sample a shard, and the shards are DistributedSampler's replicas.
 */
#include "engine/data/sampler.h"

#include "engine/base/rng.h"

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

static int64_t padded(const struct sampler *s) {
    return s->pad ? round_up(s->size, s->shards) : s->size;
}

int64_t sampler_total(const struct sampler *s) {
    int64_t n = padded(s);
    return s->drop_last ? n / s->batch * s->batch : n;
}

int64_t sampler_steps(const struct sampler *s) {
    return (sampler_total(s) + s->batch - 1) / s->batch;
}

int64_t sampler_batch_size(const struct sampler *s, int64_t step) {
    int64_t left = sampler_total(s) - step * s->batch;
    return left < s->batch ? left : s->batch;
}

int64_t sampler_shard_size(const struct sampler *s, int64_t step, int shard) {
    int64_t n = sampler_batch_size(s, step);
    return n > shard ? (n - shard + s->shards - 1) / s->shards : 0;
}

int64_t sampler_room(const struct sampler *s) {
    return padded(s);
}

void sampler_order(const struct sampler *s, int64_t epoch, int64_t *order) {
    if (s->shuffle)
        rng_permutation(rng_key(s->seed, RNG_SHUFFLE), s->frozen ? 0 : (uint64_t)epoch, s->size, order);
    else
        for (int64_t i = 0; i < s->size; i++) order[i] = i;
    for (int64_t i = s->size, n = padded(s); i < n; i++) order[i] = order[i - s->size];
}
