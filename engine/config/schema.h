/* The schema: one table a section is parser, defaults, --help KEY, manual and JSON Schema. A section is read into a C
 * struct: each field says key, type, where it goes, default and help. */
#pragma once
#include "engine/config/tree.h"

enum config_type {
    CONFIG_BOOL,    /* bool                 true | false                                           */
    CONFIG_INT,     /* int64_t              within [min, max]                                      */
    CONFIG_REAL,    /* double               within [min, max]                                      */
    CONFIG_STRING,  /* const char *                                                                */
    CONFIG_ENUM,    /* int                  index into choices ("a|b|c")                           */
    CONFIG_BYTES,   /* int64_t              "25MB"                                                 */
    CONFIG_SECONDS, /* double               "60s"                                                  */
    CONFIG_SPAN,    /* struct config_span   "5ep" | "200st" | "off" (where choices says so)        */
    CONFIG_INTS,    /* struct config_list   list of int64_t, or one                                */
    CONFIG_REALS,   /* struct config_list   list of double, or one                                 */
    CONFIG_SPANS,   /* struct config_list   list of struct config_span                             */
    CONFIG_SECTION, /* embedded struct      extra: const struct config_section *                   */
    CONFIG_VARIANT, /* struct config_variant  extra: const struct config_variants *: "sgd" | {name: sgd, lr: 1} */
    CONFIG_VARIANTS,/* struct config_list   list of struct config_variant, items "relu" | {linear: {..}} | {linear: 10} */
    CONFIG_NODE,    /* struct node *        taken as it stands; a reader of its own checks it      */
};
struct config_span {
    double value; /* whole for steps; 0.5ep is fine */
    enum { SPAN_OFF, SPAN_STEPS, SPAN_EPOCHS } unit;
};
struct config_list {
    int count;
    void *items;
};
struct config_variant {
    int index;    /* into the variants */
    void *config; /* of variants->at(index)->size bytes */
    void *common_config; /* of variants->common->size bytes; NULL without one */
    const struct node *node;
};
struct config_field {
    const char *key;      /* "": a VARIANT whose name and keys stand in this section's own map: {name: sgd, lr: 1, clip: 2} */
    enum config_type type;
    size_t offset;
    const char *standard; /* default as YAML text; NULL: may be absent (zero), and is left out when printed */
    const char *help;     /* one sentence, no full stop needed */
    double min, max;      /* of numbers, spans and items; both 0: any; max below min: no upper bound */
    const char *choices;  /* ENUM: "a|b|c"; STRING: the only ones allowed; others: words also allowed, which give 'word' */
    double word;          /* INT, REAL, BYTES, SECONDS: what a word of choices means, e.g. auto -> 0; SPAN: off is the word */
    const void *extra;    /* as the type says; NODE: const char *, the key that a bare scalar stands for in its map, or NULL */
};
struct config_section {
    const char *name;
    const struct config_field *fields; /* ends with key NULL */
    size_t size;
    const char *shorthand; /* the key that a bare scalar (or list) sets, or NULL */
    const char *help;
    /* What no single field can say ("nesterov needs momentum"): adds to e by config_error, at the section's node. Called
     * when every field of the section is right. May be NULL. */
    void (*check)(const void *config, const struct node *at, struct config_errors *e);
};
struct config_variants {
    const char *name;  /* the key that tells which in a map: "name" */
    int count;
    const struct config_section *(*at)(int i); /* section->name is the variant's name */
    const struct config_section *common; /* keys that stand beside any variant's own; NULL: none */
};

/* Fills defaults into the tree (source "default"), puts its keys into the schema's order and shorthands into full form, checks
 * every key and value, reads them into out (zeroed, of section->size). Goes on after errors, so that all are reported at once:
 * ERR_CONFIG then. What out points to lives in the pool. Reading a tree twice is fine; two threads at once are not. */
MUST_CHECK enum error config_read(const struct config_section *section, struct node *root, struct pool *pool,
                                  struct config_errors *e, void *out);
/* Help on "optimizer", "optimizer.lr", "" (all sections), as text; NULL with nearest names noted as an error if unknown. */
char *config_help(const struct config_section *section, const char *key, struct pool *pool);
