/* The secret that all processes of a run share. */
#pragma once
#include "engine/base/memory.h"

#define TOKEN_VARIABLE "ENGINE_TOKEN"
/* spec: auto (of the environment, "" where it is not set), none (a word that everybody knows),
 * env:NAME, file:PATH (which nobody else may read), or the secret itself. */
MUST_CHECK enum error token_find(const char *spec, struct pool *pool, const char **out);
MUST_CHECK enum error token_random(struct pool *pool, const char **out);
