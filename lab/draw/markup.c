#include "lab/draw/markup.h"

#include "engine/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void markup_init(struct markup *m) {
    static char nothing[1];
    *m = (struct markup){.text = nothing};
}

void markup_fini(struct markup *m) {
    if (m->capacity) free(m->text);
    markup_init(m);
}

static bool make_room(struct markup *m, size_t n) {
    if (m->failed) return false;
    if (m->length + n < m->capacity) return true;
    size_t capacity = (m->length + n + 256) * 2;
    char *text = realloc(m->capacity ? m->text : NULL, capacity);
    m->failed = !text;
    if (!text) return false;
    m->text = text;
    m->capacity = capacity;
    return true;
}

void markup_put(struct markup *m, const char *s, size_t n) {
    if (!make_room(m, n)) return;
    memcpy(m->text + m->length, s, n);
    m->length += n;
    m->text[m->length] = '\0';
}

void markup_raw(struct markup *m, const char *fmt, ...) {
    va_list again, args;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0 && make_room(m, (size_t)n)) {
        vsnprintf(m->text + m->length, (size_t)n + 1, fmt, again);
        m->length += (size_t)n;
    }
    va_end(again);
}

/* What stands for this character in XML, NULL: itself. */
static const char *entity(const char *s, size_t step) {
    if (step == 3 && !memcmp(s, "\xEF\xBF", 2) && (unsigned char)s[2] >= 0xBE) return "\xEF\xBF\xBD";
    if (step > 1) return NULL;
    switch (*s) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\n':
    case '\t':
        return NULL;
    default:
        return step == 0 || (unsigned char)*s < 0x20 || *s == 0x7F ? "\xEF\xBF\xBD" : NULL;
    }
}

void markup_text(struct markup *m, const char *s) {
    for (size_t n = strlen(s), step; n; s += step, n -= step) {
        step = text_utf8(s, n);
        const char *other = entity(s, step);
        if (!step) step = 1;
        markup_put(m, other ? other : s, other ? strlen(other) : step);
    }
}

void markup_markdown(struct markup *m, const char *s) {
    for (; *s; s++) {
        if (strchr("\\`*_<>[]#|", *s)) markup_put(m, "\\", 1);
        markup_put(m, *s == '\n' ? " " : s, 1);
    }
}

void markup_element(struct markup *m, const char *tag, const char *text) {
    markup_raw(m, "<%s>", tag);
    markup_text(m, text);
    markup_raw(m, "</%.*s>", (int)strcspn(tag, " "), tag);
}

enum error markup_done(const struct markup *m) {
    return m->failed ? FAIL(ERR_MEMORY, "no memory for a report of %zu bytes", m->length) : ERR_NONE;
}
