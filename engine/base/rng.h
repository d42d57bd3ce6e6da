/* Counter-based random numbers (Philox 4x32-10): a pure function of a key and a counter, never of
 * rank, thread or time. Whatever must be random in the same way in every mode asks here. */
#pragma once
#include "engine/base/philox.h"

/* The purpose of a number; each purpose has its own stream under one seed. */
enum rng_purpose {
    RNG_INIT = 1,
    RNG_SHUFFLE,
    RNG_AUGMENT,
    RNG_DROPOUT,
    RNG_DATA,
    RNG_TEST,
    RNG_COMPRESS,
    RNG_GENERATE,
    RNG_BOOTSTRAP,
    RNG_ORDER,
    RNG_INJECT,
    RNG_MIXING,
    RNG_SPLIT,
    RNG_LINK,
    RNG_TUNE,
    RNG_DRAW
};

struct rng_key {
    uint32_t k[2];
};

static inline struct rng_key rng_key(uint64_t seed, enum rng_purpose purpose) {
    uint64_t z = seed + 0x9e3779b97f4a7c15u * (uint64_t)purpose; /* splitmix64, to spread near seeds */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (struct rng_key){{(uint32_t)z, (uint32_t)(z >> 32)}};
}

/* Four random words for the counter (a, b). */
static inline void rng_words(struct rng_key key, uint64_t a, uint64_t b, uint32_t out[4]) {
    philox_words(key.k, a, b, out);
}

static inline uint64_t rng_u64(struct rng_key key, uint64_t a, uint64_t b) {
    uint32_t w[4];
    rng_words(key, a, b, w);
    return (uint64_t)w[1] << 32 | w[0];
}

/* Uniform in [0, 1), 24 bits. */
static inline float rng_unit(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

static inline float rng_float(struct rng_key key, uint64_t a, uint64_t b) {
    uint32_t w[4];
    rng_words(key, a, b, w);
    return rng_unit(w[0]);
}

/* Uniform in [0, n), n > 0; the bias is below n / 2^64. */
static inline uint64_t rng_below(struct rng_key key, uint64_t a, uint64_t b, uint64_t n) {
    return (uint64_t)(((unsigned __int128)rng_u64(key, a, b) * n) >> 64);
}

/* Standard normal by Box and Muller. */
float rng_normal(struct rng_key key, uint64_t a, uint64_t b);
/* out[i] = rng_normal(key, a, b + i) for i in [0, n), to the bit and several times as fast. */
void rng_normals(struct rng_key key, uint64_t a, uint64_t b, int64_t n, float *out);

/* Beta(alpha, alpha), of any alpha > 0: one counter, whatever comes of it. */
double rng_beta(struct rng_key key, uint64_t a, uint64_t b, double alpha);

/* out[0..n) = a permutation of 0..n-1 that is a function of (key, epoch) alone (Fisher and Yates).
 */
void rng_permutation(struct rng_key key, uint64_t epoch, int64_t n, int64_t *out);
