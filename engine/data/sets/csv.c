/* csv: columns of numbers and of categories, one of which is the target. A first line without any number is a header.
 * A target written in whole numbers from 0 on is a class, text is the class's name; any other, or any number where the
 * loss is of values, is a value to regress on.
 *
 * Rows stay as they are in the file, a float a column; a category becomes its values when a sample is read, so memory
 * does not depend on how many categories there are. */
#include "engine/data/part.h"
#include "engine/data/resident.h"
#include "engine/data/table.h"

#include "engine/base/text.h"

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
    float *values;    /* (base.size or more, columns.inputs + 1), of malloc's */
    struct part part; /* the rows */
    float *weights;   /* (base.size), of malloc's; NULL: there is no such column */
};

/* ---- the set ---- */
static void csv_close(struct dataset *d) {
    struct csv *s = (struct csv *)d;
    free(s->values);
    free(s->weights);
    part_free(&s->part);
    pool_free(s->pool);
    memory_free(s);
}

static enum error csv_create(const struct dataset_ops *ops, struct csv **out) {
    TRY_MEMORY(*out = memory_new(sizeof **out));
    (*out)->base.ops = ops;
    enum error err = pool_create(&(*out)->pool);
    if (err != ERR_NONE) memory_free(*out);
    return err;
}

static const float *csv_row(const struct csv *s, int64_t i) {
    return s->values + part_at(&s->part, i) * (s->columns.inputs + 1);
}

static enum error csv_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target) {
    const struct csv *s = (const struct csv *)d;
    const float *row = csv_row(s, i);
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
    return (int32_t)csv_row(s, i)[s->columns.inputs];
}

/* "v.csv: missing values: 3 (the first: line 7, column 2 'age': 'NA')" */
static enum error csv_note(struct csv *s, const struct table *t, const struct cell_notice *n, const char *what) {
    char words[96];
    if (!n->count) return ERR_NONE;
    column_words(n->place, t->names ? t->names[n->place] : NULL, words);
    const char *before = s->base.note, *start = before ? before : t->path;
    s->base.note = pool_printf(s->pool, "%s%s %s: %lld (the first: line %lld, %s: '%s')", start, before ? ";" : ":",
                               what, (long long)n->count, (long long)n->line, words, n->cell);
    return s->base.note ? ERR_NONE : ERR_MEMORY;
}

static enum error notes_add(struct csv *s, const struct table *t) {
    TRY(csv_note(s, t, &t->unknown, "categories that the training file does not have and that count as none"));
    return csv_note(s, t, &t->missing,
                    "missing values, which become what data.missing says (the column's mean, of categories none)");
}

/* What the target is: one of 'classes' classes, or a value. */
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

/* The rows of s->part of a table, whose values are then the set's. */
static enum error csv_take(struct csv *s, struct table *t, int64_t classes) {
    s->columns = t->columns;
    s->values = t->values;
    t->values = NULL;
    s->base = (struct dataset){.ops = s->base.ops,
                               .size = s->part.count,
                               .shape = {1, {t->columns.values}},
                               .type = SAMPLE_F32,
                               .name = "csv",
                               .held = s->part.held};
    s->base.columns = &s->columns;
    TRY(notes_add(s, t));
    return target_set(s, t, classes);
}

static int64_t classes_of(const struct table *t, bool values) {
    int64_t named = t->columns.column[t->columns.inputs].count;
    return values ? 0 : named ? named : t->classes ? t->largest + 1 : 0;
}

static struct part all_rows(const struct table *t) {
    return (struct part){0, t->rows};
}

/* The rows of a part of a file, by the classes or values in its last column; held: NULL, none are held out. */
static enum error rows_draw(const struct dataset_ask *ask, const struct table *t, const char *held, bool classes,
                            struct part *out) {
    int64_t width = t->columns.inputs + 1;
    return part_draw(ask, held, &(struct strata){t->rows, NULL, t->values + width - 1, width, classes}, out);
}

struct opening {
    const struct dataset_ask *ask;
    const struct csv_config *config;
    const char *val, *held; /* where validation samples are: a file, or how many are held out (else NULL) */
};

/* Reads a training file whole, with what the rows to train on say of missing numbers. */
static enum error train_read(const struct opening *o, struct pool *pool, struct table *t) {
    const struct table_ask ask = {.config = &o->config->table};
    struct dataset_ask train = *o->ask;
    struct part part;
    train.train = true, train.limit = 0;
    TRY(table_read(o->config->train, &ask, pool, t));
    TRY(table_finish_target(t));
    TRY(rows_draw(&train, t, o->held, classes_of(t, train.values) > 0, &part));
    enum error err = table_finish(t, &part);
    part_free(&part);
    return err;
}

/* Checks that the configuration does not ask for another target than the one that was trained. */
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
    const struct dataset *like = o->ask->like;
    const char *path = o->ask->train || o->held ? o->config->train : o->val;
    struct table_config plain = o->config->table;
    plain.missing = "error";
    struct table_ask ask = {.config = like->columns ? &o->config->table : &plain, .known = like->columns};
    if (ask.known) TRY(target_check(plain.target, ask.known));
    TRY(table_read(path, &ask, s->pool, t));
    if (!ask.known) {
        const struct part all = all_rows(t);
        TRY(table_finish_target(t));
        TRY(table_finish(t, &all));
    }
    TRY(rows_draw(o->ask, t, o->held, like->classes > 0, &s->part));
    return csv_take(s, t, like->classes);
}

static enum error csv_open_first(const struct opening *o, struct csv *s, struct table *t, struct table *first) {
    bool values = o->ask->values;
    if (o->ask->train || o->held) {
        TRY(train_read(o, s->pool, t));
        TRY(rows_draw(o->ask, t, o->held, classes_of(t, values) > 0, &s->part));
        return csv_take(s, t, classes_of(t, values));
    }
    TRY(train_read(o, s->pool, first));
    struct table_ask ask = {.config = &o->config->table, .known = &first->columns, .knower = o->config->train};
    TRY(table_read(o->val, &ask, s->pool, t));
    s->part = all_rows(t);
    return csv_take(s, t, classes_of(first, values));
}

/* The column of weights is the target of a second reading, which takes no notice of what the others hold. */
static enum error csv_weigh(const struct csv_config *c, struct csv *s) {
    const char *weight = c->table.weight;
    const struct table_config plain = {.target = weight, .columns = {1, &weight}, .header = c->table.header};
    struct table t;
    struct pool *pool;
    TRY(pool_create(&pool));
    enum error err = table_read(c->train, &(struct table_ask){.config = &plain, .weights = true}, pool, &t);
    if (err == ERR_NONE) err = table_finish_target(&t);
    int64_t n = s->part.count;
    if (err == ERR_NONE && !(s->weights = malloc((size_t)n * sizeof *s->weights)))
        err = FAIL(ERR_MEMORY, "no memory for the weights of %s", c->train);
    for (int64_t i = 0; i < n && err == ERR_NONE; i++) {
        s->weights[i] = t.values[part_at(&s->part, i)];
        if (t.columns.column[0].count || !(s->weights[i] >= 0))
            err = FAIL(ERR_DATA, "%s: column '%s' holds what is no weight\na weight is a number of at least 0",
                       c->train, c->table.weight);
    }
    s->base.weights = s->weights;
    table_close(&t);
    pool_free(pool);
    return err;
}

static enum error csv_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct csv_config *c = ask->config;
    struct opening o = {.ask = ask, .config = c, .val = c->val ? c->val : "10%"};
    struct csv *s;
    struct table t = {0}, first = {0};
    if (!c->train) return FAIL(ERR_CONFIG, "data.train is missing\ngive the file of the training samples");
    o.held = part_is_held(o.val) ? o.val : NULL;
    TRY(csv_create(ask->ops, &s));
    enum error err = ask->like ? open_known(&o, s, &t) : csv_open_first(&o, s, &t, &first);
    if (err == ERR_NONE && ask->train && !ask->like && c->table.weight) err = csv_weigh(c, s);
    table_close(&t);
    table_close(&first);
    return dataset_give(err, &s->base, out);
}

/* ---- a file of samples without labels ---- */
static enum error samples_fill(const char *path, const struct dataset *like, struct csv *s, struct table *t) {
    static const struct table_config plain = {0};
    struct table_ask ask = {.config = &plain, .known = like->columns, .no_target = true};
    TRY(table_read(path, &ask, s->pool, t));
    s->part = all_rows(t);
    TRY(csv_take(s, t, like->classes));
    return dataset_check_like(&s->base, like);
}

static enum error csv_samples(const struct dataset_ops *ops, const char *path, const struct dataset *like,
                              struct dataset **out) {
    struct csv *s;
    struct table t = {0};
    if (!like->columns)
        return FAIL(ERR_DATA, "%s is a table, and the network was not trained on one whose columns it knows", path);
    TRY(csv_create(ops, &s));
    enum error err = samples_fill(path, like, s, &t);
    table_close(&t);
    return dataset_give(err, &s->base, out);
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
     .help = "File of validation samples, or how many of 'train' to hold out: 2000 or 20% (data.split says which)",
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
    {"weight", CONFIG_STRING, AT(table.weight),
     .help = "Column with the weight of each sample, for sampling: weights; nothing is predicted from it",
     .also = "sample_weight|weight_column"},
    {"missing", CONFIG_STRING, AT(table.missing),
     .help = "What becomes of a cell that is empty, NA, nan or null: mean (of the column's training rows; the "
             "default), error, or a number; a category then is none of those that there are",
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
                .help = "Columns of numbers and of text, which becomes a value for each category; the target is a "
                        "class if it is text or whole numbers, unless loss is mse, which needs values",
                .check = csv_check},
    .recognises = csv_recognises,
    .open = csv_open,
    .read = csv_read,
    .label = csv_label,
    .close = csv_close,
    .samples = csv_samples,
    .class_name = csv_class_name,
    .column_name = csv_column_name,
};
