/* engine init: looks at data and writes a configuration that trains on them as it is. What is written has been read by the
 * same parser as any other, and its data and model have been opened. */
#include "cli/train/init.h"

#include "cli/line/load.h"
#include "cli/use/pictures.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/data/find.h"
#include "engine/data/image.h"
#include "engine/data/unreadable.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"
#include "engine/train/job_check.h"
#include "engine/train/stop.h"
#include "modes/modes.h"
#include "transport/algo/algo.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct init_options {
    const char *data, *output;
    bool force;
};
#define OPTIONS_STRUCT struct init_options

/* ---- reading what will be written ---- */

static enum error init_settings_parse(const char *text, const char *path, struct pool *pool, struct run_settings *out,
                                      struct config_errors *e) {
    struct node *tree;
    int n;
    TRY(tree_parse(text, strlen(text), path, pool, e, &tree));
    return run_settings_from(tree, &(struct run_ask){.modes = mode_kinds(&n), .algorithms = algo_names()}, out, e);
}

/* The settings of a configuration's text, as if it stood in the file 'path'; run_settings_free in any case. */
static enum error init_settings_of(const char *text, const char *path, struct pool *pool, struct run_settings *out) {
    struct config_errors *e;
    *out = (struct run_settings){0};
    TRY(config_errors_create(&e));
    enum error err = init_settings_parse(text, path, pool, out, e);
    const char *report = config_errors_count(e) ? config_errors_text(e, pool) : NULL;
    if (report) err = FAIL(ERR_CONFIG, "%s", report);
    config_errors_free(e);
    return err;
}

/* The whole of it: data and model fit each other, and a step is possible. */
static enum error init_settings_check(const char *text, const char *path, struct pool *pool) {
    struct run_settings s;
    struct job_facts facts;
    enum error err = init_settings_of(text, path, pool, &s);
    const struct job job = {.settings = &s, .mode = s.mode, .processes = 1, .process = {.rank = -1, .meeting_fd = -1}};
    if (err == ERR_NONE) err = cli_check(&job, &facts);
    run_settings_free(&s);
    return err;
}

/* ---- looking ---- */

/* The middle of the shorter sides of some pictures, and how many there are. */
static enum error init_look_at_pictures(const char *folder, struct pool *pool, int64_t *side, int64_t *count) {
    enum { LOOKS = 64 };
    struct pictures all;
    int sides[LOOKS], n = 0, width, height;
    TRY(pictures_find(folder, pool, &all));
    for (int64_t i = 0; i < all.count && i < LOOKS; i++) {
        const char *path = all.path[all.count <= LOOKS ? i : i * all.count / LOOKS];
        if (image_probe(path, &width, &height) != ERR_NONE) continue; /* opening the set will say so */
        int k = n++, shorter = width < height ? width : height;
        for (; k > 0 && sides[k - 1] > shorter; k--) sides[k] = sides[k - 1];
        sides[k] = shorter;
    }
    *side = n ? sides[n / 2] : 0;
    *count = all.count;
    return ERR_NONE;
}

/* ": cat, dog, ..." */
static const char *init_names_of(const struct dataset *d, struct pool *pool) {
    enum { SHOWN = 8 };
    const char *all = "";
    if (d->type == SAMPLE_TOKENS || d->classes == 0 || !dataset_class_name(d, 0)) return all;
    for (int64_t k = 0; k < d->classes && k < SHOWN && all; k++) {
        char name[64];
        snprintf(name, sizeof name, "%.60s", dataset_class_name(d, k));
        all = pool_printf(pool, "%s%s%s", all, k ? ", " : "", text_defuse(name, ""));
    }
    return all && d->classes > SHOWN ? pool_printf(pool, "%s, ...", all) : all;
}

static bool init_are_characters(const struct dataset *d) {
    bool all = d->type != SAMPLE_TOKENS && d->classes > 0;
    for (int64_t k = 0; k < d->classes && all; k++) {
        const char *name = dataset_class_name(d, k);
        all = name && *name && text_utf8(name, strlen(name)) == strlen(name);
    }
    return all;
}

/* Whether the targets are -1 and 1, which mean two classes. */
static enum error facts_find_signs(struct dataset *d, struct pool *pool, bool *signs) {
    float *x = pool_alloc(pool, dataset_sample_bytes(d)), target = 1;
    int64_t below = 0;
    *signs = false;
    if (!x) return ERR_MEMORY;
    for (int64_t i = 0; i < d->size && fabsf(target) == 1; i++) {
        TRY(d->ops->read(d, i, x, NULL, &target));
        below += target < 0;
    }
    *signs = fabsf(target) == 1 && below > 0 && below < d->size;
    return ERR_NONE;
}

static enum error facts_take(const struct run_settings *s, struct pool *pool, struct init_facts *f) {
    struct dataset *train, *val;
    const struct data_config *c = &s->config.data;
    TRY(dataset_open(c, true, 0, &train));
    enum error err = dataset_open(c, false, 0, &val);
    if (err == ERR_NONE) {
        dataset_split_words(val, f->split);
        f->train = train->size, f->val = val->size, f->shape = train->shape, f->type = train->type;
        f->plane = train->plane, f->classes = train->classes, f->targets = train->targets;
        f->values = train->classes == 0;
        f->unreadable = train->unreadable ? train->unreadable->count : 0;
        if (val->unreadable && val->unreadable != train->unreadable) f->unreadable += val->unreadable->count;
        f->names = init_names_of(train, pool);
        f->characters = init_are_characters(train);
        const char *column = train->shape.ndim == 1 ? dataset_column_name(train, shape_count(&train->shape)) : NULL;
        f->target = column ? cli_as_yaml(column, pool) : NULL;
        if (!f->names || (column && !f->target)) err = ERR_MEMORY;
        if (err == ERR_NONE && f->target && train->targets == 1) err = facts_find_signs(train, pool, &f->signs);
        dataset_close(val);
    }
    dataset_close(train);
    f->set = dataset_variants.at(c->set.index)->name;
    f->own_parts = !node_get(node_get(s->tree, "data"), "val");
    return err;
}

/* Many whole numbers, most of them rare, are no classes. */
static bool init_are_values(const struct init_facts *f) {
    return f->shape.ndim == 1 && f->type == SAMPLE_F32 && f->classes > 50 && f->classes * 4 > f->train;
}

static enum error facts_look_once(const char *keys, const char *path, struct pool *pool, struct init_facts *f) {
    struct run_settings s;
    const char *text = pool_printf(pool, f->generated ? "%sdata: {set: %s}\n" : "%sdata: {train: %s%s%s%s}\n",
                                   f->values ? "loss: mse\n" : "", f->data, f->val_file ? ", val: " : "",
                                   f->val_file ? f->val_file : "", keys);
    if (!text) return ERR_MEMORY;
    enum error err = init_settings_of(text, path, pool, &s);
    if (err == ERR_NONE) err = facts_take(&s, pool, f);
    run_settings_free(&s);
    return err;
}

/* The context that leaves some windows to train on. */
static int64_t init_chosen_context(const char *data) {
    enum { MOST = 128, LEAST = 8, WINDOWS = 200 };
    FILE *f = fopen(data, "rb");
    int64_t context = MOST;
    if (!f || fseek(f, 0, SEEK_END) != 0) return MOST;
    while (context > LEAST && ftell(f) / context < WINDOWS) context /= 2;
    fclose(f);
    return context;
}

static enum error facts_look(const char *data, const char *path, struct pool *pool, struct init_facts *f) {
    enum { TRIED_MOST = 10000 }; /* pictures that are decoded in some seconds */
    const char *keys = "";
    int64_t count;
    if (f->generated) return facts_look_once(keys, path, pool, f);
    int kind = dataset_recognise(data);
    f->set = kind < 0 ? "" : dataset_variants.at(kind)->name;
    if (!strcmp(f->set, "images")) {
        TRY(init_look_at_pictures(data, pool, &f->side, &count));
        f->size = f->side <= 48 ? 32 : f->side < 160 ? 64 : 128;
        keys = pool_printf(pool, ", size: %lld%s", (long long)f->size, count <= TRIED_MOST ? ", on_error: skip" : "");
    } else if (!strcmp(f->set, "text") || !strcmp(f->set, "tokens")) {
        f->context = init_chosen_context(data);
        keys = pool_printf(pool, ", context: %lld", (long long)f->context);
    }
    if (!keys) return ERR_MEMORY;
    TRY(facts_look_once(keys, path, pool, f));
    f->values &= !f->signs;
    if (f->signs) return facts_look_once(pool_printf(pool, ", categorical: [%s]", f->target), path, pool, f);
    f->values |= init_are_values(f);
    return f->values && f->classes ? facts_look_once(keys, path, pool, f) : ERR_NONE;
}

/* ---- the file ---- */

/* The data as they are seen from the file: as given where both are seen from here, else from everywhere. */
static const char *init_seen_from(const char *data, const char *path, struct pool *pool) {
    char full[PATH_MAX];
    if (*data == '/' || !strchr(path, '/')) return cli_as_yaml(data, pool);
    return realpath(data, full) ? cli_as_yaml(full, pool) : NULL;
}

/* "photos.yaml" of "../photos/". */
static const char *init_name_of(const char *data, struct pool *pool) {
    char full[PATH_MAX];
    const char *name = realpath(data, full) && full[1] ? strrchr(full, '/') + 1 : data;
    size_t n = strcspn(name, ".");
    char *out = pool_printf(pool, "%.*s.yaml", n ? (int)n : 3, n ? name : "run");
    for (char *c = out; c && *c; c++)
        if (strchr(" '\"\\$`&|;<>()*?[]{}#~!", *c) || (unsigned char)*c < 32) *c = '-'; /* a word for every shell */
    return out;
}

static bool init_is_generated(const char *data) {
    int count;
    const struct dataset_ops *const *kinds = dataset_kinds(&count);
    for (int i = 0; i < count; i++)
        if (!kinds[i]->recognises && !strcmp(kinds[i]->section.name, data)) return true;
    return false;
}

static enum error init_data_locate(const char *data, struct pool *pool, struct data_files *out) {
    if (file_exists(data)) return data_find(data, pool, out);
    return FAIL(ERR_INPUT, "no file or folder '%s'\nnor is it the name of a generated set (engine data list)", data);
}

static enum error init_write(const char *path, const char *text, bool force) {
    if (!strcmp(path, "-")) return file_write_console(STDOUT_FILENO, text, strlen(text));
    if (!force && file_exists(path))
        return FAIL(ERR_CREATE, "'%s' is there already\nname another by -o FILE, or overwrite it by --force", path);
    return file_replace(path, text, strlen(text));
}

static void init_report(const struct init_facts *f, const struct init_length *length, const char *path,
                        struct pool *pool) {
    char train[32], val[32];
    if (!strcmp(path, "-")) return;
    printf("%s: data '%s', %s samples to train on, %s to validate%s%s%s", path, f->set, text_of_count(f->train, train),
           text_of_count(f->val, val), *f->split ? " (" : "", f->split, *f->split ? ")" : "");
    if (f->classes)
        printf(", %lld %s", (long long)f->classes, f->type == SAMPLE_TOKENS ? "different tokens" : "classes");
    printf("\n");
    fflush(stdout); /* measuring takes seconds */
    init_measure(length, path, pool);
    printf("train: engine run %s\n", path);
}

static enum error init_make(const struct init_options *o, struct pool *pool) {
    const char *data = o->data ? o->data : "digits", *path = o->output;
    struct init_facts f = {.generated = init_is_generated(data)};
    struct data_files files = {.train = data};
    if (!f.generated) TRY(init_data_locate(data, pool, &files));
    if (!path && !(path = init_name_of(data, pool))) return ERR_MEMORY;
    const char *as = strcmp(path, "-") ? path : "run.yaml";
    f.data = f.generated ? data : init_seen_from(files.train, as, pool);
    f.val_file = files.val ? init_seen_from(files.val, as, pool) : NULL;
    if (!f.data || (files.val && !f.val_file)) return ERR_MEMORY;
    if (!o->force && strcmp(path, "-") != 0 && file_exists(path)) return init_write(path, "", false);
    TRY(facts_look(files.train, as, pool, &f));
    struct init_length length;
    const char *text = init_text(&f, as, pool, &length);
    if (!text) return ERR_MEMORY;
    TRY(init_settings_check(text, as, pool));
    TRY(init_write(path, text, o->force));
    init_report(&f, &length, path, pool);
    return ERR_NONE;
}

static int init_command(const struct cli *cli) {
    int code = cli_end(init_make(cli->options, cli->pool));
    return code || !stop_signal() ? code : stop_exit_code(stop_signal());
}

static const char *init_generated_name(int i) {
    int count;
    const struct dataset_ops *const *kinds = dataset_kinds(&count);
    for (int k = 0; k < count; k++)
        if (!kinds[k]->recognises && i-- == 0) return kinds[k]->section.name;
    return NULL;
}

static const struct option options[] = {{"DATA", NULL,
                                         "a folder with a folder of pictures for each class, a .csv, .txt, .npy or "
                                         ".bin file or a folder with it, MNIST's or CIFAR's files, or the "
                                         "name of a generated set; digits by itself",
                                         CONFIG_STRING, AT(data), .word = init_generated_name, .one = "data"},
                                        {"--output", "FILE",
                                         "the file to write, by itself DATA's name and .yaml; -: standard output",
                                         CONFIG_STRING, AT(output), .also = "-o"},
                                        {"--force", NULL, "overwrites a file that is there", CONFIG_BOOL, AT(force)},
                                        {0}};

const struct command command_init = {
    .name = "init",
    .also = "new|create|setup",
    .summary = "looks at data and writes a configuration that trains on them as it is",
    OPTIONS(options),
    .notes = "The model, the size of pictures and batch, the length and the optimizer are chosen by what the data are; "
             "each line\n"
             "of the file says why. Then it trains for a second, in a folder that it removes, and prints how long the\n"
             "training will take here. Exit codes: 0; 64 usage; 65 bad data; 66 no such data; 73 the file is there\n",
    .run = init_command,
};
