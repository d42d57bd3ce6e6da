/* Reading a command line by its command's table. */
#include "cli/line/options.h"

#include "cli/line/end.h"
#include "cli/line/load.h"
#include "engine/base/text.h"
#include "engine/config/value.h"
#include "engine/settings/run_config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is wrong ---- */

int cli_usage(const struct cli *cli, const char *fmt, ...) {
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "error: %s\n", text_defuse(text, ""));
    command_usages(stderr, cli->command, cli->form);
    fprintf(stderr, "hint: engine help %s\n", cli->command->name);
    return error_exit_code(ERR_USAGE);
}

/* "a|b|c": what the value must be one of; NULL: it need not. */
static const char *option_choices_of(const struct option *o, struct pool *pool) {
    const char *all = o->choices;
    if (o->type == CONFIG_STRING && !o->wants) return NULL;
    for (int i = 0; o->word && o->word(i) && (i == 0 || all); i++)
        all = pool_printf(pool, "%s%s%s", i ? all : "", i ? "|" : "", o->word(i));
    return all;
}

/* "a, b or c" */
static const char *option_names_listed(const char *const *names, int n, struct pool *pool) {
    const char *all = "";
    for (int i = 0; i < n; i++) all = pool_say(pool, "%s%s%s", all, i == 0 ? "" : i < n - 1 ? ", " : " or ", names[i]);
    return all;
}

/* "", or ", did you mean '--this'?": dashes come before all names, or before none. */
static const char *option_near_name(const char *given, const char *const *names, int n, struct pool *pool) {
    size_t dashes = strspn(given, "-");
    const char *near = text_nearest(given + dashes, names, n);
    return near ? pool_say(pool, ", did you mean '%.*s%s'?", (int)dashes, given, near) : "";
}

/* The description of a value that is no choice, for messages: "a number from 1 to 64". */
static const char *option_value_wanted(const struct option *o, struct pool *pool) {
    const char *what = o->wants ? o->wants : "a number";
    const struct config_field field = {.type = o->type};
    if (o->read || o->key) return o->wants;
    if (o->type != CONFIG_INT && o->type != CONFIG_REAL) return o->wants ? o->wants : value_type(&field, pool);
    if (o->max < o->min || o->max >= 1e6) return pool_printf(pool, "%s from %.12g on", what, o->min);
    return pool_printf(pool, "%s from %.12g to %.12g", what, o->min, o->max);
}

static int option_refuse_value(const struct cli *cli, const struct option *o, const char *name, const char *value) {
    const char *names[WORDS_MAX], *choices = o->read ? NULL : option_choices_of(o, cli->pool);
    int n = value_words(choices, cli->pool, names);
    const char *all = value_join(names, n, cli->pool);
    if (n > 0 && o->wants)
        return cli_fail(FAIL(ERR_USAGE, "no %s '%s'%s\nthere are %s", o->wants, value,
                             option_near_name(value, names, n, cli->pool), all ? all : "others"));
    const char *wants = n > 0 ? option_names_listed(names, n, cli->pool) : option_value_wanted(o, cli->pool);
    if (wants) return cli_usage(cli, "%s is %s, not '%s'", name, wants, value);
    return cli_fail(error_prefix(ERR_USAGE, "%s: ", name)); /* its reader has said it */
}

/* Refuses an option that lacks its value. */
static int option_refuse_nothing(const struct cli *cli, const struct option *o, const char *name) {
    bool general = !o->wants || o->read || o->word || o->choices;
    const char *wants = general ? "a value" : option_value_wanted(o, cli->pool);
    return cli_usage(cli, "%s needs %s", name, wants ? wants : "a value");
}

/* ---- finding ---- */

/* Whether the n characters are this name; '_' is '-', as other launchers have it. */
static bool option_is_name(const char *given, size_t n, const char *name) {
    if (!name || strlen(name) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (given[i] != name[i] && !(given[i] == '_' && name[i] == '-')) return false;
    return true;
}

const struct option *option_find(const struct command *form, const char *arg) {
    size_t n = strcspn(arg, "=");
    for (const struct option *o = form->options; o && o->name; o++)
        if (!option_is_word(o) && (option_is_name(arg, n, o->name) || option_is_name(arg, n, o->also))) return o;
    return NULL;
}

/* The row of the n-th word; NULL: there may not be as many. */
static const struct option *option_find_word(const struct command *form, int n) {
    for (const struct option *o = form->options; o && o->name; o++) {
        if (!option_is_word(o)) continue;
        if (o->many) return o->max > 0 && n >= (int)o->max ? NULL : o;
        if (n-- == 0) return o;
    }
    return NULL;
}

static bool is_option(const char *arg) {
    return arg[0] == '-' && arg[1];
}

/* Whether the argument takes the next one as its value, in any of the command's forms. */
static bool option_takes_next(const struct command *c, const char *arg) {
    const struct command *form;
    if (!is_option(arg) || strchr(arg, '=')) return false;
    for (int i = 0; (form = command_form(c, i)); i++) {
        const struct option *o = option_find(form, arg);
        if (o && option_takes_value(o)) return true;
    }
    return false;
}

static const struct command *option_form_named(const struct command *c, const char *name) {
    const struct command *form;
    for (int i = 0; (form = command_form(c, i)); i++)
        if (c->forms && !strcmp(form->name, name)) return form;
    return c;
}

/* Finds out what must be known before parsing: the form, which the first word names wherever options stand; the place of that word (0: there is none); and the topic that help is asked for (NULL: none). A program's arguments are its own. */
static int line_look_ahead(struct cli *cli, const char **topic) {
    int at = 0;
    *topic = NULL;
    for (int i = 1; i < cli->argc && strcmp(cli->argv[i], "--"); i++) {
        const char *arg = cli->argv[i], *next = i + 1 < cli->argc ? cli->argv[i + 1] : "-";
        const struct option *word = option_find_word(cli->form, 0);
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
            /* 'engine run --help optimizer.lr' asks for a key, 'engine run --help' for the command */
            *topic = next[0] == '-' ? cli->command->name : next;
            return at;
        }
        if (!is_option(arg) && word && word->many == OPTION_REST) return at;
        if (!is_option(arg) && !at) cli->form = option_form_named(cli->command, cli->argv[at = i]);
        i += option_takes_next(cli->command, arg);
    }
    return at;
}

static int option_refuse_form(const struct cli *cli, const char *given) {
    const char *names[WORDS_MAX];
    const struct command *form;
    int n = 0;
    for (; (form = command_form(cli->command, n)); n++) names[n] = form->name;
    const char *all = option_names_listed(names, n, cli->pool);
    return given ? cli_usage(cli, "%s, not '%s'", all, given) : cli_usage(cli, "%s?", all);
}

/* ---- values ---- */

struct parser {
    const struct cli *cli;
    uint64_t given; /* rows */
    int words;
};

static enum error option_list_append(const struct cli *cli, const char *value, struct option_list *out) {
    if (!out->of) out->of = pool_alloc(cli->pool, ((size_t)cli->argc + 1) * sizeof *out->of);
    if (!out->of) return ERR_MEMORY;
    out->of[out->count++] = value;
    return ERR_NONE;
}

static enum error option_read_value(const struct cli *cli, const struct option *o, const char *value, void *out) {
    if (o->many) return option_list_append(cli, value, out);
    if (o->read) return o->read(value, out);
    if (o->key && *o->key) { /* its value is a text, as [::1]:29500 is */
        const char *quoted = cli_as_yaml(value, cli->pool);
        value = quoted ? pool_printf(cli->pool, "%s=%s", o->key, quoted) : NULL;
    }
    if (o->key) return cli_set(out, value);
    const struct config_field field = {
        .type = o->type, .min = o->min, .max = o->max, .choices = option_choices_of(o, cli->pool)};
    return value_read(&field, value, out) == VALUE_RIGHT ? ERR_NONE : ERR_USAGE;
}

/* name: as it was given, for messages. */
static int option_take_value(struct parser *p, const struct option *o, const char *name, const char *value) {
    const struct cli *cli = p->cli;
    void *out = (char *)cli->options + o->at;
    p->given |= (uint64_t)1 << (o - cli->form->options);
    if (o->many && o->max > 0 && ((struct option_list *)out)->count >= (int)o->max)
        return cli_usage(cli, "more than %.0f %s options", o->max, name);
    enum error err = option_read_value(cli, o, value, out);
    if (err == ERR_USAGE && !o->key) return option_refuse_value(cli, o, name, value);
    return cli_end(err);
}

static int option_take_flag(const struct cli *cli, const struct option *o) {
    void *out = (char *)cli->options + o->at;
    if (o->type == CONFIG_ENUM)
        *(int *)out = (int)o->min;
    else
        *(bool *)out = true;
    return 0;
}

/* ---- arguments ---- */

/* What to write instead of a name that is a key of the configuration, or another tool's name for one: the option that is short for it, else
 * '--set KEY=...', or what is to be done instead. "": it is neither. */
static const char *key_option(const struct cli *cli, const char *name, const char *value) {
    struct config_place place;
    const struct option *set = NULL;
    const char *word = name + strspn(name, "-"), *answer = config_foreign(&run_schema, word);
    if (answer) return pool_printf(cli->pool, ": %s", answer);
    const struct config_sought sought = {word, value, .by_name = true};
    if (!config_find(&run_schema, &sought, cli->pool, &place)) return "";
    for (const struct option *o = cli->form->options; o && o->name; o++) {
        if (o->key && !strcmp(o->key, place.path)) return pool_printf(cli->pool, ", did you mean '%s'?", o->name);
        if (o->key && !*o->key) set = o;
    }
    if (!set || !*place.example) return "";
    return pool_printf(cli->pool, ", did you mean '--set %s'?%s%s", place.example, *place.note ? " " : "", place.note);
}

/* Other tools take the configuration by an option. */
static bool option_is_config(const struct cli *cli, const char *name) {
    const struct option *first = cli->form->options;
    bool taken = first && first->name && option_is_word(first) && strstr(first->name, "CONFIG");
    return taken && (!strcmp(name, "-c") || config_also("config|config_file|cfg|conf|yaml", name + strspn(name, "-")));
}

/* value: what may be its own, or NULL. */
static int option_refuse(const struct cli *cli, const char *name, const char *value) {
    const char *names[2 * WORDS_MAX], *forms[WORDS_MAX];
    const struct command *form;
    int n = 0, nforms = 0;
    for (const struct option *o = cli->form->options; o && o->name; o++) {
        const char *both[] = {o->name, o->also ? o->also : ""};
        for (int k = 0; k < 2; k++)
            if (!strncmp(both[k], "--", 2)) names[n++] = both[k] + 2;
    }
    for (int i = 0; (form = command_form(cli->command, i)); i++)
        if (option_find(form, name)) forms[nforms++] = form->name;
    if (nforms) return cli_usage(cli, "%s is for %s", name, option_names_listed(forms, nforms, cli->pool));
    if (option_is_config(cli, name))
        return cli_usage(cli, "unknown option '%s': the configuration stands by itself, as in engine %s %s", name,
                         cli->command->name, value ? value : "FILE");
    const char *key = key_option(cli, name, value);
    if (!key) return cli_fail(ERR_MEMORY);
    return cli_usage(cli, "unknown option '%s'%s", name, *key ? key : option_near_name(name, names, n, cli->pool));
}

/* *i is moved over the value. */
static int line_take_option(struct parser *p, int *i) {
    const struct cli *cli = p->cli;
    const char *arg = cli->argv[*i], *joined = strchr(arg, '=');
    const struct option *o = option_find(cli->form, arg);
    const char *name = pool_strndup(cli->pool, arg, strcspn(arg, "="));
    if (!name) return cli_fail(ERR_MEMORY);
    const char *next = joined ? joined + 1 : cli->argv[*i + 1];
    if (!o) return option_refuse(cli, name, next && *next != '-' ? next : NULL);
    bool takes = option_takes_value(o);
    const char *value = joined ? joined + 1 : takes ? cli->argv[++*i] : o->set;
    if (takes && (!value || (!*value && o->type == CONFIG_STRING && o->wants)))
        return option_refuse_nothing(cli, o, name);
    if (joined && !takes && !o->value) return cli_usage(cli, "%s takes no value", name);
    return value ? option_take_value(p, o, name, value) : option_take_flag(cli, o);
}

static int line_take_word(struct parser *p, const char *arg) {
    const struct cli *cli = p->cli;
    const struct option *o = option_find_word(cli->form, p->words);
    if (o) return p->words++, option_take_value(p, o, o->name, arg);
    const struct option *last = p->words ? option_find_word(cli->form, p->words - 1) : NULL;
    if (!last || !last->one) return cli_usage(cli, "'%s' is one word too many", arg);
    return cli_usage(cli, "one %s at a time, got '%s' and '%s'", last->one,
                     *(const char **)(void *)((char *)cli->options + last->at), arg);
}

/* Takes values from the environment first: those of the line come later and replace them. */
static int option_take_variables(struct parser *p) {
    int code = 0;
    for (const struct option *o = p->cli->form->options; o && o->name && !code; o++) {
        const char *value = o->variable ? getenv(o->variable) : NULL;
        if (value && *value) code = option_take_value(p, o, o->variable, value);
    }
    return code;
}

/* but: the place of the form's name, which is no argument. */
static int line_parse(const struct cli *cli, int but) {
    struct parser p = {.cli = cli};
    bool words = false; /* alone, from here on */
    int wrong = option_take_variables(&p);
    if (wrong) return wrong;
    for (int i = 1; i < cli->argc; i++) {
        const char *arg = cli->argv[i];
        const struct option *word = option_find_word(cli->form, p.words);
        bool option = !words && is_option(arg);
        if (i == but) continue;
        if (option && !strcmp(arg, "--")) {
            words = true;
            continue;
        }
        int code = option ? line_take_option(&p, &i) : line_take_word(&p, arg);
        if (code) return code;
        words |= !option && word->many == OPTION_REST;
    }
    for (const struct option *o = cli->form->options; o && o->name; o++)
        if (o->missing && !(p.given >> (o - cli->form->options) & 1)) return cli_usage(cli, "%s", o->missing);
    return 0;
}

static int line_call(struct cli *cli) {
    const char *topic;
    int at = line_look_ahead(cli, &topic);
    if (topic) return help_on(topic);
    if (!cli->form->run) return option_refuse_form(cli, at ? cli->argv[at] : NULL);
    cli->options = pool_alloc(cli->pool, cli->form->size + 1);
    if (!cli->options) return cli_fail(ERR_MEMORY);
    if (cli->form->standard) memcpy(cli->options, cli->form->standard, cli->form->size);
    int code = line_parse(cli, cli->form == cli->command ? 0 : at);
    return code ? code : cli->form->run(cli);
}

int command_call(const struct command *c, int argc, const char *const *argv) {
    struct cli cli = {.command = c, .form = c, .argc = argc, .argv = argv};
    enum error err = pool_create(&cli.pool);
    if (err != ERR_NONE) return cli_fail(err);
    int code = line_call(&cli);
    pool_free(cli.pool);
    return code;
}
