#include "lab/draw/table.h"

#include "engine/base/text.h"

#include <ctype.h>
#include <string.h>

enum error table_init(struct table *t, const char *title, int columns, int rows, struct pool *pool) {
    size_t bytes;
    TRY(memory_size((size_t)(rows + 1) * (size_t)columns, sizeof *t->cell, title, &bytes));
    *t = (struct table){.title = title, .columns = columns, .rows = rows, .words = 1, .cell = pool_alloc(pool, bytes)};
    return t->cell ? ERR_NONE : ERR_MEMORY;
}

static const char *table_cell_text(const struct table *t, int row, int column) {
    const char *s = table_row(t, row)[column];
    return s ? s : "";
}

static void table_html_row(const struct table *t, int row, FILE *out) {
    fprintf(out, "<tr>");
    for (int c = 0; c < t->columns; c++) {
        bool words = c < t->words;
        const char *tag = row == 0 ? words ? "th scope=\"col\"" : "th scope=\"col\" class=\"n\""
                          : c == 0 ? "th scope=\"row\""
                          : words  ? "td"
                                   : "td class=\"n\"";
        markup_element(out, tag, table_cell_text(t, row, c));
    }
    fprintf(out, "</tr>\n");
}

void table_html(const struct table *t, FILE *out) {
    fprintf(out, "<div class=\"scroll\" tabindex=\"0\"><table>");
    markup_element(out, "caption", t->title);
    fprintf(out, "<thead>");
    table_html_row(t, 0, out);
    fprintf(out, "</thead><tbody>");
    for (int r = 1; r <= t->rows; r++) table_html_row(t, r, out);
    fprintf(out, "</tbody></table></div>\n");
}

/* A column is words where a cell below its head begins with a letter, or is a list. */
static bool table_is_words(const struct table *t, int column) {
    for (int r = 1; r <= t->rows; r++)
        if (isalpha((unsigned char)*table_cell_text(t, r, column)) || strchr(table_cell_text(t, r, column), ','))
            return true;
    return false;
}

void table_text(const struct table *t, FILE *out) {
    enum { ALIGNED = 64 }; /* columns */
    int width[ALIGNED] = {0};
    bool words[ALIGNED];
    for (int c = 0; c < t->columns && c < ALIGNED; c++) {
        words[c] = t->words == t->columns || table_is_words(t, c);
        for (int r = 0; r <= t->rows; r++) {
            int n = text_columns(table_cell_text(t, r, c));
            width[c] = n > width[c] ? n : width[c];
        }
    }
    for (int r = 0; r <= t->rows; r++)
        for (int c = 0; c < t->columns; c++) {
            const char *cell = table_cell_text(t, r, c);
            int room = c < ALIGNED ? width[c] - text_columns(cell) : 0;
            bool left = c < ALIGNED && words[c], last = c == t->columns - 1;
            fprintf(out, "%*s%s", left ? 0 : room, "", cell);
            if (left && !last) fprintf(out, "%*s", room, "");
            fprintf(out, last ? "\n" : "  ");
        }
    fprintf(out, "\n");
}

void table_markdown(const struct table *t, FILE *out) {
    if (*t->title) fprintf(out, "**");
    markup_markdown(out, t->title);
    if (*t->title) fprintf(out, "**\n\n");
    for (int r = 0; r <= t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            fprintf(out, "| ");
            markup_markdown(out, table_cell_text(t, r, c));
            fprintf(out, " ");
        }
        fprintf(out, "|\n");
        for (int c = 0; r == 0 && c < t->columns; c++) fprintf(out, c < t->words ? "|---" : "|---:");
        if (r == 0) fprintf(out, "|\n");
    }
    fprintf(out, "\n");
}

static void table_csv_cell(const char *s, FILE *out) {
    bool quoted = strpbrk(s, ",\"\r\n") != NULL;
    if (quoted) fputs("\"", out);
    for (; *s; s++) {
        if (*s == '"') fputs("\"", out);
        fputc(*s, out);
    }
    if (quoted) fputs("\"", out);
}

void table_csv(const struct table *t, FILE *out) {
    for (int r = 0; r <= t->rows; r++) {
        table_csv_cell(r ? t->title : "table", out);
        for (int c = 0; c < t->columns; c++) {
            fputs(",", out);
            table_csv_cell(table_cell_text(t, r, c), out);
        }
        fputs("\r\n", out);
    }
}
