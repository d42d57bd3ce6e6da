#include "cli/use/pictures.h"

#include "engine/base/file.h"
#include "engine/data/image.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MOST = 16 };

static enum error pictures_add(const char *path, struct pool *pool, struct pictures *out) {
    bool full = (out->count & (out->count - 1)) == 0; /* room is a power of two */
    const char **more = full ? pool_alloc(pool, sizeof *more * (size_t)(out->count ? 2 * out->count : 1)) : out->path;
    if (!more) return ERR_MEMORY;
    if (full && out->count) memcpy(more, out->path, sizeof *more * (size_t)out->count);
    out->path = more;
    out->path[out->count++] = path;
    return ERR_NONE;
}

static int pictures_entry_is_seen(const struct dirent *e) {
    return e->d_name[0] != '.';
}

static enum error pictures_walk(const char *folder, int depth, struct pool *pool, struct pictures *out) {
    struct dirent **list;
    if (depth == DEPTH_MOST) return ERR_NONE;
    int n = scandir(folder, &list, pictures_entry_is_seen, alphasort);
    if (n < 0) return FAIL(ERR_INPUT, "cannot read the folder %s: %s", folder, strerror(errno));
    enum error err = ERR_NONE;
    for (int i = 0; i < n; i++) {
        const char *between = folder[strlen(folder) - 1] == '/' ? "" : "/";
        const char *path = pool_printf(pool, "%s%s%s", folder, between, list[i]->d_name);
        if (!path && err == ERR_NONE) err = ERR_MEMORY;
        if (err == ERR_NONE && file_is_folder(path))
            err = pictures_walk(path, depth + 1, pool, out);
        else if (err == ERR_NONE && image_is_name(path))
            err = pictures_add(path, pool, out);
        free(list[i]);
    }
    free(list);
    return err;
}

enum error pictures_find(const char *folder, struct pool *pool, struct pictures *out) {
    *out = (struct pictures){0};
    TRY(pictures_walk(folder, 0, pool, out));
    if (out->count > 0) return ERR_NONE;
    return FAIL(ERR_INPUT, "the folder %s has no pictures\nthose end in .jpg, .jpeg, .png or .webp", folder);
}
