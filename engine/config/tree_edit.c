/* Looking into a tree, and changing one value of it by its path. */
#include "engine/config/tree.h"

#include <stdio.h>
#include <string.h>

struct node *node_get(const struct node *map, const char *key) {
    if (!map || map->kind != NODE_MAP) return NULL;
    for (int i = 0; i < map->count; i++)
        if (!strcmp(map->items[i]->key, key)) return map->items[i];
    return NULL;
}

struct edit {
    struct pool *pool;
    struct config_errors *e;
    struct node at;          /* the assignment, as the place of errors */
    const char *path, *rest; /* the whole left side; what of it is still to go */
};

static enum error edit_refuse(struct edit *d, const char *message) {
    config_error(d->e, &d->at, false, "%s", message);
    return FAIL(ERR_CONFIG, "%s", message);
}

/* A scalar becomes {"": scalar}; one that says nothing becomes {}. */
static enum error open_map(struct edit *d, struct node *node, const char *before) {
    if (node->kind == NODE_MAP) return ERR_NONE;
    if (node->kind == NODE_LIST) {
        char message[256];
        snprintf(message, sizeof message, "'%.100s' is a list\nsay which item: %.100s[0]", before, before);
        return edit_refuse(d, message);
    }
    bool nothing = !node->quoted && !*node->text;
    struct node *held = pool_alloc(d->pool, sizeof *held);
    struct node **items = pool_alloc(d->pool, sizeof *items);
    if (!held || !items) return ERR_MEMORY;
    *held = *node;
    held->key = "";
    items[0] = held;
    node->kind = NODE_MAP, node->text = NULL, node->quoted = false;
    node->items = items, node->count = nothing ? 0 : 1;
    return ERR_NONE;
}

/* The value of a key, made (as an empty map) when it is not there. */
static enum error step_key(struct edit *d, const char *key, struct node *map, struct node **out) {
    *out = node_get(map, key);
    if (*out) return ERR_NONE;
    struct node *node = pool_alloc(d->pool, sizeof *node);
    struct node **items = pool_alloc(d->pool, sizeof *items * ((size_t)map->count + 1));
    if (!node || !items) return ERR_MEMORY;
    *node = (struct node){.kind = NODE_MAP, .key = key, .source = d->at.source};
    node->line = node->key_line = d->at.line, node->col = node->key_col = d->at.col;
    node->width = d->at.width, node->file = d->at.file;
    if (map->count) memcpy(items, map->items, sizeof *items * (size_t)map->count);
    items[map->count++] = node;
    map->items = items;
    *out = node;
    return ERR_NONE;
}

static enum error step_index(struct edit *d, const char *before, struct node *list, struct node **out) {
    const char *digits = d->rest + 1;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 6 || digits[n] != ']') return edit_refuse(d, "bad list index\nas in model.layers[2]");
    int index = 0;
    for (size_t i = 0; i < n; i++) index = index * 10 + (digits[i] - '0');
    d->rest = digits + n + 1;
    char message[256];
    if (list->kind != NODE_LIST) {
        snprintf(message, sizeof message, "'%.100s' is not a list in the configuration", before);
        return edit_refuse(d, message);
    }
    if (index >= list->count) {
        snprintf(message, sizeof message, "'%.100s' has %d items, numbered from 0: there is no [%d]", before,
                 list->count, index);
        return edit_refuse(d, message);
    }
    *out = list->items[index];
    return ERR_NONE;
}

/* One step along the path: "key", ".key" or "[2]". */
static enum error path_step(struct edit *d, struct node *from, struct node **out) {
    const char *before = pool_strndup(d->pool, d->path, (size_t)(d->rest - d->path));
    if (!before) return ERR_MEMORY;
    if (*d->rest == '[') return step_index(d, before, from, out);
    if (d->rest > d->path && *d->rest++ != '.') return edit_refuse(d, "bad key\nwrite keys as in optimizer.lr");
    size_t n = strcspn(d->rest, ".[");
    if (n == 0) return edit_refuse(d, "a key is missing\nwrite keys as in optimizer.lr");
    const char *key = pool_strndup(d->pool, d->rest, n);
    if (!key) return ERR_MEMORY;
    d->rest += n;
    TRY(open_map(d, from, before));
    return step_key(d, key, from, out);
}

static enum error node_assign(struct edit *d, struct node *root, const struct node *from) {
    struct node *to = root;
    int steps = 0;
    while (*d->rest) {
        if (++steps > 32) return edit_refuse(d, "the path is too long");
        TRY(path_step(d, to, &to));
    }
    const char *key = to->key;
    *to = *from;
    to->key = key;
    return ERR_NONE;
}

enum error tree_set(struct node *root, const char *assignment, struct pool *pool, struct config_errors *e) {
    struct edit d = {.pool = pool, .e = e, .at = {.width = 1}};
    TRY_MEMORY(d.at.source = pool_printf(pool, "--set %s", assignment));
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return edit_refuse(&d, "no key and value\nwrite KEY=VALUE, such as optimizer.lr=0.1");
    if (strpbrk(assignment, "\r\n")) return edit_refuse(&d, "the value must be on one line");
    TRY_MEMORY(d.path = d.rest = pool_strndup(pool, assignment, (size_t)(equals - assignment)));
    struct node *value;
    TRY(tree_parse_value(equals + 1, d.at.source, pool, e, &value));
    return node_assign(&d, root, value);
}

enum error tree_put(struct node *root, const char *path, const struct node *value, struct pool *pool,
                    struct config_errors *e) {
    struct edit d = {.pool = pool, .e = e, .at = *value};
    struct node *copy = tree_copy(value, pool);
    d.path = d.rest = pool_strndup(pool, path, strlen(path));
    if (!copy || !d.path) return ERR_MEMORY;
    if (!*path) return edit_refuse(&d, "a key is missing\nwrite keys as in optimizer.lr");
    copy->key_line = value->line, copy->key_col = value->col;
    return node_assign(&d, root, copy);
}

void tree_drop(struct node *map, const char *path) {
    size_t n = strcspn(path, ".");
    int kept = 0;
    for (int i = 0; map->kind == NODE_MAP && i < map->count; i++) {
        const char *key = map->items[i]->key;
        bool on_path = strlen(key) == n && !strncmp(key, path, n);
        if (on_path && path[n]) tree_drop(map->items[i], path + n + 1);
        if (!on_path || path[n]) map->items[kept++] = map->items[i];
    }
    if (map->kind == NODE_MAP) map->count = kept;
}

struct node *tree_copy(const struct node *root, struct pool *pool) {
    struct node *copy = pool_alloc(pool, sizeof *copy);
    if (!copy) return NULL;
    *copy = *root;
    if (root->count == 0) return copy;
    copy->items = pool_alloc(pool, sizeof *copy->items * (size_t)root->count);
    for (int i = 0; i < root->count && copy->items; i++)
        if (!(copy->items[i] = tree_copy(root->items[i], pool))) return NULL;
    return copy->items ? copy : NULL;
}

enum error tree_add(struct pool *pool, struct node *map, const char *key, const char *text, const struct node *like) {
    struct node *node = pool_alloc(pool, sizeof *node);
    struct node **items = pool_alloc(pool, sizeof *items * ((size_t)map->count + 1));
    if (!node || !items) return ERR_MEMORY;
    *node = *like;
    node->kind = NODE_SCALAR, node->key = key, node->text = text, node->items = NULL, node->count = 0;
    if (map->count) memcpy(items, map->items, sizeof *items * (size_t)map->count);
    items[map->count++] = node;
    map->items = items;
    return ERR_NONE;
}
