/* One page. It is laid out for a phone first: plots are as wide as a phone's screen and stand in as many columns as there
 * is room for; tables that are wider scroll by themselves, so that the page never does. */
#include "lab/report_html.h"

#include "engine/base/embedded.h"

#include <string.h>

enum { OPEN_ROWS = 24 };

extern const struct embedded report_styles[]; /* report.css alone */

static void head(const struct report *r, struct markup *out) {
    markup_raw(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"
                    "style-src 'unsafe-inline';img-src data:\">\n"
                    "<link rel=\"icon\" href=\"data:,\">\n");
    markup_element(out, "title", r->name);
    markup_raw(out, "\n<style>\n");
    plot_style(out);
    markup_put(out, report_styles[0].text, strlen(report_styles[0].text));
    markup_raw(out, "\n</style>\n</head>\n<body>\n<svg width=\"0\" height=\"0\" aria-hidden=\"true\" "
                    "style=\"position:absolute\"><defs>\n");
    plot_hatches(out);
    markup_raw(out, "</defs></svg>\n<header>");
    markup_element(out, "h1", r->name);
    markup_raw(out, "\n<nav aria-label=\"Sections\">");
    for (int i = 1; i < r->nsections; i++)
        markup_raw(out, "<a href=\"#%s\">%s</a>", r->section[i].id, r->section[i].title);
    markup_raw(out, "</nav></header>\n<main>\n");
}

static enum error figure(const struct report *r, const struct plot *p, struct markup *out) {
    struct table t;
    TRY(plot_table(p, r->pool, &t));
    markup_raw(out, "<figure>\n");
    plot_svg(p, 0, out);
    markup_raw(out, "<details%s><summary>Table</summary>", t.rows > OPEN_ROWS ? " class=\"long\"" : "");
    table_html(&t, out);
    markup_raw(out, "</details>\n</figure>\n");
    return ERR_NONE;
}

/* A long one is there for who asks for it, and not on paper. */
static void own_table(const struct table *t, struct markup *out) {
    bool closed = t->rows > OPEN_ROWS;
    if (closed) markup_raw(out, "<details class=\"long\">");
    if (closed) markup_element(out, "summary", t->title);
    table_html(t, out);
    if (closed) markup_raw(out, "</details>\n");
}

static enum error section(const struct report *r, int index, struct markup *out) {
    const struct report_section *s = &r->section[index];
    markup_raw(out, "<section id=\"%s\">\n<h2>%s</h2>\n", s->id, s->title);
    for (int i = 0; i < s->ntexts; i++)
        markup_element(out, index == 0 && i == 0 ? "p class=\"verdict\"" : "p", s->text[i]);
    if (s->missing) markup_element(out, "p class=\"missing\"", s->missing);
    if (s->command) markup_raw(out, "<pre tabindex=\"0\">");
    if (s->command) markup_text(out, s->command);
    if (s->command) markup_raw(out, "</pre>");
    if (s->nplots) markup_raw(out, "\n<div class=\"plots\">\n");
    for (int i = 0; i < s->nplots; i++) TRY(figure(r, &s->plot[i], out));
    if (s->nplots) markup_raw(out, "</div>\n");
    for (int i = 0; i < s->ntables; i++) own_table(&s->table[i], out);
    markup_raw(out, "</section>\n");
    return ERR_NONE;
}

enum error report_html(const struct report *r, struct markup *out) {
    head(r, out);
    for (int i = 0; i < r->nsections; i++) TRY(section(r, i, out));
    markup_raw(out, "</main>\n<footer>Written by engine report.</footer>\n</body>\n</html>\n");
    return ERR_NONE;
}
