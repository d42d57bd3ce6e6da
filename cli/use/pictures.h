/* The pictures of a folder. */
#pragma once
#include "engine/base/memory.h"

struct pictures {
    const char **path;
    int64_t count;
};
/* Finds the pictures in the folder and in those below it, sorted by name; names that begin with a point are passed over. ERR_INPUT: it cannot be read,
 * or has none. */
MUST_CHECK enum error pictures_find(const char *folder, struct pool *pool, struct pictures *out);
