/* Seals: by them a receiver knows that what came is what its peer sent, all of it, in its order.
 *
 * A seal is an HMAC-SHA256, cut to 16 bytes, under a key that only the two ends of a stream have, of
 * the seal's number and of what it is for. Long data is not put through SHA-256, which would take
 * longer than the network, but mixed first (Krovetz: UMAC, RFC 4418): each kilobyte becomes a sum of
 * products of its words and secret words (NH), these sums the coefficients of a polynomial modulo
 * 2^61 - 1 at a secret place. That is done twice with other secrets, so two texts have the same
 * result by chance with a probability of 2^-62 for each kilobyte, whatever they are. Only what the
 * HMAC makes of that result is sent, so nothing is learned of the secrets. */
#pragma once
#include "engine/base/digest.h"
#include <stdbool.h>

enum { SEAL_BYTES = 16, MIX_BLOCK = 1024, MIX_WAYS = 2 };
struct sealer { /* of one direction of a stream */
    _Alignas(32) uint32_t word[MIX_WAYS][MIX_BLOCK / 4];
    uint64_t at[MIX_WAYS];
    struct hmac key;
    uint64_t number; /* of the next seal */
};
struct mixture {
    uint64_t bytes, value[MIX_WAYS];
};
/* direction: of the two of a session, which. */
void sealer_init(struct sealer *s, const uint8_t session[SHA256_BYTES], char direction);
/* Adds n bytes to what was mixed; all but the last of a text come in whole blocks. */
void seal_mix(const struct sealer *s, struct mixture *m, const void *data, size_t n);
/* Both count the seal, so both ends call them in the same order. */
void seal_make(struct sealer *s, const void *text, size_t n, uint8_t seal[SEAL_BYTES]);
bool seal_holds(struct sealer *s, const void *text, size_t n, const uint8_t seal[SEAL_BYTES]);
