/* The computations of both sides of a hello. */
#include "transport/link/tcp_impl.h"

#include <string.h>
#include <sys/random.h>

void hello_nonce(uint8_t out[NONCE_BYTES]) {
    size_t n = 0;
    while (n < NONCE_BYTES) { /* up to 256 bytes never fail once the kernel has started */
        ssize_t k = getrandom(out + n, NONCE_BYTES - n, 0);
        if (k > 0) n += (size_t)k;
    }
}

/* Without a key there is nothing that only both know: zeros. */
void hello_proof(const char *key, char who, const struct hello *h, const uint8_t nonce[NONCE_BYTES],
                 uint8_t out[SHA256_BYTES]) {
    uint8_t text[1 + sizeof *h + NONCE_BYTES];
    if (who == 'S' && !*key) {
        memset(out, 0, SHA256_BYTES);
        return;
    }
    text[0] = (uint8_t)who;
    memcpy(text + 1, h, sizeof *h);
    memcpy(text + 1 + sizeof *h, nonce, NONCE_BYTES);
    hmac_sha256(key, strlen(key), text, sizeof text, out);
}
