/* The pictures of a folder. */
#pragma once
#include "engine/base/memory.h"

struct pictures {
    const char **path;
    int64_t count;
};
/* Those in it and in the folders below it, by name; what begins with a point is passed over. ERR_INPUT: it cannot be read,
 * or has none. */
MUST_CHECK enum error pictures_find(const char *folder, struct pool *pool, struct pictures *out);
