#include "engine/base/aead.h"
#include "engine/base/clock.h"
#include "engine/base/memory.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>

enum { NONCE_BYTES = 12, AT_ONCE = 1 << 30 /* libcrypto's lengths are ints */ };

struct aead {
    EVP_CIPHER_CTX *context;
    enum aead_use use;
    bool broken; /* a call of libcrypto has failed: no tag holds from then on, and nothing leaves as it is */
};

/* ---- the ciphers ---- */

static struct row {
    const char *name;
    bool serves[AEAD_USES];
    EVP_CIPHER *cipher; /* NULL: this libcrypto has none */
} rows[AEAD_CIPHERS] = {
    [AEAD_GCM] = {"AES-128-GCM", {true, true}, NULL},
    [AEAD_CHACHA_POLY] = {"ChaCha20-Poly1305", {true, false}, NULL},
    [AEAD_OCB] = {"AES-128-OCB", {false, true}, NULL},
};
static enum aead_cipher fastest[AEAD_USES];

static enum error row_open(const struct row *row, enum aead_use use, const uint8_t *key, bool seals,
                           struct aead **out) {
    struct aead *a = memory_new(sizeof *a);
    if (!a) return ERR_MEMORY;
    a->use = use;
    a->context = EVP_CIPHER_CTX_new();
    if (!a->context || !EVP_CipherInit_ex(a->context, row->cipher, NULL, key, NULL, seals)) {
        aead_close(a);
        return FAIL(ERR_DEVICE, "libcrypto does not open %s", row->name);
    }
    *out = a;
    return ERR_NONE;
}

/* The least of a few runs over what fits a cache; ns, or -1 where the cipher does not serve. */
static int64_t row_time(const struct row *row, enum aead_use use) {
    enum { RUNS = 5, BYTES = 32 << 10 };
    static uint8_t text[BYTES];
    uint8_t key[AEAD_KEY_BYTES] = {0};
    struct aead *a = NULL;
    int64_t least = -1;
    if (!row->cipher || !row->serves[use] || row_open(row, use, key, true, &a) != ERR_NONE) return -1;
    for (int i = 0; i < RUNS; i++) {
        int64_t began = clock_ns();
        aead_begin(a, (uint64_t)i);
        aead_pass(a, text, text, sizeof text);
        int64_t ns = clock_ns() - began;
        if (!a->broken && (least < 0 || ns < least)) least = ns;
    }
    aead_close(a);
    return least;
}

static void rows_measure(void) {
    for (int c = 0; c < AEAD_CIPHERS; c++) rows[c].cipher = EVP_CIPHER_fetch(NULL, rows[c].name, NULL);
    for (int use = 0; use < AEAD_USES; use++) {
        int64_t best = -1;
        for (int c = 0; c < AEAD_CIPHERS; c++) {
            int64_t ns = row_time(&rows[c], (enum aead_use)use);
            if (ns < 0 || (best >= 0 && ns >= best)) continue;
            best = ns;
            fastest[use] = (enum aead_cipher)c;
        }
    }
}

static void rows_ready(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, rows_measure);
}

enum aead_cipher aead_fastest(enum aead_use use) {
    rows_ready();
    return fastest[use];
}

/* ---- texts ---- */

enum error aead_open(int cipher, enum aead_use use, const uint8_t key[AEAD_KEY_BYTES], bool seals, struct aead **out) {
    rows_ready();
    if (cipher < 0 || cipher >= AEAD_CIPHERS || !rows[cipher].serves[use])
        return FAIL(ERR_DATA, "cipher %d is not known here", cipher);
    if (!rows[cipher].cipher) return FAIL(ERR_DEVICE, "libcrypto has no %s on this host", rows[cipher].name);
    return row_open(&rows[cipher], use, key, seals, out);
}

void aead_close(struct aead *a) {
    if (!a) return;
    EVP_CIPHER_CTX_free(a->context);
    memory_free(a);
}

void aead_rekey(struct aead *a, const uint8_t key[AEAD_KEY_BYTES]) {
    if (!EVP_CipherInit_ex(a->context, NULL, NULL, key, NULL, -1)) a->broken = true;
}

void aead_begin(struct aead *a, uint64_t number) {
    uint8_t nonce[NONCE_BYTES] = {0};
    for (int i = 0; i < 8; i++) nonce[NONCE_BYTES - 1 - i] = (uint8_t)(number >> 8 * i);
    if (!EVP_CipherInit_ex(a->context, NULL, NULL, NULL, nonce, -1)) a->broken = true;
}

/* How many bytes have come out. */
static size_t aead_update(struct aead *a, const uint8_t *in, uint8_t *out, size_t n) {
    size_t come = 0;
    for (size_t done = 0, now; done < n; done += now) {
        int got = 0;
        now = n - done < AT_ONCE ? n - done : AT_ONCE;
        if (!EVP_CipherUpdate(a->context, a->use == AEAD_READABLE ? NULL : out + done, &got, in + done, (int)now))
            a->broken = true;
        come += a->use == AEAD_READABLE ? now : (size_t)got;
    }
    return come;
}

/* Checks that all n bytes have come out; else the stream is broken, and what was decrypted is wiped. */
static bool aead_passes(struct aead *a, size_t come, void *out, size_t n) {
    if (come != n) a->broken = true;
    if (a->broken && a->use == AEAD_ENCRYPTED) memset(out, 0, n);
    return !a->broken;
}

void aead_pass(struct aead *a, const void *in, void *out, size_t n) {
    (void)aead_passes(a, aead_update(a, in, out, n), out, n);
}

/* Whether the text ends well. What is left of a block comes out here at the latest. */
static bool aead_end(struct aead *a, const void *in, void *out, size_t n) {
    uint8_t rest[AEAD_BLOCK];
    int got = 0;
    size_t come = aead_update(a, in, out, n);
    if (EVP_CipherFinal_ex(a->context, rest, &got) <= 0) return false;
    if (got && come + (size_t)got == n) memcpy((uint8_t *)out + come, rest, (size_t)got);
    return aead_passes(a, come + (size_t)got, out, n);
}

void aead_tag(struct aead *a, const void *in, void *out, size_t n, uint8_t tag[AEAD_TAG_BYTES]) {
    if (!aead_end(a, in, out, n) || !EVP_CIPHER_CTX_ctrl(a->context, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES, tag))
        memset(tag, 0, AEAD_TAG_BYTES);
}

bool aead_holds(struct aead *a, const void *in, void *out, size_t n, const uint8_t tag[AEAD_TAG_BYTES]) {
    uint8_t copy[AEAD_TAG_BYTES];
    memcpy(copy, tag, sizeof copy); /* libcrypto takes it as what may be written */
    return EVP_CIPHER_CTX_ctrl(a->context, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_BYTES, copy) && aead_end(a, in, out, n);
}
