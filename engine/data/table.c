/* Tables. A file is read once, in lines of bounded length, into rows of floats; its size bounds what they take, as two
 * bytes make a number at best. Blank lines are passed over.
 *
 * What a column holds is what its first cell holds that is not missing: a number, or text, whose distinct cells are
 * categories. A cell of the other kind is an error, so that one slip does not make categories of a column of numbers;
 * 'categorical' says that the cells are categories whatever they look like. */
#include "engine/data/table.h"

#include "engine/data/dataset.h"
#include "engine/data/input.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1 << 20, COLUMNS_MAX = 1 << 16 };

/* ---- cells ---- */
/* The next quote of a cell which begins with one that does not stand for a quote; NULL: there is none. */
static char *next_quote(const char *cell) {
    char *at = *cell == '"' ? strchr(cell + 1, '"') : NULL;
    while (at && at[1] == '"') at = strchr(at + 2, '"');
    return at;
}

/* The quote that ends a cell which begins with one; NULL: it has none, or text after it. */
static char *closing_quote(char *cell, char separator) {
    char *at = next_quote(cell);
    size_t blanks = at ? strspn(at + 1, " ") : 0;
    return at && (!at[1 + blanks] || at[1 + blanks] == separator) ? at : NULL;
}

/* Cuts the next cell out of a line, without blanks and quotes around it; *line moves past it,
 * NULL at the end. Two quotes in quotes are one. */
static enum error cell_next(const struct table *t, char **line, char **out) {
    char *cell = *line + strspn(*line, " "), separator = t->separator, *closing = closing_quote(cell, separator);
    if (*cell == '"' && !next_quote(cell))
        return FAIL(ERR_DATA, "%s:%lld: a quote is not closed: %.40s\na cell cannot go on in the next line", t->path,
                    (long long)t->line, cell);
    char *end = strchr(closing ? closing : cell, separator);
    *line = end ? end + 1 : NULL;
    if (closing) {
        char *to = ++cell;
        for (char *from = cell; from < closing; from += 1 + (*from == '"')) *to++ = *from;
        *to = '\0';
        *out = cell;
        return ERR_NONE;
    }
    if (!end) end = cell + strlen(cell);
    while (end > cell && end[-1] == ' ') end--;
    *end = '\0';
    *out = cell;
    return ERR_NONE;
}

/* ---- the first line ---- */
/* Cuts the line; the cells and their texts lie in one piece of memory. */
static enum error cells_cut(struct table *t, const char *line, char ***out) {
    size_t length = strlen(line) + 1, most = 1;
    for (const char *c = line; *c; c++) most += *c == t->separator;
    char **cells = malloc(most * sizeof *cells + length);
    if (!cells) return FAIL(ERR_MEMORY, "no memory for a line of %s", t->path);
    char *rest = memcpy((char *)(cells + most), line, length);
    enum error err = ERR_NONE;
    for (t->width = 0; rest && err == ERR_NONE; t->width++) err = cell_next(t, &rest, &cells[t->width]);
    if (err == ERR_NONE)
        *out = cells;
    else
        free(cells);
    return err;
}

static bool table_is_header(const struct table *t, char *const *cells) {
    int64_t numbers = 0;
    double value;
    for (int64_t k = 0; k < t->width; k++) numbers += cell_number(cells[k], &value);
    int asked = t->ask.config->header;
    return asked == HEADER_TRUE || (asked == HEADER_AUTO && numbers == 0);
}

/* slot[k] = value for the columns that a key lists. */
static enum error columns_mark(struct table *t, const char *key, const struct config_list *list, int64_t value) {
    for (int i = 0; i < list->count; i++) {
        const char *wanted = ((const char *const *)list->items)[i];
        int64_t k = table_column(t, wanted);
        if (k < 0) return table_no_column(t, key, wanted);
        t->slot[k] = value;
    }
    return ERR_NONE;
}

/* Which columns of a training file are read, and which is the target. */
static enum error columns_choose(struct table *t) {
    const struct table_config *c = t->ask.config;
    struct columns *to = &t->columns;
    int64_t target = c->target ? table_column(t, c->target) : t->width - 1;
    if (target < 0) return table_no_column(t, "target", c->target);
    for (int64_t k = 0; k < t->width; k++) t->slot[k] = c->columns.count ? -1 : 0;
    TRY(columns_mark(t, "columns", &c->columns, 0));
    TRY(columns_mark(t, "without", &c->without, -1));
    int64_t weight = c->weight ? table_column(t, c->weight) : -1;
    if (c->weight && weight < 0) return table_no_column(t, "weight", c->weight);
    if (weight >= 0) t->slot[weight] = -1;
    t->slot[target] = -1;
    to->width = t->width;
    for (int64_t k = 0; k < t->width; k++)
        if (t->slot[k] == 0) t->slot[k] = to->inputs++;
    t->slot[target] = to->inputs;
    if (!to->inputs && !t->ask.weights)
        return FAIL(ERR_CONFIG, "%s: no column is left to predict the target from", t->path);
    if (!(to->column = pool_alloc(t->pool, (size_t)(to->inputs + 1) * sizeof *to->column))) return ERR_MEMORY;
    for (int64_t k = 0; k < t->width; k++) {
        const char *name = t->names && t->slot[k] >= 0 ? pool_printf(t->pool, "%s", t->names[k]) : NULL;
        if (t->names && t->slot[k] >= 0 && !name) return ERR_MEMORY;
        if (t->slot[k] >= 0) to->column[t->slot[k]] = (struct table_column){.name = name, .place = k};
    }
    return finding_create(t);
}

/* The index of a known column in this file: by its name, else by its place. -1: it has none. */
static int64_t column_place(const struct table *t, const struct table_column *c, bool target) {
    if (!t->names || !c->name) {
        int64_t gone = t->ask.known->column[t->ask.known->inputs].place; /* the target's place, where that is missing */
        bool bare = t->ask.no_target && t->width == t->ask.known->width - 1;
        if (bare) return target ? -1 : c->place - (c->place > gone);
        return t->width == t->ask.known->width ? c->place : -1;
    }
    if (c->place < t->width && dataset_same_name(t->names[c->place], c->name)) return c->place;
    for (int64_t k = 0; k < t->width; k++)
        if (dataset_same_name(t->names[k], c->name)) return k;
    return -1;
}

/* The error of a file that lacks c, a column with which the network was trained. */
static enum error table_no_known_column(const struct table *t, const struct table_column *c) {
    const char *knower = t->ask.knower;
    char words[96];
    enum error err = knower ? ERR_DATA : ERR_CONFIG;
    if (t->names && c->name)
        return FAIL(err, "%s has no column '%s', which %s%s", t->path, c->name,
                    knower ? knower : "the network was trained on", knower ? " has" : "");
    return FAIL(err, "%s has %lld columns, and %s%s %lld\n%s is looked for by its place, as %s", t->path,
                (long long)t->width, knower ? knower : "the network was trained on", knower ? " has" : "",
                (long long)t->ask.known->width, column_words(c->place, c->name, words),
                t->names ? "the training file had no header" : "there is no header");
}

/* Which columns of another file are those that are known. */
static enum error columns_match(struct table *t) {
    const struct columns *known = t->ask.known;
    t->columns = *known;
    for (int64_t k = 0; k < t->width; k++) t->slot[k] = -1;
    for (int64_t i = 0; i <= known->inputs; i++) {
        bool target = i == known->inputs;
        int64_t k = column_place(t, &known->column[i], target);
        if (k < 0 && target && t->ask.no_target) continue;
        if (k < 0 || t->slot[k] >= 0) return table_no_known_column(t, &known->column[i]);
        t->slot[k] = i;
    }
    return ERR_NONE;
}

static enum error first_line(struct table *t, const char *line, bool *header) {
    const char *quoted = next_quote(line + strspn(line, " ")), *end = strpbrk(quoted ? quoted : line, ",;\t");
    char **cells = NULL;
    t->separator = end ? *end : ',';
    TRY(cells_cut(t, line, &cells));
    *header = table_is_header(t, cells);
    if (*header)
        t->names = cells;
    else
        free(cells);
    if (t->width < 1 + !t->ask.no_target || t->width > COLUMNS_MAX)
        return FAIL(ERR_DATA, "%s: %lld columns, where %d to %d are read", t->path, (long long)t->width,
                    1 + !t->ask.no_target, COLUMNS_MAX);
    if (!(t->slot = malloc((size_t)t->width * sizeof *t->slot)))
        return FAIL(ERR_MEMORY, "no memory for the columns of %s", t->path);
    return t->ask.known ? columns_match(t) : columns_choose(t);
}

/* ---- lines ---- */
static enum error row_read(struct table *t, char *line) {
    float *row;
    int64_t column = 0;
    TRY(row_begin(t, &row));
    for (char *rest = line; rest; column++) {
        char *cell;
        TRY(cell_next(t, &rest, &cell));
        if (column == t->width)
            return FAIL(ERR_DATA, "%s:%lld: more than %lld columns\na cell that holds a '%c' stands in quotes", t->path,
                        (long long)t->line, (long long)t->width, t->separator);
        if (t->slot[column] >= 0) TRY(row_put(t, row, column, cell));
    }
    if (column < t->width)
        return FAIL(ERR_DATA, "%s:%lld: fewer than %lld columns\na cell cannot go on in the next line", t->path,
                    (long long)t->line, (long long)t->width);
    t->rows++;
    return ERR_NONE;
}

static enum error line_read(struct table *t, char *line, size_t length) {
    bool header = false;
    t->line++;
    if (t->line == 1 && !strncmp(line, "\xef\xbb\xbf", 3)) line += 3, length -= 3; /* byte order mark */
    if (strlen(line) != length) return FAIL(ERR_DATA, "%s:%lld: a zero byte", t->path, (long long)t->line);
    if (length && line[length - 1] == '\r') line[--length] = '\0';
    if (!line[strspn(line, " \t")]) return ERR_NONE;
    if (!t->width) TRY(first_line(t, line, &header));
    return header ? ERR_NONE : row_read(t, line);
}

/* Feeds the lines that buffer[0..have) holds whole; *have is what is left over, moved to the front.
 */
static enum error lines_read(struct table *t, char *buffer, int64_t *have, bool last) {
    char *line = buffer, *end = buffer + *have, *stop;
    while ((stop = memchr(line, '\n', (size_t)(end - line))) != NULL || (last && (stop = end) > line)) {
        *stop = '\0';
        TRY(line_read(t, line, (size_t)(stop - line)));
        line = stop < end ? stop + 1 : end;
    }
    *have = end - line;
    memmove(buffer, line, (size_t)*have);
    return ERR_NONE;
}

static enum error file_lines(struct table *t, struct input *in, char *buffer) {
    int64_t have = 0, got = 0;
    if (in->packed) return FAIL(ERR_DATA, "%s is packed\nunpack it first", t->path);
    for (bool last = false; !last;) {
        TRY(input_read_some(in, buffer + have, LINE_BYTES - have, &got));
        have += got;
        last = have < LINE_BYTES;
        TRY(lines_read(t, buffer, &have, last));
        if (have == LINE_BYTES)
            return FAIL(ERR_DATA, "%s:%lld: a line longer than %d bytes", t->path, (long long)t->line + 1, LINE_BYTES);
    }
    return t->rows ? ERR_NONE : FAIL(ERR_DATA, "%s holds no rows", t->path);
}

enum error table_read(const char *path, const struct table_ask *ask, struct pool *pool, struct table *t) {
    *t = (struct table){.path = path, .ask = *ask, .pool = pool, .classes = true};
    struct input in;
    char *buffer;
    TRY(input_open(path, &in));
    enum error err = memory_alloc(LINE_BYTES + 1, (void **)&buffer);
    if (err == ERR_NONE) {
        err = file_lines(t, &in, buffer);
        memory_free(buffer);
    }
    input_close(&in);
    return err;
}

void table_close(struct table *t) {
    finding_free(t);
    free(t->values);
    free(t->names);
    free(t->slot);
}
