#include "lab/draw/markup.h"
#include "engine/base/text.h"

#include <string.h>

/* The text that stands for this character in XML; NULL: the character itself. */
static const char *markup_entity(const char *s, size_t step) {
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

void markup_text(FILE *out, const char *s) {
    for (size_t n = strlen(s), step; n; s += step, n -= step) {
        step = text_utf8(s, n);
        const char *other = markup_entity(s, step);
        if (!step) step = 1;
        fwrite(other ? other : s, 1, other ? strlen(other) : step, out);
    }
}

void markup_markdown(FILE *out, const char *s) {
    for (; *s; s++) {
        if (strchr("\\`*_<>[]#|", *s)) fputc('\\', out);
        fputc(*s == '\n' ? ' ' : *s, out);
    }
}

void markup_element(FILE *out, const char *tag, const char *text) {
    fprintf(out, "<%s>", tag);
    markup_text(out, text);
    fprintf(out, "</%.*s>", (int)strcspn(tag, " "), tag);
}
