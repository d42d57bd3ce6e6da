/* images: a folder of pictures, JPEG, PNG and WebP, a folder a class, as PyTorch's ImageFolder takes it:
 * FOLDER/CLASS/picture.jpg, or FOLDER/train/CLASS/... and FOLDER/val/CLASS/... Classes are numbered
 * in the order of their names (by bytes).
 *
 * Opening looks at the beginning of every file, so that what is no picture is reported before anything
 * is trained. With 'on_error: skip' it decodes every picture whole, and leaves out those that cannot be
 * decoded before any are held out: the set is then that of a folder without these files, whoever opens it.
 * Pictures are decoded at every visit, by whichever thread reads: decoders lie in a
 * stack, from which a reader takes one and puts it back. */
#include "engine/data/image.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/data/listing.h"
#include "engine/data/pair.h"
#include "engine/data/part.h"
#include "engine/data/unreadable.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ON_ERROR_STOP, ON_ERROR_SKIP };
struct images_config {
    const char *train, *val;
    int64_t size, resize;
    int resample; /* enum resample */
    int on_error;
};
struct worker {
    struct image *image;
    char path[PATH_MAX]; /* of the file that it reads */
    struct worker *next;
};
struct images {
    struct dataset base;
    struct pool *pool; /* of the names */
    char *folder;
    struct listing classes, files; /* by number, each in a folder of that name; "CLASS/NAME" */
    struct endings skipped;        /* of what lies in these folders beside pictures */
    const struct unreadable *unreadable;
    int32_t *labels;
    pthread_mutex_t lock;
    struct worker *idle;
};
enum { CLASSES_MOST = 1 << 16 };

/* Which folder holds the classes: of training, and of validation (empty: it has none). */
static enum error roots_find(const struct images_config *c, char train[PATH_MAX], char val[PATH_MAX]) {
    static const char *const names[] = {"val", "valid", "validation", "test"};
    TRY(path_join(train, c->train, "train"));
    val[0] = '\0';
    bool split = file_is_folder(train);
    if (!split) TRY(path_join(train, "", c->train));
    if (c->val) return part_is_held(c->val) ? ERR_NONE : path_join(val, "", c->val);
    for (int i = 0; split && i < 4; i++) {
        TRY(path_join(val, c->train, names[i]));
        if (file_is_folder(val)) return ERR_NONE;
    }
    val[0] = '\0';
    return ERR_NONE;
}

/* ---- what is in them ---- */
/* "'circle', 'square', ...": the names that a network has for its classes, or the first of them. */
static void class_names(const struct dataset *like, char out[200]) {
    int used = 0;
    for (int64_t k = 0; k < like->classes && used < 140; k++) {
        const char *name = dataset_class_name(like, k);
        used += snprintf(out + used, 50, "%s'%.40s'", k ? ", " : "", name ? name : "");
        if (used >= 140 && k + 1 < like->classes) snprintf(out + used, 8, ", ...");
    }
}

/* The number by which a network knows the class of this name, looked for from *k on. */
static enum error class_number(const struct listing *numbered, const struct dataset *like, const char *root,
                               const char *name, int64_t *k) {
    for (int64_t n = 0, from = *k; n < like->classes; n++) {
        const char *known = dataset_class_name(like, *k = (from + n) % like->classes);
        if (!*numbered->name[*k] && known && dataset_same_name(name, known)) return ERR_NONE;
    }
    char names[200];
    class_names(like, names);
    return FAIL(ERR_CONFIG, "%s/%s is not a class of the network, which was trained on %s", root, name, names);
}

/* The folders get the numbers of a network's classes; a class without a folder has an empty name. */
static enum error classes_renumber(struct images *s, const char *root, const struct dataset *like) {
    struct listing found = s->classes, all = {0};
    enum error err = ERR_NONE;
    for (int64_t k = 0; k < like->classes && err == ERR_NONE; k++) err = listing_add(&all, s->pool, "", "");
    for (int64_t i = 0, k = 0; i < found.count && err == ERR_NONE; i++)
        if ((err = class_number(&all, like, root, found.name[i], &k)) == ERR_NONE) all.name[k] = found.name[i];
    free(found.name);
    s->classes = all;
    return err;
}

static enum error classes_list(struct images *s, const char *root, const struct dataset *like) {
    if (!file_is_folder(root)) return FAIL(ERR_INPUT, "no folder %s", root);
    TRY(listing_read(root, "", listing_wants_folder, s->pool, &s->classes));
    if (s->classes.count == 0)
        return FAIL(ERR_DATA, "%s holds no folders\npictures lie in a folder for each class", root);
    if (s->classes.count > CLASSES_MOST)
        return FAIL(ERR_DATA, "%s holds %lld folders, more than the %d classes that there can be", root,
                    (long long)s->classes.count, CLASSES_MOST);
    bool named = like && like->classes && dataset_class_name(like, 0);
    return named ? classes_renumber(s, root, like) : ERR_NONE;
}

static enum error label_add(struct images *s, int64_t before, int32_t label) {
    int32_t *labels = realloc(s->labels, (size_t)(s->files.count + 1) * sizeof *labels);
    if (!labels) return FAIL(ERR_MEMORY, "no memory for %lld labels", (long long)s->files.count);
    s->labels = labels;
    for (int64_t i = before; i < s->files.count; i++) labels[i] = label;
    return ERR_NONE;
}

/* ---- what is left out ---- */
static bool images_wants_other(const char *path, const char *name) {
    return !listing_wants_picture(path, name);
}

static enum error skipped_list(struct images *s, const char *root, const char *folder, listing_wants_fn *wants) {
    struct listing l = {0};
    char path[PATH_MAX];
    enum error err = listing_read(root, folder, wants, s->pool, &l);
    for (int64_t i = 0; i < l.count && err == ERR_NONE; i++)
        if ((err = path_join(path, root, l.name[i])) == ERR_NONE) endings_add(&s->skipped, path);
    free(l.name);
    return err;
}

static enum error skipped_note(struct images *s, const char *root, const char **note) {
    char text[ENDINGS_TEXT];
    if (!*endings_text(&s->skipped, text)) return ERR_NONE;
    *note = pool_printf(
        s->pool, "%s%s%s: left out, as only .jpg, .jpeg, .png and .webp files right in a class's folder are read: %s",
        *note ? *note : "", *note ? "; " : "", root, text);
    return *note ? ERR_NONE : ERR_MEMORY;
}

/* The pictures of root's folders. must: each has some. */
static enum error files_list(struct images *s, const char *root, bool must) {
    TRY(skipped_list(s, root, "", listing_wants_picture));
    for (int64_t k = 0; k < s->classes.count; k++) {
        int64_t before = s->files.count;
        char path[PATH_MAX];
        const char *name = s->classes.name[k];
        TRY(path_join(path, root, name));
        if (!*name || (!must && !file_is_folder(path))) continue;
        TRY(listing_read(root, name, listing_wants_picture, s->pool, &s->files));
        TRY(skipped_list(s, root, name, images_wants_other));
        if (must && s->files.count == before)
            return FAIL(
                ERR_DATA,
                "%s holds no pictures (.jpg, .jpeg, .png, .webp)\na class needs some; remove the folder if it is none",
                path);
        TRY(label_add(s, before, (int32_t)k));
    }
    return s->files.count ? ERR_NONE : FAIL(ERR_DATA, "%s holds no pictures", root);
}

/* Checks that the validation folders are classes of training. */
static enum error folders_check(struct images *s, const char *root) {
    struct listing l = {0};
    enum error err = listing_read(root, "", listing_wants_folder, s->pool, &l);
    for (int64_t i = 0; i < l.count && err == ERR_NONE; i++)
        if (!bsearch(&l.name[i], s->classes.name, (size_t)s->classes.count, sizeof *l.name, listing_compare))
            err = FAIL(ERR_DATA, "%s/%s is not a class: training has no folder of that name", root, l.name[i]);
    free(l.name);
    return err;
}

/* Keeps file i as the next one. */
static void file_keep(struct images *s, int64_t i, int64_t *kept) {
    s->files.name[*kept] = s->files.name[i];
    s->labels[(*kept)++] = s->labels[i];
}

/* Chooses the files that 'split: end' holds out: at equal distances, since the files of a folder lie class by class. */
static void files_cut(struct images *s, int64_t held, bool train) {
    int64_t n = s->files.count, kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (((__int128)(i + 1) * held / n > (__int128)i * held / n) != train) file_keep(s, i, &kept);
    s->files.count = kept;
}

static enum error files_part(struct images *s, const struct dataset_ask *ask, const char *held) {
    const struct strata strata = {.count = s->files.count, .label = s->labels};
    struct part part;
    int64_t kept = 0;
    TRY(part_draw(ask, held, &strata, &part));
    s->base.held = part.held;
    if (held && ask->split == SPLIT_END) {
        files_cut(s, part.held, ask->train);
    } else {
        for (int64_t i = 0; i < part.count; i++) file_keep(s, part_at(&part, i), &kept);
        s->files.count = kept;
    }
    part_free(&part);
    return ERR_NONE;
}

/* Adds what to do where a picture is bad and the error has no other hint. */
static enum error picture_advise(enum error err) {
    char words[ERROR_WORDS];
    if (err != ERR_DATA || *error_hint()) return err;
    return FAIL(
        err, "%s\nremove it, or leave out all such files by data.on_error: skip; engine data check FOLDER names them",
        error_words(words, sizeof words));
}

static enum error files_probe(const struct images *s, uint32_t *crc) {
    for (int64_t i = 0; i < s->files.count; i++) {
        char path[PATH_MAX];
        int width, height;
        struct stat st;
        TRY(path_join(path, s->folder, s->files.name[i]));
        TRY(picture_advise(image_probe(path, &width, &height)));
        int64_t bytes = stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
        *crc = crc32c(*crc, s->files.name[i], strlen(s->files.name[i]) + 1);
        *crc = crc32c(*crc, &bytes, sizeof bytes);
    }
    return ERR_NONE;
}

/* ---- reading ---- */
static enum error worker_take(struct images *s, struct worker **out) {
    pthread_mutex_lock(&s->lock);
    struct worker *w = s->idle;
    if (w) s->idle = w->next;
    pthread_mutex_unlock(&s->lock);
    if (!w) {
        TRY_MEMORY(w = memory_new(sizeof *w));
        enum error err = image_create(&w->image);
        if (err != ERR_NONE) {
            memory_free(w);
            return err;
        }
    }
    *out = w;
    return ERR_NONE;
}

static void worker_give(struct images *s, struct worker *w) {
    pthread_mutex_lock(&s->lock);
    w->next = s->idle;
    s->idle = w;
    pthread_mutex_unlock(&s->lock);
}

/* Reads the file of picture i, for a worker that is given back in any case. */
static enum error picture_read(struct images *s, int64_t i, struct worker **w, int *width, int *height) {
    TRY(worker_take(s, w));
    enum error err = path_join((*w)->path, s->folder, s->files.name[i]);
    if (err == ERR_NONE) err = image_read((*w)->image, (*w)->path, width, height);
    if (err != ERR_NONE) worker_give(s, *w);
    return err;
}

static enum error picture_show(struct images *s, int64_t i, const struct visit *v, void *x) {
    struct worker *w;
    int width, height, size = (int)s->base.shape.dim[1];
    enum resample by = (enum resample)s->base.resample;
    TRY(picture_read(s, i, &w, &width, &height));
    struct view shown =
        v ? view_part(by, box_draw(v, width, height), size) : view_middle(by, s->base.part, size, width, height);
    enum error err = image_decode(w->image, &shown, x);
    worker_give(s, w);
    return err;
}

static enum error images_read_part(struct dataset *d, int64_t i, const struct visit *v, void *x, int32_t *label,
                                   float *target) {
    struct images *s = (struct images *)d;
    (void)target;
    *label = s->labels[i];
    return picture_advise(picture_show(s, i, v, x));
}

static enum error images_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target) {
    return images_read_part(d, i, NULL, x, label, target);
}

static int32_t images_label(const struct dataset *d, int64_t i) {
    return ((const struct images *)d)->labels[i];
}

/* ---- what cannot be read ---- */
/* A picture that can be decoded whole can be shown in any part. */
static enum error picture_try(void *ctx, int64_t i) {
    struct worker *w;
    unsigned char pixel[3];
    int width, height;
    TRY(picture_read(ctx, i, &w, &width, &height));
    const struct view all = view_part(RESAMPLE_ENGINE, (struct box){0, 0, width, height}, 1);
    enum error err = image_decode(w->image, &all, pixel);
    worker_give(ctx, w);
    return err;
}

/* What the files are: who writes one anew changes its size or its time. */
static enum error files_digest(const struct images *s, char hex[SHA256_TEXT]) {
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, s->folder, strlen(s->folder) + 1);
    for (int64_t i = 0; i < s->files.count; i++) {
        char path[PATH_MAX];
        struct stat st;
        TRY(path_join(path, s->folder, s->files.name[i]));
        if (stat(path, &st) != 0) return FAIL(ERR_INPUT, "cannot read %s: %s", path, strerror(errno));
        int64_t facts[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (int64_t)st.st_ino};
        sha256_update(&h, s->files.name[i], strlen(s->files.name[i]) + 1);
        sha256_update(&h, facts, sizeof facts);
    }
    sha256_hex(h, hex);
    return ERR_NONE;
}

/* Keeps the files that can be read. must: some of each class. */
static enum error files_keep(struct images *s, bool must) {
    const struct unreadable *u = s->unreadable;
    int64_t n = s->files.count, kept = 0, first = 0;
    for (int64_t i = 0, bad = 0; i < n; i++) {
        int32_t label = s->labels[i];
        if (bad < u->count && u->sample[bad].index == i)
            bad++;
        else
            file_keep(s, i, &kept);
        if (i + 1 < n && s->labels[i + 1] == label) continue;
        if ((must && kept == first) || (i + 1 == n && kept == 0))
            return FAIL(ERR_DATA, "%s/%s: none of its pictures can be read, as %s", s->folder, s->classes.name[label],
                        u->sample[bad - 1].why);
        first = kept;
    }
    s->files.count = kept;
    return ERR_NONE;
}

static enum error files_sift(struct images *s, bool must, const char **note) {
    enum { NAMED = 3 };
    char key[SHA256_TEXT], of[32];
    const char *why = "";
    int64_t n = s->files.count;
    TRY(files_digest(s, key));
    TRY(unreadable_find(key, n, picture_try, s, &s->unreadable));
    if (!s->unreadable->count) return ERR_NONE;
    for (int64_t i = 0; why && i < s->unreadable->count && i < NAMED; i++)
        why = pool_printf(s->pool, "%s%s%s", why, i ? "; " : "", s->unreadable->sample[i].why);
    if (!why) return ERR_MEMORY;
    *note = pool_printf(s->pool, "%s: %lld of %s pictures cannot be read and are skipped (data.on_error): %s%s",
                        s->folder, (long long)s->unreadable->count, text_of_count(n, of), why,
                        s->unreadable->count > NAMED ? "; ... (engine data check names all)" : "");
    return *note ? files_keep(s, must) : ERR_MEMORY;
}

/* ---- life ---- */
static void images_close(struct dataset *d) {
    struct images *s = (struct images *)d;
    for (struct worker *w = s->idle, *next; w; w = next) {
        next = w->next;
        image_free(w->image);
        memory_free(w);
    }
    pthread_mutex_destroy(&s->lock);
    free(s->classes.name);
    free(s->files.name);
    free(s->labels);
    pool_free(s->pool);
    memory_free(s);
}

static enum error images_fill(struct images *s, const struct dataset_ask *ask, uint32_t *crc, const char **note) {
    const struct images_config *c = ask->config;
    const struct dataset *like = ask->like;
    bool train = ask->train;
    char roots[2][PATH_MAX];
    TRY(pool_create(&s->pool));
    TRY(roots_find(c, roots[0], roots[1]));
    bool own = roots[1][0] != '\0'; /* validation has a separate folder */
    const char *root = roots[!train && own];
    if (!(s->folder = pool_printf(s->pool, "%s", root))) return ERR_MEMORY;
    if (!train && own && !file_is_folder(root)) return FAIL(ERR_INPUT, "data.val: no folder %s", root);
    TRY(classes_list(s, like ? root : roots[0], like));
    if (!train && own && !like) TRY(folders_check(s, root));
    TRY(files_list(s, root, train || !own));
    if (c->on_error == ON_ERROR_SKIP) TRY(files_sift(s, train || !own, note));
    TRY(skipped_note(s, root, note));
    TRY(files_part(s, ask, own ? NULL : c->val ? c->val : "10%"));
    return files_probe(s, crc);
}

/* torchvision resizes to whole pixels. */
static double middle_part(const struct images_config *c) {
    double resize = c->resize ? (double)c->resize : (double)c->size / 0.875;
    if (c->resample == RESAMPLE_TORCHVISION) resize = round(resize);
    return c->resize || c->resample == RESAMPLE_TORCHVISION ? (double)c->size / resize : 0.875;
}

static enum error images_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct images_config *c = ask->config;
    uint32_t crc = 0;
    const char *note = NULL;
    if (!c->train) return FAIL(ERR_CONFIG, "data.train is missing\ngive a folder of pictures");
    if (c->resize && c->resize < c->size)
        return FAIL(ERR_CONFIG, "data.resize: %lld is less than data.size, %lld", (long long)c->resize,
                    (long long)c->size);
    struct images *s = memory_new(sizeof *s);
    if (!s) return ERR_MEMORY;
    pthread_mutex_init(&s->lock, NULL);
    enum error err = images_fill(s, ask, &crc, &note);
    s->base = (struct dataset){.ops = ask->ops,
                               .size = s->files.count,
                               .shape = {3, {3, c->size, c->size}},
                               .type = SAMPLE_U8,
                               .classes = s->classes.count,
                               .name = "images",
                               .note = note,
                               .held = s->base.held,
                               .plane = true,
                               .files = crc,
                               .part = middle_part(c),
                               .unreadable = s->unreadable,
                               .resample = c->resample};
    return dataset_give(err, &s->base, out);
}

static const char *images_class_name(const struct dataset *d, int64_t k) {
    const char *name = ((const struct images *)d)->classes.name[k];
    return *name ? name : NULL;
}

static bool images_recognises(const char *path) {
    struct listing l = {0};
    struct pool *pool;
    if (!file_is_folder(path) || pool_create(&pool) != ERR_NONE) return false;
    bool found = listing_read(path, "", listing_wants_folder, pool, &l) == ERR_NONE && l.count > 0;
    free(l.name);
    pool_free(pool);
    return found;
}

static const struct config_field fields[] = {
    {"train", CONFIG_PATH, offsetof(struct images_config, train),
     .help = "Folder that has a folder of pictures for each class, or that has two such folders, 'train' and 'val'"},
    {"val", CONFIG_PATH, offsetof(struct images_config, val),
     .help = "The same for validation, or how many pictures to hold out (500, 10%; data.split says which); default: "
             "the folder beside 'train', else 10%",
     .extra = &part_path},
    {"size", CONFIG_INT, offsetof(struct images_config, size), .standard = "224",
     .help = "Height and width of a sample", .min = 1, .max = 2048, .also = "image_size|img_size|resolution"},
    {"resize", CONFIG_INT, offsetof(struct images_config, resize), .standard = "auto",
     .help = "Length of the shorter side before the middle is cut out; auto: size / 0.875", .min = 1, .max = 65500,
     .choices = "auto"},
    {"resample", CONFIG_ENUM, offsetof(struct images_config, resample),
     .help = "engine (the default): resized and cut out in one step, JPEG decoded at a part of its size where that "
             "will do; torchvision: the bytes of its Resize(resize) and CenterCrop(size) on PIL images",
     .choices = "engine|torchvision", .also = "interpolation|antialias"},
    {"on_error", CONFIG_ENUM, offsetof(struct images_config, on_error),
     .help = "stop (the default): a picture that cannot be read stops the run when it is met; skip: every picture is "
             "decoded once when the set is opened, and those that cannot be read are named, counted and left out",
     .choices = "stop|skip", .also = "skip_errors|ignore_errors"},
    {0},
};

const struct dataset_ops dataset_images = {
    .section = {.name = "images",
                .fields = fields,
                .size = sizeof(struct images_config),
                .shorthand = "train",
                .also = "imagenet|imagefolder|image_folder|folder",
                .help = "JPEG, PNG and WebP pictures, with a folder for each class"},
    .recognises = images_recognises,
    .open = images_open,
    .read = images_read,
    .label = images_label,
    .close = images_close,
    .read_part = images_read_part,
    .class_name = images_class_name,
};
