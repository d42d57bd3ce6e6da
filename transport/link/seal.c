#include "transport/link/seal.h"

#include <string.h>

struct seal_ciphers seal_ciphers(void) {
    struct seal_ciphers c;
    for (int use = 0; use < AEAD_USES; use++) c.of[use] = aead_fastest((enum aead_use)use);
    return c;
}

static void key_of(const struct sealer *s, uint8_t key[AEAD_KEY_BYTES]) {
    hmac_sha256(s->secret, SHA256_BYTES, "key", 3, key);
}

/* Both ends of a direction must be of one kind and cipher: the keys of each differ. */
enum error sealer_open(struct sealer *s, enum seal_kind kind, const struct seal_ciphers *ciphers,
                       const uint8_t session[SHA256_BYTES], char direction, bool opens) {
    enum aead_use use = kind == SEAL_ENCRYPTS ? AEAD_ENCRYPTED : AEAD_READABLE;
    const char what[3] = {direction, (char)('0' + kind), (char)ciphers->of[use]};
    uint8_t key[AEAD_KEY_BYTES];
    *s = (struct sealer){.kind = kind};
    hmac_sha256(session, SHA256_BYTES, what, sizeof what, s->secret);
    if (kind == SEAL_CHECKS) return ERR_NONE;
    key_of(s, key);
    enum error err = aead_open((int)ciphers->of[use], use, key, !opens, &s->aead);
    explicit_bzero(key, sizeof key);
    return err;
}

void sealer_close(struct sealer *s) {
    aead_close(s->aead);
    explicit_bzero(s, sizeof *s);
}

/* Whoever knows a key cannot make the next one. */
static void next_key(struct sealer *s) {
    uint8_t next[SHA256_BYTES];
    hmac_sha256(s->secret, SHA256_BYTES, "next", 4, next);
    memcpy(s->secret, next, sizeof next);
    s->seals = s->bytes = 0;
    key_of(s, next);
    if (s->aead) aead_rekey(s->aead, next);
    explicit_bzero(next, sizeof next);
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
    if (s->aead)
        aead_pass(s->aead, in, out, n);
    else
        s->crc = crc32c(s->crc, in, n);
}

static void crc_end(struct sealer *s, const void *in, size_t n, uint8_t seal[SEAL_BYTES]) {
    s->crc = crc32c(s->crc, in, n);
    memset(seal, 0, SEAL_BYTES);
    memcpy(seal, &s->crc, sizeof s->crc);
}

void seal_end(struct sealer *s, const void *in, void *out, size_t n, uint8_t seal[SEAL_BYTES]) {
    s->bytes += n;
    if (s->aead)
        aead_tag(s->aead, in, out, n, seal);
    else
        crc_end(s, in, n, seal);
}

bool seal_ends(struct sealer *s, const void *in, void *out, size_t n, const uint8_t seal[SEAL_BYTES]) {
    uint8_t expected[SEAL_BYTES];
    s->bytes += n;
    if (s->aead) return aead_holds(s->aead, in, out, n, seal);
    crc_end(s, in, n, expected);
    return !memcmp(expected, seal, SEAL_BYTES);
}

void seal_make(struct sealer *s, void *text, size_t n, uint8_t seal[SEAL_BYTES]) {
    seal_begin(s);
    seal_end(s, text, text, n, seal);
}

bool seal_holds(struct sealer *s, void *text, size_t n, const uint8_t seal[SEAL_BYTES]) {
    seal_begin(s);
    return seal_ends(s, text, text, n, seal);
}
