/* Options: one table a command is its parser, usage line, help, page of the manual and completion. */
#pragma once
#include "engine/config/schema.h"

#include <stdio.h>

struct cli {                              /* a command line, while its command runs */
    const struct command *command, *form; /* form: of several the one asked for; or the command */
    struct pool *pool;
    int argc;
    const char *const *argv; /* argv[0] is the command's name */
    void *options;           /* the form's struct of them */
};

enum option_many {
    OPTION_ONCE, /* of several the last one counts */
    OPTION_LIST, /* into a struct option_list */
    OPTION_REST  /* so is this word, and all that follows it, options or not */
};
struct option_list {
    int count;
    const char **of; /* ends with NULL */
};

/* One row. An option is written --name VALUE or --name=VALUE, with '-' or '_' inside the name; after
 * "--" everything is a word. */
struct option {
    const char *name; /* "--output"; "CONFIG": a word of the command line, known by its place */
    /* The name of the value in help, by default 'choices'; an option without either is a flag. "[=ADDRESS]": the
     * value may be omitted, and is then 'set'. */
    const char *value;
    const char *help;      /* of a 'key' by itself "the same as --set KEY=VALUE" */
    enum config_type type; /* scalars of the schema. Flags: BOOL gives true, ENUM gives 'min' */
    size_t at;             /* in the command's struct of options */
    double min, max;       /* as in struct config_field; of a list 'max' is how many there may be */
    const char *choices;   /* as in struct config_field */
    /* The i-th of the words that it may be, as 'choices', or NULL. Those of a STRING without 'wants'
     * are for completion alone: it may be another. */
    const char *(*word)(int i);
    /* Reads what no type does. ERR_USAGE: it is not what 'wants' says; without that the reader has
     * recorded a message. */
    enum error (*read)(const char *value, void *out);
    /* A key of the configuration, a struct cli_config at 'at', that takes the value; "": the value
     * says which, as in KEY=VALUE. */
    const char *key, *set; /* set: the value where none is given */
    /* What the value is, where type and range do not say: "numbers as in 2,4". With words, what they
     * are: "link", as in "no link 'x'". */
    const char *wants;
    const char *also; /* its other name: "-o" */
    enum option_many many;
    const char *missing;  /* it must be there: what is said when it is not */
    const char *one;      /* of a word of type STRING: "configuration", when there is a second one */
    const char *head;     /* in help this row and those after it stand below these words */
    const char *variable; /* of the environment: its value where the option is not given; empty counts as unset */
};
/* For a command's file, which defines OPTIONS_STRUCT as its struct of options: a table of them, where a row goes, and the
 * rows that most commands have. */
// clang-format off
#define OPTIONS(table) .options = table, .size = sizeof(OPTIONS_STRUCT)
#define AT(member) offsetof(OPTIONS_STRUCT, member)
#define OPTION_SET(member, text) \
    {"--set", "KEY=VALUE", text, .at = AT(member), .key = "", .wants = "KEY=VALUE"}
#define OPTION_KEY(name, value, member, of) {name, value, .at = AT(member), .key = of}
#define OPTION_JSON(text) {"--json", NULL, text, CONFIG_BOOL, AT(json)}
// clang-format on

struct command {
    const char *name, *summary;
    const char *also;                  /* "train|fit": what other tools call it, for those who look for it; or NULL */
    const struct option *options;      /* ends with a row without a name */
    size_t size;                       /* of the struct that they are read into, */
    const void *standard;              /* which begins as this; NULL: as zeroes */
    const char *notes;                 /* the rest of the help: whole lines */
    int (*run)(const struct cli *cli); /* gives the exit code */
    /* "list", "show": each a command but for its place; ends with NULL. The command itself has no
     * options and no run then. */
    const struct command *const *forms;
};

/* Reads the command line, runs the command, gives the exit code. Where the line asks for help, it
 * prints that instead. */
int command_call(const struct command *c, int argc, const char *const *argv);
/* "unknown option '--foo' ..." with the usage lines; 64. */
int cli_usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- descriptions of a table (help.c) ---- */

/* The i-th form of the command, itself where it has one; NULL: there is none. */
const struct command *command_form(const struct command *c, int i);
enum { OPTION_TEXT = 256, USAGE_TEXT = 512 };
/* The option that an argument names, as in --name=VALUE; NULL: the form has none. */
const struct option *option_find(const struct command *form, const char *arg);
bool option_is_word(const struct option *o);
bool option_takes_value(const struct option *o);
/* The i-th word that its value may be, in out where it needs room; NULL: there is none. */
const char *option_word(const struct option *o, int i, char out[OPTION_TEXT]);
const char *option_left(const struct option *o, char out[OPTION_TEXT]); /* "-o, --output FILE" */
/* What the command does; NULL: no text. */
const char *option_help(const struct option *o, char out[OPTION_TEXT]);
/* "engine bench comm [--collective C] [OPTION]..." */
const char *command_usage(const struct command *c, const struct command *form, char out[USAGE_TEXT]);
/* "usage: ..." of the form, or of all forms where it is the command. */
void command_usages(FILE *out, const struct command *c, const struct command *form);
/* Help on a command, a key of the configuration, a layer, or several of them; gives the exit code. */
int help_on(const char *topic);
/* Prints words in lines of the terminal's width; 'at' is where the first line stands, 'indent' where others begin. */
void help_wrap(const char *text, int at, int indent);
void help_keys(const char *text); /* what config_help gives, likewise */

/* ---- the other forms of help ---- */

/* Prints a page of the manual as roff (man.c): of the program where name is NULL, of a command, or of
 * "engine.yaml", which has all keys. ERR_USAGE: there is no such page. */
MUST_CHECK enum error man_print(const char *name);
/* Writes all pages into the folder. */
MUST_CHECK enum error man_write_all(const char *folder);
/* The i-th shell that has a script of completion (completion.c), or NULL; and its script. */
const char *completion_shell(int i);
void completion_print(int i);

/* ---- descriptions of layers (layers.c) ---- */

/* The i-th word that help knows beside commands and keys: "layers", and their names. */
const char *layers_word(int i);
/* Prints help on "layers", "conv2d", "conv2d.kernel"; *found is false if the topic is not a layer. */
MUST_CHECK enum error layers_help(const char *topic, struct pool *pool, bool *found);
/* Prints help on a parameter of any layer, by its name or PyTorch's; *found becomes true if there is one. */
MUST_CHECK enum error layers_parameter(const char *name, struct pool *pool, bool *found);
