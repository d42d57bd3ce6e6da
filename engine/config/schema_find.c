/* Keys that are looked for by other names than their own: those of other tools, or without their section's. */
#include "engine/config/schema.h"

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

const char *config_also_text(const char *also, struct pool *pool) {
    const char *words[WORDS_MAX];
    int n = value_words(also, pool, words);
    return n < 0 ? NULL : value_join(words, n, pool);
}

struct search {
    const char *word;
    bool by_name;
    struct config_key found; /* path NULL: none yet */
};

static void search_key(void *user, const struct config_key *key) {
    struct search *s = user;
    const char *dot = strrchr(key->path, '.'), *name = dot ? dot + 1 : key->path;
    if (s->found.path) return;
    if (config_also(key->field->also, s->word) || (s->by_name && config_also(name, s->word))) s->found = *key;
}

/* "a: {b: {c: 1}}" of a.b.c, or "a.b.c=1". */
static const char *example_of(const char *path, const char *value, bool yaml, struct pool *pool) {
    if (!yaml) return pool_printf(pool, "%s=%s", path, value);
    char *key = pool_strndup(pool, path, strlen(path)), *last;
    const char *text = key ? value : NULL;
    for (; text && (last = strrchr(key, '.')); *last = '\0') text = pool_printf(pool, "{%s: %s}", last + 1, text);
    return text ? pool_printf(pool, "%s: %s", key, text) : NULL;
}

/* The default of a key; of a section that of its bare value. NULL: there is none. */
static const char *standard_of(const struct config_field *f) {
    if (f->type != CONFIG_SECTION) return f->standard;
    const struct config_section *s = f->extra;
    if (section_inline(s)) return section_inline(s)->standard;
    for (f = s->fields; s->shorthand && f->key; f++)
        if (!strcmp(f->key, s->shorthand)) return f->standard;
    return NULL;
}

bool config_find(const struct config_section *section, const char *word, bool by_name, bool yaml, struct pool *pool,
                 struct config_place *out) {
    struct search s = {.word = word, .by_name = by_name};
    if (config_walk(section, pool, search_key, &s) != ERR_NONE || !s.found.path) return false;
    const char *path = s.found.path, *standard = standard_of(s.found.field), *dot = strrchr(path, '.');
    if (s.found.bare && dot) path = pool_strndup(pool, path, (size_t)(dot - path));
    const char *example = path && standard && *standard ? example_of(path, standard, yaml, pool) : "";
    *out = (struct config_place){path, example};
    return path && example;
}
