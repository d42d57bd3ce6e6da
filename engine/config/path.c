/* Paths in a configuration. What stands in a file is seen from that file's folder, and what stands in none (--set, standard
 * input) from the working directory. Absolute, it is the same from everywhere, so that a run's resolved configuration
 * can be used from any folder. */
#include "engine/config/tree.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder without links and dots, but the last name as it is: it says what kind of file it is, where it is a link to one
 * without such a name. What is not there stays as it is written. */
static const char *path_clean(const char *path, struct pool *pool) {
    char real[PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    const char *slash = memrchr(path, '/', n);
    const char *name = pool_strndup(pool, slash + 1, n - (size_t)(slash + 1 - path));
    const char *folder = pool_strndup(pool, path, slash == path ? 1 : (size_t)(slash - path));
    if (!name || !folder) return NULL;
    bool dots = !*name || !strcmp(name, ".") || !strcmp(name, "..");
    if (!realpath(dots ? path : folder, real)) return path;
    return pool_printf(pool, "%s%s%s", real, dots || !strcmp(real, "/") ? "" : "/", dots ? "" : name);
}

static const char *seen_from(const char *folder, size_t n, const char *path, struct pool *pool) {
    const char *full = *path == '/' ? path : pool_printf(pool, "%.*s/%s", (int)n, folder, path);
    return full ? path_clean(full, pool) : NULL;
}

enum error tree_path(struct node *at, const char *key, const char *before, struct pool *pool, struct config_errors *e) {
    const char *slash = at->line > 0 ? strrchr(at->source, '/') : NULL, *path = at->text + strlen(before);
    char here[PATH_MAX];
    if (at->given) return ERR_NONE;
    if (!getcwd(here, sizeof here)) return FAIL(ERR_INPUT, "the working directory is gone");
    const char *from_here = seen_from(here, strlen(here), path, pool), *full = from_here;
    if (slash && *path != '/') {
        const char *folder = *at->source == '/' ? "" : here, *between = *folder ? "/" : "";
        folder = pool_printf(pool, "%s%s%.*s", folder, between, (int)(slash - at->source), at->source);
        full = folder ? seen_from(folder, strlen(folder), path, pool) : NULL;
    }
    if (!full || !from_here) return ERR_MEMORY;
    if (!file_exists(full) && file_exists(from_here))
        config_error(e, at, false,
                     "'%s' is seen from the configuration's folder, where there is no %s\nthe working directory has "
                     "one: write %s, or give it on the command line, which is seen from there: --set %s=%s%s",
                     key, full, from_here, key, before, path);
    at->given = at->text;
    at->text = *before ? pool_printf(pool, "%s%s", before, full) : full;
    return at->text ? ERR_NONE : ERR_MEMORY;
}

enum error tree_from_file(struct node *node, const char *key, struct pool *pool, struct config_errors *e) {
    struct node *name = node && node->kind == NODE_SCALAR ? node : node_get(node, ""), *root;
    int before = config_errors_count(e), own = name == node ? 0 : node->count, n = 0;
    if (!name || name->kind != NODE_SCALAR || !text_ends(name->text, ".yaml")) return ERR_NONE;
    TRY(tree_path(name, key, "", pool, e));
    enum error err = tree_read(name->text, pool, e, &root);
    if (err == ERR_MEMORY) return err;
    if (err && config_errors_count(e) == before) config_error(e, name, false, "'%s': %s", key, error_message());
    int count = err ? 0 : root->count;
    struct node **items = pool_alloc(pool, sizeof *items * (size_t)(count + own + 1));
    if (!items) return ERR_MEMORY;
    for (int i = 0; i < own; i++)
        if (node->items[i] != name) items[n++] = node->items[i];
    for (int i = 0; i < count; i++)
        if (!own || !node_get(node, root->items[i]->key)) items[n++] = root->items[i];
    node->kind = NODE_MAP, node->items = items, node->count = n;
    return ERR_NONE;
}
