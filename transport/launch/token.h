/* The place of the secret that all processes of a run share. */
#pragma once
#include "engine/base/memory.h"
#include "transport/base/secret.h"

#define TOKEN_VARIABLE "ENGINE_TOKEN"
#define STORE_VARIABLE                                                                                                 \
    "ENGINE_STORE" /* where the ranks meet: the starter of ranks sets it, and launcher.h knows it by that */
/* spec: auto (of the environment, "" where it is not set), none (a word that everybody knows),
 * env:NAME, file:PATH (which nobody else may read), or the secret itself. Gives it as secret.h has
 * it. ERR_CONFIG: a secret that is too short. */
MUST_CHECK enum error token_find(const char *spec, struct pool *pool, const char **out);
/* In a started process: the secret that its starter has put into TOKEN_VARIABLE; "" where that is not set. */
MUST_CHECK enum error token_inherited(struct pool *pool, const char **out);
/* Removes the variable that spec names from the environment, in memory, too: neither processes that
 * this one starts nor /proc have it any more. */
void token_forget(const char *spec);
