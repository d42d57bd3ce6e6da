/* The errors of a configuration, collected, and shown as compilers show them. */
#include "engine/config/tree.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 100, MESSAGE_MAX = 2048, EXCERPT_MAX = 100 };

struct entry {
    const char *message, *hint; /* hint: "" for none */
    const char *source;         /* NULL: no place */
    int source_rank;            /* by first appearance */
    int line, col, width;
    const char *excerpt; /* the line, or a window of it; NULL: none */
    int excerpt_col;     /* of the caret in it, from 0 */
};
struct config_errors {
    struct pool *pool;
    int count; /* all; entries hold the first KEPT of them */
    struct entry entries[KEPT];
};

enum error config_errors_create(struct config_errors **out) {
    struct config_errors *e = calloc(1, sizeof *e);
    if (!e) return FAIL(ERR_MEMORY, "cannot allocate the list of errors");
    enum error err = pool_create(&e->pool);
    if (err) {
        free(e);
        return err;
    }
    *out = e;
    return ERR_NONE;
}

void config_errors_free(struct config_errors *e) {
    if (!e) return;
    pool_free(e->pool);
    free(e);
}

int config_errors_count(const struct config_errors *e) {
    return e->count;
}

/* ---- adding ---- */

/* Columns are characters, as libyaml counts them: a byte that continues one is no column. */
static bool utf8_continues(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* The numbered line of the text, shown from some columns before col when it is long. */
static void take_excerpt(struct config_errors *e, struct entry *x, const char *file) {
    for (int line = 1; line < x->line && file; line++) {
        file = strchr(file, '\n');
        if (file) file++;
    }
    size_t length = file ? strcspn(file, "\r\n") : 0;
    if (length == 0) return;
    const char *end = file + length;
    int skip = x->col > EXCERPT_MAX - 20 ? x->col - EXCERPT_MAX / 2 : 0;
    const char *from = file;
    for (int i = 0; i < skip && from < end; i++)
        for (from++; from < end && utf8_continues(*from);) from++;
    const char *to = from;
    for (int i = 0; i < EXCERPT_MAX && to < end; i++)
        for (to++; to < end && utf8_continues(*to);) to++;
    char *excerpt = pool_strndup(e->pool, from, (size_t)(to - from));
    x->excerpt = excerpt ? text_defuse(excerpt, "\t") : NULL;
    x->excerpt_col = x->col - 1 - skip;
}

static bool from_set(const char *source) {
    return !strncmp(source, "--set ", 6);
}

static void entry_place(struct config_errors *e, struct entry *x, const struct node *at, bool at_key) {
    bool key = at_key && at->key && *at->key;
    char *source = pool_strndup(e->pool, at->source, strlen(at->source));
    if (source) text_defuse(source, "");
    x->source = source;
    x->source_rank = e->count + (from_set(at->source) ? KEPT : 0); /* files first */
    for (int i = 0; i < e->count; i++)
        if (e->entries[i].source && x->source && !strcmp(e->entries[i].source, x->source)) {
            x->source_rank = e->entries[i].source_rank;
            break;
        }
    x->line = key ? at->key_line : at->line;
    x->col = key ? at->key_col : at->col;
    x->width = key ? text_columns(at->key) : at->width;
    if (x->line > 0 && at->file) take_excerpt(e, x, at->file);
}

void config_error(struct config_errors *e, const struct node *at, bool at_key, const char *fmt, ...) {
    if (e->count >= KEPT) {
        e->count++;
        return;
    }
    char text[MESSAGE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *hint = strchr(text, '\n');
    if (hint) *hint++ = '\0';
    text_defuse(text, "");
    if (hint) text_defuse(hint, "");
    struct entry *x = &e->entries[e->count];
    x->message = pool_strndup(e->pool, text, strlen(text));
    x->hint = hint ? pool_strndup(e->pool, hint, strlen(hint)) : "";
    if (at && at->source) entry_place(e, x, at, at_key);
    e->count++;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

static bool errors_hold(const struct config_errors *e, const struct entry *x) {
    int kept = e->count < KEPT ? e->count : KEPT;
    for (int i = 0; i < kept; i++) {
        const struct entry *mine = &e->entries[i];
        if (mine->line == x->line && mine->col == x->col && same_text(mine->source, x->source) &&
            same_text(mine->message, x->message))
            return true;
    }
    return false;
}

static const char *kept_text(struct config_errors *e, const char *text) {
    return text ? pool_strndup(e->pool, text, strlen(text)) : NULL;
}

void config_errors_merge(struct config_errors *to, const struct config_errors *from) {
    int kept = from->count < KEPT ? from->count : KEPT;
    for (int i = 0; i < kept; i++) {
        struct entry x = from->entries[i];
        if (errors_hold(to, &x)) continue;
        if (to->count < KEPT) {
            x.message = kept_text(to, x.message), x.hint = kept_text(to, x.hint);
            x.source = kept_text(to, x.source), x.excerpt = kept_text(to, x.excerpt);
            to->entries[to->count] = x;
        }
        to->count++;
    }
}

/* ---- showing ---- */

static bool goes_before(const struct entry *a, const struct entry *b) {
    if (a->source_rank != b->source_rank) return a->source_rank < b->source_rank;
    if (a->line != b->line) return a->line < b->line;
    return a->col < b->col;
}

/* What has no place comes last, sources in the order of their first error, then by place. Insertion
 * keeps the order of equals, and there are few. */
static int entries_sort(const struct config_errors *e, const struct entry *out[KEPT]) {
    int n = e->count < KEPT ? e->count : KEPT;
    for (int pass = 0, filled = 0; pass < 2; pass++) {
        int first = filled;
        for (int i = 0; i < n; i++) {
            const struct entry *x = &e->entries[i];
            if ((x->source == NULL) != (pass == 1)) continue;
            int k = filled++;
            for (; pass == 0 && k > first && goes_before(x, out[k - 1]); k--) out[k] = out[k - 1];
            out[k] = x;
        }
    }
    return n;
}

static void write_caret(FILE *f, const struct entry *x) {
    fprintf(f, "%5d | %s\n      | ", x->line, x->excerpt);
    const char *c = x->excerpt;
    for (int i = 0; i < x->excerpt_col; i++) {
        fputc(*c == '\t' ? '\t' : ' ', f);
        if (*c)
            for (c++; utf8_continues(*c);) c++;
    }
    int room = *c ? text_columns(c) : 1;
    fputc('^', f);
    for (int i = 1; i < x->width && i < room; i++) fputc('~', f);
}

static void write_entry(FILE *f, const struct entry *x) {
    if (x->source && x->line > 0)
        fprintf(f, "%s:%d:%d: ", x->source, x->line, x->col);
    else if (x->source && from_set(x->source))
        fprintf(f, "%s: ", x->source);
    fprintf(f, "error: %s\n", x->message ? x->message : "(no memory for the message)");
    const char *hint = x->hint ? x->hint : "";
    bool beside = !strncmp(hint, "did you mean", 12);
    if (x->excerpt) {
        write_caret(f, x);
        fprintf(f, "%s%s\n", beside ? " " : "", beside ? hint : "");
    }
    if (*hint && !(x->excerpt && beside)) fprintf(f, "      %s%s\n", beside ? "" : "hint: ", hint);
}

char *config_errors_text(const struct config_errors *e, struct pool *pool) {
    struct file_text text;
    const struct entry *order[KEPT];
    int n = entries_sort(e, order);
    if (file_text_open(&text) != ERR_NONE) return NULL;
    for (int i = 0; i < n; i++) write_entry(text.out, order[i]);
    fprintf(text.out, "%d error%s%s.\n", e->count, e->count == 1 ? "" : "s",
            e->count > n ? "; these are the first hundred" : "");
    return file_text_keep(&text, pool);
}
