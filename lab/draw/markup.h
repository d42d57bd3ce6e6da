/* Texts in XML, HTML and Markdown: what comes from outside is escaped. A stream notes what could not be written, which its
 * owner asks for when it is closed. */
#pragma once
#include <stdio.h>

/* Escaped for content and for attributes in double quotes; what is no character that XML allows becomes U+FFFD. */
void markup_text(FILE *out, const char *s);
/* As it stands in Markdown: nothing in it becomes a mark or ends a line or a table's cell. */
void markup_markdown(FILE *out, const char *s);
/* <tag>text</tag>; the tag may hold attributes: "th scope=\"col\"". */
void markup_element(FILE *out, const char *tag, const char *text);
