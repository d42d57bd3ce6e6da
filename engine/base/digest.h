/* Digests: crc32c (Castagnoli; hardware where the CPU has it) for what we store, sha256 to compare runs; and what
 * proves that somebody holds a secret. Cryptography is libcrypto's (OpenSSL 3). */
#pragma once
#include "engine/base/error.h"
#include <stddef.h>
#include <stdint.h>

/* crc of data continued from crc (0 to begin). crc32c(0, "123456789", 9) == 0xE3069283. */
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

/* The whole state is plain bytes, so that a checkpoint can hold a digest in progress. */
struct sha256 {
    uint32_t h[8];
    uint8_t block[64];
    uint64_t length; /* bytes so far */
};
enum { SHA256_BYTES = 32, SHA256_TEXT = 65 };
void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t n);
void sha256_final(struct sha256 s, uint8_t out[SHA256_BYTES]); /* by value: s can go on */
void sha256_hex(struct sha256 s, char out[SHA256_TEXT]);

/* HMAC-SHA256 of n bytes under a key: proves that its author holds the key. */
void hmac_sha256(const void *key, size_t key_n, const void *data, size_t n, uint8_t out[SHA256_BYTES]);
/* At most 256 random bytes, which nobody can guess. */
MUST_CHECK enum error random_bytes(void *out, size_t n);
/* A key from a secret that a person chose, by scrypt (RFC 7914) with n = 32768, r = 8, p = 1: each guess of the secret
 * costs who guesses what it costs here, 32 MB of memory and about 0.1 s of a core. ERR_MEMORY: there is not as much. */
MUST_CHECK enum error scrypt_key(const char *secret, const void *salt, size_t salt_n, uint8_t out[SHA256_BYTES]);
