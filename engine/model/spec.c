/* From the 'model' key to a list of layers.
 *
 * A zoo file has parameters with defaults, and layers. In the layers a scalar may name a parameter:
 * "$dropout" becomes the parameter's node (so that an error in a value shows where the value was
 * given), "fc$i" becomes text. Besides the parameters there are $classes, the number of outputs,
 * and what a repeat sets:
 *
 *     - each: hidden              for each value of the list (a parameter, or a list written here)
 *       layers: [...]             these layers, where $item is the value and $i counts 1, 2, ...
 *
 * After a repeat $i is one past the last, so that the next layer can go on counting. Layers given
 * in the config itself are expanded in the same way; they have no parameters. */
#include "engine/model/spec.h"

#include "engine/base/text.h"
#include "engine/model/zoo_texts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    PARTS_MAX = 100000, /* nodes copied: repeats in repeats could ask for any number */
    TEXT_MAX = 256,     /* of a scalar with $names in it */
    NAMES_MAX = 64      /* offered when a name is unknown */
};

struct scope { /* what $names stand for */
    struct pool *pool;
    struct config_errors *e;
    const struct node *parameters; /* the zoo file's map, or NULL */
    const struct node *given;      /* the config's own values for them, or NULL */
    struct node classes, i;
    const struct node *item; /* NULL outside repeats */
    int parts, errors;       /* errors: in e when we began */
};

const struct zoo_model *zoo_models(int *count) {
    *count = zoo_texts_count;
    return zoo_texts;
}

/* ---- names -------------------------------------------------------------------------------- */

static void unknown(struct scope *s, const struct node *at, bool at_key, const char *what,
                    const char *name, const char *const *names, int n) {
    const char *nearest = text_nearest(name, names, n);
    if (nearest)
        config_error(s->e, at, at_key, "unknown %s '%s'\ndid you mean '%s'?", what, name, nearest);
    else
        config_error(s->e, at, at_key, "unknown %s '%s'", what, name);
}

static int parameter_names(const struct scope *s, const char *names[NAMES_MAX]) {
    int n = 0;
    for (int i = 0; s->parameters && i < s->parameters->count && n < NAMES_MAX - 3; i++)
        names[n++] = s->parameters->items[i]->key;
    return n;
}

static const struct node *parameter(const struct scope *s, const char *name) {
    const struct node *standard = s->parameters ? node_get(s->parameters, name) : NULL;
    const struct node *given = standard && s->given ? node_get(s->given, name) : NULL;
    return given ? given : standard;
}

static const struct node *variable(struct scope *s, const struct node *at, const char *name) {
    const struct node *v = parameter(s, name);
    if (!v && !strcmp(name, "classes")) v = &s->classes;
    if (!v && !strcmp(name, "item")) v = s->item;
    if (!v && !strcmp(name, "i")) v = &s->i;
    if (v) return v;
    const char *names[NAMES_MAX];
    int n = parameter_names(s, names);
    names[n++] = "classes", names[n++] = "item", names[n++] = "i";
    unknown(s, at, false, "parameter", name, names, n);
    return NULL;
}

/* ---- copies with $names replaced ---------------------------------------------------------- */

static size_t name_length(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return n;
}

/* The value under the name that begins at s (behind the $), n characters long; NULL after an error.
 */
static const struct node *variable_at(struct scope *s, const struct node *at, const char *text,
                                      size_t n) {
    char name[TEXT_MAX];
    if (n == 0 || n >= sizeof name) {
        config_error(s->e, at, false, "a parameter's name must follow '$'");
        return NULL;
    }
    memcpy(name, text, n);
    name[n] = '\0';
    return variable(s, at, name);
}

static enum error expand_text(struct scope *s, struct node *to) {
    char text[TEXT_MAX];
    size_t used = 0;
    for (const char *p = to->text; *p;) {
        const char *piece = p;
        size_t n = strcspn(p, "$"), next = n;
        if (n == 0) {
            next = 1 + name_length(p + 1);
            const struct node *v = variable_at(s, to, p + 1, next - 1);
            if (!v) return ERR_NONE;
            if (v->kind != NODE_SCALAR) {
                config_error(s->e, to, false, "'%.*s' is a list, which cannot be part of a text",
                             (int)next, p);
                return ERR_NONE;
            }
            piece = v->text;
            n = strlen(piece);
        }
        if (n >= sizeof text - used) {
            config_error(s->e, to, false, "the text is too long with its parameters replaced");
            return ERR_NONE;
        }
        memcpy(text + used, piece, n);
        used += n;
        p += next;
    }
    return (to->text = pool_strndup(s->pool, text, used)) ? ERR_NONE : ERR_MEMORY;
}

/* A whole scalar "$name": the value itself under this key, with the value's own place if it has
 * one. */
static void expand_variable(struct scope *s, struct node *to) {
    const struct node *v = variable_at(s, to, to->text + 1, strlen(to->text + 1));
    if (!v) return;
    struct node site = *to;
    *to = *v;
    to->key = site.key, to->key_line = site.key_line, to->key_col = site.key_col;
    if (v->line) return;
    to->source = site.source, to->line = site.line, to->col = site.col, to->width = site.width;
}

/* Counts one more part of the model; the limit stops repeats in repeats. */
static enum error count_part(struct scope *s, const struct node *at) {
    if (s->parts++ < PARTS_MAX) return ERR_NONE;
    config_error(s->e, at, false, "the model has more than %d parts", PARTS_MAX);
    return FAIL(ERR_CONFIG, "the model has more than %d parts", PARTS_MAX);
}

static enum error copy(struct scope *s, const struct node *from, struct node **out) {
    TRY(count_part(s, from));
    struct node *to = pool_alloc(s->pool, sizeof *to);
    if (!to) return ERR_MEMORY;
    *to = *from;
    *out = to;
    if (to->kind == NODE_SCALAR) {
        if (to->quoted || !strchr(to->text, '$')) return ERR_NONE;
        if (to->text[0] != '$' || to->text[1 + name_length(to->text + 1)])
            return expand_text(s, to);
        expand_variable(s, to);
        return ERR_NONE;
    }
    to->items = pool_alloc(s->pool, (size_t)from->count * sizeof(struct node *));
    if (!to->items) return ERR_MEMORY;
    for (int i = 0; i < from->count; i++) TRY(copy(s, from->items[i], &to->items[i]));
    return ERR_NONE;
}

/* ---- lists of layers ---------------------------------------------------------------------- */

static enum error append(struct scope *s, struct node *list, struct node *item) {
    bool full = (list->count & (list->count - 1)) == 0; /* capacities are powers of two */
    if (full) {
        size_t capacity = list->count ? 2 * (size_t)list->count : 1;
        struct node **items = pool_alloc(s->pool, capacity * sizeof(struct node *));
        if (!items) return ERR_MEMORY;
        if (list->count) memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
    }
    list->items[list->count++] = item;
    return ERR_NONE;
}

static enum error expand_layers(struct scope *s, const struct node *list, struct node *out);

/* The values that a repeat runs over: a list, or the parameter that it names; NULL after an error.
 */
static const struct node *repeat_values(struct scope *s, const struct node *repeat) {
    const struct node *each = node_get(repeat, "each");
    for (int i = 0; i < repeat->count; i++) {
        const char *key = repeat->items[i]->key;
        if (!strcmp(key, "each") || !strcmp(key, "layers")) continue;
        config_error(s->e, repeat->items[i], true,
                     "unknown key '%s'\na repeat has 'each' and 'layers'", key);
        return NULL;
    }
    if (each->kind != NODE_SCALAR) return each;
    const struct node *values = parameter(s, each->text);
    if (values) return values;
    const char *names[NAMES_MAX];
    unknown(s, each, false, "parameter", each->text, names, parameter_names(s, names));
    return NULL;
}

static enum error set_counter(struct scope *s, int i) {
    return (s->i.text = pool_printf(s->pool, "%d", i)) ? ERR_NONE : ERR_MEMORY;
}

static enum error expand_repeat(struct scope *s, const struct node *repeat, struct node *out) {
    const struct node *values = repeat_values(s, repeat), *layers = node_get(repeat, "layers");
    if (!values) return ERR_NONE;
    if (!layers || values->kind == NODE_MAP) {
        config_error(s->e, repeat, false, "a repeat is {each: LIST, layers: [...]}");
        return ERR_NONE;
    }
    const struct node *outer = s->item;
    bool single = values->kind == NODE_SCALAR;
    int n = single ? 1 : values->count;
    for (int i = 0; i < n; i++) {
        TRY(set_counter(s, i + 1));
        s->item = single ? values : values->items[i];
        TRY(expand_layers(s, layers, out));
    }
    s->item = outer;
    return set_counter(s, n + 1);
}

static enum error expand_layers(struct scope *s, const struct node *list, struct node *out) {
    if (list->kind != NODE_LIST) {
        config_error(s->e, list, false, "layers must be a list\nlayers: [flatten, {linear: 10}]");
        return ERR_NONE;
    }
    TRY(count_part(s, list));
    for (int i = 0; i < list->count; i++) {
        struct node *item;
        if (node_get(list->items[i], "each")) {
            TRY(expand_repeat(s, list->items[i], out));
            continue;
        }
        TRY(copy(s, list->items[i], &item));
        TRY(append(s, out, item));
    }
    return ERR_NONE;
}

/* ---- the spec ----------------------------------------------------------------------------- */

/* Every value that the config gives must be a parameter, and a list only where the default is one.
 */
static void check_given(struct scope *s) {
    const char *names[NAMES_MAX];
    int n = parameter_names(s, names);
    for (int i = 0; s->given && i < s->given->count; i++) {
        const struct node *v = s->given->items[i];
        if (!strcmp(v->key, "zoo")) continue;
        const struct node *standard = s->parameters ? node_get(s->parameters, v->key) : NULL;
        bool flat = v->kind != NODE_MAP;
        for (int k = 0; k < v->count; k++) flat = flat && v->items[k]->kind == NODE_SCALAR;
        if (!standard)
            unknown(s, v, true, "parameter", v->key, names, n);
        else if (!flat || (v->kind == NODE_LIST && standard->kind == NODE_SCALAR))
            config_error(s->e, v, false, "'%s' must be %s", v->key,
                         standard->kind == NODE_SCALAR ? "one value" : "a list of values");
    }
}

static const struct zoo_model *zoo_find(struct scope *s, const struct node *name) {
    const char *names[NAMES_MAX];
    int n = zoo_texts_count < NAMES_MAX ? zoo_texts_count : NAMES_MAX;
    for (int i = 0; i < zoo_texts_count; i++)
        if (!strcmp(zoo_texts[i].name, name->text)) return &zoo_texts[i];
    for (int i = 0; i < n; i++) names[i] = zoo_texts[i].name;
    unknown(s, name, false, "model", name->text, names, n);
    return NULL;
}

static enum error expand_zoo(struct scope *s, const struct node *name, struct node *out) {
    const struct zoo_model *zoo = zoo_find(s, name);
    if (!zoo) return ERR_NONE;
    const char *source = pool_printf(s->pool, "zoo:%s", zoo->name);
    if (!source) return ERR_MEMORY;
    struct node *file;
    TRY(tree_parse(zoo->text, strlen(zoo->text), source, s->pool, s->e, &file));
    s->parameters = node_get(file, "parameters");
    check_given(s);
    const struct node *layers = node_get(file, "layers");
    if (!layers || config_errors_count(s->e) > s->errors) return ERR_NONE;
    return expand_layers(s, layers, out);
}

static enum error expand_given(struct scope *s, const struct node *spec, struct node *out) {
    static const char *const keys[] = {"zoo", "layers"};
    for (int i = 0; i < spec->count; i++)
        if (strcmp(spec->items[i]->key, "layers") != 0)
            unknown(s, spec->items[i], true, "key", spec->items[i]->key, keys, 2);
    return expand_layers(s, node_get(spec, "layers"), out);
}

enum error spec_expand(const struct node *spec, int64_t classes, struct pool *pool,
                       struct config_errors *e, struct node **layers, const char **name) {
    struct node *list = pool_alloc(pool, sizeof *list);
    const char *text = pool_printf(pool, "%lld", (long long)classes);
    if (!list || !text) return ERR_MEMORY;
    *list = (struct node){.kind = NODE_LIST,
                          .key = "layers",
                          .source = spec->source,
                          .line = spec->line,
                          .col = spec->col};
    struct scope s = {.pool = pool, .e = e, .errors = config_errors_count(e)};
    s.classes = (struct node){.kind = NODE_SCALAR, .text = text};
    s.i = (struct node){.kind = NODE_SCALAR, .text = "1"};
    const struct node *zoo = spec->kind == NODE_SCALAR ? spec : node_get(spec, "zoo");
    *name = "custom";
    *layers = list;
    if (zoo && zoo->kind == NODE_SCALAR) {
        s.given = spec->kind == NODE_MAP ? spec : NULL;
        if (!(*name = pool_strndup(pool, zoo->text, strlen(zoo->text)))) return ERR_MEMORY;
        return expand_zoo(&s, zoo, list);
    }
    if (node_get(spec, "layers")) return expand_given(&s, spec, list);
    config_error(e, spec, false,
                 "a model is a name of the zoo, {zoo: NAME, ...} or {layers: [...]}");
    return ERR_NONE;
}
