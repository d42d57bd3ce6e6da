/* cifar: the binary files of CIFAR-10 and CIFAR-100, gzipped or not: records of the label (of
 * CIFAR-100 two: of 20 coarse classes and of 100 fine ones), then 32x32 pixels of red, of green, of
 * blue. There is no header: the two differ in the names of their files, and what tells a
 * damaged one is its size and its labels. https://www.cs.toronto.edu/~kriz/cifar.html */
#include "engine/data/pair.h"

#include "engine/base/file.h"

#include <stdio.h>
#include <string.h>

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, BATCHES = 5 };
enum { LABELS_FINE, LABELS_COARSE };
struct cifar_config {
    const char *train, *val;
    int labels;
};

/* ---- which files ---- */
struct files {
    char path[BATCHES][PATH_MAX];
    int count;
    bool hundred; /* CIFAR-100's */
};

static bool file_of(const char *folder, const char *name, char out[PATH_MAX]) {
    return path_join(out, folder, name) == ERR_NONE && pair_existing(out, PATH_MAX);
}

static enum error folder_files(const char *folder, bool train, struct files *out) {
    *out = (struct files){.count = 1, .hundred = true};
    if (file_of(folder, train ? "train.bin" : "test.bin", out->path[0])) return ERR_NONE;
    out->hundred = false;
    if (!train && file_of(folder, "test_batch.bin", out->path[0])) return ERR_NONE;
    for (out->count = 0; train && out->count < BATCHES; out->count++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", out->count + 1);
        if (!file_of(folder, name, out->path[out->count])) break;
    }
    if (train && out->count == BATCHES) return ERR_NONE;
    if (out->count > 0)
        return FAIL(ERR_INPUT, "no data_batch_%d.bin in %s, which has other files of CIFAR-10", out->count + 1, folder);
    return FAIL(
        ERR_INPUT,
        "no %s of CIFAR-10 and no %s of CIFAR-100 in %s\nthe binary version is meant, not the one for Python or Matlab",
        train ? "data_batch_1.bin" : "test_batch.bin", train ? "train.bin" : "test.bin", folder);
}

static bool hundred_by_name(const char *path) {
    const char *name = file_last_part(path);
    return !strncmp(name, "train.bin", 9) || !strncmp(name, "test.bin", 8);
}

static enum error given_files(const char *path, bool train, struct files *out) {
    if (file_is_folder(path)) return folder_files(path, train, out);
    *out = (struct files){.count = 1, .hundred = hundred_by_name(path)};
    return path_join(out->path[0], "", path);
}

/* ---- records ---- */
/* How many a file holds: exactly by its size, or for gzip at most. */
static enum error records_count(struct input *in, int64_t record, int64_t *out) {
    unsigned char bytes[1 << 15];
    if (!in->packed) {
        *out = in->size / record;
        if (in->size % record || *out == 0)
            return FAIL(ERR_DATA, "%s: %lld bytes are not a multiple of records of %lld bytes", in->path,
                        (long long)in->size, (long long)record);
        return ERR_NONE;
    }
    int64_t got, total = 0;
    do {
        TRY(input_read_some(in, bytes, (int64_t)sizeof bytes, &got));
        total += got;
    } while (got == (int64_t)sizeof bytes);
    *out = total / record;
    return total % record || *out == 0 ? FAIL(ERR_DATA, "%s: %lld unpacked bytes are not a multiple of records of %lld",
                                              in->path, (long long)total, (long long)record)
                                       : ERR_NONE;
}

static enum error files_count(const struct files *f, int64_t record, int64_t *out) {
    *out = 0;
    for (int i = 0; i < f->count; i++) {
        struct input in;
        int64_t n = 0;
        TRY(input_open(f->path[i], &in));
        enum error err = records_count(&in, record, &n);
        input_close(&in);
        TRY(err);
        *out += n;
    }
    return ERR_NONE;
}

struct filling {
    struct resident *r;
    struct part part;
    int64_t at, put; /* records so far, of all files; of the part */
    int64_t classes;
    int labels, which;
    int32_t *all; /* of all records: labels alone are read, into here; NULL: the part */
};

static enum error record_put(struct filling *f, const char *path, const unsigned char *bytes) {
    int64_t at = f->at++;
    int label = bytes[f->which];
    if (label >= f->classes)
        return FAIL(ERR_DATA,
                    "%s: record %lld has label %d, but there are %lld classes\nis it of CIFAR-10, or of CIFAR-100?",
                    path, (long long)at, label, (long long)f->classes);
    if (f->all) {
        f->all[at] = label;
        return ERR_NONE;
    }
    if (f->put == f->part.count || at != part_at(&f->part, f->put)) return ERR_NONE;
    f->r->labels[f->put] = label;
    memcpy(f->r->x + f->put++ * PIXELS, bytes + f->labels, PIXELS);
    return ERR_NONE;
}

static enum error file_fill(struct filling *f, const char *path) {
    unsigned char record[2 + PIXELS];
    int64_t bytes = f->labels + PIXELS, got;
    struct input in;
    TRY(input_open(path, &in));
    enum error err;
    while ((err = input_read_some(&in, record, bytes, &got)) == ERR_NONE && got == bytes)
        TRY_GOTO(err, record_put(f, path, record), done);
    if (err == ERR_NONE && got > 0) err = FAIL(ERR_DATA, "%s: ends inside a record", path);
done:
    input_close(&in);
    return err;
}

static enum error files_fill(struct filling *f, const struct files *files, int64_t count) {
    f->at = 0;
    for (int i = 0; i < files->count; i++) TRY(file_fill(f, files->path[i]));
    if (f->at == count) return ERR_NONE;
    return FAIL(ERR_DATA, "%s has become shorter or longer while it was read", files->path[0]);
}

static enum error part_choose(struct filling *f, const struct files *files, const struct dataset_ask *ask,
                              const char *held, int64_t count) {
    struct strata strata = {.count = count};
    if (ask->split == SPLIT_END || (!held && !ask->limit)) return part_draw(ask, held, &strata, &f->part);
    TRY_MEMORY(f->all = memory_new((size_t)count * sizeof *f->all));
    enum error err = files_fill(f, files, count);
    strata.label = f->all;
    if (err == ERR_NONE) err = part_draw(ask, held, &strata, &f->part);
    memory_free(f->all);
    f->all = NULL;
    return err;
}

static enum error records_fill(struct filling *f, const struct files *files, int64_t count) {
    TRY(files_fill(f, files, count));
    if (f->put == f->part.count) return ERR_NONE;
    return FAIL(ERR_DATA, "%s has changed while it was read", files->path[0]);
}

/* ---- the set ---- */
/* Which files, and how validation samples are held out of them (NULL: not). */
static enum error files_find(const struct cifar_config *c, bool train, const struct dataset *like, struct files *out,
                             const char **held) {
    bool folder = file_is_folder(c->train);
    *held = c->val ? c->val : folder ? NULL : "10%";
    if (*held && !part_is_held(*held)) *held = NULL;
    struct files other;
    bool own = !train && !*held;
    if (!own || !like) TRY(given_files(c->train, true, out));
    if (!own) return ERR_NONE;
    TRY(given_files(c->val ? c->val : c->train, false, &other));
    if (!like && other.hundred != out->hundred)
        return FAIL(ERR_CONFIG, "%s and %s are not of the same set", out->path[0], other.path[0]);
    *out = other;
    return ERR_NONE;
}

static enum error cifar_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct cifar_config *c = ask->config;
    struct files files;
    const char *held;
    int64_t count;
    if (!c->train) return FAIL(ERR_CONFIG, "data.train is missing\ngive the folder of the set");
    TRY(files_find(c, ask->train, ask->like, &files, &held));
    int labels = files.hundred ? 2 : 1, which = files.hundred && c->labels == LABELS_FINE;
    struct filling f = {.labels = labels, .which = which, .classes = !files.hundred ? 10 : which ? 100 : 20};
    TRY(files_count(&files, labels + PIXELS, &count));
    TRY(part_choose(&f, &files, ask, held, count));
    struct dataset d = {.ops = ask->ops,
                        .size = f.part.count,
                        .shape = {3, {3, SIDE, SIDE}},
                        .type = SAMPLE_U8,
                        .classes = f.classes,
                        .name = "cifar",
                        .plane = true,
                        .held = f.part.held};
    enum error err = resident_create(&d, &f.r);
    if (err == ERR_NONE) err = dataset_give(records_fill(&f, &files, count), &f.r->base, out);
    part_free(&f.part);
    return err;
}

static bool cifar_recognises(const char *path) {
    struct files files;
    const char *name = file_last_part(path);
    if (!strncmp(name, "data_batch_", 11) || !strncmp(name, "test_batch.bin", 14)) return true;
    return file_is_folder(path) && folder_files(path, true, &files) == ERR_NONE;
}

static const struct config_field fields[] = {
    {"train", CONFIG_PATH, offsetof(struct cifar_config, train),
     .help = "Folder of the binary files (data_batch_1.bin ..., or train.bin), or one of them"},
    {"val", CONFIG_PATH, offsetof(struct cifar_config, val),
     .help = "The same for validation, or how many samples of 'train' to hold out (5000, 10%; data.split says which); "
             "default: the folder's own validation files, else 10%",
     .extra = &part_path},
    {"labels", CONFIG_ENUM, offsetof(struct cifar_config, labels), .standard = "fine",
     .help = "Labels of CIFAR-100: the 100 fine classes or the 20 coarse ones", .choices = "fine|coarse"},
    {0},
};

const struct dataset_ops dataset_cifar = {
    .section = {.name = "cifar",
                .fields = fields,
                .size = sizeof(struct cifar_config),
                .shorthand = "train",
                .also = "cifar10|cifar100|cifar_10|cifar_100",
                .help = "CIFAR-10 and CIFAR-100, from their binary files (.gz or not)"},
    .recognises = cifar_recognises,
    .open = cifar_open,
    .read = resident_read,
    .label = resident_label,
    .close = resident_close,
};
