/* Digests in plain C, for processors that have no instructions for them (digest_fast.h): crc32c by slicing with eight
 * tables (Intel's method: eight bytes a turn, one table for each of their distances to the end), and sha256 as FIPS 180-4
 * writes it. Both ways of one digest give the same numbers. */
#include "engine/base/digest.h"
#include "engine/base/digest_fast.h"

#include <pthread.h>
#include <string.h>

/* ---- crc32c ---- */

enum { SLICES = 8 };
static uint32_t crc_table[SLICES][256]; /* written once, by tables_make */

static void tables_make(void) {
    const uint32_t castagnoli = 0x82F63B78u; /* bits reversed */
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ castagnoli : c >> 1;
        crc_table[0][i] = c;
    }
    for (int t = 1; t < SLICES; t++)
        for (int i = 0; i < 256; i++) {
            uint32_t c = crc_table[t - 1][i];
            crc_table[t][i] = c >> 8 ^ crc_table[0][c & 255];
        }
}

static uint32_t crc32c_plain(uint32_t crc, const uint8_t *p, size_t n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, tables_make);
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t a = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = crc_table[7][a & 255] ^ crc_table[6][a >> 8 & 255] ^ crc_table[5][a >> 16 & 255] ^ crc_table[4][a >> 24] ^
              crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^ crc_table[0][p[7]];
    }
    while (n--) crc = crc >> 8 ^ crc_table[0][(crc ^ *p++) & 255];
    return crc;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t n) {
    crc32c_fn *fast = crc32c_fast();
    return ~(fast ? fast : crc32c_plain)(~crc, data, n);
}

/* ---- sha256 ---- */

_Alignas(16) const uint32_t sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t rotate(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

/* One round with the eight variables in place: the caller turns their names instead of moving them.
 */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                                               \
    do {                                                                                                               \
        uint32_t t = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (g ^ (e & (f ^ g))) + sha_k[i] + w[i];       \
        d += t;                                                                                                        \
        h = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) | (c & (a | b)));                            \
    } while (0)

static void sha_schedule(const uint8_t *p, uint32_t w[64]) {
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] =
            w[i - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) + w[i - 7] + (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
}

static void sha_blocks_plain(uint32_t s[8], const uint8_t *p, size_t blocks) {
    for (uint32_t w[64]; blocks--; p += 64) {
        uint32_t a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
        sha_schedule(p, w);
        for (int i = 0; i < 64; i += 8) {
            ROUND(a, b, c, d, e, f, g, h, i);
            ROUND(h, a, b, c, d, e, f, g, i + 1);
            ROUND(g, h, a, b, c, d, e, f, i + 2);
            ROUND(f, g, h, a, b, c, d, e, i + 3);
            ROUND(e, f, g, h, a, b, c, d, i + 4);
            ROUND(d, e, f, g, h, a, b, c, i + 5);
            ROUND(c, d, e, f, g, h, a, b, i + 6);
            ROUND(b, c, d, e, f, g, h, a, i + 7);
        }
        s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
    }
}

static void sha_blocks(uint32_t s[8], const uint8_t *p, size_t blocks) {
    sha_blocks_fn *fast = sha_blocks_fast();
    (fast ? fast : sha_blocks_plain)(s, p, blocks);
}

void sha256_init(struct sha256 *s) {
    *s = (struct sha256){
        .h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_update(struct sha256 *s, const void *data, size_t n) {
    const uint8_t *p = data;
    size_t held = s->length % 64;
    s->length += n;
    if (held) {
        size_t fill = n < 64 - held ? n : 64 - held;
        if (fill) memcpy(s->block + held, p, fill);
        p += fill, n -= fill;
        if (held + fill < 64) return;
        sha_blocks(s->h, s->block, 1);
    }
    sha_blocks(s->h, p, n / 64);
    if (n % 64) memcpy(s->block, p + n / 64 * 64, n % 64);
}

static void put_words(const uint32_t h[8], uint8_t out[SHA256_BYTES]) {
    for (int i = 0; i < SHA256_BYTES; i++) out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_final(struct sha256 s, uint8_t out[SHA256_BYTES]) {
    uint64_t bits = s.length * 8;
    uint8_t tail[72] = {0x80};
    size_t pad = (119 - s.length % 64) % 64 + 1; /* to 8 bytes before a block's end */
    for (int i = 0; i < 8; i++) tail[pad + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_update(&s, tail, pad + 8);
    put_words(s.h, out);
}

void sha256_hex(struct sha256 s, char out[SHA256_TEXT]) {
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[SHA256_BYTES];
    sha256_final(s, bytes);
    for (int i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * SHA256_BYTES] = '\0';
}

/* RFC 2104: a key longer than a block is digested first. */
void hmac_init(struct hmac *h, const void *key, size_t n) {
    uint8_t pad[64] = {0};
    if (n > sizeof pad) {
        sha256_init(&h->inner);
        sha256_update(&h->inner, key, n);
        sha256_final(h->inner, pad);
    } else if (n) {
        memcpy(pad, key, n);
    }
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
    sha256_init(&h->inner);
    sha256_update(&h->inner, pad, sizeof pad);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
    sha256_init(&h->outer);
    sha256_update(&h->outer, pad, sizeof pad);
}

void hmac_final(const struct hmac *h, struct sha256 inner, uint8_t out[SHA256_BYTES]) {
    struct sha256 outer = h->outer;
    sha256_final(inner, out);
    sha256_update(&outer, out, SHA256_BYTES);
    sha256_final(outer, out);
}

void hmac_sha256(const void *key, size_t key_n, const void *data, size_t n, uint8_t out[SHA256_BYTES]) {
    struct hmac h;
    hmac_init(&h, key, key_n);
    struct sha256 inner = h.inner;
    sha256_update(&inner, data, n);
    hmac_final(&h, inner, out);
}

/* A digest as the only block behind a pad, padded by FIPS 180-4 for its 96 bytes. */
static void hash_digest(const struct sha256 *pad, uint8_t block[64], uint32_t h[8]) {
    memcpy(h, pad->h, sizeof pad->h);
    sha_blocks(h, block, 1);
    put_words(h, block);
}

/* The first round is an HMAC of the salt; each later one, of one digest, is two blocks. */
void pbkdf2_sha256(const char *secret, const void *salt, size_t salt_n, uint32_t rounds, uint8_t out[SHA256_BYTES]) {
    static const uint8_t first[4] = {0, 0, 0, 1};
    uint8_t block[64] = {[32] = 0x80, [62] = 96 * 8 >> 8, [63] = 96 * 8 & 255};
    uint32_t h[8];
    struct hmac key;
    hmac_init(&key, secret, strlen(secret));
    struct sha256 inner = key.inner;
    sha256_update(&inner, salt, salt_n);
    sha256_update(&inner, first, sizeof first);
    hmac_final(&key, inner, out);
    memcpy(block, out, SHA256_BYTES);
    for (uint32_t i = 1; i < rounds; i++) {
        hash_digest(&key.inner, block, h);
        hash_digest(&key.outer, block, h);
        for (int k = 0; k < SHA256_BYTES; k++) out[k] ^= block[k];
    }
}

int digest_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]) {
    unsigned differs = 0;
    for (int i = 0; i < SHA256_BYTES; i++) differs |= (unsigned)(a[i] ^ b[i]);
    return !differs;
}
