/* Sets in two files. Opening one goes through these steps, and takes no memory for samples before
 * the last:
 *
 *   1. names     which files hold samples and labels, of the training part and of the one asked for
 *   2. labels    of the training part, whole: they tell the classes, which both parts share
 *   3. headers   counts must be those of the labels, shapes those of training, sizes the files'
 *   4. samples   the part's rows, as bytes or floats; the rest is read over, for gzip's checksum */
#include "engine/data/pair.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const struct config_field pair_fields[] = {
    {"train", CONFIG_PATH, offsetof(struct pair_config, train),
     .help = "File of training samples, or a folder with a whole set"},
    {"labels", CONFIG_PATH, offsetof(struct pair_config, labels),
     .help = "File of their labels; from the name of 'train' when absent"},
    {"val", CONFIG_PATH, offsetof(struct pair_config, val),
     .help = "File of validation samples, or how many of 'train' to hold out (2000, 20%); when absent the folder's "
             "own, else 10%",
     .extra = &part_path},
    {"val_labels", CONFIG_PATH, offsetof(struct pair_config, val_labels),
     .help = "File of their labels; from the name of 'val' when absent"},
    {"classes", CONFIG_INT, offsetof(struct pair_config, classes), .standard = "auto",
     .help = "Classes; auto: the largest training label and one", .min = 1, .max = 1 << 20, .choices = "auto"},
    {0},
};

/* ---- names ---- */
enum error path_join(char out[PATH_MAX], const char *folder, const char *name) {
    const char *slash = *folder && folder[strlen(folder) - 1] == '/' ? "" : "/";
    if (snprintf(out, PATH_MAX, "%s%s%s", folder, *folder ? slash : "", name) >= PATH_MAX)
        return FAIL(ERR_INPUT, "the path %.60s... is too long", folder);
    return ERR_NONE;
}

bool pair_existing(char *path, size_t room) {
    struct stat st;
    size_t n = strlen(path);
    bool packed = text_ends(path, ".gz");
    if (stat(path, &st) == 0) return true;
    if (n + 4 > room) return false;
    strcpy(packed ? path + n - 3 : path + n, packed ? "" : ".gz");
    if (stat(path, &st) == 0) return true;
    strcpy(packed ? path + n - 3 : path + n, packed ? ".gz" : "");
    return false;
}

static enum error labels_path(const struct pair_format *f, const char *x, const char *given, const char *key,
                              char out[PATH_MAX]) {
    if (given) return path_join(out, "", given);
    const char *name = file_last_part(x);
    char labels[NAME_MAX + 8];
    if (!f->labels(name, labels, sizeof labels))
        return FAIL(ERR_CONFIG, "data.%s is missing: the labels cannot be found by the name of %s", key, x);
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(name - x), x);
    TRY(path_join(out, folder, labels));
    if (pair_existing(out, PATH_MAX)) return ERR_NONE;
    size_t differ = 0; /* scikit-learn's names are X_train and y_train */
    while (labels[differ] && labels[differ] == name[differ]) differ++;
    out[strlen(out) - strlen(labels) + differ] = (char)tolower((unsigned char)labels[differ]);
    if (!pair_existing(out, PATH_MAX)) return FAIL(ERR_INPUT, "no labels %s\nset their place: data.%s", out, key);
    return ERR_NONE;
}

static enum error train_paths(const struct pair_format *f, const struct pair_config *c, struct pair_paths *out) {
    if (f->folder && file_is_folder(c->train) && c->labels)
        return FAIL(ERR_CONFIG, "data.labels: the folder %s has labels of its own", c->train);
    if (f->folder && file_is_folder(c->train)) return f->folder(c->train, true, out);
    TRY(path_join(out->x, "", c->train));
    return labels_path(f, c->train, c->labels, "labels", out->y);
}

/* How validation samples are held out, or NULL when they have separate files. */
static const char *held_out(const struct pair_format *f, const struct pair_config *c) {
    if (c->val) return part_is_held(c->val) ? c->val : NULL;
    return f->folder && file_is_folder(c->train) ? NULL : "10%";
}

static enum error val_paths(const struct pair_format *f, const struct pair_config *c, struct pair_paths *out) {
    const char *val = c->val ? c->val : c->train;
    if (f->folder && file_is_folder(val)) return f->folder(val, false, out);
    TRY(path_join(out->x, "", val));
    return labels_path(f, val, c->val_labels, "val_labels", out->y);
}

/* ---- arrays ---- */
static int64_t element_size(enum element e) {
    static const int sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    return sizes[e];
}

static bool pair_is_real(enum element e) {
    return e == ELEMENT_F32 || e == ELEMENT_F64;
}

static int64_t row_elements(const struct array *a) {
    int64_t n = 1;
    for (int i = 1; i < a->ndim; i++) n *= a->dim[i];
    return n;
}

/* Opens an array whose header is fine and whose size is that of its file without the header. */
static enum error array_open(const struct pair_format *f, const char *path, struct input *in, struct array *a) {
    TRY(input_open(path, in));
    enum error err = f->header(in, a);
    int64_t bytes = err == ERR_NONE ? element_size(a->type) : 0;
    for (int i = 0; i < a->ndim && err == ERR_NONE; i++) {
        if (a->dim[i] < 1)
            err = FAIL(ERR_DATA, "%s: dimension %d of its array is %lld", path, i, (long long)a->dim[i]);
        else if (__builtin_mul_overflow(bytes, a->dim[i], &bytes))
            err = FAIL(ERR_DATA, "%s: its header promises more than any file can hold", path);
    }
    if (err == ERR_NONE) err = input_promise(in, bytes);
    if (err != ERR_NONE) input_close(in);
    return err;
}

static float element_real(const void *p, enum element e) {
    if (e == ELEMENT_F32) return *(const float *)p;
    return (float)*(const double *)p;
}

/* Little-endian, as the machine is. What no int64_t holds becomes the largest. */
static int64_t element_int(const void *p, enum element e) {
    const unsigned is_signed = 1u << ELEMENT_I8 | 1u << ELEMENT_I16 | 1u << ELEMENT_I32 | 1u << ELEMENT_I64;
    size_t bytes = (size_t)element_size(e), unused = 64 - 8 * bytes;
    uint64_t v = 0;
    memcpy(&v, p, bytes);
    if (is_signed >> e & 1) return (int64_t)(v << unused) >> unused;
    return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

/* ---- labels ---- */
struct labels { /* classes (ndim 1, whole numbers) or targets (real numbers) */
    int64_t count, targets, largest;
    int32_t *classes;
    float *target;
};

static void labels_free(struct labels *l) {
    memory_free(l->classes);
    memory_free(l->target);
    *l = (struct labels){0};
}

/* Elements [at, at + n) of the array, as they lie in the file. */
static enum error labels_put(struct labels *l, const char *path, enum element type, const char *raw, int64_t at,
                             int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const char *p = raw + i * element_size(type);
        if (l->target) {
            l->target[at + i] = element_real(p, type);
            continue;
        }
        int64_t v = element_int(p, type);
        if (v < 0 || v > INT32_MAX)
            return FAIL(ERR_DATA, "%s: label %lld of sample %lld is not a class", path, (long long)v,
                        (long long)(at + i));
        l->classes[at + i] = (int32_t)v;
        l->largest = v > l->largest ? v : l->largest;
    }
    return ERR_NONE;
}

static enum error labels_fill(struct labels *l, struct input *in, const struct array *a) {
    _Alignas(8) char raw[8192];
    int64_t size = element_size(a->type), total = l->count * row_elements(a), most = (int64_t)sizeof raw / size;
    for (int64_t at = 0; at < total; at += most) {
        int64_t n = total - at < most ? total - at : most;
        TRY(input_read(in, raw, n * size));
        TRY(labels_put(l, in->path, a->type, raw, at, n));
    }
    TRY(input_end(in));
    return l->target ? floats_check(in->path, l->target, total, l->targets, NULL) : ERR_NONE;
}

static enum error labels_read(const struct pair_format *f, const char *path, struct labels *l) {
    struct input in;
    struct array a = {0};
    *l = (struct labels){0};
    TRY(array_open(f, path, &in, &a));
    int64_t row = row_elements(&a);
    l->count = a.dim[0];
    l->targets = pair_is_real(a.type) ? row : 0;
    enum error err;
    if (pair_is_real(a.type))
        err = memory_alloc((size_t)(l->count * row) * sizeof(float), (void **)&l->target);
    else if (row == 1)
        err = memory_alloc((size_t)l->count * sizeof(int32_t), (void **)&l->classes);
    else
        err = FAIL(ERR_DATA,
                   "%s: %lld whole numbers for each sample, but a sample has one label\ntargets must be real numbers",
                   path, (long long)row);
    if (err == ERR_NONE) err = labels_fill(l, &in, &a);
    input_close(&in);
    if (err != ERR_NONE) labels_free(l);
    return err;
}

/* ---- samples ---- */
/* The set that an array of samples makes: shape and type. */
static enum error samples_describe(const char *path, const struct array *a, struct dataset *d) {
    if (a->ndim < 2) return FAIL(ERR_DATA, "%s: a sample needs more than one number", path);
    if (a->type != ELEMENT_U8 && !pair_is_real(a->type))
        return FAIL(ERR_DATA, "%s: samples are bytes (uint8) or real numbers (float32, float64)", path);
    d->type = a->type == ELEMENT_U8 ? SAMPLE_U8 : SAMPLE_F32;
    d->plane = a->ndim > 2;
    d->shape = (struct shape){.ndim = a->ndim == 3 ? 3 : a->ndim - 1, .dim = {1}};
    for (int i = 1; i < a->ndim; i++) d->shape.dim[d->shape.ndim - a->ndim + i] = a->dim[i];
    return ERR_NONE;
}

static enum error doubles_read(struct input *in, float *out, int64_t n) {
    double raw[1024];
    for (int64_t at = 0; at < n; at += 1024) {
        int64_t some = n - at < 1024 ? n - at : 1024;
        TRY(input_read(in, raw, some * (int64_t)sizeof *raw));
        for (int64_t i = 0; i < some; i++) out[at + i] = (float)raw[i];
    }
    return ERR_NONE;
}

/* The rows of the part; those that lie side by side at once, and the others are read over. */
static enum error rows_read(struct input *in, const struct array *a, const struct part *part, unsigned char *out) {
    int64_t row = row_elements(a), bytes = row * element_size(a->type), next = 0;
    for (int64_t i = 0, n; i < part->count; i += n) {
        int64_t first = part_at(part, i);
        for (n = 1; i + n < part->count && part_at(part, i + n) == first + n;) n++;
        TRY(input_read(in, NULL, (first - next) * bytes));
        if (a->type == ELEMENT_F64)
            TRY(doubles_read(in, (float *)out + i * row, n * row));
        else
            TRY(input_read(in, out + i * bytes, n * bytes));
        next = first + n;
    }
    return input_read(in, NULL, (a->dim[0] - next) * bytes);
}

static enum error samples_read(struct input *in, const struct array *a, const struct part *part, unsigned char *out) {
    int64_t row = row_elements(a);
    TRY(rows_read(in, a, part, out));
    if (a->type != ELEMENT_U8) TRY(floats_check(in->path, (const float *)out, part->count * row, row, part));
    return input_end(in);
}

/* The samples of 'part' of an opened array, with their labels. */
static enum error part_open(struct input *in, const struct array *a, const struct labels *l, const struct part *part,
                            const struct dataset *like, struct dataset **out) {
    struct dataset d = *like;
    struct resident *r;
    d.size = part->count;
    d.held = part->held;
    TRY(resident_create(&d, &r));
    for (int64_t i = 0; r->labels && i < d.size && l->classes; i++) r->labels[i] = l->classes[part_at(part, i)];
    for (int64_t i = 0; l->target && i < d.size; i++)
        memcpy(r->target + i * l->targets, l->target + part_at(part, i) * l->targets,
               (size_t)l->targets * sizeof *r->target);
    return dataset_give(samples_read(in, a, part, r->x), &r->base, out);
}

static enum error counts_check(const struct pair_paths *p, const struct array *a, const struct labels *l) {
    if (a->dim[0] == l->count) return ERR_NONE;
    return FAIL(ERR_DATA, "%s holds %lld samples, but %s %lld labels", p->x, (long long)a->dim[0], p->y,
                (long long)l->count);
}

static enum error alike_check(const char *path, const struct dataset *d, const struct dataset *like) {
    char is[96], must[96];
    if (shape_equal(&d->shape, &like->shape) && d->type == like->type) return ERR_NONE;
    return FAIL(ERR_DATA, "%s: samples of %s %s, but training has %s %s", path, shape_text(&d->shape, is),
                d->type == SAMPLE_U8 ? "bytes" : "floats", shape_text(&like->shape, must),
                like->type == SAMPLE_U8 ? "bytes" : "floats");
}

/* Validation samples in separate files. */
static enum error val_open(const struct pair_format *f, const struct pair_config *c, const struct dataset *like,
                           struct dataset **out) {
    struct pair_paths p;
    struct labels l;
    struct input in = {0};
    struct array a = {0};
    TRY(val_paths(f, c, &p));
    TRY(labels_read(f, p.y, &l));
    enum error err;
    struct dataset d = *like;
    if (l.targets != like->targets)
        TRY_GOTO(err, FAIL(ERR_DATA, "%s: other labels than the training samples have", p.y), done);
    if (like->classes) TRY_GOTO(err, classes_find(p.y, like->classes, l.largest, &d.classes), done);
    TRY_GOTO(err, array_open(f, p.x, &in, &a), done);
    TRY_GOTO(err, samples_describe(p.x, &a, &d), done);
    TRY_GOTO(err, counts_check(&p, &a, &l), done);
    TRY_GOTO(err, alike_check(p.x, &d, like), done);
    err = part_open(&in, &a, &l, &(struct part){0, l.count}, &d, out);
done:
    input_close(&in);
    labels_free(&l);
    return err;
}

/* The part that lies in the training files: all of them, or what is held out. 'like' takes from the training samples' header
 * all that both parts share. */
static enum error train_open(const struct pair_format *f, const struct pair_config *c, const struct dataset_ask *ask,
                             struct dataset *like, struct dataset **out) {
    struct pair_paths p;
    struct labels l;
    struct input in = {0};
    struct array a = {0};
    struct part part = {0};
    const char *held = held_out(f, c);
    TRY(train_paths(f, c, &p));
    TRY(labels_read(f, p.y, &l));
    enum error err;
    TRY_GOTO(err, array_open(f, p.x, &in, &a), done);
    TRY_GOTO(err, samples_describe(p.x, &a, like), done);
    TRY_GOTO(err, counts_check(&p, &a, &l), done);
    like->targets = l.targets;
    if (!l.targets) TRY_GOTO(err, classes_find(p.y, c->classes, l.largest, &like->classes), done);
    if (held && c->val_labels)
        TRY_GOTO(err,
                 FAIL(ERR_CONFIG, "data.val_labels: validation samples are held out of 'train', with their labels"),
                 done);
    const struct strata strata = {l.count, l.classes, l.target, l.targets, false};
    TRY_GOTO(err, part_draw(ask, held, &strata, &part), done);
    err = ask->train || held ? part_open(&in, &a, &l, &part, like, out) : val_open(f, c, like, out);
done:
    part_free(&part);
    input_close(&in);
    labels_free(&l);
    return err;
}

enum error pair_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct pair_format *format = ask->ops->kin;
    struct dataset d = {.ops = ask->ops, .name = ask->ops->section.name};
    struct pair_config c = *(const struct pair_config *)ask->config;
    const struct dataset *like = ask->like;
    if (like) {
        d.shape = like->shape, d.type = like->type, d.plane = like->plane;
        d.classes = like->classes, d.targets = like->targets;
        c.classes = like->classes;
    }
    if (!c.train) return FAIL(ERR_CONFIG, "data.train is missing\ngive the file of the training samples");
    bool own = !ask->train && !held_out(format, &c);
    return like && own ? val_open(format, &c, &d, out) : train_open(format, &c, ask, &d, out);
}

enum error pair_samples(const struct dataset_ops *ops, const char *path, const struct dataset *like,
                        struct dataset **out) {
    struct input in;
    struct array a = {0};
    struct dataset d = {.ops = ops, .name = ops->section.name};
    const struct labels none = {0};
    if (like->type == SAMPLE_TOKENS) return FAIL(ERR_DATA, "%s: samples of '%s' are tokens", path, like->name);
    TRY(array_open(ops->kin, path, &in, &a));
    enum error err = samples_describe(path, &a, &d);
    if (err == ERR_NONE) err = alike_check(path, &d, like);
    if (err == ERR_NONE) err = part_open(&in, &a, &none, &(struct part){0, a.dim[0]}, &d, out);
    input_close(&in);
    return err;
}
