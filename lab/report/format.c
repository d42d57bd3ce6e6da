/* The forms of a report beside HTML. */
#include "lab/report/report.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

const char *const report_format_names[REPORT_FORMATS] = {"html", "md", "txt", "svg"};

enum report_format report_format_of(const char *path) {
    const char *dot = strrchr(path, '.');
    enum report_format f = REPORT_HTML;
    while (f < REPORT_FORMATS && (!dot || strcmp(dot + 1, report_format_names[f]) != 0)) f++;
    return f;
}

/* ---- every table: those of the plots, then the section's own ---- */

typedef void table_writer(const struct table *t, struct markup *out);
static enum error each_table(const struct report *r, const struct report_section *s, table_writer *write,
                             struct markup *out) {
    for (int i = 0; i < s->nplots; i++) {
        struct table t;
        TRY(plot_table(&s->plot[i], r->pool, &t));
        write(&t, out);
    }
    for (int i = 0; i < s->ntables; i++) write(&s->table[i], out);
    return ERR_NONE;
}

/* ---- forms ---- */

static enum error to_markdown(const struct report *r, struct markup *out) {
    markup_raw(out, "# ");
    markup_markdown(out, r->name);
    markup_raw(out, "\n\n");
    for (int i = 0; i < r->nsections; i++) {
        const struct report_section *s = &r->section[i];
        markup_raw(out, "## %s\n\n", s->title);
        if (i == 0) markup_markdown(out, r->question);
        if (i == 0) markup_raw(out, "\n\n");
        for (int k = 0; k < s->ntexts; k++) {
            markup_markdown(out, s->text[k]);
            markup_raw(out, "\n\n");
        }
        if (s->missing) markup_raw(out, "*Left out.* ");
        if (s->missing) markup_markdown(out, s->missing);
        if (s->missing) markup_raw(out, "\n\n");
        if (s->command) markup_raw(out, "    %s\n\n", s->command);
        TRY(each_table(r, s, table_markdown, out));
    }
    return ERR_NONE;
}

/* All plots under each other in one file that stands for itself. */
static enum error to_svg(const struct report *r, struct markup *out) {
    struct markup body;
    double y = 0;
    markup_init(&body);
    for (int i = 0; i < r->nsections; i++)
        for (int k = 0; k < r->section[i].nplots; k++) y += plot_svg(&r->section[i].plot[k], y, &body) + 12;
    if (y < 1) y = 1;
    markup_raw(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
               "%.0f\">\n<style>\n",
               2 * PLOT_WIDTH, 2 * y, PLOT_WIDTH, y);
    plot_style(out);
    markup_raw(out, "</style>\n<defs>\n");
    plot_hatches(out);
    markup_raw(out, "</defs>\n<rect width=\"%d\" height=\"%.0f\" style=\"fill:var(--paper)\"/>\n", PLOT_WIDTH, y);
    markup_put(out, body.text, body.length);
    markup_raw(out, "</svg>\n");
    enum error err = markup_done(&body);
    markup_fini(&body);
    return err;
}

/* ---- for a terminal ---- */

static const char underline[] = "----------------------------------------------------------------";

static void text_wrapped(const char *s, struct markup *out) {
    enum { WIDTH = 100 };
    for (int at = 0; *s;) {
        int n = (int)strcspn(s, " ");
        if (at && at + 1 + n > WIDTH) markup_put(out, "\n", 1), at = 0;
        if (at) markup_put(out, " ", 1), at++;
        markup_put(out, s, (size_t)n);
        at += n;
        s += n + (int)strspn(s + n, " ");
    }
    markup_put(out, "\n", 1);
}

static void write_text(const struct table *t, struct markup *out) {
    markup_raw(out, "%s\n", t->title);
    table_text(t, out);
}

/* What commands and tables say is left in lines of its own. */
static enum error to_text(const struct report *r, struct markup *out) {
    for (int i = 0; i < r->nsections; i++) {
        const struct report_section *s = &r->section[i];
        markup_raw(out, "%s%s\n%.*s\n", i ? "\n" : "", s->title, (int)strlen(s->title), underline);
        for (int k = 0; k < s->ntexts; k++) text_wrapped(s->text[k], out);
        if (s->missing) text_wrapped(s->missing, out);
        if (s->command) markup_raw(out, "\n    %s\n", s->command);
        if (s->nplots + s->ntables) markup_raw(out, "\n");
        TRY(each_table(r, s, write_text, out));
    }
    if (out->text) text_defuse(out->text, "\n");
    return ERR_NONE;
}

enum error report_write(const struct report *r, enum report_format format, struct markup *out) {
    static enum error (*const writers[])(const struct report *, struct markup *) = {report_html, to_markdown, to_text,
                                                                                    to_svg};
    TRY(writers[format](r, out));
    return markup_done(out);
}
