#include "engine/data/listing.h"

#include "engine/base/file.h"
#include "engine/data/image.h"
#include "engine/data/pair.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum error listing_add(struct listing *l, struct pool *pool, const char *folder, const char *name) {
    if (l->count == l->room) {
        int64_t room = l->room ? 2 * l->room : 64;
        char **more = realloc(l->name, (size_t)room * sizeof *more);
        if (!more) return FAIL(ERR_MEMORY, "no memory for the names of %lld files", (long long)room);
        l->name = more;
        l->room = room;
    }
    char *copy = pool_printf(pool, "%s%s%s", folder, *folder ? "/" : "", name);
    if (!copy) return ERR_MEMORY;
    l->name[l->count++] = copy;
    return ERR_NONE;
}

int listing_compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool listing_wants_folder(const char *path, const char *name) {
    (void)name;
    return file_is_folder(path);
}

bool listing_wants_picture(const char *path, const char *name) {
    (void)path;
    return image_is_name(name);
}

enum error listing_read(const char *root, const char *folder, listing_wants_fn *wants, struct pool *pool,
                        struct listing *out) {
    char path[PATH_MAX], full[PATH_MAX];
    int64_t first = out->count;
    TRY(path_join(full, root, folder));
    DIR *d = opendir(full);
    if (!d) return FAIL(ERR_INPUT, "cannot read the folder %s: %s", full, strerror(errno));
    enum error err = ERR_NONE;
    for (struct dirent *e; err == ERR_NONE && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        err = path_join(path, full, e->d_name);
        if (err == ERR_NONE && (!wants || wants(path, e->d_name))) err = listing_add(out, pool, folder, e->d_name);
    }
    closedir(d);
    if (out->count > first) qsort(out->name + first, (size_t)(out->count - first), sizeof *out->name, listing_compare);
    return err;
}

/* ---- by ending ---- */
static void ending_of(const char *path, char out[12]) {
    const char *dot = strrchr(strrchr(path, '/'), '.');
    const char *what = file_is_folder(path) ? "folder" : !dot || strlen(dot) > 10 ? "other" : dot;
    for (size_t i = 0; i <= strlen(what); i++) out[i] = (char)tolower((unsigned char)what[i]);
}

void endings_add(struct endings *e, const char *path) {
    char name[12];
    int k = 0;
    ending_of(path, name);
    while (k < ENDINGS - 1 && e->kind[k].count && strcmp(e->kind[k].name, name)) k++;
    strcpy(e->kind[k].name, k < ENDINGS - 1 ? name : "other");
    e->kind[k].count++;
}

char *endings_text(const struct endings *e, char out[ENDINGS_TEXT]) {
    int used = 0;
    *out = '\0';
    for (int k = 0; k < ENDINGS && e->kind[k].count; k++)
        used += snprintf(out + used, ENDINGS_TEXT - (size_t)used, "%s%lld x %s", k ? ", " : "",
                         (long long)e->kind[k].count, e->kind[k].name);
    return out;
}
