/* engine completion: what a shell needs to complete the words of a command line, made of the table
 * of commands and the schema. The scripts hold all words, so that completing starts no program. */
#include "cli/line/cli.h"

#include "engine/base/embedded.h"
#include "engine/device/device.h"
#include "modes/modes.h"
#include "transport/algo/algo.h"

#include <stdio.h>
#include <string.h>

extern const struct embedded completion_scripts[];
extern const int completion_scripts_count;

/* ---- what all shells get ---- */
enum { KEY_WORDS = 256, WORD_TEXT = 48 };

static const char *mode_name(int i) {
    int n;
    const struct mode_row *const *modes = mode_kinds(&n);
    return i < n ? modes[i]->name : NULL;
}

static const char *algorithm_name(int i) {
    int n;
    const struct algo_ops *const *all = algo_list(&n);
    return i == 0 ? "auto" : i - 1 < n ? all[i - 1]->name : i - 1 == n ? "native" : NULL;
}

/* What keys may be whose words are no part of the schema. */
static const struct {
    const char *key;
    const char *(*word)(int i);
} more[] = {{"mode", mode_name}, {"model", cli_zoo_name}, {"comm.algorithm", algorithm_name}};

static const char *(*words_of(const char *key))(int i) {
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (!strcmp(more[i].key, key)) return more[i].word;
    return NULL;
}

static void print_words(const char *(*word)(int i)) {
    for (int i = 0; word(i); i++) printf(" %s", word(i));
}

/* All words that it may be, with a blank before each. */
static void print_option_words(const struct option *o) {
    char text[OPTION_TEXT];
    const char *word;
    for (int i = 0; (word = option_word(o, i, text)); i++) printf(" %s", word);
}

/* What may stand after a command: its forms, or what its words may be. */
static void print_parts(const struct command *c) {
    const struct command *form;
    for (int i = 0; (form = command_form(c, i)); i++)
        if (form != c) printf(" %s", form->name);
    for (const struct option *o = c->options; o && o->name; o++)
        if (option_is_word(o)) print_option_words(o);
}

static bool has_option(const struct command *form, const char *name) {
    for (const struct option *o = form->options; o && o->name; o++)
        if (!strcmp(o->name, name)) return true;
    return false;
}

/* Calls for each option of the command; those that several of its forms have, once. */
static void walk_options(const struct command *c, void (*print)(const struct command *c, const struct option *o)) {
    const struct command *form;
    for (int i = 0; (form = command_form(c, i)); i++)
        for (const struct option *o = form->options; o && o->name; o++) {
            bool known = option_is_word(o);
            for (int k = 0; k < i; k++) known |= has_option(command_form(c, k), o->name);
            if (!known) print(c, o);
        }
}

static void print_names(const struct command *c, const struct option *o) {
    (void)c;
    printf("%s%s%s ", o->name, o->also ? " " : "", o->also ? o->also : "");
}

struct keys {
    struct pool *pool;
    char seen[KEY_WORDS][WORD_TEXT];
    int count;
};

/* Of each kind of device one, two and four: "cpu:1 cpu:2". */
static void print_devices(void) {
    int n;
    const struct device_ops *const *kinds = device_kinds(&n);
    for (int i = 0; i < n; i++)
        for (int k = 1; k <= 4; k *= 2) printf(" %s:%d", kinds[i]->name, k);
}

/* Several variants may have a key of one name. */
static bool is_new(struct keys *k, const char *path) {
    for (int i = 0; i < k->count; i++)
        if (!strcmp(k->seen[i], path)) return false;
    if (k->count < KEY_WORDS) snprintf(k->seen[k->count++], WORD_TEXT, "%s", path);
    return true;
}

static void print_key(void *user, const struct config_key *key) {
    struct keys *k = user;
    if (is_new(k, key->path)) printf("%s%s", k->count > 1 ? " " : "", key->path);
}

/* A line of a case: "mode) values='single dp ddp' ;;" */
static void print_values(void *user, const struct config_key *key) {
    struct keys *k = user;
    const char *names[KEY_WORDS];
    int n = config_key_words(key, k->pool, names, KEY_WORDS);
    const char *(*word)(int i) = words_of(key->path);
    bool devices = !strcmp(key->path, "devices");
    if ((n == 0 && !word && !devices) || !is_new(k, key->path)) return;
    printf("        %s) values='", key->path);
    if (word) print_words(word);
    if (devices) print_devices();
    for (int i = 0; i < n; i++) printf("%s%s", i ? " " : "", names[i]);
    printf("' ;;\n");
}

static enum error walk_keys(void (*print)(void *user, const struct config_key *key)) {
    static struct keys k; /* too large for the stack */
    k = (struct keys){0};
    TRY(pool_create(&k.pool));
    enum error err = config_walk(&run_schema, k.pool, print, &k);
    pool_free(k.pool);
    return err;
}

/* A line of a case: "'report --format') values='html md' ;;". Of a key the values are its own. */
static void print_option_values(const struct command *c, const struct option *o) {
    char text[OPTION_TEXT];
    if (o->key && *o->key && o->value) {
        printf("        '%s %s') _engine_values %s ;;\n", c->name, o->name, o->key);
    } else if (option_word(o, 0, text)) {
        printf("        '%s %s') values='", c->name, o->name);
        print_option_words(o);
        printf("' ;;\n");
    }
}

/* The lines of a case over commands, that set 'options' and 'parts'. */
static void print_cases(void) {
    int n;
    const struct command *const *all = command_list(&n);
    for (int i = 0; i < n; i++) {
        printf("        %s) options='", all[i]->name);
        walk_options(all[i], print_names);
        printf("' parts='");
        print_parts(all[i]);
        printf("' ;;\n");
    }
}

/* What may follow a form: "'lab run') values='00-hello'". */
static void print_form_values(const struct command *c) {
    char text[OPTION_TEXT];
    const struct command *form;
    for (int i = 0; (form = command_form(c, i)); i++) {
        const struct option *o = form->options;
        if (form == c || !o || !option_is_word(o) || !option_word(o, 0, text)) continue;
        printf("        '%s %s') values='", c->name, form->name);
        print_option_words(o);
        printf("' ;;\n");
    }
}

/* The tables as functions of bash and zsh: they set options, parts and values. */
static enum error print_tables(void) {
    int n;
    const struct command *const *all = command_list(&n);
    printf("_engine_command() {\n    options='' parts=''\n    case $1 in\n");
    print_cases();
    printf("    esac\n    options=\"$options --help\"\n}\n\n"
           "_engine_values() {\n    values=''\n    case $1 in\n");
    TRY(walk_keys(print_values));
    printf("    esac\n}\n\n_engine_option() {\n    values=''\n    case \"$1 $2\" in\n");
    for (int i = 0; i < n; i++) {
        walk_options(all[i], print_option_values);
        print_form_values(all[i]);
    }
    printf("    esac\n}\n\n_engine_keys='");
    TRY(walk_keys(print_key));
    printf("'\n_engine_commands='");
    print_words(command_name);
    printf("'\n\n");
    return ERR_NONE;
}

/* ---- shells ---- */
/* What does not depend on the tables: completion.bash, completion.zsh. */
static void print_script(const char *shell) {
    for (int i = 0; i < completion_scripts_count; i++)
        if (!strcmp(strchr(completion_scripts[i].name, '.') + 1, shell)) fputs(completion_scripts[i].text, stdout);
}

static enum error print_bash(void) {
    printf("# bash completion of engine; made by 'engine completion bash'\n");
    TRY(print_tables());
    print_script("bash");
    return ERR_NONE;
}

static enum error print_zsh(void) {
    printf("#compdef engine\n# zsh completion of engine; made by 'engine completion zsh'\n");
    TRY(print_tables());
    print_script("zsh");
    return ERR_NONE;
}

/* A text in single quotes of fish. */
static void print_quoted(const char *text) {
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void print_fish_option(const struct command *c, const struct option *o) {
    char text[OPTION_TEXT];
    const char *names[] = {o->name, o->also};
    const char *(*word)(int i) = o->key ? words_of(o->key) : NULL;
    bool words = option_word(o, 0, text) != NULL;
    for (int i = 0; i < 2 && names[i]; i++) {
        const char *name = names[i] + strspn(names[i], "-");
        printf("complete -c engine -n '__fish_seen_subcommand_from %s' %s %s", c->name,
               names[i][1] == '-' ? "-l" : "-s", name);
        if (o->key && !*o->key) printf(" -x -a '$_engine_keys='");
        if (word || words) printf(" -x -a '");
        if (word) print_words(word);
        if (words) print_option_words(o);
        printf(word || words ? "'\n" : "\n");
    }
}

static void print_fish_command(const struct command *c) {
    printf("complete -c engine -n __fish_use_subcommand -f -a %s -d ", c->name);
    print_quoted(c->summary);
    putchar('\n');
    walk_options(c, print_fish_option);
    char text[OPTION_TEXT];
    const struct command *form;
    for (int i = 0; (form = command_form(c, i)); i++) {
        if (form == c || !form->options || !option_is_word(form->options) || !option_word(form->options, 0, text))
            continue;
        printf("complete -c engine -n '__fish_seen_subcommand_from %s; and __fish_seen_subcommand_from %s' -a '",
               c->name, form->name);
        print_option_words(form->options);
        printf("'\n");
    }
    if (!c->forms && (!option_is_word(c->options) || !option_word(c->options, 0, text))) return;
    printf("complete -c engine -n '__fish_seen_subcommand_from %s' -a '", c->name);
    print_parts(c);
    printf("'\n");
}

static enum error print_fish(void) {
    int n;
    const struct command *const *all = command_list(&n);
    printf("# fish completion of engine; made by 'engine completion fish'\nset -g _engine_keys ");
    TRY(walk_keys(print_key));
    printf("\n");
    for (int i = 0; i < n; i++) print_fish_command(all[i]);
    return ERR_NONE;
}

enum { SHELLS = 3 };
static const struct {
    const char *name;
    enum error (*print)(void);
} shells[SHELLS] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

static const char *shell_name(int i) {
    return i < SHELLS ? shells[i].name : NULL;
}

struct options {
    int shell;
};

static int run(const struct cli *cli) {
    const struct options *o = cli->options;
    enum error err = shells[o->shell].print();
    return cli_end(err);
}

static const struct option options[] = {
    {"SHELL", NULL, "bash, zsh or fish", CONFIG_ENUM, AT(shell), .word = shell_name, .missing = "which shell?"}, {0}};

const struct command command_completion = {
    .name = "completion",
    .summary = "prints a script with which a shell completes commands, options and keys",
    OPTIONS(options),
    .notes = "bash: eval \"$(engine completion bash)\", or into\n"
             "~/.local/share/bash-completion/completions/engine\n"
             "zsh:  into a file _engine in a folder of fpath\n"
             "fish: into ~/.config/fish/completions/engine.fish\n",
    .run = run,
};
