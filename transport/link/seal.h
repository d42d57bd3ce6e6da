/* Seals: by them a receiver knows that what came is what its peer sent, all of it, in its order.
 *
 * A seal is the tag of an authenticated cipher (engine/base/aead.h) under a key that only the two ends of a stream have,
 * one for each direction; its nonce is the number of seals before it. What it covers stays readable or is encrypted.
 * Where there is no secret, or none is wanted, a seal is a crc32c of its number and its text: it finds what was damaged by chance.
 *
 * A key makes at most KEY_SEALS seals, and begins none after KEY_BYTES bytes, so that no nonce comes twice and no more
 * is encrypted than AES-GCM is good for (RFC 8446, 5.5, has the reckoning). Then both ends go on with the next key,
 * which is made from the last one and does not tell it. */
#pragma once
#include "engine/base/aead.h"
#include "engine/base/digest.h"

enum { SEAL_BYTES = AEAD_TAG_BYTES, SEAL_BLOCK = AEAD_BLOCK, KEY_SEALS = 1 << 20 };
#define KEY_BYTES ((uint64_t)1 << 35)
enum seal_kind { SEAL_CHECKS, SEAL_SEALS, SEAL_ENCRYPTS };
struct sealer { /* of one direction of a stream, at one end */
    enum seal_kind kind;
    struct aead *aead; /* NULL of SEAL_CHECKS */
    uint8_t secret[SHA256_BYTES];
    uint64_t seals, bytes; /* of this key */
    uint32_t crc;          /* of SEAL_CHECKS: of the text that is in progress */
};
/* What whoever dials a stream sends of the ciphers that are to seal it: its fastest for each use. */
struct seal_ciphers {
    uint32_t of[AEAD_USES];
};
struct seal_ciphers seal_ciphers(void);
/* direction: of the two of a session, which. opens: it is the end that receives. */
MUST_CHECK enum error sealer_open(struct sealer *s, enum seal_kind kind, const struct seal_ciphers *ciphers,
                                  const uint8_t session[SHA256_BYTES], char direction, bool opens);
void sealer_close(struct sealer *s);

/* A long text, in pieces of whole blocks, and a last one of any length. Both ends begin the same seals in the same
 * order; pieces may differ. */
void seal_begin(struct sealer *s);
/* 'in' becomes what is sent, or of an end that receives what was meant, at 'out', which may be the same place: there
 * is no change and no need of 'out' unless the kind is SEAL_ENCRYPTS. */
void seal_pass(struct sealer *s, const void *in, void *out, size_t n);
void seal_end(struct sealer *s, const void *in, void *out, size_t n, uint8_t seal[SEAL_BYTES]);
MUST_CHECK bool seal_ends(struct sealer *s, const void *in, void *out, size_t n, const uint8_t seal[SEAL_BYTES]);
/* A text in one piece, in its place. */
void seal_make(struct sealer *s, void *text, size_t n, uint8_t seal[SEAL_BYTES]);
MUST_CHECK bool seal_holds(struct sealer *s, void *text, size_t n, const uint8_t seal[SEAL_BYTES]);
