/* What $names stand for: the zoo file's parameters with the values that the config gives them, and
 * the variables that repeats and 'set' make. */
#include "engine/model/spec_impl.h"

#include "engine/base/text.h"

#include <string.h>

void spec_unknown(struct scope *s, const struct node *at, bool at_key, const char *what, const char *name,
                  const char *const *names, int n) {
    const char *nearest = text_nearest(name, names, n);
    if (nearest)
        config_error(s->e, at, at_key, "unknown %s '%s'\ndid you mean '%s'?", what, name, nearest);
    else
        config_error(s->e, at, at_key, "unknown %s '%s'%s", what, name,
                     strcmp(what, "model") != 0 ? "" : "\nengine model list shows the models");
}

static int parameter_names(const struct scope *s, const char *names[2 * NAMES_MAX]) {
    int n = 0;
    for (int i = 0; s->parameters && i < s->parameters->count && n < NAMES_MAX; i++)
        names[n++] = s->parameters->items[i]->key;
    return n;
}

const struct node *scope_parameter(const struct scope *s, const char *name) {
    return s->parameters ? node_get(s->parameters, name) : NULL;
}

const struct node *scope_get(const struct scope *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->variables[i].name, name)) return s->variables[i].value;
    return NULL;
}

const struct node *scope_find(struct scope *s, const struct node *at, const char *name, size_t n) {
    char text[NAME_TEXT];
    if (n == 0 || n >= sizeof text) {
        config_error(s->e, at, false, "a parameter's name must follow '$'");
        return NULL;
    }
    memcpy(text, name, n);
    text[n] = '\0';
    const struct node *found = scope_parameter(s, text);
    if (!found) found = scope_get(s, text);
    if (found) return found;
    const char *names[2 * NAMES_MAX];
    int count = parameter_names(s, names);
    for (int i = 0; i < s->count; i++) names[count++] = s->variables[i].name;
    spec_unknown(s, at, false, "parameter", text, names, count);
    return NULL;
}

void scope_set(struct scope *s, const struct node *at, const char *name, const struct node *value) {
    int i = 0;
    while (i < s->count && strcmp(s->variables[i].name, name) != 0) i++;
    if (!value) {
        if (i < s->count) s->variables[i] = s->variables[--s->count];
    } else if (scope_parameter(s, name)) {
        config_error(s->e, at, true, "'%s' is a parameter, which stays as it is", name);
    } else if (i == NAMES_MAX) {
        config_error(s->e, at, false, "more than %d variables", NAMES_MAX);
    } else {
        if (i == s->count) s->count++;
        s->variables[i] = (struct variable){name, value};
    }
}

enum error scope_set_number(struct scope *s, const struct node *at, const char *name, int64_t value) {
    struct node *n = pool_alloc(s->pool, sizeof *n);
    const char *text = pool_printf(s->pool, "%lld", (long long)value);
    if (!n || !text) return ERR_MEMORY;
    *n = (struct node){.kind = NODE_SCALAR, .text = text};
    scope_set(s, at, name, n);
    return ERR_NONE;
}

/* ---- parameters --------------------------------------------------------------------------- */

/* One value where the parameter is a list: a list of it. */
static struct node *value_wrap(struct scope *s, const struct node *value) {
    struct node *list = pool_alloc(s->pool, sizeof *list), *item = pool_alloc(s->pool, sizeof *item);
    struct node **items = pool_alloc(s->pool, sizeof *items);
    if (!list || !item || !items) return NULL;
    *item = *value, item->key = NULL;
    *items = item;
    *list = *value;
    list->kind = NODE_LIST, list->text = NULL, list->items = items, list->count = 1;
    return list;
}

static void place_give(struct scope *s, struct node **place, struct node *value) {
    bool is_list = (*place)->kind == NODE_LIST, flat = value->kind != NODE_MAP;
    for (int k = 0; k < value->count; k++) flat = flat && value->items[k]->kind == NODE_SCALAR;
    if (!flat || (value->kind == NODE_LIST && !is_list)) {
        config_error(s->e, value, false, "'%s' must be %s", value->key, is_list ? "a list of values" : "one value");
        return;
    }
    struct node *given = is_list && value->kind == NODE_SCALAR ? value_wrap(s, value) : value;
    if (given) *place = given;
}

static bool name_listed(const char *key, const char *const *names) {
    while (*names && strcmp(key, *names) != 0) names++;
    return *names != NULL;
}

void scope_give(struct scope *s, const struct node *values, const char *const *others) {
    const char *names[2 * NAMES_MAX];
    int n = parameter_names(s, names);
    for (int i = 0; i < values->count; i++) {
        struct node *value = values->items[i], **place = NULL;
        if (name_listed(value->key, others)) continue;
        for (int k = 0; s->parameters && k < s->parameters->count; k++)
            if (!strcmp(s->parameters->items[k]->key, value->key)) place = &s->parameters->items[k];
        if (place)
            place_give(s, place, value);
        else if (!strcmp(value->key, "pretrained"))
            config_error(s->e, value, true,
                         "unknown parameter 'pretrained'\nweights come from a file, as in 'init: FILE.safetensors'");
        else
            spec_unknown(s, value, true, "parameter", value->key, names, n);
    }
}
