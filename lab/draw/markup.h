/* A growing text of XML or HTML: what comes from outside goes through markup_text, which escapes it. */
#pragma once
#include "engine/base/error.h"

struct markup {
    char *text; /* NUL-terminated; owned */
    size_t length, capacity;
    bool failed; /* out of memory; text stays valid, markup_done reports it */
};
void markup_init(struct markup *m);
void markup_fini(struct markup *m);
/* The program's own words and numbers. */
void markup_raw(struct markup *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void markup_put(struct markup *m, const char *s, size_t n);
/* Escaped for content and for attributes in double quotes; what is no character that XML allows becomes U+FFFD. */
void markup_text(struct markup *m, const char *s);
/* As it stands in Markdown: nothing in it becomes a mark or ends a line or a table's cell. */
void markup_markdown(struct markup *m, const char *s);
/* <tag>text</tag>; the tag may hold attributes: "th scope=\"col\"". */
void markup_element(struct markup *m, const char *tag, const char *text);
MUST_CHECK enum error markup_done(const struct markup *m);
