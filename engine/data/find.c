#include "engine/data/find.h"

#include "engine/base/file.h"
#include "engine/data/image.h"
#include "engine/data/listing.h"
#include "engine/data/pair.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KNOWN                                                                                                          \
    "data are a folder with a folder of pictures for each class, .csv, .txt, .npy, .bin, or the files of MNIST and "   \
    "CIFAR (engine data list)"

static bool find_is_kind(int kind, const char *name) {
    int count;
    return kind >= 0 && !strcmp(dataset_kinds(&count)[kind]->section.name, name);
}

/* Whether the word stands in a file's name between other characters than letters and digits, in any case. */
static bool name_has(const char *name, const char *word) {
    size_t n = strlen(word);
    for (const char *at = name; *at; at++)
        if ((at == name || !isalnum((unsigned char)at[-1])) && !strncasecmp(at, word, n) &&
            !isalnum((unsigned char)at[n]))
            return true;
    return false;
}

/* Labels in a separate file, which their set finds by the name of the samples. */
static bool find_is_labels(int kind, const char *name) {
    static const char *const words[] = {"y", "labels", "label", "targets", "target"};
    int count;
    bool found = false;
    for (int i = 0; i < 5; i++) found = found || name_has(name, words[i]);
    return found && dataset_kinds(&count)[kind]->section.fields == pair_fields;
}

/* Whether a folder, or one in it, holds a picture. */
static bool holds_pictures(const char *path, int depth, struct pool *pool) {
    struct listing l = {0};
    char inner[PATH_MAX];
    bool found = false;
    if (listing_read(path, "", NULL, pool, &l) != ERR_NONE) l.count = 0;
    for (int64_t i = 0; i < l.count && !found; i++) found = image_is_name(l.name[i]);
    for (int64_t i = 0; i < l.count && !found && depth > 0; i++)
        found = path_join(inner, path, l.name[i]) == ERR_NONE && file_is_folder(inner) &&
                holds_pictures(inner, depth - 1, pool);
    free(l.name);
    return found;
}

/* ---- the files of a folder ---- */
struct folder {
    const char *path;
    struct pool *pool;
    struct listing all, samples; /* samples: of files that a set reads; of texts only where there are no others */
    struct endings endings;
    int64_t pictures;
    int kind;   /* of the samples */
    bool mixed; /* they are of several kinds */
};

/* Adds a file of that kind (dataset_recognise) to the samples, unless it holds labels; text counts only where there is nothing else. */
static enum error sample_take(struct folder *f, int kind, const char *name) {
    bool text = find_is_kind(kind, "text");
    if (kind < 0 || find_is_labels(kind, name)) return ERR_NONE;
    if (text && f->samples.count && !find_is_kind(f->kind, "text")) return ERR_NONE;
    if (!text && find_is_kind(f->kind, "text")) f->samples.count = 0; /* what was noted is about the others */
    f->mixed = f->mixed || (f->samples.count && f->kind != kind);
    f->kind = kind;
    return listing_add(&f->samples, f->pool, "", name);
}

static enum error folder_look(struct folder *f) {
    TRY(listing_read(f->path, "", NULL, f->pool, &f->all));
    for (int64_t i = 0; i < f->all.count; i++) {
        char path[PATH_MAX];
        TRY(path_join(path, f->path, f->all.name[i]));
        endings_add(&f->endings, path);
        if (image_is_name(path))
            f->pictures++;
        else if (!file_is_folder(path))
            TRY(sample_take(f, dataset_recognise(path), f->all.name[i]));
    }
    return ERR_NONE;
}

/* The only one whose name has the word; -1: none, or several. */
static int64_t sample_of(const struct folder *f, const char *word) {
    int64_t found = -1;
    for (int64_t i = 0; i < f->samples.count; i++) {
        if (!name_has(f->samples.name[i], word)) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

/* Columns of a table's first line; 0: it cannot be read. */
static int64_t columns_count(const char *path) {
    FILE *file = fopen(path, "r");
    int64_t count = file != NULL;
    bool quoted = false;
    for (int c; file && (c = getc(file)) != EOF && (c != '\n' || quoted);) {
        if (c == '"') quoted = !quoted;
        count += !quoted && strchr(",;\t", c) != NULL;
    }
    if (file) fclose(file);
    return count;
}

static enum error val_find(const struct folder *f, struct data_files *out) {
    static const char *const words[] = {"val", "valid", "validation", "dev", "test"};
    int64_t at = -1;
    for (int i = 0; i < 5 && at < 0; i++) at = sample_of(f, words[i]);
    if (at < 0) return ERR_NONE;
    if (!(out->val = pool_printf(f->pool, "%s/%s", f->path, f->samples.name[at]))) return ERR_MEMORY;
    bool other = find_is_kind(f->kind, "csv") && columns_count(out->train) != columns_count(out->val);
    if (other || !strcmp(out->val, out->train)) out->val = NULL; /* a table without its target is to be predicted */
    return ERR_NONE;
}

static enum error folder_refuse_several(const struct folder *f) {
    enum { NAMED = 5 };
    const char *names = "";
    for (int64_t i = 0; names && i < f->samples.count && i < NAMED; i++)
        names = pool_printf(f->pool, "%s%s%s", names, i ? ", " : "", f->samples.name[i]);
    if (!names) return ERR_MEMORY;
    return FAIL(ERR_DATA,
                "%s holds several files that could be trained on: %s%s\nname one of them, as in %s/%s, or give one a "
                "name with the word 'train'",
                f->path, names, f->samples.count > NAMED ? ", ..." : "", f->path, f->samples.name[0]);
}

static enum error folder_choose(const struct folder *f, struct data_files *out) {
    char endings[ENDINGS_TEXT];
    if (f->pictures)
        return FAIL(ERR_DATA,
                    "%s has pictures but no class folders\nput each picture into a folder that is named after its "
                    "class: %s/cat/1.jpg, %s/dog/2.jpg",
                    f->path, f->path, f->path);
    if (!f->samples.count)
        return FAIL(ERR_DATA, "%s holds nothing that a data set reads: %s\n" KNOWN, f->path,
                    f->all.count ? endings_text(&f->endings, endings) : "it is empty");
    int64_t train = f->samples.count == 1 ? 0 : sample_of(f, "train");
    if (train < 0) train = sample_of(f, "training");
    if (train < 0 || f->mixed) return folder_refuse_several(f);
    out->kind = f->kind;
    out->train = pool_printf(f->pool, "%s/%s", f->path, f->samples.name[train]);
    return out->train ? val_find(f, out) : ERR_MEMORY;
}

static enum error folder_find(const char *path, struct pool *pool, struct data_files *out) {
    struct folder f = {.path = path, .pool = pool, .kind = -1};
    enum error err = folder_look(&f);
    if (err == ERR_NONE) err = folder_choose(&f, out);
    free(f.all.name);
    free(f.samples.name);
    return err;
}

enum error data_find(const char *path, struct pool *pool, struct data_files *out) {
    struct data_files files = {.kind = -1};
    *out = (struct data_files){.kind = dataset_recognise(path), .train = path};
    bool folder = file_is_folder(path), doubtful = find_is_kind(out->kind, "images") && !holds_pictures(path, 2, pool);
    if (out->kind >= 0 && !doubtful) return ERR_NONE;
    if (!folder) return FAIL(ERR_DATA, "%s is not a file that a data set reads\n" KNOWN, path);
    enum error err = folder_find(path, pool, &files);
    if (err == ERR_NONE) *out = files;
    return out->kind >= 0 ? ERR_NONE : err; /* folders without pictures: the set of pictures says what they lack */
}
