/* Lists of layers, expanded: copies with $names and $(...) replaced, repeats unrolled, choices
 * made. */
#include "engine/model/spec_impl.h"

#include "engine/base/text.h"
#include "engine/model/expression.h"

#include <ctype.h>
#include <string.h>

enum {
    PARTS_MAX = 100000, /* nodes copied: repeats in repeats could ask for any number */
    TEXT_MAX = 256      /* of a scalar with $names in it */
};

/* ---- texts with $names replaced ----------------------------------------------------------- */

/* Characters from the bracket at s to the one that closes it; 0: none does. */
static size_t bracket_length(const char *s) {
    int depth = 0;
    for (size_t n = 0; s[n]; n++) {
        depth += (s[n] == '(') - (s[n] == ')');
        if (depth == 0) return n + 1;
    }
    return 0;
}

struct finder {
    struct scope *s;
    const struct node *at;
};

static const char *find_text(void *user, const char *name, size_t n) {
    struct finder *f = user;
    const struct node *v = scope_find(f->s, f->at, name, n);
    if (v && v->kind == NODE_SCALAR) return v->text;
    if (v) config_error(f->s->e, f->at, false, "'$%.*s' is a list, which cannot be part of a text", (int)n, name);
    return NULL;
}

/* The value of the expression in brackets, n characters at text; NULL: reported. */
static const char *bracket_value(struct scope *s, const struct node *at, const char *text, size_t n) {
    struct finder f = {s, at};
    struct expression_names names = {find_text, &f};
    char value[EXPRESSION_TEXT];
    bool missing = false;
    const char *inner = n ? pool_strndup(s->pool, text, n) : NULL;
    if (!inner) {
        config_error(s->e, at, false, "a ')' is missing");
    } else if (expression_text(inner, &names, value, &missing)) {
        return pool_printf(s->pool, "%s", value);
    } else if (!missing) {
        config_error(s->e, at, false, "$%s: %s", inner, value);
    }
    return NULL;
}

/* What stands for the text at p, which begins with $; *length of its characters are replaced. NULL:
 * reported. */
static const char *piece_value(struct scope *s, const struct node *at, const char *p, size_t *length) {
    if (p[1] == '(') {
        size_t n = bracket_length(p + 1);
        *length = 1 + n;
        return bracket_value(s, at, p + 1, n);
    }
    size_t n = word_length(p + 1);
    struct finder f = {s, at};
    *length = 1 + n;
    return find_text(&f, p + 1, n);
}

static enum error expand_text(struct scope *s, struct node *to) {
    char text[TEXT_MAX];
    size_t used = 0;
    for (const char *p = to->text; *p;) {
        const char *piece = p;
        size_t length = strcspn(p, "$"), n = length;
        if (length == 0) {
            piece = piece_value(s, to, p, &length);
            if (!piece) return ERR_NONE;
            n = strlen(piece);
        }
        if (n >= sizeof text - used) {
            config_error(s->e, to, false, "the text is too long with its parameters replaced");
            return ERR_NONE;
        }
        memcpy(text + used, piece, n);
        used += n;
        p += length;
    }
    return (to->text = pool_strndup(s->pool, text, used)) ? ERR_NONE : ERR_MEMORY;
}

/* A whole scalar "$name": the value itself under this key, with the value's own place if it has
 * one. */
static void expand_variable(struct scope *s, struct node *to) {
    const struct node *v = scope_find(s, to, to->text + 1, strlen(to->text + 1));
    if (!v) return;
    struct node site = *to;
    *to = *v;
    to->key = site.key, to->key_line = site.key_line, to->key_col = site.key_col;
    if (v->line) return;
    to->source = site.source, to->line = site.line, to->col = site.col, to->width = site.width;
    to->file = site.file;
}

/* ---- copies ------------------------------------------------------------------------------- */

/* Counts one more part of the model; the limit stops repeats in repeats. */
static enum error part_count(struct scope *s, const struct node *at) {
    if (s->parts++ < PARTS_MAX) return ERR_NONE;
    config_error(s->e, at, false, "the model has more than %d parts", PARTS_MAX);
    return FAIL(ERR_CONFIG, "the model has more than %d parts", PARTS_MAX);
}

static enum error node_copy(struct scope *s, const struct node *from, struct node **out) {
    TRY(part_count(s, from));
    struct node *to = pool_alloc(s->pool, sizeof *to);
    if (!to) return ERR_MEMORY;
    *to = *from;
    *out = to;
    if (to->kind == NODE_SCALAR) {
        if (!strchr(to->text, '$')) return ERR_NONE;
        if (to->text[0] != '$' || to->text[1 + word_length(to->text + 1)]) return expand_text(s, to);
        expand_variable(s, to);
        return ERR_NONE;
    }
    TRY_MEMORY(to->items = pool_alloc(s->pool, (size_t)from->count * sizeof(struct node *)));
    for (int i = 0; i < from->count; i++) TRY(node_copy(s, from->items[i], &to->items[i]));
    return ERR_NONE;
}

static enum error list_append(struct scope *s, struct node *list, struct node *item) {
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

/* ---- repeats ------------------------------------------------------------------------------ */

/* Whether all keys are among the names (NULL-terminated). */
static bool keys_known(struct scope *s, const struct node *map, const char *what, const char *const *names) {
    for (int i = 0; i < map->count; i++) {
        const char *const *name = names;
        while (*name && strcmp(map->items[i]->key, *name) != 0) name++;
        if (*name) continue;
        config_error(s->e, map->items[i], true, "unknown key '%s'\n%s", map->items[i]->key, what);
        return false;
    }
    return true;
}

/* What a repeat runs over: a list, or the numbers from 0 to N - 1 (*values is then NULL). false:
 * reported. */
static bool repeat_values(struct scope *s, const struct node *each, const struct node **values, int64_t *count) {
    if (each->kind == NODE_SCALAR && scope_parameter(s, each->text)) each = scope_parameter(s, each->text);
    *values = each->kind == NODE_LIST ? each : NULL;
    *count = each->count;
    if (each->kind == NODE_LIST) return true;
    if (each->kind == NODE_SCALAR && text_int(each->text, count) && *count >= 0) return true;
    const char *names[NAMES_MAX];
    int n = 0;
    for (int i = 0; s->parameters && i < s->parameters->count && n < NAMES_MAX; i++)
        names[n++] = s->parameters->items[i]->key;
    bool is_word = each->kind == NODE_SCALAR && isalpha((unsigned char)*each->text);
    if (is_word)
        spec_unknown(s, each, false, "parameter", each->text, names, n);
    else
        config_error(s->e, each, false, "a repeat is {each: LIST or NUMBER, layers: [...]}");
    return false;
}

static enum error repeat_round(struct scope *s, const struct node *repeat, const struct node *values, int64_t i) {
    const struct node *as = node_get(repeat, "as");
    TRY(scope_set_number(s, repeat, "i", i + 1));
    if (values)
        scope_set(s, repeat, "item", values->items[i]);
    else
        TRY(scope_set_number(s, repeat, "item", i));
    if (!as) return ERR_NONE;
    const char *counter = pool_printf(s->pool, "%s_i", as->text);
    if (!counter) return ERR_MEMORY;
    scope_set(s, as, as->text, scope_get(s, "item"));
    return scope_set_number(s, as, counter, i + 1);
}

static enum error expand_repeat(struct scope *s, const struct node *repeat, struct node *out) {
    static const char *const keys[] = {"each", "as", "layers", NULL};
    const struct node *layers = node_get(repeat, "layers"), *as = node_get(repeat, "as"), *values;
    int64_t n;
    struct node *each;
    if (!keys_known(s, repeat, "a repeat has 'each', 'as' and 'layers'", keys)) return ERR_NONE;
    TRY(node_copy(s, node_get(repeat, "each"), &each));
    bool named = !as || (as->kind == NODE_SCALAR && *as->text && !as->text[word_length(as->text)]);
    if (!layers || !named) {
        config_error(s->e, repeat, false, "a repeat is {each: LIST, as: NAME, layers: [...]}");
        return ERR_NONE;
    }
    if (!repeat_values(s, each, &values, &n)) return ERR_NONE;
    const struct node *outer = scope_get(s, "item");
    int errors = config_errors_count(s->e);
    for (int64_t i = 0; i < n && config_errors_count(s->e) == errors; i++) {
        TRY(repeat_round(s, repeat, values, i));
        TRY(spec_layers(s, layers, out));
    }
    scope_set(s, repeat, "item", outer);
    return scope_set_number(s, repeat, "i", n + 1);
}

/* ---- choices and variables ---------------------------------------------------------------- */

static enum error expand_choice(struct scope *s, const struct node *choice, struct node *out) {
    static const char *const keys[] = {"if", "layers", "else", NULL};
    const struct node *test = node_get(choice, "if"), *layers = node_get(choice, "layers");
    if (!keys_known(s, choice, "a choice has 'if', 'layers' and 'else'", keys)) return ERR_NONE;
    if (!layers || test->kind != NODE_SCALAR) {
        config_error(s->e, choice, false, "a choice is {if: CONDITION, layers: [...], else: [...]}");
        return ERR_NONE;
    }
    struct finder f = {s, test};
    struct expression_names names = {find_text, &f};
    char message[EXPRESSION_TEXT];
    bool truth, missing = false;
    if (!expression_truth(test->text, &names, &truth, message, &missing)) {
        if (!missing) config_error(s->e, test, false, "%s", message);
        return ERR_NONE;
    }
    const struct node *chosen = truth ? layers : node_get(choice, "else");
    return chosen ? spec_layers(s, chosen, out) : ERR_NONE;
}

static enum error expand_set(struct scope *s, const struct node *item) {
    const struct node *set = node_get(item, "set");
    if (item->count != 1 || set->kind != NODE_MAP) {
        config_error(s->e, item, false, "variables are set by {set: {NAME: VALUE}}");
        return ERR_NONE;
    }
    for (int i = 0; i < set->count; i++) {
        struct node *value;
        TRY(node_copy(s, set->items[i], &value));
        scope_set(s, set->items[i], set->items[i]->key, value);
    }
    return ERR_NONE;
}

enum error spec_layers(struct scope *s, const struct node *list, struct node *out) {
    if (list->kind != NODE_LIST) {
        config_error(s->e, list, false, "layers must be a list\nlayers: [flatten, {linear: 10}]");
        return ERR_NONE;
    }
    TRY(part_count(s, list));
    for (int i = 0; i < list->count; i++) {
        struct node *from = list->items[i], *item;
        if (node_get(from, "each")) {
            TRY(expand_repeat(s, from, out));
        } else if (node_get(from, "if")) {
            TRY(expand_choice(s, from, out));
        } else if (node_get(from, "set")) {
            TRY(expand_set(s, from));
        } else {
            TRY(node_copy(s, from, &item));
            TRY(list_append(s, out, item));
        }
    }
    return ERR_NONE;
}
