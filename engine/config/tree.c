/* YAML to a tree of nodes, through libyaml's events. libyaml itself accepts duplicate keys,
 * aliases, cycles, any depth (at quadratic cost) and any number of documents; what a configuration
 * has no use for is refused here, as it comes by, so that no input costs more than its first
 * mebibyte or 32 levels. */
#include "engine/config/tree.h"

#include "engine/base/file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

enum { FILE_LIMIT = 1 << 20, DEPTH_LIMIT = 32, EVENT_LIMIT = 100000, SCALAR_LIMIT = 1 << 16, KEY_LIMIT = 128 };

struct parse {
    yaml_parser_t yaml;
    struct pool *pool;
    struct config_errors *e;
    const char *source;
    const char *text; /* what lines count in; NULL: nodes get no line */
    int events;
};

/* ---- places ---- */

static struct node node_begin(const struct parse *p, yaml_mark_t mark) {
    struct node at = {.source = p->source, .width = 1};
    if (p->text) at.line = (int)mark.line + 1, at.col = (int)mark.column + 1, at.file = p->text;
    return at;
}

/* libyaml gives a byte offset for what is no text. */
static yaml_mark_t mark_of_offset(const struct parse *p, size_t offset) {
    yaml_mark_t mark = {.index = offset};
    for (size_t i = 0; p->text && i < offset; i++) {
        mark.column++;
        if (p->text[i] == '\n') mark.line++, mark.column = 0;
    }
    return mark;
}

/* ---- events ---- */

static bool tree_is_tab(const struct parse *p, yaml_mark_t mark) {
    const char *line = p->text;
    for (size_t i = 0; line && i < mark.line; i++) {
        line = strchr(line, '\n');
        if (line) line++;
    }
    return line && strspn(line, " \t") > mark.column && line[mark.column] == '\t';
}

static enum error fail_syntax(struct parse *p) {
    const yaml_parser_t *y = &p->yaml;
    if (y->error == YAML_MEMORY_ERROR) return FAIL(ERR_MEMORY, "cannot allocate memory for YAML");
    if (y->error == YAML_READER_ERROR) {
        struct node at = node_begin(p, mark_of_offset(p, y->problem_offset));
        at.file = NULL; /* the line is no text to show */
        config_error(p->e, &at, false, "this is not YAML: %s", y->problem);
        return ERR_CONFIG;
    }
    struct node at = node_begin(p, y->problem_mark);
    const char *problem = y->problem ? y->problem : "bad YAML";
    if (tree_is_tab(p, y->problem_mark))
        config_error(p->e, &at, false, "a tab cannot indent YAML\nuse spaces");
    else if (y->context && p->text)
        config_error(p->e, &at, false, "%s\n%s, begun at %zu:%zu", problem, y->context, y->context_mark.line + 1,
                     y->context_mark.column + 1);
    else
        config_error(p->e, &at, false, "%s", problem);
    return ERR_CONFIG;
}

/* The caller deletes the event. */
static enum error next_event(struct parse *p, yaml_event_t *event) {
    if (!yaml_parser_parse(&p->yaml, event)) {
        memset(event, 0, sizeof *event);
        return fail_syntax(p);
    }
    if (++p->events <= EVENT_LIMIT) return ERR_NONE;
    struct node at = node_begin(p, event->start_mark);
    config_error(p->e, &at, false, "more than %d YAML events", EVENT_LIMIT);
    return ERR_CONFIG;
}

static enum error event_expect(struct parse *p, yaml_event_type_t type) {
    yaml_event_t event;
    TRY(next_event(p, &event));
    bool right = event.type == type;
    struct node at = node_begin(p, event.start_mark);
    yaml_event_delete(&event);
    if (right) return ERR_NONE;
    config_error(p->e, &at, false, "a second document begins here\na configuration is one document");
    return ERR_CONFIG;
}

/* ---- nodes ---- */

static void refuse_properties(struct parse *p, const struct node *at, const yaml_char_t *anchor,
                              const yaml_char_t *tag) {
    if (anchor) config_error(p->e, at, false, "anchors ('&%.32s') are not allowed", (const char *)anchor);
    if (tag) config_error(p->e, at, false, "tags ('%.32s') are not allowed", (const char *)tag);
}

/* text stays NULL (and the node is left out of the tree) when it is of no use. */
static enum error take_scalar(struct parse *p, const yaml_event_t *event, struct node *node) {
    const char *text = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    bool one_line = event->start_mark.line == event->end_mark.line;
    size_t width = event->end_mark.column - event->start_mark.column;
    if (one_line && width > 0 && width < 1000) node->width = (int)width;
    refuse_properties(p, node, event->data.scalar.anchor, event->data.scalar.tag);
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (length > SCALAR_LIMIT)
        config_error(p->e, node, false, "a value of %zu bytes; at most %d are allowed", length, SCALAR_LIMIT);
    else if (memchr(text, '\0', length))
        config_error(p->e, node, false, "a value must not contain the character NUL");
    else if (!(node->text = pool_strndup(p->pool, text, length)))
        return ERR_MEMORY;
    return ERR_NONE;
}

static enum error add_item(struct parse *p, struct node *parent, struct node *item) {
    if ((parent->count & (parent->count - 1)) == 0) { /* full at every power of two */
        struct node **more = pool_alloc(p->pool, sizeof *more * (size_t)(parent->count ? parent->count * 2 : 1));
        if (!more) return ERR_MEMORY;
        if (parent->count) memcpy(more, parent->items, sizeof *more * (size_t)parent->count);
        parent->items = more;
    }
    parent->items[parent->count++] = item;
    return ERR_NONE;
}

static bool scalar_usable(const struct node *node) {
    return node->kind != NODE_SCALAR || node->text;
}

static bool usable_key(struct parse *p, const struct node *key) {
    if (!scalar_usable(key)) return false;
    if (key->kind != NODE_SCALAR)
        config_error(p->e, key, false, "a key must be a word, not a %s", key->kind == NODE_MAP ? "map" : "list");
    else if (!*key->text)
        config_error(p->e, key, false, "a key is missing before ':'");
    else if (!strcmp(key->text, "<<") && !key->quoted)
        config_error(p->e, key, false, "merge keys ('<<') are not allowed");
    else if (strlen(key->text) > KEY_LIMIT)
        config_error(p->e, key, false, "a key of %zu bytes; at most %d are allowed", strlen(key->text), KEY_LIMIT);
    else
        return true;
    return false;
}

static int tree_by_key(const void *a, const void *b) {
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;
    int order = strcmp(x->key, y->key);
    if (order) return order;
    if (x->key_line != y->key_line) return x->key_line < y->key_line ? -1 : 1;
    return (x->key_col > y->key_col) - (x->key_col < y->key_col);
}

static void refuse_duplicate(struct parse *p, const struct node *map, const struct node *node,
                             const struct node *first) {
    char in[KEY_LIMIT + 8] = "", at[48] = "";
    if (map->key) snprintf(in, sizeof in, " in '%s'", map->key);
    if (p->text) snprintf(at, sizeof at, " (first set at %d:%d)", first->key_line, first->key_col);
    config_error(p->e, node, true, "duplicate key '%s'%s%s", node->key, in, at);
}

/* Reports all but the first of equal keys, and leaves them out. Sorting finds them in n log n. */
static enum error drop_duplicates(struct parse *p, struct node *map) {
    if (map->count < 2) return ERR_NONE;
    size_t bytes = sizeof(struct node *) * (size_t)map->count;
    struct node **sorted = pool_alloc(p->pool, bytes);
    if (!sorted) return ERR_MEMORY;
    memcpy(sorted, map->items, bytes);
    qsort(sorted, (size_t)map->count, sizeof *sorted, tree_by_key);
    const struct node *first = sorted[0];
    for (int i = 1; i < map->count; i++) {
        struct node *node = sorted[i];
        if (strcmp(node->key, first->key) != 0) {
            first = node;
            continue;
        }
        refuse_duplicate(p, map, node, first);
        node->kind = NODE_SCALAR, node->text = NULL;
    }
    int kept = 0;
    for (int i = 0; i < map->count; i++)
        if (scalar_usable(map->items[i])) map->items[kept++] = map->items[i];
    map->count = kept;
    return ERR_NONE;
}

static enum error parse_node(struct parse *p, int depth, const struct node *key, struct node **out);

/* Items up to the end event; in a map each is a key's. */
static enum error parse_items(struct parse *p, int depth, struct node *parent) {
    for (;;) {
        struct node *key = NULL, *item = NULL;
        if (parent->kind == NODE_MAP) {
            TRY(parse_node(p, depth, NULL, &key));
            if (!key) return drop_duplicates(p, parent);
        }
        bool good = !key || usable_key(p, key);
        TRY(parse_node(p, depth, good ? key : NULL, &item));
        if (!item) return ERR_NONE;
        if (good && scalar_usable(item)) TRY(add_item(p, parent, item));
    }
}

static enum error fill_node(struct parse *p, const yaml_event_t *event, int depth, struct node *node) {
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        config_error(p->e, node, false, "aliases ('*%.32s') are not allowed", (const char *)event->data.alias.anchor);
        return ERR_NONE;
    case YAML_SCALAR_EVENT:
        return take_scalar(p, event, node);
    case YAML_SEQUENCE_START_EVENT:
        node->kind = NODE_LIST;
        refuse_properties(p, node, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        break;
    default:
        node->kind = NODE_MAP;
        refuse_properties(p, node, event->data.mapping_start.anchor, event->data.mapping_start.tag);
    }
    if (depth < DEPTH_LIMIT) return parse_items(p, depth + 1, node);
    config_error(p->e, node, false, "nested deeper than %d levels", DEPTH_LIMIT);
    return ERR_CONFIG;
}

/* The next node, under its key; NULL at the end of the list, map or document. */
static enum error parse_node(struct parse *p, int depth, const struct node *key, struct node **out) {
    yaml_event_t event;
    enum error err = next_event(p, &event);
    bool end = event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT ||
               event.type == YAML_STREAM_END_EVENT;
    if (!err && !end) {
        struct node *node = pool_alloc(p->pool, sizeof *node);
        if (node) {
            *node = node_begin(p, event.start_mark);
            if (key) node->key = key->text, node->key_line = key->line, node->key_col = key->col;
            *out = node;
            err = fill_node(p, &event, depth, node);
        } else {
            err = ERR_MEMORY;
        }
    }
    yaml_event_delete(&event);
    return err;
}

/* stream start, [document start, node, document end,] stream end */
static enum error parse_stream(struct parse *p, struct node **out) {
    yaml_event_t event;
    TRY(event_expect(p, YAML_STREAM_START_EVENT));
    enum error err = next_event(p, &event);
    bool empty = event.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&event);
    if (err || empty) return err;
    TRY(parse_node(p, 0, NULL, out));
    TRY(event_expect(p, YAML_DOCUMENT_END_EVENT));
    return event_expect(p, YAML_STREAM_END_EVENT);
}

/* ---- texts ---- */

static enum error empty_map(struct pool *pool, const char *source, struct node **out) {
    struct node *map = pool_alloc(pool, sizeof *map);
    if (!map) return ERR_MEMORY;
    *map = (struct node){.kind = NODE_MAP, .source = source};
    *out = map;
    return ERR_NONE;
}

static enum error parse_text(struct parse *p, const char *text, size_t n, struct node **out) {
    if (!yaml_parser_initialize(&p->yaml)) return FAIL(ERR_MEMORY, "cannot allocate a YAML parser");
    yaml_parser_set_encoding(&p->yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p->yaml, (const unsigned char *)text, n);
    enum error err = parse_stream(p, out);
    yaml_parser_delete(&p->yaml);
    return err;
}

static bool tree_is_nothing(const struct node *node) {
    return node->kind == NODE_SCALAR && node->text && !*node->text && !node->quoted;
}

static enum error tree_refuse_large(struct config_errors *e, const char *source) {
    struct node at = {.source = source, .line = 1, .col = 1};
    config_error(e, &at, false, "larger than %d bytes, which is the most a configuration may have", FILE_LIMIT);
    return FAIL(ERR_CONFIG, "'%s' is too large", source);
}

enum error tree_parse(const char *text, size_t n, const char *source, struct pool *pool, struct config_errors *e,
                      struct node **out) {
    struct parse p = {.pool = pool, .e = e, .source = pool_strndup(pool, source, strlen(source))};
    const char mark[] = "\xef\xbb\xbf"; /* of the byte order, with which some editors begin a text */
    if (!p.source) return ERR_MEMORY;
    if (n >= 3 && !memcmp(text, mark, 3)) text += 3, n -= 3;
    TRY(empty_map(pool, p.source, out));
    if (n > FILE_LIMIT) return tree_refuse_large(e, source);
    TRY_MEMORY(p.text = pool_strndup(pool, text, n));
    int before = config_errors_count(e);
    struct node *root = NULL;
    enum error err = parse_text(&p, text, n, &root);
    if (err && err != ERR_CONFIG) return err;
    bool clean = config_errors_count(e) == before;
    if (root && root->kind == NODE_MAP && !err) /* what follows an error of syntax would be judged by half a text */
        *out = root;
    else if (root && clean && !tree_is_nothing(root))
        config_error(e, root, false, "a configuration is a map of keys\nas in 'mode: ddp'");
    if (config_errors_count(e) > before) return FAIL(ERR_CONFIG, "'%s' is no configuration", source);
    return ERR_NONE;
}

enum error tree_parse_value(const char *text, const char *source, struct pool *pool, struct config_errors *e,
                            struct node **out) {
    struct parse p = {.pool = pool, .e = e, .source = pool_strndup(pool, source, strlen(source))};
    if (!p.source) return ERR_MEMORY;
    int before = config_errors_count(e);
    struct node *node = NULL;
    if (strlen(text) > FILE_LIMIT) return tree_refuse_large(e, source);
    enum error err = parse_text(&p, text, strlen(text), &node);
    if (err && err != ERR_CONFIG) return err;
    if (config_errors_count(e) > before) return FAIL(ERR_CONFIG, "bad value in '%s'", source);
    if (!node) { /* an empty text: a scalar that says nothing */
        TRY(empty_map(pool, p.source, &node));
        node->kind = NODE_SCALAR, node->text = "", node->width = 1;
    }
    *out = node;
    return ERR_NONE;
}

/* ---- files ---- */

static enum error read_standard_input(struct pool *pool, char **text, size_t *n) {
    char *buffer = pool_alloc(pool, FILE_LIMIT + 2);
    if (!buffer) return ERR_MEMORY;
    size_t length = 0;
    while (length <= FILE_LIMIT) {
        ssize_t got = read(STDIN_FILENO, buffer + length, FILE_LIMIT + 1 - length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAIL(ERR_IO, "cannot read standard input: %s", strerror(errno));
        if (got == 0) break;
        length += (size_t)got;
    }
    if (length > FILE_LIMIT) return FAIL(ERR_DATA, "standard input has more than %d bytes", FILE_LIMIT);
    buffer[length] = '\0';
    *text = buffer, *n = length;
    return ERR_NONE;
}

enum error tree_text(const char *path, struct pool *pool, char **text, size_t *n) {
    return strcmp(path, "-") ? file_read(path, FILE_LIMIT, pool, text, n) : read_standard_input(pool, text, n);
}

enum error tree_read(const char *path, struct pool *pool, struct config_errors *e, struct node **out) {
    char *text;
    size_t n;
    TRY(tree_text(path, pool, &text, &n));
    return tree_parse(text, n, path, pool, e, out);
}
