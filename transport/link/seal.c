#include "transport/link/seal.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LINE = 32 }; /* bytes that a turn of the loop takes */

/* ---- mixing ---- */

typedef void (*nh_fn)(const struct sealer *s, const uint8_t *data, size_t lines, uint64_t sum[MIX_WAYS]);

static void nh_plain(const struct sealer *s, const uint8_t *data, size_t lines, uint64_t sum[MIX_WAYS]) {
    for (int way = 0; way < MIX_WAYS; way++) {
        uint64_t total = 0;
        for (size_t i = 0; i < lines * LINE / 4; i += 2) {
            uint32_t pair[2];
            memcpy(pair, data + 4 * i, sizeof pair);
            pair[0] += s->word[way][i];
            pair[1] += s->word[way][i + 1];
            total += (uint64_t)pair[0] * pair[1];
        }
        sum[way] = total;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static inline __m256i products(__m256i data, const uint32_t *word) {
    __m256i t = _mm256_add_epi32(data, _mm256_load_si256((const __m256i *)(const void *)word));
    return _mm256_mul_epu32(t, _mm256_srli_epi64(t, 32));
}

__attribute__((target("avx2"))) static inline uint64_t sum_of(__m256i v) {
    uint64_t lane[4];
    _mm256_storeu_si256((__m256i *)(void *)lane, v);
    return lane[0] + lane[1] + lane[2] + lane[3];
}

__attribute__((target("avx2"))) static void nh_avx2(const struct sealer *s, const uint8_t *data, size_t lines,
                                                    uint64_t sum[MIX_WAYS]) {
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i < lines; i++) {
        __m256i d = _mm256_loadu_si256((const __m256i *)(const void *)(data + LINE * i));
        a = _mm256_add_epi64(a, products(d, s->word[0] + LINE / 4 * i));
        b = _mm256_add_epi64(b, products(d, s->word[1] + LINE / 4 * i));
    }
    sum[0] = sum_of(a);
    sum[1] = sum_of(b);
}
#endif

static nh_fn nh_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return nh_avx2;
#endif
    return nh_plain;
}

/* The polynomial's next step, modulo 2^61 - 1; not fully reduced: below 2^61 + 2^32. */
static uint64_t step(uint64_t value, uint64_t at, uint32_t coefficient) {
    const uint64_t prime = ((uint64_t)1 << 61) - 1;
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)value * at;
    uint64_t sum = ((uint64_t)product & prime) + (uint64_t)(product >> 61);
    return (sum & prime) + (sum >> 61) + coefficient;
}

static void mix_block(const struct sealer *s, nh_fn nh, struct mixture *m, const uint8_t *data, size_t lines) {
    uint64_t sum[MIX_WAYS];
    nh(s, data, lines, sum);
    for (int way = 0; way < MIX_WAYS; way++) {
        uint64_t v = step(m->value[way], s->at[way], (uint32_t)sum[way]);
        m->value[way] = step(v, s->at[way], (uint32_t)(sum[way] >> 32));
    }
}

void seal_mix(const struct sealer *s, struct mixture *m, const void *data, size_t n) {
    const nh_fn nh = nh_best();
    const uint8_t *at = data;
    uint8_t rest[MIX_BLOCK] = {0};
    m->bytes += n;
    for (; n >= MIX_BLOCK; at += MIX_BLOCK, n -= MIX_BLOCK) mix_block(s, nh, m, at, MIX_BLOCK / LINE);
    if (!n) return;
    memcpy(rest, at, n);
    mix_block(s, nh, m, rest, (n + LINE - 1) / LINE);
}

/* ---- seals ---- */

static void derive(const struct hmac *key, uint32_t number, uint8_t out[SHA256_BYTES]) {
    struct sha256 text = key->inner;
    sha256_update(&text, "mix", 3);
    sha256_update(&text, &number, sizeof number);
    hmac_final(key, text, out);
}

void sealer_init(struct sealer *s, const uint8_t session[SHA256_BYTES], char direction) {
    uint8_t key[SHA256_BYTES], *words = (uint8_t *)s->word;
    uint32_t number = 0;
    hmac_sha256(session, SHA256_BYTES, &direction, 1, key);
    hmac_init(&s->key, key, sizeof key);
    for (size_t i = 0; i < sizeof s->word; i += SHA256_BYTES) derive(&s->key, number++, words + i);
    derive(&s->key, number, key);
    memcpy(s->at, key, sizeof s->at);
    for (int way = 0; way < MIX_WAYS; way++) s->at[way] &= ((uint64_t)1 << 61) - 1;
    s->number = 0;
}

static void compute(struct sealer *s, const void *text, size_t n, uint8_t out[SHA256_BYTES]) {
    struct sha256 all = s->key.inner;
    sha256_update(&all, &s->number, sizeof s->number);
    sha256_update(&all, text, n);
    hmac_final(&s->key, all, out);
    s->number++;
}

void seal_make(struct sealer *s, const void *text, size_t n, uint8_t seal[SEAL_BYTES]) {
    uint8_t whole[SHA256_BYTES];
    compute(s, text, n, whole);
    memcpy(seal, whole, SEAL_BYTES);
}

bool seal_holds(struct sealer *s, const void *text, size_t n, const uint8_t seal[SEAL_BYTES]) {
    uint8_t whole[SHA256_BYTES];
    unsigned differs = 0;
    compute(s, text, n, whole);
    for (int i = 0; i < SEAL_BYTES; i++) differs |= (unsigned)(whole[i] ^ seal[i]);
    return !differs;
}
