/* One page. It is laid out for a phone first: plots are as wide as a phone's screen and stand in as many columns as there
 * is room for; tables that are wider scroll by themselves, so that the page never does. On a desktop words stand beside
 * what they speak of. */
#include "lab/report/report.h"

#include "engine/base/embedded.h"

#include <string.h>

enum { OPEN_ROWS = 24, OPEN_PLOTS = 4, WIDE_COLUMNS = 7 };

extern const struct embedded report_styles[]; /* report.css alone */

struct page {
    const struct report *r;
    FILE *out;
    int switches; /* the number of them that have a name */
};

static void page_head(struct page *p) {
    FILE *out = p->out;
    fprintf(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                 "content=\"width=device-width,initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" "
                 "content=\"default-src 'none';style-src 'unsafe-inline';img-src data:\">\n<link rel=\"icon\" "
                 "href=\"data:,\">\n");
    markup_element(out, "title", p->r->name);
    fprintf(out, "\n<style>\n");
    plot_style(out);
    fputs(report_styles[0].text, out);
    fprintf(out, "\n</style>\n</head>\n<body>\n<svg width=\"0\" height=\"0\" aria-hidden=\"true\" "
                 "style=\"position:absolute\"><defs>\n");
    plot_hatches(out);
    fprintf(out, "</defs></svg>\n<header>");
    markup_element(out, "h1", p->r->name);
    markup_element(out, "p class=\"question\"", p->r->question);
    fprintf(out, "\n<nav aria-label=\"Sections\">");
    for (int i = 1; i < p->r->nsections; i++)
        if (!p->r->section[i].missing && !p->r->section[i].fold)
            fprintf(out, "<a href=\"#%s\">%s</a>", p->r->section[i].id, p->r->section[i].title);
    fprintf(out, "</nav></header>\n<main>\n");
}

/* Both drawings are there; a check box, which needs no script, says which one is to be seen. */
static enum error page_both_axes(struct page *p, const struct plot *plot) {
    struct plot drawn = *plot;
    int id = ++p->switches;
    fprintf(p->out, "<input type=\"checkbox\" id=\"log%d\"%s><label for=\"log%d\">logarithmic axis</label>\n", id,
            plot->y.log ? " checked" : "", id);
    for (int log = 0; log < 2; log++) {
        drawn.y.log = log;
        drawn.style = log ? "log" : "linear";
        TRY(plot_svg(&drawn, &(double){0}, p->out));
    }
    return ERR_NONE;
}

/* before: the plot in front of it, or NULL */
static enum error page_figure(struct page *p, const struct plot *plot, const struct plot *before) {
    struct table t;
    TRY(plot_table(plot, p->r->pool, &t));
    fprintf(p->out, "<figure>\n");
    TRY(plot->both ? page_both_axes(p, plot) : plot_svg(plot, &(double){0}, p->out));
    if (*plot->about && !(before && !strcmp(before->about, plot->about)))
        markup_element(p->out, "figcaption", plot->about);
    fprintf(p->out, "<details class=\"numbers\"><summary>Table</summary>");
    table_html(&t, p->out);
    fprintf(p->out, "</details>\n</figure>\n");
    return ERR_NONE;
}

static enum error page_figures(struct page *p, const struct report_section *s) {
    if (!s->nplots) return ERR_NONE;
    fprintf(p->out, "<div class=\"plots\">\n");
    for (int i = 0; i < s->nplots; i++) {
        if (i == OPEN_PLOTS)
            fprintf(p->out,
                    "</div>\n<details class=\"long\"><summary>%d plot%s more</summary>\n<div class=\"plots\">\n",
                    s->nplots - OPEN_PLOTS, s->nplots - OPEN_PLOTS == 1 ? "" : "s");
        TRY(page_figure(p, &s->plot[i], i ? &s->plot[i - 1] : NULL));
    }
    fprintf(p->out, s->nplots > OPEN_PLOTS ? "</div></details>\n" : "</div>\n");
    return ERR_NONE;
}

/* A long one is there for who asks for it, and not on paper. */
static void page_table(const struct table *t, FILE *out) {
    bool closed = t->fold || t->rows > OPEN_ROWS;
    if (closed) fprintf(out, "<details%s>", t->fold == FOLD_ASIDE || t->rows > OPEN_ROWS ? " class=\"long\"" : "");
    if (closed) markup_element(out, "summary", t->title);
    table_html(t, out);
    if (closed) fprintf(out, "</details>\n");
}

static void page_words(struct page *p, const struct report_section *s, bool first) {
    for (int i = 0; i < s->ntexts; i++) {
        bool doubt = !strncmp(s->text[i], "Warning: ", 9) || !strncmp(s->text[i], "Note: ", 6);
        markup_element(p->out, first && i == 0 ? "p class=\"verdict\"" : doubt ? "p class=\"doubt\"" : "p", s->text[i]);
    }
    if (s->command) markup_element(p->out, "pre", s->command);
}

/* Writes the figures and tables of a section. */
static enum error page_show(struct page *p, const struct report_section *s) {
    fprintf(p->out, "<div class=\"show\">\n");
    TRY(page_figures(p, s));
    if (s->ntables) fprintf(p->out, "<div>\n");
    for (int i = 0; i < s->ntables; i++) page_table(&s->table[i], p->out);
    fprintf(p->out, "%s</div>\n", s->ntables ? "</div>\n" : "");
    return ERR_NONE;
}

/* A table that takes all the width has its words below; one plot alone shares its line with another section. */
static const char *page_layout(const struct report_section *s, bool first) {
    bool wide = false;
    for (int i = 0; i < s->ntables; i++) wide |= s->table[i].columns >= WIDE_COLUMNS;
    return first ? "lead" : wide ? "wide" : s->nplots + s->ntables <= 1 && !s->fold ? "half" : "beside";
}

static enum error page_section(struct page *p, int index) {
    const struct report_section *s = &p->r->section[index];
    const char *form = page_layout(s, index == 0);
    bool below = !strcmp(form, "wide");
    if (s->missing) return ERR_NONE;
    if (s->fold)
        fprintf(p->out, "<details class=\"section%s\"><summary><h2>%s</h2></summary>\n",
                s->fold == FOLD_ASIDE ? " long" : "", s->title);
    fprintf(p->out, "<section id=\"%s\" class=\"%s\">\n", s->id, form);
    if (below) fprintf(p->out, "<h2>%s</h2>\n", s->title);
    if (below) TRY(page_show(p, s));
    fprintf(p->out, "<div class=\"say\">\n");
    if (!below && !s->fold) fprintf(p->out, "<h2>%s</h2>\n", s->title);
    page_words(p, s, index == 0);
    fprintf(p->out, "</div>\n");
    if (!below && s->nplots + s->ntables > 0) TRY(page_show(p, s));
    fprintf(p->out, "</section>\n%s", s->fold ? "</details>\n" : "");
    return ERR_NONE;
}

/* Writes which sections have no data, and how to get them. */
static void page_left_out(struct page *p) {
    int n = 0;
    for (int i = 0; i < p->r->nsections; i++) n += p->r->section[i].missing != NULL;
    if (!n) return;
    fprintf(p->out,
            "<details class=\"section long\"><summary><h2>What is not here, and how to get it</h2></summary>\n");
    for (int i = 0; i < p->r->nsections; i++) {
        const struct report_section *s = &p->r->section[i];
        if (!s->missing) continue;
        fprintf(p->out, "<p><strong>%s.</strong> ", s->title);
        markup_text(p->out, s->missing);
        fprintf(p->out, "</p>\n");
    }
    fprintf(p->out, "</details>\n");
}

enum error report_html(const struct report *r, FILE *out) {
    struct page p = {.r = r, .out = out};
    page_head(&p);
    for (int i = 0; i < r->nsections; i++) TRY(page_section(&p, i));
    page_left_out(&p);
    fprintf(out, "</main>\n<footer>Written by engine report.</footer>\n</body>\n</html>\n");
    return ERR_NONE;
}
