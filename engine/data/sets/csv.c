/* csv: columns of numbers and of categories, one of which is the target. A first line without any number is a header.
 * A target written in whole numbers from 0 on is a class, text is the class's name; any other, or any number where the
 * loss is of values, is a value to regress on.
 *
 * Rows stay as they are in the file, a float a column; a category becomes its values when a sample is read, so memory
 * does not depend on how many categories there are. */
#include "engine/data/resident.h"
#include "engine/data/table.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct csv_config {
    const char *train, *val;
    struct table_config table;
};
struct csv {
    struct dataset base;
    struct pool *pool; /* of the columns and the note */
    struct columns columns;
    float *values; /* (base.size or more, columns.inputs + 1), of malloc's */
    int64_t first; /* the first row */
};
extern const struct dataset_ops dataset_csv;

/* ---- the set ---- */
static void csv_close(struct dataset *d) {
    struct csv *s = (struct csv *)d;
    free(s->values);
    pool_free(s->pool);
    memory_free(s);
}

static enum error csv_create(struct csv **out) {
    TRY(memory_alloc(sizeof **out, (void **)out));
    enum error err = pool_create(&(*out)->pool);
    if (err != ERR_NONE) memory_free(*out);
    return err;
}

static enum error csv_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target) {
    const struct csv *s = (const struct csv *)d;
    const float *row = s->values + (s->first + i) * (s->columns.inputs + 1);
    float *out = x;
    for (int64_t k = 0; k < s->columns.inputs; k++) {
        int64_t n = s->columns.column[k].count;
        if (n == 0) *out++ = row[k];
        for (int64_t c = 0; c < n; c++) *out++ = (float)c == row[k];
    }
    if (d->classes) *label = (int32_t)row[s->columns.inputs];
    if (d->targets) *target = row[s->columns.inputs];
    return ERR_NONE;
}

static int32_t csv_label(const struct dataset *d, int64_t i) {
    const struct csv *s = (const struct csv *)d;
    return (int32_t)s->values[(s->first + i) * (s->columns.inputs + 1) + s->columns.inputs];
}

/* "v.csv: missing values: 3 (the first: line 7, column 2 'age': 'NA')" */
static enum error note_add(struct csv *s, const struct table *t, const struct told *told, const char *what) {
    char words[96];
    if (!told->count) return ERR_NONE;
    column_words(told->place, t->names ? t->names[told->place] : NULL, words);
    const char *before = s->base.note, *start = before ? before : t->path;
    s->base.note = pool_printf(s->pool, "%s%s %s: %lld (the first: line %lld, %s: '%s')", start, before ? ";" : ":",
                               what, (long long)told->count, (long long)told->line, words, told->cell);
    return s->base.note ? ERR_NONE : ERR_MEMORY;
}

static enum error notes_add(struct csv *s, const struct table *t) {
    TRY(note_add(s, t, &t->unknown, "categories that the training file does not have and that count as none"));
    return note_add(s, t, &t->missing,
                    "missing values, which become what data.missing says (the column's mean, of categories none)");
}

/* What the target is: 'classes' so many, or a value. */
static enum error target_set(struct csv *s, const struct table *t, int64_t classes) {
    const struct table_column *target = &s->columns.column[s->columns.inputs];
    struct dataset *d = &s->base;
    d->classes = classes;
    d->labels = classes > 0;
    d->targets = classes ? 0 : 1;
    if (!classes && target->count)
        return FAIL(ERR_CONFIG, "%s: the target holds text, and loss mse needs numbers\nuse loss: cross_entropy",
                    t->path);
    if (t->ask.no_target || !classes || target->count) return ERR_NONE;
    if (!t->classes)
        return FAIL(ERR_DATA, "%s: its targets are not classes, but those of %s are", t->path,
                    t->ask.knower ? t->ask.knower : "what the network was trained on");
    return classes_find(t->path, classes, t->largest, &d->classes);
}

/* The rows of 'part' of a table, whose values are then the set's. */
static enum error csv_take(struct csv *s, struct table *t, struct part part, int64_t classes) {
    s->columns = t->columns;
    s->values = t->values;
    s->first = part.first;
    t->values = NULL;
    s->base = (struct dataset){
        .ops = &dataset_csv, .size = part.count, .shape = {1, {t->columns.values}}, .type = SAMPLE_F32, .name = "csv"};
    s->base.columns = &s->columns;
    TRY(notes_add(s, t));
    return target_set(s, t, classes);
}

static int64_t classes_of(const struct table *t, bool values) {
    int64_t named = t->columns.column[t->columns.inputs].count;
    return values ? 0 : named ? named : t->classes ? t->largest + 1 : 0;
}

/* Reads a training file whole, and tells which of its rows are to train on. */
static enum error train_read(const char *path, const struct table_ask *ask, const char *val, struct pool *pool,
                             struct table *t, struct part *train) {
    TRY(table_read(path, ask, pool, t));
    *train = (struct part){0, t->rows};
    if (part_is_held(val)) TRY(part_find(val, t->rows, true, train));
    return table_finish(t, train->first, train->count);
}

struct opening {
    const struct csv_config *config;
    const char *val;
    bool values, train;
    const struct dataset *like;
};

/* That the configuration does not ask for another target than the one that was trained. */
static enum error target_check(const char *asked, const struct columns *known) {
    const struct table_column *target = &known->column[known->inputs];
    char words[96];
    int64_t number;
    if (!asked || (target->name && dataset_same_name(asked, target->name))) return ERR_NONE;
    if (text_int(asked, &number) && number == target->place + 1) return ERR_NONE;
    return FAIL(ERR_CONFIG, "data.target is '%s', and the network was trained on %s", asked,
                column_words(target->place, target->name, words));
}

/* A network that does not tell its columns was trained on numbers alone. */
static enum error open_known(const struct opening *o, struct csv *s, struct table *t) {
    bool held = part_is_held(o->val);
    const char *path = o->train || held ? o->config->train : o->val;
    struct table_config plain = o->config->table;
    plain.missing = "error";
    struct table_ask ask = {.config = o->like->columns ? &o->config->table : &plain, .known = o->like->columns};
    struct part part = {0};
    if (ask.known) TRY(target_check(plain.target, ask.known));
    TRY(table_read(path, &ask, s->pool, t));
    if (!ask.known) TRY(table_finish(t, 0, t->rows));
    part.count = t->rows;
    if (held) TRY(part_find(o->val, t->rows, o->train, &part));
    return csv_take(s, t, part, o->like->classes);
}

static enum error open_first(const struct opening *o, struct csv *s, struct table *t, struct table *first) {
    struct table_ask ask = {.config = &o->config->table};
    struct part part;
    if (o->train || part_is_held(o->val)) {
        TRY(train_read(o->config->train, &ask, o->val, s->pool, t, &part));
        if (!o->train) TRY(part_find(o->val, t->rows, false, &part));
        return csv_take(s, t, part, classes_of(t, o->values));
    }
    TRY(train_read(o->config->train, &ask, o->val, s->pool, first, &part));
    ask.known = &first->columns;
    ask.knower = o->config->train;
    TRY(table_read(o->val, &ask, s->pool, t));
    return csv_take(s, t, (struct part){0, t->rows}, classes_of(first, o->values));
}

static enum error open_as(const struct opening *o, struct dataset **out) {
    struct csv *s;
    struct table t = {0}, first = {0};
    if (!o->config->train) return FAIL(ERR_CONFIG, "data.train is missing\ngive the file of the training samples");
    TRY(csv_create(&s));
    enum error err = o->like ? open_known(o, s, &t) : open_first(o, s, &t, &first);
    table_close(&t);
    table_close(&first);
    if (err == ERR_NONE)
        *out = &s->base;
    else
        csv_close(&s->base);
    return err;
}

static enum error csv_open(const void *config, bool train, uint64_t seed, const struct dataset *like,
                           struct dataset **out) {
    (void)seed;
    const struct csv_config *c = config;
    return open_as(&(struct opening){c, c->val ? c->val : "10%", false, train, like}, out);
}

static enum error csv_open_values(const void *config, bool train, uint64_t seed, struct dataset **out) {
    (void)seed;
    const struct csv_config *c = config;
    return open_as(&(struct opening){c, c->val ? c->val : "10%", true, train, NULL}, out);
}

/* ---- a file of samples without labels ---- */
static enum error samples_fill(const char *path, const struct dataset *like, struct csv *s, struct table *t) {
    static const struct table_config plain = {0};
    struct table_ask ask = {.config = &plain, .known = like->columns, .no_target = true};
    TRY(table_read(path, &ask, s->pool, t));
    TRY(csv_take(s, t, (struct part){0, t->rows}, like->classes));
    return dataset_check_like(&s->base, like);
}

static enum error csv_samples(const char *path, const struct dataset *like, struct dataset **out) {
    struct csv *s;
    struct table t = {0};
    if (!like->columns)
        return FAIL(ERR_DATA, "%s is a table, and the network was not trained on one whose columns it knows", path);
    TRY(csv_create(&s));
    enum error err = samples_fill(path, like, s, &t);
    table_close(&t);
    if (err == ERR_NONE)
        *out = &s->base;
    else
        csv_close(&s->base);
    return err;
}

/* ---- names ---- */
static const char *csv_column_name(const struct dataset *d, int64_t k) {
    const struct columns *c = &((const struct csv *)d)->columns;
    return c->name ? c->name[k] : NULL;
}

static const char *csv_class_name(const struct dataset *d, int64_t k) {
    const struct columns *c = &((const struct csv *)d)->columns;
    return c->column[c->inputs].count ? c->column[c->inputs].category[k] : NULL;
}

static bool csv_recognises(const char *path) {
    return text_ends(path, ".csv") || text_ends(path, ".tsv");
}

static void csv_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct table_config *c = &((const struct csv_config *)config)->table;
    double value;
    bool word = !c->missing || !strcmp(c->missing, "mean") || !strcmp(c->missing, "error");
    if (!word && !text_real(c->missing, &value))
        config_error(e, node_get(at, "missing"), false, "data.missing: '%s' is neither mean nor error nor a number",
                     c->missing);
}

#define AT(field) offsetof(struct csv_config, field)
static const struct config_field fields[] = {
    {"train", CONFIG_PATH, AT(train), .help = "File of training samples"},
    {"val", CONFIG_PATH, AT(val), .standard = "10%",
     .help = "File of validation samples, or how many to hold out at the end of 'train': 2000 or 20%",
     .extra = &part_path},
    {"target", CONFIG_STRING, AT(table.target),
     .help = "Column to predict, by name or by number from 1; default: the last one", .also = "label|labels"},
    {"columns", CONFIG_STRINGS, AT(table.columns),
     .help = "Columns to predict it from, by name or by number from 1; all others when absent", .also = "features"},
    {"without", CONFIG_STRINGS, AT(table.without), .help = "Columns to leave out, by name or by number from 1",
     .also = "drop|exclude"},
    {"categorical", CONFIG_STRINGS, AT(table.categorical),
     .help = "Columns whose numbers are categories or names of classes; columns of text always are",
     .also = "category|categories"},
    {"missing", CONFIG_STRING, AT(table.missing),
     .help =
         "What becomes of a cell that is empty, NA, nan or null: mean (of the column's training rows; the default), "
         "error, or a number; a category then is none of those that there are",
     .also = "fillna|na"},
    {"header", CONFIG_ENUM, AT(table.header),
     .help = "Whether the first line has the names of the columns; auto, the default: where it has no number",
     .choices = "auto|true|false"},
    {0},
};

const struct dataset_ops dataset_csv = {
    .section = {.name = "csv",
                .fields = fields,
                .size = sizeof(struct csv_config),
                .shorthand = "train",
                .help =
                    "Columns of numbers and of text, which becomes a value for each category; the target is a class if "
                    "it is text or whole numbers, unless loss is mse, which needs values",
                .check = csv_check},
    .recognises = csv_recognises,
    .open = csv_open,
    .open_values = csv_open_values,
    .read = csv_read,
    .label = csv_label,
    .close = csv_close,
    .samples = csv_samples,
    .class_name = csv_class_name,
    .column_name = csv_column_name,
};
