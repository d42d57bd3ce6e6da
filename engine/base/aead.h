/* Authenticated encryption by libcrypto, of texts that stay readable or are encrypted. One that seals and one that
 * opens, of the same cipher, use and key, are the two ends of one direction. Nothing is allocated a text.
 *
 * Which cipher is the fastest differs twofold between processors and versions of libcrypto, so it is measured: GCM (NIST
 * SP 800-38D) where libcrypto has it for this processor's wide registers; otherwise ChaCha20-Poly1305 (RFC 8439) for
 * texts that stay readable, and OCB (RFC 7253) for those that are encrypted. */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

enum aead_cipher { AEAD_GCM, AEAD_CHACHA_POLY, AEAD_OCB, AEAD_CIPHERS };
enum aead_use { AEAD_READABLE, AEAD_ENCRYPTED, AEAD_USES };
enum { AEAD_KEY_BYTES = 32, AEAD_TAG_BYTES = 16, AEAD_BLOCK = 16 };
/* Bytes of one text that may be encrypted; of those that stay readable there may be any number. */
#define AEAD_MOST (((uint64_t)1 << 36) - 32)
struct aead;
/* The fastest cipher of this process for that use. */
enum aead_cipher aead_fastest(enum aead_use use);
/* A cipher that libcrypto does not have, or that is none for that use, is refused. AES takes half of the key. */
MUST_CHECK enum error aead_open(int cipher, enum aead_use use, const uint8_t key[AEAD_KEY_BYTES], bool seals,
                                struct aead **out);
void aead_close(struct aead *a);
/* Another key, for texts to come. */
void aead_rekey(struct aead *a, const uint8_t key[AEAD_KEY_BYTES]);
/* Begins the text of that number, which is its nonce: no two texts that are sealed with one key have the same. */
void aead_begin(struct aead *a, uint64_t number);
/* The next n bytes, whole blocks, from 'in' to 'out', which may be the same place; readable ones are not moved. */
void aead_pass(struct aead *a, const void *in, void *out, size_t n);
/* The last n bytes, any number, end the text: of one that seals; and of one that opens: whether it is what was sealed. */
void aead_tag(struct aead *a, const void *in, void *out, size_t n, uint8_t tag[AEAD_TAG_BYTES]);
MUST_CHECK bool aead_holds(struct aead *a, const void *in, void *out, size_t n, const uint8_t tag[AEAD_TAG_BYTES]);
