/* The forms of a report beside HTML. */
#include "lab/report/report.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <stdlib.h>
#include <string.h>

const char *const report_format_names[REPORT_FORMATS] = {"html", "md", "txt", "svg"};

enum report_format report_format_of(const char *path) {
    const char *dot = strrchr(path, '.');
    enum report_format f = REPORT_HTML;
    while (f < REPORT_FORMATS && (!dot || strcmp(dot + 1, report_format_names[f]) != 0)) f++;
    return f;
}

/* ---- every table: those of the plots, then the section's own ---- */

typedef void table_writer(const struct table *t, FILE *out);
static enum error report_each_table(const struct report *r, const struct report_section *s, table_writer *write,
                                    FILE *out) {
    for (int i = 0; i < s->nplots; i++) {
        struct table t;
        TRY(plot_table(&s->plot[i], r->pool, &t));
        write(&t, out);
    }
    for (int i = 0; i < s->ntables; i++) write(&s->table[i], out);
    return ERR_NONE;
}

/* ---- forms ---- */

static enum error report_to_markdown(const struct report *r, FILE *out) {
    fprintf(out, "# ");
    markup_markdown(out, r->name);
    fprintf(out, "\n\n");
    for (int i = 0; i < r->nsections; i++) {
        const struct report_section *s = &r->section[i];
        fprintf(out, "## %s\n\n", s->title);
        if (i == 0) markup_markdown(out, r->question);
        if (i == 0) fprintf(out, "\n\n");
        for (int k = 0; k < s->ntexts; k++) {
            markup_markdown(out, s->text[k]);
            fprintf(out, "\n\n");
        }
        if (s->missing) fprintf(out, "*Left out.* ");
        if (s->missing) markup_markdown(out, s->missing);
        if (s->missing) fprintf(out, "\n\n");
        if (s->command) fprintf(out, "    %s\n\n", s->command);
        TRY(report_each_table(r, s, table_markdown, out));
    }
    return ERR_NONE;
}

/* Under each other; *y is then where they end. */
static enum error report_plots_draw(const struct report *r, double *y, FILE *out) {
    for (int i = 0; i < r->nsections; i++)
        for (int k = 0; k < r->section[i].nplots; k++, *y += 12) TRY(plot_svg(&r->section[i].plot[k], y, out));
    return ERR_NONE;
}

/* All plots in one file that stands for itself. */
static enum error report_to_svg(const struct report *r, FILE *out) {
    struct file_text body;
    double y = 0;
    TRY(file_text_open(&body));
    TRY(file_text_close(&body, report_plots_draw(r, &y, body.out)));
    if (y < 1) y = 1;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
            "%.0f\">\n<style>\n",
            2 * PLOT_WIDTH, 2 * y, PLOT_WIDTH, y);
    plot_style(out);
    fprintf(out, "</style>\n<defs>\n");
    plot_hatches(out);
    fprintf(out, "</defs>\n<rect width=\"%d\" height=\"%.0f\" style=\"fill:var(--paper)\"/>\n%s</svg>\n", PLOT_WIDTH, y,
            body.text);
    free(body.text);
    return ERR_NONE;
}

/* ---- for a terminal ---- */

static const char underline[] = "----------------------------------------------------------------";

static void report_text_wrapped(const char *s, FILE *out) {
    enum { WIDTH = 100 };
    for (int at = 0; *s;) {
        int n = (int)strcspn(s, " ");
        if (at && at + 1 + n > WIDTH) fputs("\n", out), at = 0;
        if (at) fputs(" ", out), at++;
        fwrite(s, 1, (size_t)n, out);
        at += n;
        s += n + (int)strspn(s + n, " ");
    }
    fputs("\n", out);
}

static void report_write_text(const struct table *t, FILE *out) {
    fprintf(out, "%s\n", t->title);
    table_text(t, out);
}

/* Writes the report for a terminal. Commands and tables keep their lines. */
static enum error report_put_text(const struct report *r, FILE *out) {
    for (int i = 0; i < r->nsections; i++) {
        const struct report_section *s = &r->section[i];
        fprintf(out, "%s%s\n%.*s\n", i ? "\n" : "", s->title, (int)strlen(s->title), underline);
        for (int k = 0; k < s->ntexts; k++) report_text_wrapped(s->text[k], out);
        if (s->missing) report_text_wrapped(s->missing, out);
        if (s->command) fprintf(out, "\n    %s\n", s->command);
        if (s->nplots + s->ntables) fprintf(out, "\n");
        TRY(report_each_table(r, s, report_write_text, out));
    }
    return ERR_NONE;
}

static enum error report_to_text(const struct report *r, FILE *out) {
    struct file_text all;
    TRY(file_text_open(&all));
    TRY(file_text_close(&all, report_put_text(r, all.out)));
    fputs(text_defuse(all.text, "\n"), out);
    free(all.text);
    return ERR_NONE;
}

enum error report_write(const struct report *r, enum report_format format, FILE *out) {
    static enum error (*const writers[])(const struct report *, FILE *) = {report_html, report_to_markdown,
                                                                           report_to_text, report_to_svg};
    return writers[format](r, out);
}

enum error report_save(const struct report *r, enum report_format format, const char *path, double *bytes) {
    struct file_text text;
    TRY(file_text_open(&text));
    enum error err = file_text_save(&text, report_write(r, format, text.out), path);
    *bytes = (double)text.n;
    return err;
}
