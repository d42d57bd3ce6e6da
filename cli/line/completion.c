/* engine complete: what may follow the words of a command line, from the table of commands and the schema. A shell asks it at
 * each press of its key; the shells' scripts (completion.bash and others) do little more than that. */
#include "cli/line/cli.h"

#include "engine/base/embedded.h"
#include "engine/device/device.h"
#include "engine/settings/run_config.h"
#include "transport/algo/algo.h"

#include <stdio.h>
#include <string.h>

extern const struct embedded completion_scripts[];
extern const int completion_scripts_count;

const char *completion_shell(int i) {
    return i < completion_scripts_count ? strchr(completion_scripts[i].name, '.') + 1 : NULL;
}

void completion_print(int i) {
    fputs(completion_scripts[i].text, stdout);
}

/* ---- words ---- */

/* Prints what begins as the user has begun. */
static void completion_word_offer(const char *word, const char *begun, const char *end) {
    if (!strncmp(word, begun, strlen(begun))) printf("%s%s\n", word, end);
}

static void completion_offer_all(const char *(*word)(int i), const char *begun) {
    for (int i = 0; word(i); i++) completion_word_offer(word(i), begun, "");
}

static void completion_offer_words(const struct option *o, const char *begun) {
    char text[OPTION_TEXT];
    const char *word;
    for (int i = 0; (word = option_word(o, i, text)); i++) completion_word_offer(word, begun, "");
}

/* ---- keys ---- */

static const char *completion_algorithm_name(int i) {
    int n;
    const struct algo_ops *const *all = algo_list(&n);
    return i == 0 ? "auto" : i - 1 < n ? all[i - 1]->name : i - 1 == n ? TUNE_WORD : NULL;
}

/* The i-th value to offer for devices: one, two and four of each kind, as in "cpu:1", "cpu:2". */
static const char *completion_devices_text(int i) {
    static char text[32];
    int n;
    const struct device_ops *const *kinds = device_kinds(&n);
    if (i >= 3 * n) return NULL;
    snprintf(text, sizeof text, "%s:%d", kinds[i / 3]->name, 1 << i % 3);
    return text;
}

/* The values of keys whose words are no part of the schema. */
static const struct {
    const char *key;
    const char *(*word)(int i);
} more[] = {{"mode", cli_mode_name},
            {"model", cli_zoo_name},
            {"comm.algorithm", completion_algorithm_name},
            {"devices", completion_devices_text}};

enum { KEYS_MOST = 512 };
struct key_search {
    struct pool *pool;
    const char *key;   /* whose values are looked for; NULL: keys are */
    const char *begun; /* of the value, or the key */
    const char *end;   /* after a key */
    const char *seen[KEYS_MOST];
    int count;
};

/* Several variants may have a key of one name: it counts once. */
static bool key_is_new(struct key_search *s, const char *path) {
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->seen[i], path)) return false;
    if (s->count < KEYS_MOST) s->seen[s->count++] = path;
    return true;
}

static void offer_key(void *user, const struct config_key *key) {
    struct key_search *s = user;
    const char *names[KEYS_MOST];
    if (!key_is_new(s, key->path)) return;
    if (!s->key) {
        completion_word_offer(key->path, s->begun, s->end);
    } else if (!strcmp(key->path, s->key)) {
        int n = config_key_words(key, s->pool, names, KEYS_MOST);
        for (int i = 0; i < n; i++) completion_word_offer(names[i], s->begun, "");
    }
}

static enum error offer_keys(const char *begun, const char *end, struct pool *pool) {
    return config_walk(&run_schema, pool, offer_key, &(struct key_search){.pool = pool, .begun = begun, .end = end});
}

static enum error completion_offer_values(const char *key, const char *begun, struct pool *pool) {
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (!strcmp(more[i].key, key)) completion_offer_all(more[i].word, begun);
    return config_walk(&run_schema, pool, offer_key, &(struct key_search){.pool = pool, .key = key, .begun = begun});
}

/* ---- a command line ---- */

/* The value of an option as far as it is there: of --set a key or a key's value. */
static enum error completion_offer_value(const struct option *o, const char *begun, struct pool *pool) {
    const char *equals = strchr(begun, '=');
    if (!o->key) return completion_offer_words(o, begun), ERR_NONE;
    if (*o->key) return completion_offer_values(o->key, begun, pool);
    if (!equals) return offer_keys(begun, "=", pool);
    const char *key = pool_strndup(pool, begun, (size_t)(equals - begun));
    return key ? completion_offer_values(key, equals + 1, pool) : ERR_MEMORY;
}

/* The option of this name, in the form or, where none is chosen, in any. */
static const struct option *find_option(const struct command *c, const struct command *form, const char *word) {
    const struct option *o = *word == '-' ? option_find(form, word) : NULL;
    const struct command *any;
    for (int i = 0; *word == '-' && !o && form == c && (any = command_form(c, i)); i++) o = option_find(any, word);
    return o;
}

static void offer_options(const struct command *form, const char *begun) {
    for (const struct option *o = form->options; o && o->name; o++) {
        if (option_is_word(o)) continue;
        completion_word_offer(o->name, begun, "");
        if (o->also) completion_word_offer(o->also, begun, "");
    }
}

static enum error completion_offer_next(const struct command *c, const struct command *form, const char *begun,
                                        struct pool *pool) {
    const struct command *any;
    bool options = *begun == '-';
    for (int i = 0; options && form == c && (any = command_form(c, i)); i++) offer_options(any, begun);
    if (options && form != c) offer_options(form, begun);
    if (options) return completion_word_offer("--help", begun, ""), ERR_NONE;
    for (int i = 0; form == c && c->forms && (any = command_form(c, i)); i++)
        completion_word_offer(any->name, begun, "");
    for (const struct option *o = form->options; o && o->name; o++)
        if (option_is_word(o)) completion_offer_words(o, begun);
    return c == &command_help ? offer_keys(begun, "", pool) : ERR_NONE;
}

/* words: those after the program's name, of which the last is not complete. */
static enum error words_complete(const char *const *words, int n, struct pool *pool) {
    const char *begun = words[n - 1], *equals = strchr(begun, '=');
    const struct command_alias *alias = command_alias(words[0]);
    const struct command *c = alias ? alias->command : command_find(words[0]), *form = c, *any;
    if (n == 1) return completion_offer_all(command_name, begun), ERR_NONE;
    if (!c) return ERR_NONE;
    for (int k = 1; k < n - 1 && form == c; k++)
        for (int i = 0; c->forms && (any = command_form(c, i)); i++)
            if (!strcmp(any->name, words[k])) form = any;
    const struct option *joined = equals ? find_option(c, form, begun) : NULL;
    const struct option *before = find_option(c, form, alias && n == 2 ? alias->option : words[n - 2]);
    if (joined) return completion_offer_value(joined, equals + 1, pool);
    if (before && option_takes_value(before)) return completion_offer_value(before, begun, pool);
    return completion_offer_next(c, form, begun, pool);
}

struct complete_options {
    struct option_list words;
};
#define OPTIONS_STRUCT struct complete_options

static int completion_command(const struct cli *cli) {
    const struct complete_options *o = cli->options;
    return cli_end(words_complete(o->words.of, o->words.count, cli->pool));
}

static const struct option options[] = {{"WORD", NULL,
                                         "the words after the program's name; the last one is not complete, and may be "
                                         "empty",
                                         .at = AT(words), .many = OPTION_REST, .missing = "which words?"},
                                        {0}};

const struct command command_complete = {
    .name = "complete",
    .summary = "prints what may come next on a command line, for the shells' scripts (engine help --completion)",
    OPTIONS(options),
    .run = completion_command,
};
