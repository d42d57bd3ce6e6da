/* crc32c in plain C, for processors that have no instruction for it (digest_fast.h), by slicing with eight tables
 * (Intel's method: eight bytes a turn, one table for each of their distances to the end); all else is libcrypto's.
 *
 * SHA-256 is its low-level interface, which OpenSSL 3 deprecates but has: an EVP context is no plain bytes. */
#define OPENSSL_API_COMPAT 10100
#include "engine/base/digest.h"
#include "engine/base/digest_fast.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

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

static void sha_blocks(struct sha256 *s, const uint8_t *p, size_t blocks) {
    SHA256_CTX c = {.md_len = SHA256_DIGEST_LENGTH};
    memcpy(c.h, s->h, sizeof c.h);
    SHA256_Update(&c, p, blocks * SHA256_CBLOCK);
    memcpy(s->h, c.h, sizeof c.h);
}

void sha256_init(struct sha256 *s) {
    SHA256_CTX c;
    SHA256_Init(&c);
    *s = (struct sha256){.length = 0};
    memcpy(s->h, c.h, sizeof s->h);
}

/* What fills no block waits here, and not in libcrypto's context, so that checkpoints hold the bytes that they always
 * held: 'block' keeps its old bytes after the last of what waits. */
void sha256_update(struct sha256 *s, const void *data, size_t n) {
    const uint8_t *p = data;
    size_t held = s->length % SHA256_CBLOCK;
    s->length += n;
    if (held) {
        size_t fill = n < SHA256_CBLOCK - held ? n : SHA256_CBLOCK - held;
        if (fill) memcpy(s->block + held, p, fill);
        p += fill, n -= fill;
        if (held + fill < SHA256_CBLOCK) return;
        sha_blocks(s, s->block, 1);
    }
    sha_blocks(s, p, n / SHA256_CBLOCK);
    if (n % SHA256_CBLOCK) memcpy(s->block, p + n / SHA256_CBLOCK * SHA256_CBLOCK, n % SHA256_CBLOCK);
}

void sha256_final(struct sha256 s, uint8_t out[SHA256_BYTES]) {
    SHA256_CTX c = {.Nl = (SHA_LONG)(s.length << 3),
                    .Nh = (SHA_LONG)(s.length >> 29),
                    .num = s.length % SHA256_CBLOCK,
                    .md_len = SHA256_DIGEST_LENGTH};
    memcpy(c.h, s.h, sizeof c.h);
    memcpy(c.data, s.block, sizeof c.data);
    SHA256_Final(out, &c);
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

/* ---- secrets ---- */

/* At exit libcrypto would free what threads of nng may still use. */
__attribute__((constructor)) static void libcrypto_stays(void) {
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

enum error random_bytes(void *out, size_t n) {
    if (getrandom(out, n, 0) == (ssize_t)n) return ERR_NONE;
    return FAIL(ERR_CREATE, "no random numbers: %s", strerror(errno));
}

enum error scrypt_key(const char *secret, const void *salt, size_t salt_n, uint8_t out[SHA256_BYTES]) {
    const uint64_t n = 1 << 15, r = 8, p = 1, most = 64 << 20; /* bytes: it takes 128 n r, and a little more */
    if (!EVP_PBE_scrypt(secret, strlen(secret), salt, salt_n, n, r, p, most, out, SHA256_BYTES))
        return FAIL(ERR_MEMORY, "no key could be made of the secret: libcrypto needs 32 MB for scrypt");
    return ERR_NONE;
}

void hmac_sha256(const void *key, size_t key_n, const void *data, size_t n, uint8_t out[SHA256_BYTES]) {
    if (!HMAC(EVP_sha256(), key_n ? key : "", (int)key_n, data, n, out, NULL)) abort(); /* it found no memory */
}
