/* engine help [COMMAND | KEY | LAYER]: commands from their tables, every key of the configuration from the schema, and
 * layers from theirs. */
#include "cli/line/cli.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/settings/run_config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct command *command_form(const struct command *c, int i) {
    return c->forms ? c->forms[i] : i == 0 ? c : NULL;
}

/* ---- one option ---- */

bool option_is_word(const struct option *o) {
    return o->name[0] != '-';
}

bool option_takes_value(const struct option *o) {
    return (o->value && *o->value != '[') || o->choices;
}

const char *option_word(const struct option *o, int i, char out[OPTION_TEXT]) {
    if (o->word) return o->word(i);
    const char *c = o->choices;
    for (; c && i > 0; i--) c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL;
    if (!c) return NULL;
    snprintf(out, OPTION_TEXT, "%.*s", (int)strcspn(c, "|"), c);
    return out;
}

static const char *help_value_name(const struct option *o) {
    return o->value ? o->value : o->choices && !option_is_word(o) ? o->choices : "";
}

const char *option_left(const struct option *o, char out[OPTION_TEXT]) {
    const char *value = help_value_name(o);
    snprintf(out, OPTION_TEXT, "%s%s%s%s%s", o->name, o->also ? ", " : "", o->also ? o->also : "",
             *value && *value != '[' ? " " : "", value);
    return out;
}

const char *option_help(const struct option *o, char out[OPTION_TEXT]) {
    if (o->help || !o->key) return o->help;
    const char *value = o->set ? o->set : help_value_name(o);
    snprintf(out, OPTION_TEXT, "the same as --set %s=%s", o->key, value);
    return out;
}

/* ---- usage ---- */

/* "[--set KEY=VALUE]...", "CONFIG", "-n N" */
static void usage_of(const struct option *o, char out[OPTION_TEXT]) {
    const char *value = help_value_name(o);
    bool many = o->many ? !option_is_word(o) || o->max == 0 : o->key && !*o->key;
    snprintf(out, OPTION_TEXT, " %s%s%s%s%s%s", o->missing ? "" : "[", o->name, *value && *value != '[' ? " " : "",
             value, o->missing ? "" : "]", many && o->many != OPTION_REST ? "..." : "");
}

/* Writes the usage line: words, then as many options as the line has room for, then what OPTION_REST takes. */
const char *command_usage(const struct command *c, const struct command *form, char out[USAGE_TEXT]) {
    enum { LINE = 100, PARTS = 3 };
    static const char more[] = " [OPTION]...";
    char text[OPTION_TEXT];
    int n = snprintf(out, USAGE_TEXT, "engine %s%s%s", c->name, form != c ? " " : "", form != c ? form->name : "");
    for (int part = 0; part < PARTS; part++)
        for (const struct option *o = form->options; o && o->name; o++) {
            if (part != (!option_is_word(o) ? 1 : o->many == OPTION_REST ? 2 : 0)) continue;
            usage_of(o, text);
            size_t room = o[1].name ? sizeof more : 0;
            bool fits = part != 1 || strlen("usage: ") + (size_t)n + strlen(text) + room <= LINE;
            n += snprintf(out + n, (size_t)(USAGE_TEXT - n), "%s", fits ? text : more);
            if (!fits) break;
        }
    return out;
}

void command_usages(FILE *out, const struct command *c, const struct command *only) {
    char usage[USAGE_TEXT];
    const char *before = "usage:";
    const struct command *form;
    for (int i = 0; (form = command_form(c, i)); i++) {
        if (only != c && form != only) continue;
        fprintf(out, "%s %s\n", before, command_usage(c, form, usage));
        before = "      ";
    }
}

/* ---- lines ---- */

static int line_width(void) {
    enum { LINE = 96, LEAST = 24 };
    int columns = file_columns(STDOUT_FILENO);
    return columns == 0 || columns > LINE ? LINE : columns < LEAST ? LEAST : columns;
}

void help_wrap(const char *text, int at, int indent) {
    int line = line_width();
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at > indent && at + 1 + n > line) {
            printf("\n%*s", indent, "");
            at = indent;
        }
        at += printf("%s%.*s", at > indent ? " " : "", n, text);
        text += n + strspn(text + n, " ");
    }
    printf("\n");
}

/* A line that is too long goes on below its last column, or below its beginning where there are no columns. */
void help_keys(const char *text) {
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        size_t start = strspn(line, " "), word = start + strcspn(line + start, " ");
        bool columns = !strncmp(line + word, "  ", 2);
        int indent = (int)(columns ? word + strspn(line + word, " ") : start);
        printf("%.*s", indent, line);
        help_wrap(line + indent, indent, indent);
    }
}

/* ---- help on a command ---- */

/* Prints the options in two columns. An option that is too long for the left column has its own line. */
static void print_options(const struct command *form) {
    enum { LEFT_MOST = 24 };
    char left[OPTION_TEXT], text[OPTION_TEXT];
    int column = 0;
    for (const struct option *o = form->options; o && o->name; o++) {
        int n = option_help(o, text) ? (int)strlen(option_left(o, left)) : 0;
        if (n <= LEFT_MOST && n > column) column = n;
    }
    for (const struct option *o = form->options; o && o->name; o++) {
        const char *help = option_help(o, text);
        if (o->head) printf("\n%s:\n", o->head);
        if (!help) continue;
        int n = printf("  %s", option_left(o, left));
        if (n > column + 2) n = printf("\n") - 1;
        printf("%*s", column + 4 - n, "");
        help_wrap(help, column + 4, column + 4);
    }
}

static void help_print_command(const struct command *c) {
    const struct command *form;
    command_usages(stdout, c, c);
    printf("\n%s\n", c->summary);
    for (int i = 0; (form = command_form(c, i)); i++) {
        if (form != c) {
            int n = printf("\nengine %s %s:", c->name, form->name) - 1;
            help_wrap(form->summary, n, 0);
        }
        print_options(form);
        if (form->notes) fputs(form->notes, stdout);
    }
    if (c->forms && c->notes) printf("\n%s", c->notes);
}

/* ---- the command ---- */

static void help_print_group(const char *title, enum command_group group) {
    int n;
    const struct command_row *all = command_rows(&n);
    printf("\n%s\n", title);
    for (int i = 0; i < n; i++) {
        if (all[i].group != group) continue;
        printf("  %-10s ", all[i].command->name);
        help_wrap(all[i].command->summary, 13, 13);
    }
}

static int help_overview(void) {
    static const char *const titles[GROUP_HIDDEN] = {[GROUP_TRAIN] = "train",
                                                     [GROUP_RESULTS] = "look at runs",
                                                     [GROUP_USE] = "use a trained network",
                                                     [GROUP_COMPARE] = "compare, measure and predict",
                                                     [GROUP_LEARN] = "learn",
                                                     [GROUP_SYSTEM] = "this machine, this program"};
    printf("engine: trains a network on several devices, and measures which way of sharing gradients is better, and "
           "why\n\n"
           "usage: engine COMMAND [ARGUMENTS]\n");
    for (int group = 0; group < GROUP_HIDDEN; group++) help_print_group(titles[group], (enum command_group)group);
    printf("\n  engine run                     trains on generated data; needs no file\n"
           "  engine help COMMAND            the arguments of a command\n"
           "  engine help config             the keys of a configuration\n"
           "  engine help optimizer.momentum the meaning of a key\n"
           "  engine help layers             the layers of a network; engine help conv2d: one of them\n\n"
           "exit codes: 0 done, 1 result not acceptable, 64 usage, 65 bad data or checkpoint, 66 "
           "input missing, 69 device\n"
           "unavailable, 70 bug, 71 out of memory, 73 cannot create, 74 input or output, 75 a rank "
           "was lost, 78 bad\n"
           "configuration, 130/143 stopped by a signal after saving\n");
    return 0;
}

/* Prints help on a key, if there is one; before: what stands above it. */
static enum error help_about_key(const char *key, struct pool *pool, const char *before) {
    const char *text = config_help(&run_schema, key, pool);
    if (!text) return ERR_USAGE;
    printf("%s", before);
    help_keys(text);
    return ERR_NONE;
}

/* Commands, then the words of layers.c. */
static const char *topic_word(int i) {
    int commands = 0;
    while (command_name(commands)) commands++;
    return i < commands ? command_name(i) : layers_word(i - commands);
}

/* Refuses a topic that does not exist, with the nearest name. */
static enum error topic_refuse(const char *topic) {
    const char *names[128], *near;
    int n = 0;
    for (int i = 0; topic_word(i) && n < 128; i++) names[n++] = topic_word(i);
    if (*error_hint() || !(near = text_nearest(topic, names, n))) return ERR_USAGE; /* about_key has said it */
    return FAIL(ERR_USAGE, "no command, key or layer '%s'\ndid you mean '%s'?", topic, near);
}

struct variant_search {
    const char *topic;
    struct pool *pool;
    const char *path; /* "optimizer.adam"; NULL: none yet */
};

static void search_variant(void *user, const struct config_key *key) {
    struct variant_search *s = user;
    const struct config_variants *v = key->field->type == CONFIG_VARIANT ? key->field->extra : NULL;
    const char *dot = strrchr(key->path, '.');
    size_t n = !v || *key->field->key || !dot ? strlen(key->path) : (size_t)(dot - key->path);
    for (int i = 0; v && !s->path && i < v->count; i++)
        if (config_also(v->at(i)->name, s->topic) || config_also(v->at(i)->also, s->topic))
            s->path = pool_printf(s->pool, "%.*s.%s", (int)n, key->path, v->at(i)->name);
}

/* Explains a value that a key may have (adam, cosine, csv), also by another tool's word for it. */
static enum error about_variant(const char *topic, struct pool *pool, bool *found) {
    struct variant_search s = {.topic = topic, .pool = pool};
    TRY(config_walk(&run_schema, pool, search_variant, &s));
    *found = s.path != NULL;
    if (!s.path) return ERR_NONE;
    int n = (int)(strrchr(s.path, '.') - s.path);
    const char *title = pool_printf(pool, "%.*s: %s\n", n, s.path, s.path + n + 1);
    return title ? help_about_key(s.path, pool, title) : ERR_MEMORY;
}

/* A network of the zoo. */
static bool help_about_model(const char *topic) {
    const char *name = NULL;
    for (int i = 0; cli_zoo_name(i) && !name; i++)
        if (config_also(cli_zoo_name(i), topic)) name = cli_zoo_name(i);
    if (!name) return false;
    printf("%s is a network of the zoo, as in 'model: %s'\nengine model show %s has its layers, engine model list its "
           "parameters\n",
           name, name, name);
    return true;
}

/* Keys and parameters by their last name alone, or by what other tools call them. */
static enum error help_about_place(const char *topic, struct pool *pool) {
    struct config_place place;
    const char *answer = config_foreign(&run_schema, topic);
    const struct config_sought sought = {topic, .by_name = true, .yaml = true};
    bool found = !answer && config_find(&run_schema, &sought, pool, &place);
    if (answer) {
        printf("%s: %s\n", topic, answer);
        return ERR_NONE;
    }
    if (found) {
        const char *example = *place.example ? pool_printf(pool, ", as in '%s'", place.example) : "";
        const char *note = *place.note ? pool_printf(pool, ". %s", place.note) : "";
        const char *title = example && note ? pool_printf(pool, "%s%s%s:\n", place.path, example, note) : NULL;
        if (!title) return ERR_MEMORY;
        TRY(help_about_key(place.path, pool, title));
    }
    TRY(layers_parameter(topic, pool, &found));
    if (!found) TRY(about_variant(topic, pool, &found));
    return found || help_about_model(topic) ? ERR_NONE : topic_refuse(topic);
}

/* Explains a topic; a name that is a command's and a key's is explained as both. */
static enum error topic_explain(const char *topic, struct pool *pool) {
    const struct command_alias *alias = command_alias(topic);
    const struct command *c = alias ? alias->command : command_find(topic);
    bool layer;
    if (alias) printf("engine %s is now engine %s %s\n\n", topic, c->name, alias->option);
    if (c) help_print_command(c);
    if (c == &command_config) return help_about_key("", pool, "\nKeys:\n");
    TRY(layers_help(topic, pool, &layer));
    enum error err = help_about_key(topic, pool, c || layer ? "\nand as a key of the configuration:\n" : "");
    if (c || layer || err != ERR_USAGE) return err == ERR_USAGE ? ERR_NONE : err;
    return help_about_place(topic, pool);
}

static int help_print(const char *topic, enum error (*about_it)(const char *topic, struct pool *pool)) {
    struct pool *pool;
    enum error err = pool_create(&pool);
    if (err != ERR_NONE) return cli_fail(err);
    err = about_it(topic, pool);
    pool_free(pool);
    return cli_end(err);
}

int help_on(const char *topic) {
    return help_print(topic, topic_explain);
}

static enum error help_about_key_alone(const char *key, struct pool *pool) {
    return help_about_key(key, pool, "");
}

struct help_options {
    const char *topic, *key, *all;
    bool man;
    int shell; /* -1: none */
};
#define OPTIONS_STRUCT struct help_options

static int help_run_man(const struct cli *cli) {
    const struct help_options *o = cli->options;
    if (o->all && o->topic) return cli_usage(cli, "--all writes all pages");
    if (o->all) return cli_end(man_write_all(o->all));
    enum error err = man_print(o->topic);
    return err == ERR_USAGE ? cli_usage(cli, "%s", error_message()) : cli_end(err);
}

static int help_command(const struct cli *cli) {
    const struct help_options *o = cli->options;
    if (o->man) return help_run_man(cli);
    if (o->all) return cli_usage(cli, "--all is for --man");
    if (o->shell >= 0) return completion_print(o->shell), 0;
    if (!o->topic) return help_overview();
    if (o->key && command_find(o->topic) == &command_config) return help_print(o->key, help_about_key_alone);
    return help_on(o->topic);
}

static const struct option options[] = {
    {"COMMAND | KEY | LAYER", NULL, "its arguments; its meaning; 'layers' lists all layers", CONFIG_STRING, AT(topic),
     .word = topic_word},
    {"KEY", NULL, "after 'config': the key, even if a command has the same name", CONFIG_STRING, AT(key)},
    {"--man", NULL,
     "a page of the manual, in the format of man: of the program or COMMAND; engine.yaml: all keys and layers",
     CONFIG_BOOL, AT(man)},
    {"--all", "FOLDER", "with --man: writes all pages into the folder", CONFIG_STRING, AT(all), .wants = "a folder"},
    {"--completion", "SHELL", "a script with which bash, zsh or fish completes commands, options and keys", CONFIG_ENUM,
     AT(shell), .word = completion_shell},
    {0}};

const struct command command_help = {
    .name = "help",
    .summary = "explains a command, a key of the configuration or a layer; prints the manual",
    OPTIONS(options),
    .notes = "To read a page: 'engine help --man run | man -l -'\n"
             "bash: eval \"$(engine help --completion bash)\", or into\n"
             "~/.local/share/bash-completion/completions/engine\n"
             "zsh:  into a file _engine in a folder of fpath\n"
             "fish: into ~/.config/fish/completions/engine.fish\n",
    .standard = &(const struct help_options){.shell = -1},
    .run = help_command,
};
