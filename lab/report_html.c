/* One page. It is laid out for a phone first: plots are as wide as a phone's screen and stand in as many columns as there
 * is room for; tables that are wider scroll by themselves, so that the page never does. */
#include "lab/report_html.h"

enum { OPEN_ROWS = 24 };

static const char style[] =
    "*{box-sizing:border-box}"
    "body{margin:0 auto;padding:12px;max-width:1280px;background:var(--paper);color:var(--ink);"
    "font:16px/1.5 system-ui,'DejaVu Sans',Verdana,sans-serif;overflow-wrap:anywhere}"
    "h1{font-size:1.5rem;line-height:1.25;margin:.4em 0}"
    "h2{font-size:1.15rem;margin:1.8em 0 .5em;padding-top:.5em;border-top:1px solid var(--grid)}"
    "p{margin:.5em 0;max-width:75ch}"
    ".verdict{font-size:1.15rem;font-weight:600;border-left:4px solid var(--c0);padding-left:.7em}"
    ".missing{color:var(--soft);font-style:italic}"
    "nav{font-size:.9rem}nav a{display:inline-block;padding:.2em .8em .2em 0;color:var(--c0)}"
    "a{color:var(--c0)}"
    ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:"
    "16px;"
    "align-items:start}"
    "figure{margin:0;min-width:0;max-width:480px}svg.plot{display:block;width:100%;height:auto}"
    "details{font-size:.85rem;margin:.2em 0}summary{cursor:pointer;color:var(--soft);padding:.3em "
    "0}"
    ".scroll{overflow-x:auto;max-width:100%;position:relative}"
    "table{border-collapse:collapse;margin:.4em 0;font-size:.85rem;overflow-wrap:normal}"
    "caption{text-align:left;font-weight:600;padding:.3em 0;color:var(--soft)}"
    "th,td{padding:.25em .7em .25em 0;text-align:left;border-bottom:1px solid "
    "var(--grid);vertical-align:top}"
    "thead th{border-bottom:2px solid var(--soft)}tbody th{font-weight:400;min-width:9em}"
    ".n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "pre{overflow-x:auto;padding:.7em;border:1px solid var(--grid);font-size:.85rem}"
    "footer{margin-top:2em;color:var(--soft);font-size:.85rem}"
    "@media print{body{font-size:10pt;padding:0;max-width:none}nav{display:none}"
    ".plots{grid-template-columns:repeat(2,1fr)}figure,tr{break-inside:avoid}h2{break-after:avoid}"
    ".scroll{overflow:visible}figure "
    "table{width:100%;table-layout:fixed;font-size:6.5pt}.n{white-space:normal}details:not(.long)::"
    "details-content{content-visibility:visible;block-size:auto}"
    "}";

static void head(const struct report *r, struct markup *out) {
    markup_raw(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"
                    "style-src 'unsafe-inline';img-src data:\">\n"
                    "<link rel=\"icon\" href=\"data:,\">\n");
    markup_element(out, "title", r->name);
    markup_raw(out, "\n<style>\n");
    plot_style(out);
    markup_put(out, style, sizeof style - 1);
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
