#include "transport/link/seal.h"

#include <string.h>

/* Both ends of a direction must be of one kind: the keys of each differ. */
enum error sealer_open(struct sealer *s, enum seal_kind kind, const uint8_t session[SHA256_BYTES], char direction,
                       bool opens) {
    const char what[2] = {direction, (char)('0' + kind)};
    *s = (struct sealer){.kind = kind};
    hmac_sha256(session, SHA256_BYTES, what, sizeof what, s->secret);
    return kind == SEAL_CHECKS ? ERR_NONE : aead_open(s->secret, !opens, &s->aead);
}

void sealer_close(struct sealer *s) {
    aead_close(s->aead);
    explicit_bzero(s, sizeof *s);
}

/* The first half of the secret is the key, and whoever knows that alone cannot make the next one. */
static void next_key(struct sealer *s) {
    uint8_t next[SHA256_BYTES];
    hmac_sha256(s->secret, SHA256_BYTES, "next", 4, next);
    memcpy(s->secret, next, sizeof next);
    s->seals = s->bytes = 0;
    if (s->aead) aead_rekey(s->aead, s->secret);
}

void seal_begin(struct sealer *s) {
    if (s->seals == KEY_SEALS || s->bytes >= KEY_BYTES) next_key(s);
    if (s->aead)
        aead_begin(s->aead, s->seals);
    else
        s->crc = crc32c(0, &s->seals, sizeof s->seals);
    s->seals++;
}

void seal_pass(struct sealer *s, const void *in, void *out, size_t n) {
    s->bytes += n;
    if (s->kind == SEAL_CHECKS)
        s->crc = crc32c(s->crc, in, n);
    else if (s->kind == SEAL_SEALS)
        aead_add(s->aead, in, n);
    else
        aead_crypt(s->aead, in, out, n);
}

static void put_crc(const struct sealer *s, uint8_t seal[SEAL_BYTES]) {
    memset(seal, 0, SEAL_BYTES);
    memcpy(seal, &s->crc, sizeof s->crc);
}

void seal_end(struct sealer *s, uint8_t seal[SEAL_BYTES]) {
    if (s->aead)
        aead_tag(s->aead, seal);
    else
        put_crc(s, seal);
}

bool seal_ends(struct sealer *s, const uint8_t seal[SEAL_BYTES]) {
    uint8_t expected[SEAL_BYTES];
    if (s->aead) return aead_holds(s->aead, seal);
    put_crc(s, expected);
    return !memcmp(expected, seal, SEAL_BYTES);
}

void seal_make(struct sealer *s, void *text, size_t n, uint8_t seal[SEAL_BYTES]) {
    seal_begin(s);
    seal_pass(s, text, text, n);
    seal_end(s, seal);
}

bool seal_holds(struct sealer *s, void *text, size_t n, const uint8_t seal[SEAL_BYTES]) {
    seal_begin(s);
    seal_pass(s, text, text, n);
    return seal_ends(s, seal);
}
