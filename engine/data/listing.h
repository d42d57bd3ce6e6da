/* The names of a folder's entries. */
#pragma once
#include "engine/base/memory.h"

#include <stdint.h>

struct listing { /* of names, in order; the list is malloc's, the names lie in a pool */
    char **name;
    int64_t count, room;
};
/* Adds FOLDER/NAME, or NAME where folder is "". */
MUST_CHECK enum error listing_add(struct listing *l, struct pool *pool, const char *folder, const char *name);
typedef bool listing_wants_fn(const char *path, const char *name);
/* Adds the entries of root/folder that are wanted, but none whose name begins with a dot, sorted by their bytes, as
 * FOLDER/NAME; wants NULL: all. */
MUST_CHECK enum error listing_read(const char *root, const char *folder, listing_wants_fn *wants, struct pool *pool,
                                   struct listing *out);
int listing_compare(const void *a, const void *b); /* for qsort and bsearch over the names */
/* What may be wanted: folders; picture files, by their names. */
bool listing_wants_folder(const char *path, const char *name);
bool listing_wants_picture(const char *path, const char *name);

/* Files counted by the endings of their names. */
enum { ENDINGS = 8, ENDINGS_TEXT = 256 };
struct endings { /* zeroed: none yet */
    struct ending {
        char name[12];
        int64_t count;
    } kind[ENDINGS]; /* the last is for all others */
};
/* Counts ".gif" of FOLDER/PICTURE.GIF, "folder", or "other". */
void endings_add(struct endings *e, const char *path);
/* "3 x .gif, 1 x folder"; "": there are none. */
char *endings_text(const struct endings *e, char out[ENDINGS_TEXT]);
