#include "transport/base/secret.h"
#include "engine/base/digest.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The same for all runs: members know nothing of a run before they have met. Guesses can be prepared for all runs at
 * once, but not faster. */
static const char salt[] = "engine: a secret that a person chose";

static struct {
    pthread_mutex_t lock;
    char secret[SECRET_SIZE], key[SECRET_SIZE];
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum error secret_derive(const char *secret) {
    uint8_t bytes[SHA256_BYTES];
    TRY(scrypt_key(secret, salt, sizeof salt - 1, bytes));
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(last.key + 2 * i, 3, "%02x", bytes[i]);
    snprintf(last.secret, sizeof last.secret, "%s", secret);
    return ERR_NONE;
}

enum error secret_key(const char *secret, char key[SECRET_SIZE]) {
    enum error err = ERR_NONE;
    if (strncmp(secret, SECRET_CHOSEN, sizeof SECRET_CHOSEN - 1) != 0) {
        if (key != secret) snprintf(key, SECRET_SIZE, "%s", secret);
        return ERR_NONE;
    }
    pthread_mutex_lock(&last.lock);
    if (strcmp(secret, last.secret) != 0) err = secret_derive(secret);
    if (!err) memcpy(key, last.key, sizeof last.key);
    pthread_mutex_unlock(&last.lock);
    return err;
}

enum error secret_random(char key[SECRET_SIZE]) {
    uint64_t r[2];
    TRY(random_bytes(r, sizeof r));
    snprintf(key, SECRET_SIZE, "%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
    return ERR_NONE;
}
