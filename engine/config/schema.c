/* Reading a tree by its schema. A map is read by up to three tables at once: its section's own, the
 * chosen variant's when the variant stands in the section's own map, and the keys common to all
 * variants. The tree is completed on the way: shorthands become maps, missing keys their defaults,
 * and keys stand in the tables' order. */
#include "engine/config/schema.h"

#include "engine/base/text.h"
#include "engine/config/value.h"
#include <string.h>

enum { PARTS = 3, NAMES_MAX = 128 };
struct reader {
    struct pool *pool;
    struct config_errors *e;
    const struct config_section *root;
    const char *topic; /* of help, on what is being read; NULL: none but the keys' */
};
struct part {
    const struct config_section *section;
    char *out;
};
struct body { /* a map, and what its keys may be */
    struct node *map;
    const char *path;         /* of the map: "optimizer"; "" for the root */
    const struct node *bare;  /* the child that came from a shorthand: errors name the map instead */
    struct part parts[PARTS]; /* in the order of their keys: variant, common, section */
    int count;
    const struct config_variants *variants; /* of the variant in this map; NULL: none */
    int variant;                            /* which; -1: unknown, and so are its keys */
    bool misnamed;                          /* it has an unknown key, which may stand for one that is missing */
};

static const char *path_of(struct reader *r, const char *path, const char *key) {
    return pool_printf(r->pool, "%s%s%s", path, *path ? "." : "", key);
}

/* What was given, for a message: "fast" in quotes and not too long, or what it is. */
static const char *given_text(struct reader *r, const struct node *node) {
    enum { SHOWN = 48 };
    if (node->kind != NODE_SCALAR) return node->kind == NODE_MAP ? "a map" : "a list";
    if (!*node->text) return node->quoted ? "\"\"" : "nothing";
    size_t n = strlen(node->text);
    if (n <= SHOWN) return pool_printf(r->pool, "\"%s\"", node->text);
    for (n = SHOWN; n > 0 && ((unsigned char)node->text[n] & 0xC0) == 0x80;) n--;
    return pool_printf(r->pool, "\"%.*s...\"", (int)n, node->text);
}

/* The hint, and where more is to be read. NULL: no memory. */
static const char *with_topic(struct reader *r, const char *hint) {
    if (!r->topic || !hint) return hint;
    return pool_printf(r->pool, *hint ? "%s (engine help %s)" : "%sengine help %s", hint, r->topic);
}

static enum error wrong_type(struct reader *r, const struct node *node, const char *path, const char *type,
                             const char *hint) {
    const char *got = given_text(r, node);
    hint = with_topic(r, hint);
    if (!path || !type || !got || !hint) return ERR_MEMORY;
    config_error(r->e, node, false, "'%s' must be %s, got %s%s%s", path, type, got, *hint ? "\n" : "", hint);
    return ERR_NONE;
}

static const char *did_you_mean(struct reader *r, const char *name, const char *const *names, int n) {
    const char *near = text_nearest(name, names, n);
    return near ? pool_printf(r->pool, "did you mean '%s'?", near) : "";
}

/* ---- scalars and lists of them ---- */

static const char *value_hint(struct reader *r, const struct config_field *f, const char *text) {
    static const char *const truths[] = {"yes", "on", "y", "True", "TRUE"};
    static const char *const lies[] = {"no", "off", "n", "False", "FALSE"};
    for (int i = 0; i < 5 && f->type == CONFIG_BOOL; i++) {
        if (!strcmp(text, truths[i])) return "did you mean 'true'?";
        if (!strcmp(text, lies[i])) return "did you mean 'false'?";
    }
    const char *meant = config_meant(f->means, text, r->pool), *length = value_length(f, text, r->pool);
    if (meant || length) return pool_printf(r->pool, "did you mean '%s'?", meant ? meant : length);
    double number;
    if (f->type == CONFIG_SPAN && text_real(text, &number) && number > 0)
        return pool_printf(r->pool, "did you mean '%sep' or '%sst'?", text, text);
    if (f->type == CONFIG_LENGTH && text_real(text, &number) && number > 0)
        return pool_printf(r->pool, "did you mean '%sep', '%sst' or '%ss'?", text, text, text);
    const char *names[WORDS_MAX];
    int n = f->choices ? value_words(f->choices, r->pool, names) : 0;
    return n < 0 ? NULL : did_you_mean(r, text, names, n);
}

/* Relative to what it stands in; out is where it goes. */
static enum error read_path(struct reader *r, const struct config_field *f, struct node *node, const char *path,
                            const char **out) {
    const struct config_path *p = f->extra;
    if (!value_is_path(f, node->text)) return ERR_NONE;
    TRY(tree_path(node, path, p && p->before ? p->before : "", r->pool, r->e));
    *out = node->text;
    return ERR_NONE;
}

static enum error read_scalar(struct reader *r, const struct config_field *f, struct node *node, const char *path,
                              void *out) {
    bool nothing = node->kind == NODE_SCALAR && !*node->text && !node->quoted;
    enum value_fault fault = VALUE_WRONG;
    if (node->kind == NODE_SCALAR && !nothing) {
        const char *text = pool_strndup(r->pool, node->text, strlen(node->text));
        if (!text) return ERR_MEMORY;
        fault = value_read(f, text, out);
    }
    if (fault == VALUE_RIGHT) return f->type == CONFIG_PATH ? read_path(r, f, node, path, out) : ERR_NONE;
    if (fault == VALUE_ABOVE) {
        bool share = f->type == CONFIG_SHARE;
        const char *most =
            pool_printf(r->pool, share ? "at most %.12g%%" : "at most %.12g", share ? f->max * 100 : f->max);
        return wrong_type(r, node, path, most, "");
    }
    const char *hint = node->kind == NODE_SCALAR ? value_hint(r, f, node->text) : "";
    return wrong_type(r, node, path, value_type(f, r->pool), hint);
}

static enum error read_list(struct reader *r, const struct config_field *f, struct node *node, const char *path,
                            struct config_list *out) {
    size_t size = value_size(f->type);
    int count = node->kind == NODE_LIST ? node->count : 1;
    char *items = pool_alloc(r->pool, size * (size_t)count);
    if (!items) return ERR_MEMORY;
    *out = (struct config_list){count, items};
    if (node->kind != NODE_LIST) return read_scalar(r, f, node, path, items);
    struct config_field item = *f; /* an item is no list: say so in its messages */
    item.type = f->type == CONFIG_INTS      ? CONFIG_INT
                : f->type == CONFIG_REALS   ? CONFIG_REAL
                : f->type == CONFIG_ENUMS   ? CONFIG_ENUM
                : f->type == CONFIG_STRINGS ? CONFIG_STRING
                                            : CONFIG_SPAN;
    for (int i = 0; i < count; i++) {
        const char *name = pool_printf(r->pool, "%s[%d]", path, i);
        TRY(read_scalar(r, &item, node->items[i], name, items + size * (size_t)i));
    }
    return ERR_NONE;
}

/* ---- maps ---- */

static enum error node_wrap(struct reader *r, struct node *node, const char *key) {
    struct node *child = pool_alloc(r->pool, sizeof *child);
    struct node **items = pool_alloc(r->pool, sizeof *items);
    if (!child || !items) return ERR_MEMORY;
    *child = *node;
    child->key = key;
    items[0] = child;
    node->kind = NODE_MAP, node->text = NULL, node->quoted = false;
    node->items = items, node->count = key ? 1 : 0;
    return ERR_NONE;
}

/* The child that tree_set kept under "" gets the shorthand's key, unless that is given too. */
static void unfold_held(struct node *map, const char *shorthand) {
    struct node *held = node_get(map, "");
    if (!held || !shorthand) return;
    if (!node_get(map, shorthand)) {
        held->key = shorthand;
        return;
    }
    int kept = 0;
    for (int i = 0; i < map->count; i++)
        if (map->items[i] != held) map->items[kept++] = map->items[i];
    map->count = kept;
}

/* Makes node a map: nothing is {}, anything else stands for the shorthand's key. false: it cannot
 * be one (reported). */
static enum error open_body(struct reader *r, struct node *node, const char *path, const char *shorthand,
                            struct body *b, bool *opened) {
    *b = (struct body){.map = node, .path = path, .variant = -1};
    *opened = true;
    if (node->kind == NODE_SCALAR && !*node->text && !node->quoted) return node_wrap(r, node, NULL);
    if (node->kind == NODE_MAP) {
        const struct node *held = node_get(node, "");
        *opened = !held || shorthand;
        unfold_held(node, shorthand);
        return *opened ? ERR_NONE : wrong_type(r, held, path, "a map of keys", "");
    }
    if (!shorthand) {
        *opened = false;
        return wrong_type(r, node, path, "a map of keys", "");
    }
    TRY(node_wrap(r, node, shorthand));
    b->bare = node->items[0];
    return ERR_NONE;
}

static enum error body_add(struct reader *r, struct body *b, const struct config_section *section, void *out) {
    if (!out && !(out = pool_alloc(r->pool, section->size))) return ERR_MEMORY;
    b->parts[b->count++] = (struct part){section, out};
    return ERR_NONE;
}

static enum error make_default(struct reader *r, const char *key, const char *standard, struct node **out) {
    TRY(tree_parse_value(standard, "default", r->pool, r->e, out));
    (*out)->key = key;
    return ERR_NONE;
}

static int variant_names(const struct config_variants *v, const char *names[NAMES_MAX]) {
    int n = v->count < NAMES_MAX ? v->count : NAMES_MAX;
    for (int i = 0; i < n; i++) names[i] = v->at(i)->name;
    return n;
}

static enum error find_variant(struct reader *r, const struct config_variants *v, const struct node *node,
                               const char *path, int *index) {
    const char *names[NAMES_MAX];
    int n = variant_names(v, names);
    *index = -1;
    for (int i = 0; i < n && node->kind == NODE_SCALAR; i++)
        if (!strcmp(names[i], node->text)) *index = i;
    if (*index >= 0) return ERR_NONE;
    const char *all = value_join(names, n, r->pool);
    const char *hint = node->kind == NODE_SCALAR ? did_you_mean(r, node->text, names, n) : "";
    for (int i = 0; i < n && node->kind == NODE_SCALAR; i++)
        if (config_also(v->at(i)->also, node->text)) hint = pool_printf(r->pool, "did you mean '%s'?", names[i]);
    if (r->topic && hint && *hint)
        return wrong_type(r, node, path, pool_printf(r->pool, "one of the %s", r->topic), hint);
    size_t n_path = path ? strlen(path) : 0, n_name = strlen(v->name);
    bool bare = n_path < n_name || strcmp(path + n_path - n_name, v->name) != 0;
    const char *more = bare && v->besides ? v->besides : "";
    return wrong_type(r, node, path, all ? pool_printf(r->pool, "one of %s%s", all, more) : NULL, hint);
}

static enum error add_variant(struct reader *r, struct body *b, const struct config_variants *v, int index,
                              struct config_variant *out) {
    b->variants = v, b->variant = index;
    *out = (struct config_variant){.index = index, .node = b->map};
    if (index < 0) return ERR_NONE;
    TRY(body_add(r, b, v->at(index), NULL));
    out->config = b->parts[b->count - 1].out;
    if (!v->common) return ERR_NONE;
    TRY(body_add(r, b, v->common, NULL));
    out->common_config = b->parts[b->count - 1].out;
    return ERR_NONE;
}

/* The variant that the map's name key names, the field's standard one without it (the key is then
 * added). */
static enum error choose_variant(struct reader *r, struct body *b, const struct config_field *f,
                                 struct config_variant *out) {
    const struct config_variants *v = f->extra;
    struct node *name = node_get(b->map, v->name);
    if (!name) {
        TRY(make_default(r, v->name, f->standard ? f->standard : "", &name));
        struct node **items = pool_alloc(r->pool, sizeof *items * ((size_t)b->map->count + 1));
        if (!items) return ERR_MEMORY;
        if (b->map->count) memcpy(items + 1, b->map->items, sizeof *items * (size_t)b->map->count);
        items[0] = name;
        b->map->items = items, b->map->count++;
    }
    int index;
    TRY(find_variant(r, v, name, name == b->bare ? b->path : path_of(r, b->path, v->name), &index));
    return add_variant(r, b, v, index, out);
}

/* ---- keys ---- */

static bool section_has(const struct config_section *s, const char *key) {
    for (const struct config_field *f = s->fields; f->key; f++)
        if (*f->key && !strcmp(f->key, key)) return true;
    return false;
}

static bool body_has(const struct body *b, const char *key) {
    for (int i = 0; i < b->count; i++)
        if (section_has(b->parts[i].section, key)) return true;
    return b->variants && b->variants->name && !strcmp(b->variants->name, key);
}

/* "did you mean 'optimizer.lr', as in 'optimizer: {lr: 0.1}'?"; "": the whole schema has no such key. */
static const char *place_hint(struct reader *r, const struct body *b, const struct node *node, bool by_name) {
    struct config_place place;
    size_t n = strlen(b->path);
    const char *given = node->kind == NODE_SCALAR ? node->text : NULL;
    const struct config_sought sought = {node->key, given, by_name, .yaml = node->line > 0};
    if (!config_find(r->root, &sought, r->pool, &place)) return "";
    if (n && !strncmp(place.path, b->path, n) && place.path[n] == '.')
        return pool_printf(r->pool, "did you mean '%s'?", place.path + n + 1);
    const char *example = *place.example ? pool_printf(r->pool, ", as in '%s'", place.example) : "";
    if (!example) return NULL;
    return pool_printf(r->pool, "did you mean '%s'%s?%s%s", place.path, example, *place.note ? " " : "", place.note);
}

/* What is known of a foreign word; else what other tools call so, here or anywhere; else a variant that has the key; else a section that has it; else a near
 * name. */
static const char *key_hint(struct reader *r, const struct body *b, const struct node *node) {
    const char *key = node->key, *answer = config_foreign(r->root, key);
    const char *names[NAMES_MAX];
    int n = 0;
    if (answer) return answer;
    for (int i = 0; i < b->count; i++)
        for (const struct config_field *f = b->parts[i].section->fields; f->key && n < NAMES_MAX - 1; f++) {
            if ((r->topic || *b->path) && config_also(f->also, key))
                return pool_printf(r->pool, "did you mean '%s'?%s%s", f->key, f->note ? " " : "",
                                   f->note ? f->note : "");
            if (*f->key) names[n++] = f->key;
        }
    const char *place = r->topic ? "" : place_hint(r, b, node, false);
    if (!place || *place) return place;
    const struct config_variants *v = b->variants;
    for (int i = 0; v && i < v->count; i++)
        if (section_has(v->at(i), key)) return pool_printf(r->pool, "'%s' belongs to '%s'", key, v->at(i)->name);
    if (!r->topic) place = place_hint(r, b, node, true);
    if (!place || *place) return place;
    if (v && v->name) names[n++] = v->name;
    return did_you_mean(r, key, names, n);
}

/* ", which takes out, kernel, ..."; "" where help has no page for the map. */
static const char *keys_taken(struct reader *r, const struct body *b) {
    const char *names[NAMES_MAX];
    int n = 0;
    for (int i = 0; i < b->count && r->topic; i++)
        for (const struct config_field *f = b->parts[i].section->fields; f->key && n < NAMES_MAX; f++)
            names[n++] = f->key;
    return n ? pool_printf(r->pool, ", which takes %s", value_join(names, n, r->pool)) : "";
}

static enum error check_keys(struct reader *r, struct body *b) {
    if (b->variants && b->variant < 0) return ERR_NONE;
    for (int i = 0; i < b->map->count; i++) {
        const struct node *node = b->map->items[i];
        if (body_has(b, node->key)) continue;
        b->misnamed = true;
        bool heard = config_errors_count(r->e) < 100; /* what will not be shown needs no hint */
        const char *hint = heard ? with_topic(r, key_hint(r, b, node)) : "", *taken = heard ? keys_taken(r, b) : "";
        if (!hint || !taken) return ERR_MEMORY;
        bool root = !*b->path;
        config_error(r->e, node, true, "unknown key '%s'%s%s%s%s%s%s", node->key, root ? "" : " in '", b->path,
                     root ? "" : "'", taken, *hint ? "\n" : "", hint);
    }
    return ERR_NONE;
}

/* ---- fields ---- */

static enum error read_body(struct reader *r, struct body *b);

static enum error read_section(struct reader *r, const struct config_section *s, struct node *node, const char *path,
                               void *out) {
    struct body b;
    bool opened;
    TRY(open_body(r, node, path, section_shorthand(s), &b, &opened));
    if (!opened) return ERR_NONE;
    const struct config_field *f = section_inline(s);
    if (f) TRY(choose_variant(r, &b, f, (void *)((char *)out + f->offset)));
    TRY(body_add(r, &b, s, out));
    return read_body(r, &b);
}

static enum error read_variant(struct reader *r, const struct config_field *f, struct node *node, const char *path,
                               struct config_variant *out) {
    struct body b;
    bool opened;
    const struct config_variants *v = f->extra;
    TRY(open_body(r, node, path, v->name, &b, &opened));
    TRY(choose_variant(r, &b, f, out));
    return read_body(r, &b);
}

/* One item of a list of variants: relu | {linear: 10} | {linear: {units: 10}}. What tree_set kept
 * under "" is the name that a bare item had: {"": relu, relu: {...}}. */
static enum error read_item(struct reader *r, const struct config_variants *v, struct node *node, const char *path,
                            struct config_variant *out) {
    const struct node *held = node_get(node, "");
    if (held && held->kind == NODE_SCALAR) unfold_held(node, held->text);
    if (node->kind == NODE_SCALAR) {
        TRY(node_wrap(r, node, node->text));
        node->items[0]->text = "", node->items[0]->quoted = false;
    }
    if (node->kind != NODE_MAP || node->count != 1)
        return wrong_type(r, node, path, "one name with its keys",
                          "write {name: {key: value, ...}}, all keys inside the inner braces");
    struct node *inside = node->items[0];
    struct node name = {.kind = NODE_SCALAR, .text = inside->key, .source = node->source, .file = node->file};
    name.line = inside->key_line ? inside->key_line : inside->line;
    name.col = inside->key_line ? inside->key_col : inside->col;
    name.width = (int)strlen(inside->key);
    int index;
    TRY(find_variant(r, v, &name, path, &index));
    if (index < 0) return ERR_NONE;
    struct body b;
    bool opened;
    if (v->topic) r->topic = v->at(index)->name;
    TRY(open_body(r, inside, path_of(r, path, inside->key), v->at(index)->shorthand, &b, &opened));
    if (!opened) return ERR_NONE;
    TRY(add_variant(r, &b, v, index, out));
    b.variants = NULL; /* the name stands outside this map */
    return read_body(r, &b);
}

static enum error read_items(struct reader *r, const struct config_field *f, struct node *node, const char *path,
                             struct config_list *out) {
    const struct config_variants *v = f->type == CONFIG_VARIANTS ? f->extra : NULL;
    const struct config_section *s = f->extra;
    size_t size = v ? sizeof(struct config_variant) : s->size;
    if (node->kind != NODE_LIST) return wrong_type(r, node, path, v ? "a list" : "a list of maps", "");
    char *items = pool_alloc(r->pool, size * (size_t)node->count);
    if (!items) return ERR_MEMORY;
    *out = (struct config_list){node->count, items};
    for (int i = 0; i < node->count; i++) {
        const char *name = pool_printf(r->pool, "%s[%d]", path, i);
        void *item = items + size * (size_t)i;
        if (!name) return ERR_MEMORY;
        if (v) r->topic = v->topic;
        TRY(v ? read_item(r, v, node->items[i], name, item) : read_section(r, s, node->items[i], name, item));
    }
    if (v) r->topic = NULL;
    return ERR_NONE;
}

static enum error read_node(struct reader *r, const struct config_field *f, struct node *node, const char *path,
                            struct node **out) {
    const struct node *held = node_get(node, "");
    *out = node;
    if (held && !f->extra) return wrong_type(r, held, path, "a map of keys", "");
    unfold_held(node, f->extra);
    return ERR_NONE;
}

static enum error read_field(struct reader *r, const struct config_field *f, struct node *node, const char *path,
                             void *out) {
    if (!path) return ERR_MEMORY;
    switch (f->type) {
    case CONFIG_SECTION:
        return read_section(r, f->extra, node, path, out);
    case CONFIG_VARIANT:
        return read_variant(r, f, node, path, out);
    case CONFIG_SECTIONS:
    case CONFIG_VARIANTS:
        return read_items(r, f, node, path, out);
    case CONFIG_NODE:
        return read_node(r, f, node, path, out);
    default:
        break;
    }
    if (value_is_list(f->type)) return read_list(r, f, node, path, out);
    return read_scalar(r, f, node, path, out);
}

static enum error key_missing(struct reader *r, const struct body *b, const struct config_field *f) {
    const char *type = value_type(f, r->pool), *path = path_of(r, b->path, f->key), *hint = with_topic(r, "");
    if (!type || !path || !hint) return ERR_MEMORY;
    config_error(r->e, b->map, b->map->key_line > 0, "'%s' is missing: it must be %s%s%s", path, type,
                 *hint ? "\n" : "", hint);
    return ERR_NONE;
}

/* The fields of one table, each from its node or its standard; the nodes go to items, in order. */
static enum error part_read(struct reader *r, const struct body *b, const struct part *part, struct node **items,
                            int *count) {
    for (const struct config_field *f = part->section->fields; f->key; f++) {
        if (!*f->key) continue;
        struct node *node = node_get(b->map, f->key);
        if (!node && f->required && !b->misnamed) TRY(key_missing(r, b, f));
        if (!node && !f->standard && f->type != CONFIG_SECTION) continue;
        if (!node) TRY(make_default(r, f->key, f->standard ? f->standard : "{}", &node));
        const char *path = node == b->bare && !r->topic ? b->path : path_of(r, b->path, f->key);
        TRY(read_field(r, f, node, path, part->out + f->offset));
        items[(*count)++] = node;
    }
    return ERR_NONE;
}

static enum error read_body(struct reader *r, struct body *b) {
    int before = config_errors_count(r->e), count = 0;
    TRY(check_keys(r, b));
    size_t room = 1;
    for (int i = 0; i < b->count; i++)
        for (const struct config_field *f = b->parts[i].section->fields; f->key; f++) room++;
    struct node **items = pool_alloc(r->pool, sizeof *items * room);
    if (!items) return ERR_MEMORY;
    struct node *name = b->variants && b->variants->name ? node_get(b->map, b->variants->name) : NULL;
    if (name) items[count++] = name;
    for (int i = 0; i < b->count; i++) TRY(part_read(r, b, &b->parts[i], items, &count));
    b->map->items = items, b->map->count = count;
    bool good = config_errors_count(r->e) == before && !(b->variants && b->variant < 0);
    for (int i = 0; i < b->count && good; i++)
        if (b->parts[i].section->check) b->parts[i].section->check(b->parts[i].out, b->map, r->e);
    return ERR_NONE;
}

enum error config_read(const struct config_section *section, struct node *root, struct pool *pool,
                       struct config_errors *e, void *out) {
    struct reader r = {pool, e, section, NULL};
    int before = config_errors_count(e);
    memset(out, 0, section->size);
    TRY(read_section(&r, section, root, "", out));
    int wrong = config_errors_count(e) - before;
    return wrong ? FAIL(ERR_CONFIG, "%d wrong in the configuration", wrong) : ERR_NONE;
}
