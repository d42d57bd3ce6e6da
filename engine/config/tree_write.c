/* A tree as YAML text: maps and lists as blocks, lists of scalars in one line, what is not plain in
 * double quotes. */
#include "engine/config/tree.h"

#include "engine/base/file.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct writer {
    FILE *f;
    bool origin;
};

/* ---- scalars ---- */

/* Whether YAML reads the bare text as this scalar, in a block and in a flow list: a narrow set of
 * characters that is sure to be. */
static bool text_plain(const char *s) {
    if (!*s || strchr("-:%@", *s)) {
        if (*s != '-' || !isalnum((unsigned char)s[1])) return false;
    }
    for (const char *c = s; *c; c++) {
        bool last = !c[1];
        if (isalnum((unsigned char)*c) || strchr("_./$+-%@", *c)) continue;
        if (*c == ':' && !last) continue;
        if (*c == ' ' && !last && c > s && c[1] != ' ' && isalnum((unsigned char)c[1]) && isalnum((unsigned char)c[-1]))
            continue;
        return false;
    }
    return true;
}

/* The next character of UTF-8 that libyaml has checked. */
static unsigned utf8_next(const char **s) {
    const unsigned char *c = (const unsigned char *)*s;
    int more = c[0] < 0x80 ? 0 : c[0] < 0xE0 ? 1 : c[0] < 0xF0 ? 2 : 3;
    unsigned value = more == 0 ? c[0] : c[0] & (0x3Fu >> more);
    for (int i = 1; i <= more && c[i]; i++) value = value << 6 | (c[i] & 0x3Fu), (*s)++;
    (*s)++;
    return value;
}

static void write_quoted(FILE *f, const char *s) {
    fputc('"', f);
    while (*s) {
        const char *from = s;
        unsigned c = utf8_next(&s);
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", (char)c);
        else if (c == '\n')
            fputs("\\n", f);
        else if (c < 0x20 || (c >= 0x7f && c < 0xA0))
            fprintf(f, "\\x%02X", c);
        else if (c == 0x2028 || c == 0x2029 || c == 0xFEFF || c == 0xFFFE || c == 0xFFFF)
            fprintf(f, "\\u%04X", c);
        else
            fwrite(from, 1, (size_t)(s - from), f);
    }
    fputc('"', f);
}

static void write_scalar(FILE *f, const char *text, bool quoted) {
    if (!quoted && (!*text || text_plain(text)))
        fputs(text, f);
    else
        write_quoted(f, text);
}

/* ---- structure ---- */

/* Ends the line, with where the value comes from: "train.yaml:7", "--set", "default". */
static void end_line(struct writer *w, const struct node *node) {
    if (w->origin && node->source) {
        bool set = !strncmp(node->source, "--set ", 6);
        fputs("  # ", w->f);
        for (const char *c = node->source; *c && !(set && *c == ' '); c++)
            fputc((unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c, w->f);
        if (node->line > 0) fprintf(w->f, ":%d", node->line);
    }
    fputc('\n', w->f);
}

static bool in_one_line(const struct node *node) {
    if (node->kind == NODE_SCALAR || node->count == 0) return true;
    if (node->kind == NODE_MAP) return false;
    for (int i = 0; i < node->count; i++)
        if (node->items[i]->kind != NODE_SCALAR) return false;
    return true;
}

static void write_line(struct writer *w, const struct node *node) {
    if (node->kind == NODE_SCALAR) {
        write_scalar(w->f, node->text, node->quoted);
    } else if (node->kind == NODE_MAP) {
        fputs("{}", w->f);
    } else {
        fputc('[', w->f);
        for (int i = 0; i < node->count; i++) {
            const struct node *item = node->items[i];
            if (i) fputs(", ", w->f);
            write_scalar(w->f, item->text, item->quoted || !*item->text);
        }
        fputc(']', w->f);
    }
    end_line(w, node);
}

static void writer_indent(struct writer *w, int level) {
    for (int i = 0; i < level; i++) fputs("  ", w->f);
}

/* The items of a list or map; 'hanging' has its first line begun already ("- "). */
static void write_items(struct writer *w, const struct node *node, int level, bool hanging) {
    for (int i = 0; i < node->count; i++) {
        const struct node *item = node->items[i];
        bool map = node->kind == NODE_MAP;
        if (i || !hanging) writer_indent(w, level);
        if (map) {
            write_scalar(w->f, item->key, !text_plain(item->key));
            fputc(':', w->f);
        } else {
            fputs("- ", w->f);
        }
        if (in_one_line(item)) {
            if (map && !(item->kind == NODE_SCALAR && !*item->text && !item->quoted)) fputc(' ', w->f);
            write_line(w, item);
        } else {
            if (map) fputc('\n', w->f);
            write_items(w, item, level + 1, !map);
        }
    }
}

char *tree_write(const struct node *root, bool with_origin, struct pool *pool) {
    struct file_text text;
    if (file_text_open(&text) != ERR_NONE) return NULL;
    struct writer w = {text.out, with_origin};
    if (in_one_line(root))
        write_line(&w, root);
    else
        write_items(&w, root, 0, false);
    return file_text_keep(&text, pool);
}
