/* The forms of a report beside HTML. */
#include "lab/report/report.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

const char *const report_format_names[REPORT_FORMATS] = {"html", "md", "csv", "json", "txt", "svg"};

enum report_format report_format_of(const char *path) {
    const char *dot = strrchr(path, '.');
    enum report_format f = REPORT_HTML;
    while (f < REPORT_FORMATS && (!dot || strcmp(dot + 1, report_format_names[f]) != 0)) f++;
    return f;
}

/* ---- every table: those of the plots, then the section's own ---- */

typedef void table_writer(const struct table *t, void *out);
static enum error each_table(const struct report *r, const struct report_section *s, table_writer *write, void *out) {
    for (int i = 0; i < s->nplots; i++) {
        struct table t;
        TRY(plot_table(&s->plot[i], r->pool, &t));
        write(&t, out);
    }
    for (int i = 0; i < s->ntables; i++) write(&s->table[i], out);
    return ERR_NONE;
}

static void write_markdown(const struct table *t, void *out) {
    table_markdown(t, out);
}

static void write_csv(const struct table *t, void *out) {
    table_csv(t, out);
}

static void write_json(const struct table *t, void *out) {
    table_json(t, out);
}

/* ---- forms ---- */

/* Text as it stands in Markdown: nothing in it becomes a mark. */
static void markdown_text(const char *s, struct markup *out) {
    for (; *s; s++) {
        if (strchr("\\`*_<>[]#|", *s)) markup_put(out, "\\", 1);
        markup_put(out, *s == '\n' ? " " : s, 1);
    }
}

static enum error to_markdown(const struct report *r, struct markup *out) {
    markup_raw(out, "# ");
    markdown_text(r->name, out);
    markup_raw(out, "\n\n");
    for (int i = 0; i < r->nsections; i++) {
        const struct report_section *s = &r->section[i];
        markup_raw(out, "## %s\n\n", s->title);
        if (i == 0) markdown_text(r->question, out);
        if (i == 0) markup_raw(out, "\n\n");
        for (int k = 0; k < s->ntexts; k++) {
            markdown_text(s->text[k], out);
            markup_raw(out, "\n\n");
        }
        if (s->missing) markup_raw(out, "*Left out.* ");
        if (s->missing) markdown_text(s->missing, out);
        if (s->missing) markup_raw(out, "\n\n");
        if (s->command) markup_raw(out, "    %s\n\n", s->command);
        TRY(each_table(r, s, write_markdown, out));
    }
    return ERR_NONE;
}

static enum error to_csv(const struct report *r, struct markup *out) {
    for (int i = 0; i < r->nsections; i++) TRY(each_table(r, &r->section[i], write_csv, out));
    return ERR_NONE;
}

static enum error section_json(const struct report *r, const struct report_section *s, struct json *j) {
    json_open(j, NULL, '{');
    json_string(j, "id", s->id);
    json_string(j, "title", s->title);
    json_open(j, "text", '[');
    for (int k = 0; k < s->ntexts; k++) json_string(j, NULL, s->text[k]);
    json_close(j, ']');
    json_string(j, "missing", s->missing);
    json_string(j, "command", s->command);
    json_open(j, "tables", '[');
    TRY(each_table(r, s, write_json, j));
    json_close(j, ']');
    json_close(j, '}');
    return ERR_NONE;
}

static enum error sections_json(const struct report *r, struct json *j) {
    json_open(j, NULL, '{');
    json_int(j, "format", 1);
    json_string(j, "name", r->name);
    json_string(j, "question", r->question);
    json_string(j, "verdict", r->verdict);
    json_open(j, "sections", '[');
    for (int i = 0; i < r->nsections; i++) TRY(section_json(r, &r->section[i], j));
    json_close(j, ']');
    json_close(j, '}');
    return json_done(j);
}

static enum error to_json(const struct report *r, struct markup *out) {
    struct json j;
    json_init(&j);
    enum error err = sections_json(r, &j);
    if (err == ERR_NONE) markup_put(out, j.text, j.length);
    markup_put(out, "\n", 1);
    json_fini(&j);
    return err;
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

static void write_text(const struct table *t, void *out) {
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
    static enum error (*const writers[])(const struct report *, struct markup *) = {report_html, to_markdown, to_csv,
                                                                                    to_json,     to_text,     to_svg};
    TRY(writers[format](r, out));
    return markup_done(out);
}
