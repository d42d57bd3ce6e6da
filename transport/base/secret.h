/* The secret that all processes of a run share, as text. Whoever connects proves that it holds the
 * secret by an HMAC under a key. A person's secret may be guessed: from it the key is derived
 * slowly, with a salt that the other side gives, so that each guess costs as much. A random secret
 * is its own key. */
#pragma once
#include "engine/base/error.h"
#include <stddef.h>

/* Begins a secret that a person chose. */
#define SECRET_CHOSEN "chosen:"
enum {
    SECRET_MIN = 16, /* characters that a person must choose */
    SECRET_MAX = 256,
    SECRET_SIZE = SECRET_MAX + 8, /* bytes of any secret or key as text, with its end */
};
/* key may be the secret's own place. The key of the last secret and salt is remembered, so one
 * process derives it once. */
void secret_key(const char *secret, const void *salt, size_t n, char key[SECRET_SIZE]);
