/* csv: numbers in columns, one of which is the target. Columns part at commas, semicolons or tabs,
 * whichever the first line has first; blank lines are passed over; a first line without any number
 * is a header. A target written in whole numbers from 0 on is a class, any other, or any where the
 * loss is of values, a value to regress on.
 *
 * The file is read once, in lines of bounded length, into rows of floats; its size bounds what they
 * take, as two bytes make a number at best. */
#include "engine/data/input.h"
#include "engine/data/resident.h"

#include "engine/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1 << 20, COLUMNS_MAX = 1 << 16, CLASSES_MAX = 1 << 20 };
struct csv_config {
    const char *train, *val, *target;
};
struct table {
    const char *path, *wanted; /* wanted: the target's name or number; NULL: the last */
    char separator;
    int64_t columns, target; /* of the first line that is not blank; 0: none yet */
    int64_t rows, room;
    float *values;   /* (rows, columns) */
    bool classes;    /* so far, the target is whole and not negative */
    int64_t largest; /* of its values */
    int64_t line;    /* being read, from 1 */
    char **names;    /* of a header's columns, the target's at the end; NULL: there is no header */
};

/* ---- cells ---- */
/* Cuts the next cell out of a line, without blanks and quotes around it; *line moves behind it,
 * NULL at the end. */
static char *cell_next(char **line, char separator) {
    char *cell = *line + strspn(*line, " "), *closing = *cell == '"' ? strchr(cell + 1, '"') : NULL;
    char *end = strchr(closing ? closing : cell, separator);
    *line = end ? end + 1 : NULL;
    if (!end) end = cell + strlen(cell);
    while (end > cell && end[-1] == ' ') end--;
    if (end - cell >= 2 && *cell == '"' && end[-1] == '"') cell++, end--;
    *end = '\0';
    return cell;
}

static bool cell_number(const char *cell, double *out) {
    char *end;
    if (!*cell || cell[strspn(cell, "0123456789+-.eE")]) return false; /* no nan, inf, 0x10 */
    *out = strtod(cell, &end);
    return !*end && isfinite((float)*out);
}

/* ---- the first line ---- */
/* A header's names, in one piece of memory. */
static enum error names_keep(struct table *t, const char *line) {
    char *copy = strdup(line), *rest = copy;
    t->names = malloc((size_t)t->columns * sizeof *t->names + strlen(line) + 1);
    if (!copy || !t->names) {
        free(copy);
        return FAIL(ERR_MEMORY, "no memory for the header of %s", t->path);
    }
    char *to = (char *)(t->names + t->columns);
    for (int64_t k = 0, input = 0; k < t->columns; k++) {
        const char *cell = cell_next(&rest, t->separator);
        t->names[k == t->target ? t->columns - 1 : input++] = to;
        to = stpcpy(to, cell) + 1;
    }
    free(copy);
    return ERR_NONE;
}

/* Counts columns, finds the target (a name only in a header), and tells whether the line is a
 * header. */
static enum error first_line(struct table *t, const char *line, bool *header) {
    char *copy = strdup(line), *rest = copy;
    if (!copy) return FAIL(ERR_MEMORY, "no memory for a line of %s", t->path);
    size_t plain = strcspn(line, ",;\t");
    t->separator = line[plain] ? line[plain] : ',';
    int64_t numbers = 0, named = -1, number;
    for (t->columns = 0; rest; t->columns++) {
        double value;
        const char *cell = cell_next(&rest, t->separator);
        numbers += cell_number(cell, &value);
        if (t->wanted && named < 0 && !strcmp(cell, t->wanted)) named = t->columns;
    }
    free(copy);
    *header = numbers == 0;
    if (t->columns < 2 || t->columns > COLUMNS_MAX)
        return FAIL(ERR_DATA, "%s: %lld columns, but 2 to %d are supported", t->path, (long long)t->columns,
                    COLUMNS_MAX);
    if (!t->wanted)
        t->target = t->columns - 1;
    else if (*header && named >= 0)
        t->target = named;
    else if (text_int(t->wanted, &number) && number >= 0 && number < t->columns)
        t->target = number;
    else
        return FAIL(ERR_CONFIG, "data.target: %s has no column '%s'", t->path, t->wanted);
    return *header ? names_keep(t, line) : ERR_NONE;
}

/* ---- rows ---- */
static enum error row_room(struct table *t) {
    if (t->rows < t->room) return ERR_NONE;
    int64_t room = t->room ? 2 * t->room : 16;
    float *more = NULL;
    size_t bytes;
    TRY(memory_size((size_t)room, (size_t)t->columns * sizeof *more, t->path, &bytes));
    more = realloc(t->values, bytes);
    if (!more) return FAIL(ERR_MEMORY, "no memory for %lld rows of %s", (long long)room, t->path);
    t->values = more;
    t->room = room;
    return ERR_NONE;
}

static void target_note(struct table *t, const char *cell, double value) {
    bool whole = !cell[strspn(cell, "0123456789")];
    t->classes = t->classes && whole && value < CLASSES_MAX;
    if (t->classes && (int64_t)value > t->largest) t->largest = (int64_t)value;
}

static enum error row_read(struct table *t, char *line) {
    TRY(row_room(t));
    float *row = t->values + t->rows * t->columns;
    int64_t column = 0;
    for (char *rest = line; rest; column++) {
        double value;
        const char *cell = cell_next(&rest, t->separator);
        if (column == t->columns)
            return FAIL(ERR_DATA, "%s:%lld: more than %lld columns", t->path, (long long)t->line,
                        (long long)t->columns);
        if (!cell_number(cell, &value))
            return FAIL(ERR_DATA, "%s:%lld: '%.40s' in column %lld is not a number that fits a float", t->path,
                        (long long)t->line, cell, (long long)column);
        row[column] = (float)value;
        if (column == t->target) target_note(t, cell, value);
    }
    if (column < t->columns)
        return FAIL(ERR_DATA, "%s:%lld: fewer than %lld columns", t->path, (long long)t->line, (long long)t->columns);
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
    if (!t->columns) TRY(first_line(t, line, &header));
    return header ? ERR_NONE : row_read(t, line);
}

/* ---- the file ---- */
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

static void table_free(struct table *t) {
    free(t->values);
    free(t->names);
}

static enum error table_read(const char *path, const char *target, struct table *t) {
    *t = (struct table){.path = path, .wanted = target, .classes = true};
    struct input in;
    char *buffer;
    TRY(input_open(path, &in));
    enum error err = memory_alloc(LINE_BYTES + 1, (void **)&buffer);
    if (err == ERR_NONE) {
        err = file_lines(t, &in, buffer);
        memory_free(buffer);
    }
    input_close(&in);
    if (err != ERR_NONE) table_free(t);
    return err;
}

/* ---- the set ---- */
static void row_put(struct resident *r, const struct table *t, const float *row, int64_t i) {
    float *x = (float *)r->x + i * (t->columns - 1);
    for (int64_t c = 0; c < t->columns; c++)
        if (c != t->target) *x++ = row[c];
    if (r->labels) r->labels[i] = (int32_t)row[t->target];
    if (r->target) r->target[i] = row[t->target];
}

extern const struct dataset_ops dataset_csv;

/* The rows of 'part' of a table, as a set whose kind of target is that of the training rows. */
static enum error part_open(struct table *t, const struct table *train, struct part part, struct dataset **out) {
    struct dataset d = {.ops = &dataset_csv,
                        .size = part.count,
                        .shape = {1, {t->columns - 1}},
                        .type = SAMPLE_F32,
                        .classes = train->classes ? train->largest + 1 : 0,
                        .targets = train->classes ? 0 : 1,
                        .name = "csv"};
    struct resident *r;
    if (t->columns != train->columns || t->target != train->target)
        return FAIL(ERR_DATA, "%s and %s have different columns", t->path, train->path);
    if (train->classes && !t->classes)
        return FAIL(ERR_DATA, "%s: its targets are not classes, but those of %s are", t->path, train->path);
    if (train->classes) TRY(classes_find(t->path, d.classes, t->largest, &d.classes));
    TRY(resident_create(&d, &r));
    for (int64_t i = 0; i < part.count; i++) row_put(r, t, t->values + (part.first + i) * t->columns, i);
    r->names = t->names;
    t->names = NULL;
    *out = &r->base;
    return ERR_NONE;
}

/* The table that a network was trained on, as far as it is known. */
static struct table table_known(const struct dataset *like, const struct table *t) {
    return (struct table){.path = "what the network was trained on",
                          .columns = shape_count(&like->shape) + 1,
                          .target = t->target,
                          .classes = like->classes > 0,
                          .largest = like->classes - 1};
}

static enum error open_as(const struct csv_config *c, bool values, bool train, const struct dataset *like,
                          struct dataset **out) {
    const char *val = c->val ? c->val : "10%";
    bool held = part_is_held(val), own = !train && !held;
    struct table t, first = {0};
    struct part part = {0};
    if (!c->train) return FAIL(ERR_CONFIG, "data.train is missing\ngive the file of the training samples");
    if (own && !like) TRY(table_read(c->train, c->target, &first));
    enum error err = table_read(own ? val : c->train, c->target, &t);
    if (err == ERR_NONE) {
        struct table known = like ? table_known(like, &t) : own ? first : t;
        known.classes = known.classes && !values;
        part.count = t.rows;
        if (held) err = part_find(val, t.rows, train, &part);
        if (err == ERR_NONE) err = part_open(&t, &known, part, out);
        table_free(&t);
    }
    table_free(&first);
    return err;
}

static enum error csv_open(const void *config, bool train, uint64_t seed, const struct dataset *like,
                           struct dataset **out) {
    (void)seed;
    return open_as(config, false, train, like, out);
}

static enum error csv_open_values(const void *config, bool train, uint64_t seed, struct dataset **out) {
    (void)seed;
    return open_as(config, true, train, NULL, out);
}

static const char *csv_column_name(const struct dataset *d, int64_t k) {
    char *const *names = ((const struct resident *)d)->names;
    return names ? names[k] : NULL;
}

static bool csv_recognises(const char *path) {
    return text_ends(path, ".csv") || text_ends(path, ".tsv");
}

static const struct config_field fields[] = {
    {"train", CONFIG_STRING, offsetof(struct csv_config, train), .help = "File of training samples"},
    {"val", CONFIG_STRING, offsetof(struct csv_config, val), .standard = "10%",
     .help = "File of validation samples, or how many to hold out at the end of 'train': 2000 or 20%"},
    {"target", CONFIG_STRING, offsetof(struct csv_config, target),
     .help = "Column to predict, by name or by number from 0; default: the last one"},
    {0},
};

const struct dataset_ops dataset_csv = {
    .section = {.name = "csv",
                .fields = fields,
                .size = sizeof(struct csv_config),
                .shorthand = "train",
                .help = "Columns of numbers; the target is a class if it is written in whole numbers, unless loss is "
                        "mse, which needs values"},
    .recognises = csv_recognises,
    .open = csv_open,
    .open_values = csv_open_values,
    .read = resident_read,
    .close = resident_close,
    .column_name = csv_column_name,
};
