/* The interface between the files that expand a spec: the values of $names (spec_names.c), and copies of layers with
 * them replaced (spec_layers.c). */
#pragma once
#include "engine/model/spec.h"

enum {
    NAMES_MAX = 64, /* variables at once; names offered when one is unknown */
    NAME_TEXT = 64
};
struct variable {
    const char *name;
    const struct node *value;
};
struct scope {
    struct pool *pool;
    struct config_errors *e;
    struct node *parameters;              /* the zoo file's map with the values of this model, or NULL */
    struct variable variables[NAMES_MAX]; /* classes, item, i, and what 'as' and 'set' made */
    int count;
    int parts; /* copied so far */
};

/* Reports at a node "unknown WHAT 'NAME'", with the nearest of the names. */
void spec_unknown(struct scope *s, const struct node *at, bool at_key, const char *what, const char *name,
                  const char *const *names, int n);
/* The parameter of this name, a list wherever the zoo file has one; NULL: there is none. */
const struct node *scope_parameter(const struct scope *s, const char *name);
/* The value of $name (n characters); NULL: an error was reported at the node. */
const struct node *scope_find(struct scope *s, const struct node *at, const char *name, size_t n);
/* The variable's value, NULL: it has none. */
const struct node *scope_get(const struct scope *s, const char *name);
/* NULL takes the variable away. Too many, or a parameter's name: reported at the node. */
void scope_set(struct scope *s, const struct node *at, const char *name, const struct node *value);
MUST_CHECK enum error scope_set_number(struct scope *s, const struct node *at, const char *name, int64_t value);
/* Takes over the values of a map, all but the keys of 'others' (NULL-terminated): each must be a
 * parameter, and a list only where the parameter is one. */
void scope_give(struct scope *s, const struct node *values, const char *const *others);

/* Appends the list's layers to out, with repeats, choices and $names expanded. */
MUST_CHECK enum error spec_layers(struct scope *s, const struct node *list, struct node *out);
