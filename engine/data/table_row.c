/* What the cells of a table mean. */
#include "engine/data/table_row.h"

#include "engine/base/text.h"
#include "engine/data/part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct finding {
    enum { UNSEEN, NUMBER, TEXT } kind;
    bool asked; /* 'categorical' names it */
    struct categories categories;
    int64_t line; /* of the first cell that is not missing */
};

/* ---- cells ---- */
/* Reads a number of any size; a float may be too small for it. */
static bool cell_any_number(const char *cell, double *out) {
    char *end;
    if (!*cell || cell[strspn(cell, "0123456789+-.eE")]) return false; /* no nan, inf, 0x10 */
    *out = strtod(cell, &end);
    return !*end;
}

bool cell_number(const char *cell, double *out) {
    return cell_any_number(cell, out) && isfinite((float)*out);
}

static bool cell_missing(const char *cell) {
    static const char *const words[] = {"", "NA", "N/A", "nan", "null"};
    if (*cell && *cell != 'n' && *cell != 'N') return false; /* nearly all */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(cell, words[i])) return true;
    return false;
}

/* "1,5", which is a number elsewhere, and here would be a category for each of its values. */
static bool cell_has_decimal_comma(const char *cell) {
    const char *end = cell + strspn(cell, "+-0123456789");
    return end > cell && *end == ',' && end[1] && !end[1 + strspn(end + 1, "0123456789")];
}

/* "t.csv:7: column 2 'age'" */
static char *cell_place(const struct table *t, int64_t column, char out[700]) {
    char words[96];
    column_words(column, t->names ? t->names[column] : NULL, words);
    snprintf(out, 700, "%.512s:%lld: %s", t->path, (long long)t->line, words);
    return out;
}

static const struct table_column *column_at(const struct table *t, int64_t column) {
    return &t->columns.column[t->slot[column]];
}

static bool table_is_target(const struct table *t, int64_t column) {
    return t->slot[column] == t->columns.inputs;
}

static void cell_tell(struct cell_notice *what, const struct table *t, int64_t column, const char *cell) {
    if (what->count++ > 0) return;
    what->line = t->line;
    what->place = column;
    snprintf(what->cell, sizeof what->cell, "%s", cell);
}

static enum error table_no_number(const struct table *t, int64_t column, const char *cell, const char *hint) {
    char at[700];
    return FAIL(ERR_DATA, "%s: '%.40s' is no number that fits a float\n%s", cell_place(t, column, at), cell, hint);
}

/* ---- columns ---- */
int64_t table_column(const struct table *t, const char *wanted) {
    int64_t number;
    for (int64_t k = 0; t->names && k < t->width; k++)
        if (!strcmp(t->names[k], wanted)) return k;
    return text_int(wanted, &number) && number >= 1 && number <= t->width ? number - 1 : -1;
}

enum error table_no_column(const struct table *t, const char *key, const char *wanted) {
    return FAIL(ERR_CONFIG, "data.%s: %s has no column '%s'\ncolumns have %snumbers from 1 to %lld", key, t->path,
                wanted, t->names ? "the names of the first line, and " : "", (long long)t->width);
}

/* ---- life ---- */
enum error finding_create(struct table *t) {
    const struct config_list *asked = &t->ask.config->categorical;
    t->finding = calloc((size_t)t->columns.inputs + 1, sizeof *t->finding);
    if (!t->finding) return FAIL(ERR_MEMORY, "no memory for the columns of %s", t->path);
    for (int i = 0; i < asked->count; i++) {
        const char *wanted = ((const char *const *)asked->items)[i];
        int64_t k = table_column(t, wanted);
        if (k < 0) return table_no_column(t, "categorical", wanted);
        if (t->slot[k] < 0)
            return FAIL(ERR_CONFIG, "data.categorical: column '%s' is not read, by 'columns' or 'without'", wanted);
        t->finding[t->slot[k]].asked = true;
    }
    return ERR_NONE;
}

void finding_free(struct table *t) {
    for (int64_t i = 0; t->finding && i <= t->columns.inputs; i++) categories_free(&t->finding[i].categories);
    free(t->finding);
    t->finding = NULL;
}

enum error row_begin(struct table *t, float **row) {
    int64_t width = t->columns.inputs + 1;
    if (t->rows == t->room) {
        int64_t room = t->room ? 2 * t->room : 16;
        size_t bytes;
        TRY(memory_size((size_t)room, (size_t)width * sizeof(float), t->path, &bytes));
        float *more = realloc(t->values, bytes);
        if (!more) return FAIL(ERR_MEMORY, "no memory for %lld rows of %s", (long long)room, t->path);
        t->values = more;
        t->room = room;
    }
    *row = t->values + t->rows * width;
    (*row)[width - 1] = 0; /* the target's, where there is none */
    return ERR_NONE;
}

/* ---- a cell of a training file ---- */
static enum error find_category(struct table *t, int64_t column, const char *cell, float *out) {
    bool target = table_is_target(t, column);
    int64_t number, most = target ? NAMED_CLASSES_MOST : CATEGORIES_MOST;
    char at[700];
    for (size_t n = strlen(cell), k = 0, step; k < n; k += step)
        if (!(step = text_utf8(cell + k, n - k)))
            return FAIL(ERR_DATA, "%s: its text is no UTF-8\nsave the file as UTF-8", cell_place(t, column, at));
    enum error err = categories_take(&t->finding[t->slot[column]].categories, cell, most, &number);
    if (err == ERR_DATA)
        return FAIL(ERR_DATA, "%s: more than %lld %s%s", cell_place(t, column, at), (long long)most,
                    target ? "classes" : "categories",
                    target ? "" : "\nif it holds names or ids, leave it out: data.without: [NAME]");
    *out = (float)number;
    return err;
}

static enum error find_cell(struct table *t, int64_t column, const char *cell, float *out) {
    struct finding *f = &t->finding[t->slot[column]];
    double value = 0;
    bool number = !f->asked && cell_number(cell, &value);
    char at[700];
    if (!f->asked && !number && cell_any_number(cell, &value)) return table_no_number(t, column, cell, "");
    if (f->kind == UNSEEN && !f->asked && cell_has_decimal_comma(cell))
        return FAIL(ERR_DATA,
                    "%s: '%.40s' has a decimal comma\nwrite numbers with a point, as in 1.5; if its cells are "
                    "categories: data.categorical: [NAME]",
                    cell_place(t, column, at), cell);
    if (f->kind == UNSEEN) f->kind = number ? NUMBER : TEXT, f->line = t->line;
    if (f->kind == TEXT && number)
        return FAIL(ERR_DATA,
                    "%s: '%.40s' is a number, where line %lld has text\nif its cells are categories: data.categorical: "
                    "[NAME]; if the first line has the names of the columns: data.header: true",
                    cell_place(t, column, at), cell, (long long)f->line);
    if (f->kind == NUMBER && !number)
        return table_no_number(t, column, cell, "if its cells are categories: data.categorical: [NAME]");
    if (f->kind == TEXT) return find_category(t, column, cell, out);
    *out = (float)value;
    return ERR_NONE;
}

/* ---- a cell of a known column ---- */
static enum error known_cell(struct table *t, int64_t column, const char *cell, float *out) {
    const struct table_column *c = column_at(t, column);
    double value;
    char at[700];
    if (!c->count) {
        if (!cell_number(cell, &value)) return table_no_number(t, column, cell, "the training file has numbers there");
        *out = (float)value;
        return ERR_NONE;
    }
    int64_t number = column_category(c, cell);
    if (number < 0 && table_is_target(t, column))
        return FAIL(ERR_DATA, "%s: '%.40s' is no class of the training file: those are '%.40s'%s%.40s%s",
                    cell_place(t, column, at), cell, c->category[0], c->count > 1 ? ", '" : "",
                    c->count > 1 ? c->category[1] : "",
                    c->count > 2   ? "', ..."
                    : c->count > 1 ? "'"
                                   : "");
    if (number < 0) cell_tell(&t->unknown, t, column, cell);
    *out = (float)number;
    return ERR_NONE;
}

/* ---- rows ---- */
static void note_target(struct table *t, const char *cell, double value) {
    bool whole = !cell[strspn(cell, "0123456789")];
    t->classes = t->classes && whole && value < TABLE_CLASSES_MOST;
    if (t->classes && (int64_t)value > t->largest) t->largest = (int64_t)value;
}

/* NAN stands for a number that is to be filled, -1 for none of the categories. */
static enum error missing_cell(struct table *t, int64_t column, const char *cell, float *out) {
    const struct table_column *c = column_at(t, column);
    const char *asked = t->ask.config->missing;
    bool fill = t->finding ? !asked || strcmp(asked, "error") != 0 : c->filled;
    char at[700];
    if (table_is_target(t, column))
        return FAIL(ERR_DATA, "%s: '%s': the %s is missing\nremove the row", cell_place(t, column, at), cell,
                    t->ask.weights ? "weight" : "target");
    if (!fill)
        return FAIL(ERR_DATA, "%s: '%s': the value is missing\n'missing: mean' takes the column's mean",
                    cell_place(t, column, at), cell);
    cell_tell(&t->missing, t, column, cell);
    *out = t->finding ? NAN : c->count ? -1 : c->fill;
    return ERR_NONE;
}

enum error row_put(struct table *t, float *row, int64_t column, const char *cell) {
    float *out = &row[t->slot[column]];
    bool target = table_is_target(t, column);
    if (target && t->ask.no_target) return ERR_NONE;
    if (cell_missing(cell)) return missing_cell(t, column, cell, out);
    TRY(t->finding ? find_cell(t, column, cell, out) : known_cell(t, column, cell, out));
    bool text = t->finding ? t->finding[t->slot[column]].kind == TEXT : column_at(t, column)->count > 0;
    if (target && !text) note_target(t, cell, (double)*out);
    return ERR_NONE;
}

/* ---- the columns of a training file ---- */
/* The mean of what is there, summed in the order of the rows. */
static enum error column_mean(const struct table *t, int64_t i, const struct part *train, struct table_column *c) {
    const char *asked = t->ask.config->missing;
    int64_t width = t->columns.inputs + 1, there = 0;
    double sum = 0, value;
    c->filled = !asked || strcmp(asked, "error") != 0;
    if (!c->filled || t->finding[i].kind == TEXT) return ERR_NONE;
    if (asked && text_real(asked, &value)) {
        c->fill = (float)value;
        return ERR_NONE;
    }
    for (int64_t r = 0; r < train->count; r++) {
        float v = t->values[part_at(train, r) * width + i];
        if (!isnan(v)) sum += (double)v, there++;
    }
    char words[96];
    if (!there)
        return FAIL(ERR_DATA, "%s: %s has no value at all in the training rows\nleave it out: data.without: [NAME]",
                    t->path, column_words(c->place, c->name, words));
    c->fill = (float)(sum / (double)there);
    return ERR_NONE;
}

static enum error column_finish(struct table *t, int64_t i, const struct part *train) {
    struct table_column *c = &t->columns.column[i];
    const struct finding *f = &t->finding[i];
    int64_t width = t->columns.inputs + 1, *sorted = NULL;
    if (f->kind == TEXT) TRY(categories_give(&f->categories, t->pool, c, &sorted));
    if (i < t->columns.inputs) TRY(column_mean(t, i, train, c));
    for (int64_t r = 0; r < t->rows; r++) {
        float *v = &t->values[r * width + i];
        if (isnan(*v))
            *v = sorted ? -1 : c->fill;
        else if (sorted)
            *v = (float)sorted[(int64_t)*v];
    }
    return ERR_NONE;
}

enum error table_finish_target(struct table *t) {
    return column_finish(t, t->columns.inputs, NULL);
}

enum error table_finish(struct table *t, const struct part *train) {
    for (int64_t i = 0; i < t->columns.inputs; i++) TRY(column_finish(t, i, train));
    return columns_settle(&t->columns, t->path, t->pool);
}
