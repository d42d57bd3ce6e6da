/* The schema's tables as help for people: one key, or all keys of a section. */
#include "engine/config/schema.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/config/value.h"
#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 256, LEVEL_WIDTH = 2, KEY_COLUMN = 16 };

/* What a path leads to: a field, or a whole table (a section's or a variant's). */
struct target {
    const struct config_field *field;
    const struct config_section *section;
};

/* ---- finding ---- */

static const struct config_field *find_field(const struct config_section *s, const char *key, size_t n) {
    for (const struct config_field *f = s->fields; f->key; f++)
        if (*f->key && strlen(f->key) == n && !memcmp(f->key, key, n)) return f;
    return NULL;
}

/* The tables that a field's value may be read by: a section's, or each variant's and what they
 * share. */
static int tables_of(const struct config_field *f, const struct config_section *tables[NAMES_MAX]) {
    int n = 0;
    if (f->type == CONFIG_SECTION || f->type == CONFIG_SECTIONS) tables[n++] = f->extra;
    if (f->type != CONFIG_VARIANT && f->type != CONFIG_VARIANTS) return n;
    const struct config_variants *v = f->extra;
    if (v->common) tables[n++] = v->common;
    for (int i = 0; i < v->count && n < NAMES_MAX; i++) tables[n++] = v->at(i);
    return n;
}

static bool help_find(const struct config_section *s, const char *word, size_t n, struct target *out);

/* One word of the path below a field: the name of one of its tables, or a key of one. */
static bool find_in_tables(const struct config_field *from, const char *word, size_t n, struct target *out) {
    const struct config_section *tables[NAMES_MAX];
    int count = from ? tables_of(from, tables) : 0;
    for (int i = 0; i < count; i++) {
        bool named = strlen(tables[i]->name) == n && !memcmp(tables[i]->name, word, n);
        if (named) *out = (struct target){NULL, tables[i]};
        if (named || help_find(tables[i], word, n, out)) return true;
    }
    return false;
}

/* The same in a table and in the variants that stand in the same map. */
static bool help_find(const struct config_section *s, const char *word, size_t n, struct target *out) {
    const struct config_field *f = find_field(s, word, n);
    if (!f) return find_in_tables(section_inline(s), word, n, out);
    *out = (struct target){f, f->type == CONFIG_SECTION ? f->extra : NULL};
    return true;
}

/* Finds the key of this word (n bytes) in what stands under 'from': a section or a field with a table. */
static bool find_below(const struct target *from, const char *word, size_t n, struct target *out) {
    return from->section ? help_find(from->section, word, n, out) : find_in_tables(from->field, word, n, out);
}

struct names {
    const char *of[NAMES_MAX];
    int count;
};

static void names_add(struct names *names, const char *name) {
    if (names->count < NAMES_MAX) names->of[names->count++] = name;
}

static void collect_section(const struct config_section *s, struct names *names);

static void collect_tables(const struct config_field *from, struct names *names) {
    const struct config_section *tables[NAMES_MAX];
    int count = from ? tables_of(from, tables) : 0;
    for (int i = 0; i < count; i++) {
        names_add(names, tables[i]->name);
        collect_section(tables[i], names);
    }
}

static void collect_section(const struct config_section *s, struct names *names) {
    for (const struct config_field *f = s->fields; f->key; f++) {
        if (*f->key)
            names_add(names, f->key);
        else
            collect_tables(f, names);
    }
}

static void fail_unknown(const struct target *in, const char *key, size_t before, const char *word, size_t n,
                         struct pool *pool) {
    struct names names = {.count = 0};
    const char *copy = pool_strndup(pool, word, n);
    if (!copy) return;
    if (in->section)
        collect_section(in->section, &names);
    else
        collect_tables(in->field, &names);
    const char *near = text_nearest(copy, names.of, names.count);
    const char *dot = before ? "." : "";
    (void)FAIL(ERR_USAGE, "no key '%.*s' in the configuration%s%.*s%s%s%s", (int)(before + (before > 0) + n), key,
               near ? "\ndid you mean '" : "", near ? (int)before : 0, key, near ? dot : "", near ? near : "",
               near ? "'?" : "");
}

/* ---- showing ---- */

static const char *kind_text(const struct config_field *f, struct pool *pool) {
    if (f->type == CONFIG_NODE) return "a text, a list or a map of keys";
    if (f->required) return pool_printf(pool, "%s; required", value_type(f, pool));
    if (f->type != CONFIG_VARIANT && f->type != CONFIG_VARIANTS) return value_type(f, pool);
    const struct config_variants *v = f->extra;
    const char *names[NAMES_MAX];
    int n = 0;
    for (int i = 0; i < v->count && n < NAMES_MAX; i++) names[n++] = v->at(i)->name;
    const char *all = value_join(names, n, pool);
    if (!all) return NULL;
    return pool_printf(pool, f->type == CONFIG_VARIANT ? "one of %s" : "a list of %s", all);
}

static void help_indent(FILE *out, int level) {
    fprintf(out, "%*s", level * LEVEL_WIDTH, "");
}

static void show_line(FILE *out, const char *key, const struct config_field *f, int level, struct pool *pool) {
    const char *kind = kind_text(f, pool);
    help_indent(out, level);
    fprintf(out, "%-*s %s", KEY_COLUMN, key, kind ? kind : "?");
    if (f->standard) fprintf(out, " (%s)", f->standard);
    fputc('\n', out);
    const char *also = f->also ? config_also_text(f->also, pool) : NULL;
    if (!f->help) return;
    help_indent(out, level);
    fprintf(out, "%-*s %s%s%s%s\n", KEY_COLUMN, "", f->help, also ? " (in other tools: " : "", also ? also : "",
            also ? ")" : "");
}

static void show_section(FILE *out, const struct config_section *s, int level, struct pool *pool);

static void show_tables(FILE *out, const struct config_field *f, int level, struct pool *pool) {
    const struct config_section *tables[NAMES_MAX];
    int n = tables_of(f, tables);
    for (int i = 0; i < n; i++) {
        if (!tables[i]->fields->key) continue;
        help_indent(out, level);
        const struct config_variants *v = f->extra;
        fprintf(out, "with %s:\n", tables[i] == v->common ? "any" : tables[i]->name);
        show_section(out, tables[i], level + 1, pool);
    }
}

/* How the variant's name is written where keys stand beside it. */
static void help_variant(FILE *out, const struct config_field *f, int level) {
    const struct config_variants *v = f->extra;
    help_indent(out, level);
    fprintf(out, "%-*s With keys: {%s: %s, KEY: VALUE}\n", KEY_COLUMN, "", v->name, v->at(0)->name);
}

static void show_field(FILE *out, const struct config_field *f, int level, struct pool *pool) {
    if (f->type != CONFIG_SECTION) {
        const struct config_variants *v = *f->key ? NULL : f->extra;
        show_line(out, v ? v->name : f->key, f, level, pool);
        if (f->type == CONFIG_SECTIONS) show_section(out, f->extra, level + 1, pool);
        if (f->type != CONFIG_VARIANT) return;
        if (!v) help_variant(out, f, level);
        show_tables(out, f, level + 1, pool);
        return;
    }
    const struct config_section *s = f->extra;
    const char *shorthand = section_shorthand(s);
    help_indent(out, level);
    fprintf(out, "%-*s a map of keys", KEY_COLUMN, f->key);
    if (shorthand) fprintf(out, "; a bare value is its '%s'", shorthand);
    fputc('\n', out);
    const char *help = f->help ? f->help : s->help;
    if (help) {
        help_indent(out, level);
        fprintf(out, "%-*s %s\n", KEY_COLUMN, "", help);
    }
    show_section(out, s, level + 1, pool);
}

static void show_section(FILE *out, const struct config_section *s, int level, struct pool *pool) {
    for (const struct config_field *f = s->fields; f->key; f++) show_field(out, f, level, pool);
}

static void show_target(FILE *out, const struct target *t, struct pool *pool) {
    if (t->field) {
        show_field(out, t->field, 0, pool);
        return;
    }
    if (t->section->help && *t->section->name) fprintf(out, "%s: %s\n", t->section->name, t->section->help);
    show_section(out, t->section, 0, pool);
}

char *config_help(const struct config_section *section, const char *key, struct pool *pool) {
    struct target at = {NULL, section};
    for (const char *word = key; *word;) {
        size_t n = strcspn(word, ".");
        struct target next;
        if (!find_below(&at, word, n, &next)) {
            size_t before = word > key ? (size_t)(word - key) - 1 : 0;
            fail_unknown(&at, key, before, word, n, pool);
            return NULL;
        }
        at = next;
        word += n + (word[n] == '.');
    }
    struct file_text help;
    if (file_text_open(&help) != ERR_NONE) return NULL;
    show_target(help.out, &at, pool);
    return file_text_keep(&help, pool);
}

/* ---- all keys ---- */

struct walk {
    struct pool *pool;
    void (*key)(void *user, const struct config_key *key);
    void *user;
    bool failed;
};

static void walk_section(struct walk *w, const struct config_section *s, const char *prefix, const char *with);

/* "a.b", or "b" at the top. */
static const char *join_path(struct walk *w, const char *prefix, const char *key) {
    const char *path = pool_printf(w->pool, "%s%s%s", prefix, *prefix ? "." : "", key);
    w->failed |= !path;
    return path ? path : "";
}

static void target_set(struct walk *w, const struct config_section *in, const char *path, const struct config_field *f,
                       const char *with) {
    const struct config_section *s = f->type == CONFIG_SECTION ? f->extra : NULL;
    const char *bare = s ? section_shorthand(s) : NULL, *kind, *also = NULL;
    if (bare)
        kind = pool_printf(w->pool, "a map of keys; a bare value is its '%s'", bare);
    else
        kind = s ? "a map of keys" : kind_text(f, w->pool);
    if (f->also) also = config_also_text(f->also, w->pool);
    w->failed |= !kind || (f->also && !also);
    struct config_key key = {path, f, kind ? kind : "", with, f->help ? f->help : s ? s->help : NULL, also};
    key.bare = !with && in->shorthand && !strcmp(in->shorthand, f->key);
    w->key(w->user, &key);
}

static void walk_field(struct walk *w, const struct config_section *in, const struct config_field *f,
                       const char *prefix, const char *with) {
    const struct config_section *tables[NAMES_MAX];
    const struct config_variants *v = f->type == CONFIG_VARIANT ? f->extra : NULL;
    const char *path = join_path(w, prefix, *f->key ? f->key : v->name);
    target_set(w, in, path, f, with);
    bool list = f->type == CONFIG_VARIANTS || f->type == CONFIG_SECTIONS;
    int n = list ? 0 : tables_of(f, tables);
    for (int i = 0; i < n; i++) {
        bool own = v && tables[i] != v->common;
        walk_section(w, tables[i], *f->key ? path : prefix, own ? tables[i]->name : with);
    }
}

static void walk_section(struct walk *w, const struct config_section *s, const char *prefix, const char *with) {
    for (const struct config_field *f = s->fields; f->key; f++) walk_field(w, s, f, prefix, with);
}

enum error config_walk(const struct config_section *section, struct pool *pool,
                       void (*key)(void *user, const struct config_key *key), void *user) {
    struct walk w = {.pool = pool, .key = key, .user = user};
    walk_section(&w, section, "", NULL);
    return w.failed ? FAIL(ERR_MEMORY, "no memory for the list of keys") : ERR_NONE;
}

int config_key_words(const struct config_key *key, struct pool *pool, const char **names, int most) {
    const struct config_field *f = key->field;
    const char *words[WORDS_MAX];
    int n = 0;
    if (f->type == CONFIG_VARIANT || f->type == CONFIG_VARIANTS) {
        const struct config_variants *v = f->extra;
        for (; n < v->count && n < most; n++) names[n] = v->at(n)->name;
    } else if (f->type == CONFIG_BOOL && most > 1) {
        names[n++] = "true";
        names[n++] = "false";
    }
    int count = f->choices ? value_words(f->choices, pool, words) : 0;
    for (int i = 0; i < count && n < most; i++) names[n++] = words[i];
    return n;
}
