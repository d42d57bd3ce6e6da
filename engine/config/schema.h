/* The schema: one table a section is parser, defaults, --help KEY, manual and JSON Schema. A
 * section is read into a C struct: each field says key, type, where it goes, default and help. */
#pragma once
#include "engine/config/tree.h"

/* What a field is read into, how it is written, and what its 'extra' is:
 *   BOOL      bool                   true | false
 *   INT       int64_t
 *   REAL      double
 *   STRING    const char *
 *   PATH      const char *           a path, which is made absolute (tree_path); 'choices': words that are none; extra:
 *                                    struct config_path, or NULL
 *   ENUM      int                    one of choices, of which it is the index
 *   BYTES     int64_t                25MB
 *   SECONDS   double                 60s
 *   RATE      double                 1Gbit, 100MB: bytes a second
 *   SHARE     double                 50% or 0.5
 *   SPAN      struct config_span     5ep | 200st | off (where choices says so)
 *   LENGTH    struct config_span     a SPAN, or a time: 60s
 *   INTS      struct config_list     of int64_t: a list, or one
 *   REALS     struct config_list     of double: a list, or one
 *   SPANS     struct config_list     of struct config_span: a list, or one
 *   ENUMS     struct config_list     of int, as ENUM: a list, or one
 *   STRINGS   struct config_list     of const char *: a list, or one
 *   SECTION   the struct itself      a map; extra: struct config_section
 *   SECTIONS  struct config_list     of such structs: a list of maps; extra: too
 *   VARIANT   struct config_variant  sgd | {name: sgd, lr: 1}; extra: struct config_variants
 *   VARIANTS  struct config_list     of struct config_variant: [relu, {linear: 10}]; extra: too
 *   NODE      struct node *          anything, which the user of the section reads; extra: the key (const
 *                                    char *) that a bare scalar stands for, or NULL */
enum config_type {
    CONFIG_BOOL,
    CONFIG_INT,
    CONFIG_REAL,
    CONFIG_STRING,
    CONFIG_PATH,
    CONFIG_ENUM,
    CONFIG_BYTES,
    CONFIG_SECONDS,
    CONFIG_RATE,
    CONFIG_SHARE,
    CONFIG_SPAN,
    CONFIG_LENGTH,
    CONFIG_INTS,
    CONFIG_REALS,
    CONFIG_SPANS,
    CONFIG_ENUMS,
    CONFIG_STRINGS,
    CONFIG_SECTION,
    CONFIG_SECTIONS,
    CONFIG_VARIANT,
    CONFIG_VARIANTS,
    CONFIG_NODE,
};
struct config_span {
    double value; /* whole for steps; 0.5ep is fine */
    enum { SPAN_OFF, SPAN_END, SPAN_STEPS, SPAN_EPOCHS, SPAN_SECONDS } unit;
};
struct config_list {
    int count;
    void *items;
};
struct config_variant {
    int index;           /* into the variants */
    void *config;        /* of variants->at(index)->size bytes */
    void *common_config; /* of variants->common->size bytes; NULL without one */
    const struct node *node;
};
struct config_path {
    const char *before; /* "file:": what does not begin so is no path; NULL: nothing stands before it */
    const char * or ;   /* "how many samples": a number or a share may stand there, too, and means that; or NULL */
};
struct config_field {
    /* "": a VARIANT whose name and keys are in this section's own map: {name: sgd, clip: 2} */
    const char *key;
    enum config_type type;
    size_t offset;
    const char *standard; /* default as YAML; NULL: may be absent (zero), and is then not printed */
    const char *help;     /* one sentence, no full stop needed */
    /* The range of numbers, spans and items of lists. Both 0: any value; max below min: no upper bound. */
    double min, max;
    /* "a|b|c". ENUM, ENUMS: the words; STRING: the only ones allowed; others: words allowed beside
     * numbers, which give 'word' (auto -> 0), for a SPAN off. */
    const char *choices;
    double word;
    const void *extra; /* as the type says */
    bool required;     /* an error when absent; 'standard' is NULL then */
    const char *also;  /* "a|b": the names in other tools, for users who look for these; or NULL */
    const char *means; /* "ce=cross_entropy|nll=cross_entropy": what they call its words; or NULL */
    const char *note;  /* what differs from theirs, for those who look for theirs; or NULL */
};
/* Keys of other tools that stand for none here: what to do instead, or why nobody needs them. */
struct config_foreign {
    const char *words, *answer; /* words: "a|b" */
};
struct config_section {
    const char *name;
    const struct config_field *fields; /* ends with key NULL */
    size_t size;
    const char *shorthand; /* the key that a bare scalar (or list) sets, or NULL */
    const char *help;
    const char *also;                     /* as of a field */
    const struct config_foreign *foreign; /* of a whole schema; ends with words NULL. Or NULL */
    /* Checks what no single field can express ("nesterov needs momentum") and adds errors to e by config_error, at
     * the section's node. It is called if every field of the section is valid. May be NULL. */
    void (*check)(const void *config, const struct node *at, struct config_errors *e);
};
struct config_variants {
    const char *name; /* the key that selects the variant in a map: "name" */
    int count;
    const struct config_section *(*at)(int i); /* section->name is the variant's name */
    const struct config_section *common;       /* keys that are allowed beside those of any variant; NULL: none */
    const char *topic;   /* what help has a page of, one of each variant, too, to which errors send; or NULL */
    const char *besides; /* what a bare value may be, too, for errors: ", or a file"; NULL: nothing */
};

/* Fills defaults into the tree (source "default"), puts its keys into the schema's order and
 * shorthands into full form, checks every key and value, reads them into out (zeroed, of
 * section->size). Goes on after errors, so that all are reported at once: ERR_CONFIG then. What out
 * points to lives in the pool. Reading a tree twice is fine; two threads at once are not. */
MUST_CHECK enum error config_read(const struct config_section *section, struct node *root, struct pool *pool,
                                  struct config_errors *e, void *out);
/* Help on "optimizer", "optimizer.lr", "" (all sections), as text; NULL with nearest names noted as
 * an error if unknown. */
char *config_help(const struct config_section *section, const char *key, struct pool *pool);

/* The description of one key, for lists of all keys (manual, completion). */
struct config_key {
    const char *path; /* "optimizer.momentum" */
    const struct config_field *field;
    const char *kind; /* its possible values: "an integer >= 1", "one of sgd, adam", "a map of keys" */
    const char *with; /* the variant that has it ("sgd"), or NULL */
    const char *help; /* may be NULL */
    const char *also; /* "kernel_size, ksize", or NULL */
    bool bare;        /* whether a bare value in place of its map is its value */
};
/* Every key of the section and of those below it, in the schema's order. Texts live in the pool. */
MUST_CHECK enum error config_walk(const struct config_section *section, struct pool *pool,
                                  void (*key)(void *user, const struct config_key *key), void *user);
/* Whether the word is in an 'also' list. Case does not matter, '-' equals '_', and a part before '.' is ignored:
 * nn.Conv2d. */
bool config_also(const char *also, const char *word);
/* What the word stands for in a 'means'; NULL: nothing. */
const char *config_meant(const char *means, const char *word, struct pool *pool);
const char *config_also_text(const char *also, struct pool *pool); /* "a, b"; NULL: no memory */
struct config_sought {
    const char *word, *given; /* given: the value; NULL: none */
    bool by_name;             /* also a key that is called so in some section */
    bool yaml; /* the example is YAML, "optimizer: {lr: 0.1}"; else for the command line, "optimizer.lr=0.1" */
};
/* Where a key is that other tools call so: its path, "train" rather than "train.for" where a bare value will do, and an
 * example with the value that was given, or with its default where it takes no such value. false: nowhere. */
struct config_place {
    const char *path, *example, *note; /* example: "" where it has no default; note: the field's, or "" */
};
bool config_find(const struct config_section *section, const struct config_sought *sought, struct pool *pool,
                 struct config_place *out);
/* What the schema answers to a word of 'foreign'; NULL: it is none. */
const char *config_foreign(const struct config_section *section, const char *word);
/* The words that a key takes: choices, variants' names, true and false. How many, into names. */
int config_key_words(const struct config_key *key, struct pool *pool, const char **names, int most);
