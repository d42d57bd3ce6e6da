/* Tables of text, in the forms that reports have. */
#pragma once
#include "engine/base/memory.h"
#include "lab/draw/markup.h"

enum fold { FOLD_NOT, FOLD_SHUT /* shown only on request */, FOLD_ASIDE /* and not on paper */ };
struct table {
    const char *title; /* "": none */
    int columns, rows;
    const char **cell; /* rows + 1 of them, by row; the first are the heads; NULL is empty */
    int words;         /* this many columns from the left are words, the others are numbers, on the right */
    enum fold fold;
};
/* Room for rows below the heads. */
MUST_CHECK enum error table_init(struct table *t, const char *title, int columns, int rows, struct pool *pool);
static inline const char **table_row(const struct table *t, int row) { /* 0: the heads */
    return t->cell + (long)row * t->columns;
}
void table_html(const struct table *t, FILE *out);
/* Columns side by side, as terminals show them. */
void table_text(const struct table *t, FILE *out);
void table_markdown(const struct table *t, FILE *out);
/* RFC 4180, with the title in front of each row. */
void table_csv(const struct table *t, FILE *out);
