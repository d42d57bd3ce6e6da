/* A configuration as a tree of nodes that know where they come from: YAML read through libyaml's
 * events, with limits (file 1 MiB, depth 32, 100,000 events, scalars 64 KiB, keys 128 bytes; no
 * aliases, anchors, tags, merge keys, second document), then --set overrides. Scalars stay text:
 * the schema gives them types. This is the only part that sees libyaml. */
#pragma once
#include "engine/base/memory.h"

enum node_kind { NODE_SCALAR, NODE_LIST, NODE_MAP };
struct node {
    enum node_kind kind;
    const char *key;     /* in a map, else NULL; "" holds what a map's shorthand said (see tree_set) */
    const char *text;    /* a scalar's characters */
    const char *given;   /* of a path (tree_path): the text as it was before it was made absolute; else NULL */
    bool quoted;         /* the scalar was quoted: "128" is a string to code that distinguishes */
    struct node **items; /* children of a list or map */
    int count;
    const char *source; /* file name as given, "--set", "default" */
    int line, col;      /* 1-based; 0 when there is none */
    int key_line, key_col;
    int width;        /* columns to underline at line, col */
    const char *file; /* the text that line counts in, for excerpts; NULL: none */
};
struct node *node_get(const struct node *map, const char *key); /* NULL when absent or no map */

/* All that is wrong is collected and shown at once, in order of place. */
struct config_errors;
MUST_CHECK enum error config_errors_create(struct config_errors **out);
void config_errors_free(struct config_errors *e);
int config_errors_count(const struct config_errors *e);
/* ERR_CONFIG of a part only says that the errors have grown: all parts have their say before it counts. */
static inline enum error config_go_on(enum error err) {
    return err == ERR_CONFIG ? ERR_NONE : err;
}
/* Adds one at a node (at its key when at_key); fmt may hold a hint after "\n". node may be NULL (no
 * place). All are counted, the first hundred are kept. */
void config_error(struct config_errors *e, const struct node *at, bool at_key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds the errors of 'from' that 'to' does not have yet, for a text that was parsed in several ways. */
void config_errors_merge(struct config_errors *to, const struct config_errors *from);
/* "file:line:col: error: ...", the line, a caret, the hint; then "2 errors.". The text lives in
 * pool; NULL: no memory. */
char *config_errors_text(const struct config_errors *e, struct pool *pool);

/* Adds to e on anything wrong (ERR_CONFIG); *out is then what could be read, an empty map after an
 * error of syntax. An empty text is an empty map. */
MUST_CHECK enum error tree_parse(const char *text, size_t n, const char *source, struct pool *pool,
                                 struct config_errors *e, struct node **out);
/* Gives a file's text, at most 1 MiB of it ("-" is standard input). ERR_INPUT when missing. */
MUST_CHECK enum error tree_text(const char *path, struct pool *pool, char **text, size_t *n);
/* tree_text, then tree_parse. */
MUST_CHECK enum error tree_read(const char *path, struct pool *pool, struct config_errors *e, struct node **out);
/* Like tree_parse, but for any value, not only a map: "[1, 2]". The nodes have a source but no line. */
MUST_CHECK enum error tree_parse_value(const char *text, const char *source, struct pool *pool, struct config_errors *e,
                                       struct node **out);
/* One "a.b[2].c=value" (value is YAML of one line); makes the maps on its way. A scalar on the way
 * becomes a map that holds it under "", a key that no file can have: the schema knows which key it
 * stands for ("batch: 64" and batch.shards=8). */
MUST_CHECK enum error tree_set(struct node *root, const char *assignment, struct pool *pool, struct config_errors *e);
/* The same with a value that has been read, and a path alone: errors are at the value's place. The value is copied. */
MUST_CHECK enum error tree_put(struct node *root, const char *path, const struct node *value, struct pool *pool,
                               struct config_errors *e);
/* Adds key: text to a map, with the place and source of 'like'. */
MUST_CHECK enum error tree_add(struct pool *pool, struct node *map, const char *key, const char *text,
                               const struct node *like);
/* Takes "a" or "a.b" out of the tree, if it is there. */
void tree_drop(struct node *map, const char *path);
/* Makes the path of a scalar absolute; the path comes after 'before' ("file:", or ""). A path in a file is relative to
 * that file's folder, any other to the working directory. Once is enough. Adds an error to e if the path exists only
 * relative to the working directory, because neither is taken for the other. */
MUST_CHECK enum error tree_path(struct node *at, const char *key, const char *before, struct pool *pool,
                                struct config_errors *e);
/* Where the node is a file's name in .yaml, it becomes the map in that file; where it is a map that holds such a name under
 * "", the file's keys come beside its own. node may be NULL. Whatever is wrong is added to e. */
MUST_CHECK enum error tree_from_file(struct node *node, const char *key, struct pool *pool, struct config_errors *e);
/* Copies a node and all nodes below it; texts are shared. NULL: no memory. */
struct node *tree_copy(const struct node *root, struct pool *pool);
/* YAML text that tree_parse reads back to the same tree; with_origin: each scalar's source as a
 * comment. */
char *tree_write(const struct node *root, bool with_origin, struct pool *pool);
