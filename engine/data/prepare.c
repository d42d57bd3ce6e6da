/* Writing sets down. */
#include "engine/data/prepare.h"

#include "engine/base/file.h"
#include "engine/data/pair.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- files that appear whole ---- */
struct output {
    FILE *file;
    struct file_new made;
};

static enum error output_open(struct output *o, const char *folder, const char *name, const char *ending) {
    char base[NAME_MAX], path[PATH_MAX];
    snprintf(base, sizeof base, "%s%s", name, ending);
    TRY(path_join(path, folder, base));
    TRY(file_new_open(&o->made, path));
    enum error err = file_new_stream(&o->made, &o->file);
    return err == ERR_NONE ? err : file_new_close(&o->made, err);
}

static enum error output_write(struct output *o, const void *bytes, size_t n) {
    if (fwrite(bytes, 1, n, o->file) == n) return ERR_NONE;
    return FAIL(ERR_IO, "cannot write %s: %s", o->made.path, strerror(errno));
}

/* err: what has gone wrong so far; then the file goes, too. */
static enum error output_close(struct output *o, enum error err) {
    if (!o->file) return err;
    if (fclose(o->file) != 0 && err == ERR_NONE)
        err = FAIL(ERR_IO, "cannot write %s: %s", o->made.path, strerror(errno));
    o->file = NULL;
    return file_new_close(&o->made, err);
}

/* ---- .npy ---- */
static enum error npy_begin(struct output *o, const char *type, int64_t n, const int64_t *dim, int ndim) {
    enum { WHOLE = 128, BEGIN = 10 };
    char header[WHOLE + 1] = "\x93NUMPY\1";
    int length = snprintf(header + BEGIN, WHOLE - BEGIN, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,",
                          type, (long long)n);
    for (int i = 0; i < ndim; i++)
        length += snprintf(header + BEGIN + length, (size_t)(WHOLE - BEGIN - length), "%s%lld", i ? "," : "",
                           (long long)dim[i]);
    length += snprintf(header + BEGIN + length, (size_t)(WHOLE - BEGIN - length), "), }");
    memset(header + BEGIN + length, ' ', (size_t)(WHOLE - BEGIN - length));
    header[WHOLE - 1] = '\n';
    header[8] = WHOLE - BEGIN;
    return output_write(o, header, WHOLE);
}

struct pair_output {
    struct output x, y;
};

static enum error pair_begin(struct pair_output *p, const struct dataset *d, const char *folder, const char *name) {
    TRY(output_open(&p->x, folder, name, "-images.npy"));
    TRY(output_open(&p->y, folder, name, "-labels.npy"));
    TRY(npy_begin(&p->x, d->type == SAMPLE_U8 ? "|u1" : "<f4", d->size, d->shape.dim, d->shape.ndim));
    return npy_begin(&p->y, d->classes ? "<i4" : "<f4", d->size, &d->targets, d->classes ? 0 : 1);
}

static enum error pair_write(struct pair_output *p, struct dataset *d, void *x, float *target) {
    int32_t label;
    for (int64_t i = 0; i < d->size; i++) {
        TRY(d->ops->read(d, i, x, &label, target));
        TRY(output_write(&p->x, x, dataset_sample_bytes(d)));
        if (d->classes)
            TRY(output_write(&p->y, &label, sizeof label));
        else
            TRY(output_write(&p->y, target, (size_t)d->targets * sizeof *target));
    }
    return ERR_NONE;
}

static enum error pair_prepare(struct dataset *d, const char *folder, const char *name, void *x, float *target) {
    struct pair_output p = {0};
    enum error err = pair_begin(&p, d, folder, name);
    if (err == ERR_NONE) err = pair_write(&p, d, x, target);
    err = output_close(&p.x, err);
    return output_close(&p.y, err);
}

/* ---- tokens ---- */
bool dataset_prepared_short(const struct dataset *d) {
    return d->classes <= 1 << 16;
}

bool dataset_prepared_bytes(const struct dataset *d) {
    char text[8];
    return d->classes == 256 && dataset_decode(d, 255, text) == 1 && text[0] == '\xff';
}

static enum error token_write(struct output *o, const int32_t *tokens, int64_t n, bool narrow) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t v = (uint32_t)tokens[i];
        unsigned char bytes[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                                  (unsigned char)(v >> 24)};
        TRY(output_write(o, bytes, narrow ? 2 : 4));
    }
    return ERR_NONE;
}

/* Windows lie one after the other, so what is missing is the last one's last label. */
static enum error tokens_write(struct output *o, struct dataset *d, int32_t *x, int32_t *labels) {
    bool narrow = dataset_prepared_short(d);
    for (int64_t i = 0; i < d->size; i++) {
        TRY(d->ops->read(d, i, x, labels, NULL));
        TRY(token_write(o, x, d->labels, narrow));
    }
    return token_write(o, labels + d->labels - 1, 1, narrow);
}

static enum error tokens_prepare(struct dataset *d, const char *folder, const char *name, void *x, void *labels) {
    struct output o = {0};
    enum error err = output_open(&o, folder, name, ".bin");
    if (err == ERR_NONE) err = tokens_write(&o, d, x, labels);
    return output_close(&o, err);
}

enum error dataset_prepare(struct dataset *d, const char *folder, const char *name) {
    void *x, *more;
    TRY(file_make_folders(folder));
    TRY(memory_alloc(dataset_sample_bytes(d), &x));
    enum error err = memory_alloc((size_t)(d->targets + d->labels) * sizeof(float), &more);
    if (err == ERR_NONE) {
        err = d->type == SAMPLE_TOKENS ? tokens_prepare(d, folder, name, x, more)
                                       : pair_prepare(d, folder, name, x, more);
        memory_free(more);
    }
    memory_free(x);
    return err;
}

enum error dataset_prepare_characters(const struct dataset *d, const char *folder) {
    struct output o = {0};
    enum error err = output_open(&o, folder, "characters", ".txt");
    for (int64_t k = 0; k < d->classes && err == ERR_NONE; k++) {
        char text[8];
        err = output_write(&o, text, (size_t)dataset_decode(d, (int32_t)k, text));
    }
    return output_close(&o, err);
}
