/* Keys that are looked for by other names than their own: those of other tools, or without their section's. */
#include "engine/config/schema.h"

#include "engine/base/text.h"
#include "engine/config/value.h"
#include <ctype.h>
#include <string.h>

static bool same_word(const char *name, size_t n, const char *word) {
    if (strlen(word) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)name[i]) != tolower((unsigned char)(word[i] == '-' ? '_' : word[i]))) return false;
    return true;
}

bool config_also(const char *also, const char *word) {
    const char *dot = strrchr(word, '.');
    for (const char *a = also; a;) {
        size_t n = strcspn(a, "|");
        const char *prefix = memrchr(a, '.', n), *name = prefix ? prefix + 1 : a;
        if (same_word(name, n - (size_t)(name - a), dot ? dot + 1 : word)) return true;
        a = a[n] ? a + n + 1 : NULL;
    }
    return false;
}

const char *config_meant(const char *means, const char *word, struct pool *pool) {
    const char *dot = strrchr(word, '.');
    for (const char *m = means; m;) {
        size_t n = strcspn(m, "|"), key = strcspn(m, "=");
        if (same_word(m, key, dot ? dot + 1 : word)) return pool_strndup(pool, m + key + 1, n - key - 1);
        m = m[n] ? m + n + 1 : NULL;
    }
    return NULL;
}

const char *config_also_text(const char *also, struct pool *pool) {
    const char *words[WORDS_MAX];
    int n = value_words(also, pool, words);
    return n < 0 ? NULL : value_join(words, n, pool);
}

const char *config_foreign(const struct config_section *section, const char *word) {
    for (const struct config_foreign *f = section->foreign; f && f->words; f++)
        if (config_also(f->words, word)) return f->answer;
    return NULL;
}

struct search {
    const char *word;
    bool by_name, whole;     /* whole: the word is the key's whole path, which no other is as good as */
    struct config_key found; /* path NULL: none yet */
};

static void search_key(void *user, const struct config_key *key) {
    struct search *s = user;
    const char *dot = strrchr(key->path, '.'), *name = dot ? dot + 1 : key->path;
    bool whole = s->by_name && same_word(key->path, strlen(key->path), s->word);
    if (s->whole || (s->found.path && !whole)) return;
    s->whole = whole;
    if (whole || config_also(key->field->also, s->word) || (s->by_name && config_also(name, s->word))) s->found = *key;
}

/* "a: {b: {c: 1}}" of a.b.c, or "a.b.c=1". */
static const char *example_of(const char *path, const char *value, bool yaml, struct pool *pool) {
    if (!yaml) return pool_printf(pool, "%s=%s", path, value);
    char *key = pool_strndup(pool, path, strlen(path)), *last;
    const char *text = key ? value : NULL;
    for (; text && (last = strrchr(key, '.')); *last = '\0') text = pool_printf(pool, "{%s: %s}", last + 1, text);
    return text ? pool_printf(pool, "%s: %s", key, text) : NULL;
}

/* The field that a bare value of a section is read by. */
static const struct config_field *bare_field(const struct config_field *f) {
    if (f->type != CONFIG_SECTION) return f;
    const struct config_section *s = f->extra;
    if (section_inline(s)) return section_inline(s);
    for (f = s->fields; s->shorthand && f->key; f++)
        if (!strcmp(f->key, s->shorthand)) return f;
    return NULL;
}

/* "ep" after a number of what the word counts, "st" as well. */
static const char *unit_of(const char *word) {
    if (strcasestr(word, "epoch") || !strcasecmp(word, "ep")) return "ep";
    return strcasestr(word, "time") ? "s" : "st";
}

/* The value that was given, as the field takes it; NULL: it does not. */
static const char *example_value(const struct config_field *f, const char *word, const char *given, struct pool *pool) {
    union {
        int64_t number;
        double real;
        struct config_span span;
        const char *text;
    } memory;
    const struct config_variants *v = f->type == CONFIG_VARIANT ? f->extra : NULL;
    double number;
    bool plain = given && *given && strlen(given) <= 64 && !given[strcspn(given, " ,{}[]'\"\n")] &&
                 given[strlen(given) - 1] != ':'; /* YAML takes it without quotes */
    if (!plain) return NULL;
    for (int i = 0; v && i < v->count; i++)
        if (!strcasecmp(v->at(i)->name, given) || config_also(v->at(i)->also, given)) return v->at(i)->name;
    bool counted = (f->type == CONFIG_SPAN || f->type == CONFIG_LENGTH) && text_real(given, &number);
    if (counted) given = pool_printf(pool, "%s%s", given, unit_of(word));
    if (f->type == CONFIG_BYTES && strcasestr(word, "mb") && text_real(given, &number))
        given = pool_printf(pool, "%sMB", given);
    if (!given || f->type == CONFIG_NODE) return given;
    if (f->type == CONFIG_STRING) return text_real(given, &number) ? NULL : given;
    return value_size(f->type) && value_read(f, given, &memory) == VALUE_RIGHT ? given : NULL;
}

bool config_find(const struct config_section *section, const struct config_sought *sought, struct pool *pool,
                 struct config_place *out) {
    struct search s = {.word = sought->word, .by_name = sought->by_name};
    if (config_walk(section, pool, search_key, &s) != ERR_NONE || !s.found.path) return false;
    const char *path = s.found.path, *dot = strrchr(path, '.');
    const struct config_field *f = bare_field(s.found.field);
    const char *value = f ? example_value(f, sought->word, sought->given, pool) : NULL;
    if (!value && f) value = f->standard;
    if (s.found.bare && dot) path = pool_strndup(pool, path, (size_t)(dot - path));
    const char *example = path && value && *value ? example_of(path, value, sought->yaml, pool) : "";
    *out = (struct config_place){path, example, s.found.field->note ? s.found.field->note : ""};
    return path && example;
}
