#include "engine/base/aead.h"
#include "engine/base/memory.h"

#include <openssl/evp.h>
#include <string.h>

enum { NONCE_BYTES = 12, AT_ONCE = 1 << 30 /* libcrypto's lengths are ints */ };

struct aead {
    EVP_CIPHER_CTX *context;
    bool broken; /* a call of libcrypto has failed: no tag holds from then on, and nothing leaves as it is */
};

enum error aead_open(const uint8_t key[AEAD_KEY_BYTES], bool seals, struct aead **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct aead), &memory));
    struct aead *a = memory;
    a->context = EVP_CIPHER_CTX_new();
    if (!a->context || !EVP_CipherInit_ex(a->context, EVP_aes_128_gcm(), NULL, key, NULL, seals)) {
        aead_close(a);
        return FAIL(ERR_DEVICE, "libcrypto gives no AES-128-GCM");
    }
    *out = a;
    return ERR_NONE;
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

/* out NULL: the bytes stay readable. */
static void aead_update(struct aead *a, const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t done = 0, now; done < n; done += now) {
        int got;
        now = n - done < AT_ONCE ? n - done : AT_ONCE;
        if (!EVP_CipherUpdate(a->context, out ? out + done : NULL, &got, in + done, (int)now)) a->broken = true;
    }
    if (out && a->broken) memset(out, 0, n);
}

void aead_add(struct aead *a, const void *data, size_t n) {
    aead_update(a, data, NULL, n);
}

void aead_crypt(struct aead *a, const void *in, void *out, size_t n) {
    aead_update(a, in, out, n);
}

void aead_tag(struct aead *a, uint8_t tag[AEAD_TAG_BYTES]) {
    uint8_t rest[AEAD_TAG_BYTES];
    int n;
    if (a->broken || !EVP_CipherFinal_ex(a->context, rest, &n) ||
        !EVP_CIPHER_CTX_ctrl(a->context, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES, tag))
        memset(tag, 0, AEAD_TAG_BYTES);
}

bool aead_holds(struct aead *a, const uint8_t tag[AEAD_TAG_BYTES]) {
    uint8_t copy[AEAD_TAG_BYTES], rest[AEAD_TAG_BYTES];
    int n;
    memcpy(copy, tag, sizeof copy); /* libcrypto takes it as what may be written */
    return !a->broken && EVP_CIPHER_CTX_ctrl(a->context, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_BYTES, copy) &&
           EVP_CipherFinal_ex(a->context, rest, &n) > 0;
}
