/* engine completion: what a shell needs to complete the words of a command line, made of the table
 * of commands and the schema. The scripts hold all words, so that completing starts no program. */
#include "cli/words.h"

#include "modes/modes.h"

#include <stdio.h>
#include <string.h>

extern const struct command command_completion;

/* ---- what all shells get ---- */
enum { KEY_WORDS = 256 };

static void print_words(int n, const char list[][WORD_TEXT]) {
    for (int i = 0; i < n; i++) printf("%s%s", i ? " " : "", list[i]);
}

static void print_modes(void) {
    int n;
    const struct mode_ops *const *modes = mode_kinds(&n);
    for (int i = 0; i < n; i++) printf("%s%s", i ? " " : "", modes[i]->name);
}

static void print_commands(void) {
    int n;
    const struct command *const *all = command_list(&n);
    for (int i = 0; i < n; i++) printf("%s%s", i ? " " : "", all[i]->name);
}

/* What may stand behind a command: its parts, and for some what they are about. */
static void print_parts(const struct command *c, const struct command_words *words) {
    print_words(words->nparts, words->part);
    if (!strcmp(c->name, "help") || !strcmp(c->name, "man")) {
        if (words->nparts) putchar(' ');
        print_commands();
    }
}

struct keys {
    struct pool *pool;
    char seen[KEY_WORDS][WORD_TEXT];
    int count;
};

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
    bool mode = !strcmp(key->path, "mode");
    if ((n == 0 && !mode) || !is_new(k, key->path)) return;
    printf("        %s) values='", key->path);
    if (mode) print_modes();
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

/* The lines of a case over commands, that set 'options' and 'parts'. */
static void print_cases(void) {
    int n;
    const struct command *const *all = command_list(&n);
    for (int i = 0; i < n; i++) {
        struct command_words words;
        command_words(all[i], &words);
        printf("        %s) options='", all[i]->name);
        print_words(words.noptions, (const char(*)[WORD_TEXT])words.option);
        printf("' parts='");
        print_parts(all[i], &words);
        printf("' ;;\n");
    }
}

/* The tables as functions of bash and zsh: they set options, parts and values. */
static enum error print_tables(void) {
    printf("_engine_command() {\n    options='' parts=''\n    case $1 in\n");
    print_cases();
    printf("    esac\n    options=\"$options --help\"\n}\n\n"
           "_engine_values() {\n    values=''\n    case $1 in\n");
    TRY(walk_keys(print_values));
    printf("    esac\n}\n\n_engine_keys='");
    TRY(walk_keys(print_key));
    printf("'\n_engine_commands='");
    print_commands();
    printf("'\n\n");
    return ERR_NONE;
}

/* ---- shells ---- */
/* Bash cuts words at '=' and wants only what follows the last one; the line itself is clearer. */
static enum error print_bash(void) {
    printf("# bash completion of engine; made by 'engine completion bash'\n");
    TRY(print_tables());
    fputs("_engine() {\n"
          "    local line=${COMP_LINE:0:COMP_POINT} words cur before options parts values key\n"
          "    read -ra words <<< \"$line\"\n"
          "    [[ $line == *' ' ]] && words+=('')\n"
          "    local last=$((${#words[@]} - 1))\n"
          "    cur=${words[last]} before=${words[last-1]}\n"
          "    COMPREPLY=()\n"
          "    if ((last <= 1)); then\n"
          "        COMPREPLY=($(compgen -W \"$_engine_commands\" -- \"$cur\"))\n"
          "        return\n"
          "    fi\n"
          "    _engine_command \"${words[1]}\"\n"
          "    if [[ $cur == *=* ]]; then\n"
          "        key=${cur%%=*}\n"
          "        _engine_values \"${key#--}\"\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"${cur#*=}\"))\n"
          "    elif [[ $before == --set ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$_engine_keys\" -S = -- \"$cur\"))\n"
          "        compopt -o nospace 2> /dev/null\n"
          "    elif [[ $before == --mode ]]; then\n"
          "        _engine_values mode\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
          "    elif [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
          "    else\n"
          "        [[ ${words[1]} == help ]] && parts=\"$parts config $_engine_keys\"\n"
          "        ((last == 2)) && COMPREPLY=($(compgen -W \"$parts\" -- \"$cur\"))\n"
          "        ((${#COMPREPLY[@]})) || COMPREPLY=($(compgen -f -- \"$cur\"))\n"
          "        compopt -o filenames 2> /dev/null\n"
          "    fi\n"
          "}\n"
          "complete -F _engine engine\n",
          stdout);
    return ERR_NONE;
}

static enum error print_zsh(void) {
    printf("#compdef engine\n# zsh completion of engine; made by 'engine completion zsh'\n");
    TRY(print_tables());
    fputs("_engine() {\n"
          "    local options parts values before=${words[CURRENT-1]} cur=${words[CURRENT]}\n"
          "    if ((CURRENT == 2)); then\n"
          "        compadd -- ${=_engine_commands}\n"
          "        return\n"
          "    fi\n"
          "    _engine_command $words[2]\n"
          "    if [[ $cur == *=* ]]; then\n"
          "        _engine_values ${${cur%%=*}#--}\n"
          "        compset -P '*='\n"
          "        compadd -- ${=values}\n"
          "    elif [[ $before == --set ]]; then\n"
          "        compadd -S = -- ${=_engine_keys}\n"
          "    elif [[ $before == --mode ]]; then\n"
          "        _engine_values mode\n"
          "        compadd -- ${=values}\n"
          "    elif [[ $cur == -* ]]; then\n"
          "        compadd -- ${=options}\n"
          "    else\n"
          "        [[ $words[2] == help ]] && parts=\"$parts config $_engine_keys\"\n"
          "        ((CURRENT == 3)) && compadd -- ${=parts}\n"
          "        _files\n"
          "    fi\n"
          "}\n"
          "if [[ $funcstack[1] == _engine ]]; then\n"
          "    _engine \"$@\"\n"
          "else\n"
          "    compdef _engine engine\n"
          "fi\n",
          stdout);
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

static void print_fish_option(const char *command, const char *option) {
    bool is_set = !strcmp(option, "--set"), is_mode = !strcmp(option, "--mode");
    const char *name = option + strspn(option, "-");
    printf("complete -c engine -n '__fish_seen_subcommand_from %s' %s %s", command,
           option[1] == '-' ? "-l" : "-s", name);
    if (is_set) printf(" -x -a '$_engine_keys='");
    if (is_mode) printf(" -x -a '"), print_modes(), putchar('\'');
    putchar('\n');
}

static void print_fish_command(const struct command *c) {
    struct command_words words;
    command_words(c, &words);
    printf("complete -c engine -n __fish_use_subcommand -f -a %s -d ", c->name);
    print_quoted(c->summary);
    putchar('\n');
    for (int i = 0; i < words.noptions; i++) print_fish_option(c->name, words.option[i]);
    bool about = !strcmp(c->name, "help") || !strcmp(c->name, "man");
    if (words.nparts == 0 && !about) return;
    printf("complete -c engine -n '__fish_seen_subcommand_from %s' -a '", c->name);
    print_parts(c, &words);
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

static int completion_run(int argc, char **argv) {
    static const struct {
        const char *shell;
        enum error (*print)(void);
    } kinds[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    if (argc != 2) return cli_usage(&command_completion, "which shell?");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(argv[1], kinds[i].shell) != 0) continue;
        enum error err = kinds[i].print();
        return err == ERR_NONE ? 0 : cli_fail(err);
    }
    return cli_usage(&command_completion, "no completion for '%s'", argv[1]);
}

const struct command command_completion = {
    .name = "completion",
    .arguments = "bash | zsh | fish",
    .summary = "prints a script with which a shell completes commands, options and keys",
    .help = "bash: eval \"$(engine completion bash)\", or into\n"
            "~/.local/share/bash-completion/completions/engine\n"
            "zsh:  into a file _engine in a folder of fpath\n"
            "fish: into ~/.config/fish/completions/engine.fish\n",
    .run = completion_run,
};
