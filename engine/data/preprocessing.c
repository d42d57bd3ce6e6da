/* The object is written from any data set by asking it, and read into a data set that has no
 * samples. What is written is read at once, so that no checkpoint holds an object that a reader
 * refuses. */
#include "engine/data/preprocessing.h"

#include "engine/base/log.h"
#include "engine/base/utf8.h"
#include "engine/data/columns.h"
#include "engine/data/picture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MOST = 4 << 20, VALUES_MOST = 1 << 19, SIZE_MOST = 1 << 28, COLUMNS_MOST = 1 << 16 };
static const struct json_limits limits = {.depth = 5, .entries = VALUES_MOST, .text = TEXT_MOST};

/* ---- writing ---- */

static void write_target(const struct normalization *n, struct json *j) {
    if (!n->targets) return;
    json_array(j, "target_mean", k, n->targets) json_real(j, NULL, (double)n->target_mean[k]);
    json_array(j, "target_std", k, n->targets) json_real(j, NULL, 1 / (double)n->target_scale[k]);
}

static void write_moments(const struct dataset *d, const struct normalization *n, struct json *j) {
    double mean, std;
    json_array(j, "mean", k, n->channels) normalization_tell(d, n, k, &mean, &std), json_real(j, NULL, mean);
    json_array(j, "std", k, n->channels) normalization_tell(d, n, k, &mean, &std), json_real(j, NULL, std);
}

typedef const char *(*name_fn)(const struct dataset *d, int64_t k);

static void write_names(const struct dataset *d, const char *key, name_fn name, int64_t count, struct json *j) {
    bool any = false;
    for (int64_t k = 0; k < count && !any; k++) any = name(d, k) != NULL;
    if (!any) return;
    json_array(j, key, k, count) json_string(j, NULL, name(d, k) ? name(d, k) : "");
}

static bool preprocessing_is_bytes(const struct dataset *d) {
    char text[8];
    for (int64_t k = 0; k < d->classes; k++)
        if (dataset_decode(d, (int32_t)k, text) != 1 || text[0] != (char)k) return false;
    return d->classes <= 256;
}

static void write_vocabulary(const struct dataset *d, struct json *j) {
    char text[8];
    uint32_t code = 0;
    if (d->type != SAMPLE_TOKENS || !dataset_decode(d, 0, text)) return;
    json_string(j, "text", preprocessing_is_bytes(d) ? "bytes" : "characters");
    if (preprocessing_is_bytes(d)) return;
    json_array(j, "characters", k, d->classes) json_int(j, NULL, token_character(d, k, &code) ? (int64_t)code : -1);
}

static void write_column(const struct table_column *c, struct json *j) {
    json_open(j, NULL, '{');
    json_int(j, "column", c->place + 1);
    if (c->name) json_string(j, "name", c->name);
    if (c->filled && !c->count) json_real(j, "missing", (double)c->fill);
    if (c->filled && c->count) json_string(j, "missing", "none");
    if (c->count) json_texts(j, "categories", c->category, c->count);
    json_close(j, '}');
}

/* The target is the last; its categories are the classes' names. */
static void write_table(const struct columns *c, struct json *j) {
    struct table_column target = c->column[c->inputs];
    target.count = 0;
    json_open(j, "table", '{');
    json_int(j, "width", c->width);
    json_open(j, "columns", '[');
    for (int64_t i = 0; i < c->inputs; i++) write_column(&c->column[i], j);
    write_column(&target, j);
    json_close(j, ']');
    json_close(j, '}');
}

static void preprocessing_write(const struct dataset *d, const struct normalization *n, struct json *j) {
    char part[32];
    json_open(j, NULL, '{');
    json_string(j, "data", d->name);
    json_ints(j, "shape", d->shape.dim, d->shape.ndim);
    json_string(j, "values", sample_types[d->type]);
    json_bool(j, "plane", d->plane);
    snprintf(part, sizeof part, "%.17g", d->part); /* so exactly that the same pixels are cut out */
    if (d->part > 0) json_raw(j, "part", part);
    if (d->resample == RESAMPLE_TORCHVISION) json_string(j, "resample", "torchvision");
    if (d->type != SAMPLE_TOKENS) write_moments(d, n, j);
    write_target(n, j);
    if (d->split != SPLIT_END) json_int(j, "split", d->split);
    json_put(j, JSON_INT("classes", d->classes), JSON_INT("labels", d->labels), JSON_INT("targets", d->targets));
    if (d->counts) {
        json_ints(j, "class_counts", d->counts, d->classes);
    }
    write_names(d, "class_names", dataset_class_name, d->classes, j);
    if (d->shape.ndim == 1) write_names(d, "columns", dataset_column_name, shape_count(&d->shape) + 1, j);
    if (d->columns) write_table(d->columns, j);
    write_vocabulary(d, j);
    json_close(j, '}');
}

enum error preprocessing_text(const struct dataset *d, const struct normalization *n, struct pool *pool,
                              const char **out) {
    struct json j = {0};
    struct pool *trial;
    struct preprocessing *read;
    TRY(pool_create(&trial));
    preprocessing_write(d, n, &j);
    enum error err = json_done(&j);
    *out = NULL;
    if (err == ERR_NONE && preprocessing_parse(j.text, d->name, trial, &read) != ERR_NONE)
        log_warn("checkpoints will not hold what the network has to know about its data, so using it needs the "
                 "training data: %s",
                 error_message());
    else if (err == ERR_NONE && !(*out = pool_strndup(pool, j.text, j.length)))
        err = ERR_MEMORY;
    json_fini(&j);
    pool_free(trial);
    return err;
}

/* ---- a set without samples ---- */

static const char *known_class_name(const struct dataset *d, int64_t k) {
    const struct preprocessing *p = (const struct preprocessing *)d;
    return p->class_names && *p->class_names[k] ? p->class_names[k] : NULL;
}

static const char *known_column_name(const struct dataset *d, int64_t k) {
    const struct preprocessing *p = (const struct preprocessing *)d;
    return p->column_names ? p->column_names[k] : NULL;
}

static void known_close(struct dataset *d) {
    (void)d;
}

static const struct dataset_ops known_set = {.section = {.name = "checkpoint"},
                                             .decode = token_decode,
                                             .encode = token_encode,
                                             .class_name = known_class_name,
                                             .column_name = known_column_name,
                                             .close = known_close};

/* ---- reading ---- */

static bool read_shape(const struct json_value *root, struct shape *out) {
    const struct json_value *v = json_get(root, "shape");
    int64_t all = 1;
    if (!v || v->kind != JSON_ARRAY || v->count < 1 || v->count > SHAPE_MAX) return false;
    out->ndim = v->count;
    for (int i = 0; i < v->count; i++) {
        const struct json_value *d = &v->children[i];
        if (!d->is_integer || d->integer < 1 || d->integer > SIZE_MOST / all) return false;
        all *= out->dim[i] = d->integer;
    }
    return true;
}

static bool read_type(const struct json_value *root, int *out) {
    const char *text = json_get_text(root, "values");
    for (*out = 0; text && *out <= SAMPLE_TOKENS; ++*out)
        if (!strcmp(text, sample_types[*out])) return true;
    return false;
}

/* Reads what a sample's answer is: a class, one at each position, or targets. */
static bool read_counts(const struct json_value *root, struct dataset *d) {
    int64_t all = shape_count(&d->shape);
    if (!json_get_int(root, "classes", VOCABULARY_MAX, &d->classes) || !json_get_int(root, "labels", all, &d->labels) ||
        !json_get_int(root, "targets", SIZE_MOST, &d->targets))
        return false;
    bool classes = d->classes > 0 && (d->labels == 1 || d->labels == all) && d->targets == 0;
    bool targets = d->classes == 0 && d->labels == 0 && d->targets > 0;
    return targets || (classes && (d->type != SAMPLE_TOKENS || d->labels == all));
}

/* Training samples of each class, of which there is at least one. */
static bool read_class_counts(const struct json_value *root, struct pool *pool, struct dataset *d) {
    const struct json_value *v = json_get(root, "class_counts");
    int64_t all = 0;
    if (!v) return true;
    int64_t *counts = v->kind == JSON_ARRAY && v->count == d->classes && d->classes
                          ? pool_alloc(pool, (size_t)d->classes * sizeof *counts)
                          : NULL;
    for (int k = 0; counts && k < v->count; k++) {
        const struct json_value *c = &v->children[k];
        if (!c->is_integer || c->integer < 0 || __builtin_add_overflow(all, c->integer, &all)) return false;
        counts[k] = c->integer;
    }
    d->counts = counts;
    return counts && all > 0;
}

static bool read_picture(const struct json_value *root, struct dataset *d) {
    const struct json_value *plane = json_get(root, "plane"), *part = json_get(root, "part");
    if (!plane || plane->kind != JSON_BOOL || (plane->truth && d->shape.ndim != 3)) return false;
    d->plane = plane->truth;
    const char *resample = json_get_text(root, "resample");
    if (part) d->part = part->number;
    if (resample) d->resample = RESAMPLE_TORCHVISION;
    if (json_get(root, "resample") && (!part || !resample || strcmp(resample, "torchvision") != 0)) return false;
    return !part || (part->kind == JSON_NUMBER && part->number > 0 && part->number <= 1);
}

/* Means and deviations of 'size' numbers in some unit, one pair for all or one for each. Returns how many; 0: they are
 * not usable. */
static int read_pairs(const struct json_value *mean, const struct json_value *std, int64_t size, double unit,
                      float *means, float *scales) {
    if (!mean || !std || mean->kind != JSON_ARRAY || std->kind != JSON_ARRAY || size < 1) return 0;
    int n = mean->count;
    if (std->count != n || n < 1 || n > CHANNELS_MAX || (n > 1 && n != size)) return 0;
    for (int k = 0; k < n; k++) {
        const struct json_value *m = &mean->children[k], *s = &std->children[k];
        if (m->kind != JSON_NUMBER || s->kind != JSON_NUMBER) return 0;
        means[k] = (float)(m->number * unit);
        scales[k] = (float)(1 / (s->number * unit));
        if (!isfinite(means[k]) || !isfinite(scales[k]) || !(scales[k] > 0)) return 0;
    }
    return n;
}

static bool read_moments(const struct json_value *root, struct preprocessing *p) {
    const struct dataset *d = &p->set.base;
    const struct json_value *mean = json_get(root, "mean"), *std = json_get(root, "std");
    double unit = d->type == SAMPLE_U8 ? 255 : 1;
    p->norm = (struct normalization){.channels = 1, .scale = {1}};
    if (d->type == SAMPLE_TOKENS) return !mean && !std;
    p->norm.channels = read_pairs(mean, std, d->shape.dim[0], unit, p->norm.mean, p->norm.scale);
    return p->norm.channels > 0;
}

/* A checkpoint of an earlier version has neither these nor 'split': it learned targets as they are, and held out the end
 * of the file. */
static bool read_target(const struct json_value *root, struct preprocessing *p) {
    const struct json_value *mean = json_get(root, "target_mean"), *std = json_get(root, "target_std");
    struct normalization *n = &p->norm;
    if (!mean && !std) return true;
    n->targets = read_pairs(mean, std, p->set.base.targets, 1, n->target_mean, n->target_scale);
    return n->targets > 0;
}

/* count texts, or none at all; *ok stays as it is unless there is something else. */
static const char **read_names(const struct json_value *root, const char *key, int64_t count, struct pool *pool,
                               bool *ok) {
    const struct json_value *v = json_get(root, key);
    if (!v) return NULL;
    const char **names =
        v->kind == JSON_ARRAY && v->count == count ? pool_alloc(pool, (size_t)count * sizeof *names) : NULL;
    for (int k = 0; names && k < v->count; k++) {
        names[k] = v->children[k].text;
        if (v->children[k].kind != JSON_STRING) names = NULL;
    }
    *ok = *ok && names;
    return names;
}

static bool read_column(const struct json_value *v, int64_t width, struct pool *pool, struct table_column *c) {
    const struct json_value *missing = json_get(v, "missing"), *name = json_get(v, "name");
    bool names = true;
    if (v->kind != JSON_OBJECT || !json_get_int(v, "column", width, &c->place) || c->place < 1) return false;
    c->place--;
    c->name = json_get_text(v, "name");
    if (name && !c->name) return false;
    const struct json_value *list = json_get(v, "categories");
    c->count = list ? list->count : 0;
    c->category = read_names(v, "categories", c->count, pool, &names);
    for (int64_t k = 1; names && k < c->count; k++) names = strcmp(c->category[k - 1], c->category[k]) < 0;
    c->filled = missing != NULL;
    if (missing && !c->count) c->fill = (float)missing->number;
    bool right = !missing || (c->count ? missing->kind == JSON_STRING : missing->kind == JSON_NUMBER);
    return names && right && isfinite(c->fill) && (!list || c->count > 0);
}

/* Reads a table's columns. They must give exactly the values of a sample, and the classes' names become the target's
 * categories. */
static bool read_table(const struct json_value *root, struct pool *pool, struct preprocessing *p) {
    const struct json_value *v = json_get(root, "table"), *list = json_get(v, "columns");
    struct dataset *d = &p->set.base;
    struct columns *c = &p->columns;
    if (!v) return true;
    if (v->kind != JSON_OBJECT || !json_get_int(v, "width", COLUMNS_MOST, &c->width)) return false;
    if (!list || list->kind != JSON_ARRAY || list->count < 2 || list->count > c->width) return false;
    c->inputs = list->count - 1;
    if (!(c->column = pool_alloc(pool, (size_t)list->count * sizeof *c->column))) return false;
    for (int64_t i = 0; i <= c->inputs; i++) {
        if (!read_column(&list->children[i], c->width, pool, &c->column[i])) return false;
        if (i < c->inputs) c->values += column_values(&c->column[i]);
    }
    struct table_column *target = &c->column[c->inputs];
    if (target->count || d->shape.ndim != 1 || c->values != d->shape.dim[0]) return false;
    if (d->classes && p->class_names) target->count = d->classes, target->category = p->class_names;
    for (int64_t k = 1; k < target->count; k++)
        if (strcmp(target->category[k - 1], target->category[k]) >= 0) return false;
    c->name = p->column_names;
    d->columns = c;
    return true;
}

static bool read_vocabulary(const struct json_value *root, struct pool *pool, struct preprocessing *p) {
    const char *text = json_get_text(root, "text");
    const struct json_value *v = json_get(root, "characters");
    struct token_set *s = &p->set;
    p->text = text != NULL;
    if (!text) return !v;
    if (s->base.type != SAMPLE_TOKENS) return false;
    if (!strcmp(text, "bytes")) return (s->bytes = s->base.classes <= 256) && !v;
    if (strcmp(text, "characters") != 0 || !v || v->kind != JSON_ARRAY) return false;
    if (v->count != s->base.classes) return false;
    s->characters = pool_alloc(pool, (size_t)v->count * sizeof *s->characters);
    for (int k = 0; s->characters && k < v->count; k++) {
        const struct json_value *c = &v->children[k];
        bool surrogate = c->integer >= 0xd800 && c->integer < 0xe000;
        if (!c->is_integer || c->integer < 0 || c->integer >= CODE_POINTS || surrogate) return false;
        s->characters[k] = (uint32_t)c->integer;
        if (k && s->characters[k] <= s->characters[k - 1]) return false;
    }
    return s->characters != NULL;
}

/* The key that is wrong; NULL: all are right. */
static const char *members_read(const struct json_value *root, struct pool *pool, struct preprocessing *p) {
    struct dataset *d = &p->set.base;
    bool names = true;
    if (root->kind != JSON_OBJECT || !(d->name = json_get_text(root, "data"))) return "data";
    if (!read_shape(root, &d->shape)) return "shape";
    if (!read_type(root, &d->type)) return "values";
    if (!read_counts(root, d)) return "classes";
    if (!read_class_counts(root, pool, d)) return "class_counts";
    if (!read_picture(root, d)) return "part";
    if (!read_moments(root, p)) return "mean";
    if (!read_target(root, p)) return "target_mean";
    d->split = SPLIT_END;
    if (json_get(root, "split") && !json_get_int(root, "split", UINT32_MAX, &d->split)) return "split";
    p->class_names = read_names(root, "class_names", d->classes, pool, &names);
    if (!names) return "class_names";
    p->column_names = read_names(root, "columns", shape_count(&d->shape) + 1, pool, &names);
    if (!names) return "columns";
    if (!read_table(root, pool, p)) return "table";
    return read_vocabulary(root, pool, p) ? NULL : "characters";
}

enum error preprocessing_parse(const char *text, const char *from, struct pool *pool, struct preprocessing **out) {
    const struct json_value *root;
    size_t n = strlen(text);
    if (n > TEXT_MOST) return FAIL(ERR_DATA, "%s: 'preprocessing' has %zu bytes, more than %d", from, n, TEXT_MOST);
    enum error err = json_parse(text, n, limits, pool, &root);
    if (err != ERR_NONE) return error_prefix(err, "%s: 'preprocessing': ", from);
    struct preprocessing *p = *out = pool_alloc(pool, sizeof *p);
    if (!p) return ERR_MEMORY;
    *p = (struct preprocessing){.set = {.base = {.ops = &known_set}, .fd = -1, .width = 1}};
    const char *wrong = members_read(root, pool, p);
    if (wrong) return FAIL(ERR_DATA, "%s: 'preprocessing' has no usable '%s'", from, wrong);
    p->set.path = pool_strndup(pool, from, strlen(from));
    return p->set.path ? ERR_NONE : ERR_MEMORY;
}
