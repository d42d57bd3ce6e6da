/* The secret that all processes of a run share, as text. Whoever connects proves in TLS that it holds the key that is
 * made of it. A person's secret may be guessed, by whoever has recorded a handshake: from it the key is derived slowly
 * and in much memory, so that each guess costs as much. A random secret is its own key. */
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
/* key may be the secret's own place. The key of the last chosen secret is remembered, so a process derives it once. */
MUST_CHECK enum error secret_key(const char *secret, char key[SECRET_SIZE]);
/* A secret of 128 bits that nobody can guess. */
MUST_CHECK enum error secret_random(char key[SECRET_SIZE]);
