/* AES-128-GCM (NIST SP 800-38D), by libcrypto: authentication of texts, which stay readable (GMAC) or are encrypted.
 * One that seals and one that opens, of the same key, are the two ends of one direction. Nothing is allocated a text. */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

enum { AEAD_KEY_BYTES = 16, AEAD_TAG_BYTES = 16 };
/* Bytes of one text that may be encrypted; of those that stay readable there may be any number. */
#define AEAD_MOST (((uint64_t)1 << 36) - 32)
struct aead;
MUST_CHECK enum error aead_open(const uint8_t key[AEAD_KEY_BYTES], bool seals, struct aead **out);
void aead_close(struct aead *a);
/* Another key, for texts to come. */
void aead_rekey(struct aead *a, const uint8_t key[AEAD_KEY_BYTES]);
/* Begins the text of that number, which is its nonce: no two texts that are sealed with one key have the same. */
void aead_begin(struct aead *a, uint64_t number);
/* The next n bytes of the text stay readable; they come before all that is encrypted. */
void aead_add(struct aead *a, const void *data, size_t n);
/* The next n bytes are encrypted or decrypted from 'in' to 'out', which may be the same place. */
void aead_crypt(struct aead *a, const void *in, void *out, size_t n);
/* Ends the text: of one that seals; and of one that opens: whether the text is what was sealed. */
void aead_tag(struct aead *a, uint8_t tag[AEAD_TAG_BYTES]);
MUST_CHECK bool aead_holds(struct aead *a, const uint8_t tag[AEAD_TAG_BYTES]);
