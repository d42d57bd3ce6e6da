/* The sampler's arithmetic. Steps and shards are cut from the epoch's order by sampler_position
 * alone; all else follows:
 *
 *   order   a permutation of the set (or its own order), padded by its beginning to a multiple of V; of samples with
 *           weights a draw for each position
 * where asked for total   its length, less the last batch where that is short and dropped step s
 * positions [s*B, min(s*B + B, total)); of these, shard v takes every V-th from v on
 *
 * With B = V every step takes one sample a shard, and the shards are DistributedSampler's replicas.
 */
#include "engine/data/sampler.h"

#include "engine/base/rng.h"

int64_t sampler_room(const struct sampler *s) {
    return s->pad ? (s->size + s->shards - 1) / s->shards * s->shards : s->size;
}

int64_t sampler_total(const struct sampler *s) {
    int64_t n = sampler_room(s);
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

/* ---- PyTorch's order ----
 * torch.randperm(n, generator=g) after g.manual_seed(seed + epoch): words of MT19937 (Matsumoto and Nishimura, 1998),
 * whose seed has 32 bits, choose what is swapped, by their remainder. Where a remainder of 32 bits would favour some,
 * PyTorch takes words of 64 bits and the other direction. */
enum { MT_WORDS = 624, MT_MIDDLE = 397 };
struct twister {
    uint32_t word[MT_WORDS];
    int at;
};

static void twister_seed(struct twister *t, uint32_t seed) {
    t->word[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) t->word[i] = 1812433253u * (t->word[i - 1] ^ (t->word[i - 1] >> 30)) + i;
    t->at = MT_WORDS;
}

static void twister_turn(struct twister *t) {
    for (int i = 0; i < MT_WORDS; i++) {
        uint32_t v = (t->word[i] & 0x80000000u) | (t->word[(i + 1) % MT_WORDS] & 0x7fffffffu);
        t->word[i] = t->word[(i + MT_MIDDLE) % MT_WORDS] ^ (v >> 1) ^ (v & 1 ? 0x9908b0dfu : 0);
    }
    t->at = 0;
}

static uint32_t twister_next(struct twister *t) {
    if (t->at == MT_WORDS) twister_turn(t);
    uint32_t v = t->word[t->at++];
    v ^= v >> 11;
    v ^= v << 7 & 0x9d2c5680u;
    v ^= v << 15 & 0xefc60000u;
    return v ^ v >> 18;
}

static void pytorch_permutation(uint64_t seed, int64_t n, int64_t *out) {
    struct twister t;
    twister_seed(&t, (uint32_t)seed);
    bool small = n < UINT32_MAX / 20;
    for (int64_t i = 0; i < n; i++) out[i] = i;
    for (int64_t i = 0; small && i < n - 1; i++) {
        int64_t j = i + (int64_t)(twister_next(&t) % (uint64_t)(n - i)), v = out[i];
        out[i] = out[j];
        out[j] = v;
    }
    for (int64_t i = 0; !small && i < n; i++) {
        uint64_t high = twister_next(&t), word = high << 32 | twister_next(&t);
        int64_t j = (int64_t)(word % (uint64_t)(i + 1));
        out[i] = out[j];
        out[j] = i;
    }
}

/* The sample whose part of the sum of all weights holds a number in [0, sum); 53 bits of it are random. */
static int64_t sampler_draw(const struct sampler *s, uint64_t epoch, int64_t position) {
    uint64_t random = rng_u64(rng_key(s->seed, RNG_DRAW), epoch, (uint64_t)position) >> 11;
    double x = (double)random * 0x1p-53 * s->upto[s->size - 1];
    int64_t low = 0, high = s->size - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (s->upto[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void sampler_order(const struct sampler *s, int64_t epoch, int64_t *order) {
    uint64_t of = s->frozen ? 0 : (uint64_t)epoch;
    for (int64_t i = 0; s->upto && i < sampler_room(s); i++) order[i] = sampler_draw(s, of, i);
    if (s->upto) return;
    if (s->shuffle && s->pytorch)
        pytorch_permutation(s->seed + of, s->size, order);
    else if (s->shuffle)
        rng_permutation(rng_key(s->seed, RNG_SHUFFLE), of, s->size, order);
    else
        for (int64_t i = 0; i < s->size; i++) order[i] = i;
    for (int64_t i = s->size, n = sampler_room(s); i < n; i++) order[i] = order[i - s->size];
}
