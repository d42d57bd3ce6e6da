#include "transport/base/secret.h"
#include "engine/base/digest.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SALT_MAX = 32 };

static struct {
    pthread_mutex_t lock;
    char secret[SECRET_SIZE], key[SECRET_SIZE];
    unsigned char salt[SALT_MAX];
    size_t n; /* of salt; 0: there is none */
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void derive(const char *secret, const void *salt, size_t n) {
    uint8_t bytes[SHA256_BYTES];
    if (scrypt_key(secret, salt, n, bytes) != ERR_NONE) abort();
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(last.key + 2 * i, 3, "%02x", bytes[i]);
    snprintf(last.secret, sizeof last.secret, "%s", secret);
    memcpy(last.salt, salt, n);
    last.n = n;
}

void secret_key(const char *secret, const void *salt, size_t n, char key[SECRET_SIZE]) {
    if (strncmp(secret, SECRET_CHOSEN, sizeof SECRET_CHOSEN - 1) != 0) {
        if (key != secret) snprintf(key, SECRET_SIZE, "%s", secret);
        return;
    }
    pthread_mutex_lock(&last.lock);
    assert(n <= SALT_MAX);
    bool same = n == last.n && !memcmp(salt, last.salt, n) && !strcmp(secret, last.secret);
    if (!same) derive(secret, salt, n);
    memcpy(key, last.key, sizeof last.key);
    pthread_mutex_unlock(&last.lock);
}
