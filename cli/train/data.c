/* engine data: what data sets there are, what is in one, what of it cannot be read, and writing one down so that it
 * needs no decoding. */
#include "cli/line/cli.h"

#include "cli/line/load.h"
#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "engine/data/loader.h"
#include "engine/data/prepare.h"
#include "engine/data/unreadable.h"
#include "engine/settings/run_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct data_options {
    struct cli_config config;
    const char *source, *folder;
};
#define OPTIONS_STRUCT struct data_options

/* ---- list ---- */
static int data_list(const struct cli *cli) {
    (void)cli;
    printf("data sets (data: NAME, data: PATH, or data: {set: NAME, ...}); engine help data has their keys:\n\n");
    for (int i = 0; i < dataset_variants.count; i++) {
        int n = printf("  %-8s ", dataset_variants.at(i)->name);
        help_wrap(dataset_variants.at(i)->help, n, n);
    }
    return 0;
}

/* ---- what the others share ---- */
struct data_opened {
    struct run_settings settings;
    struct dataset *train, *val;
};

static void opened_close(struct data_opened *o) {
    dataset_close(o->train);
    dataset_close(o->val);
    run_settings_free(&o->settings);
}

/* Opens both parts of what the command line names; what is wrong has been printed. */
static enum error opened_open(struct cli_config data, struct data_opened *o) {
    *o = (struct data_opened){0};
    enum error err = cli_alone(&data);
    if (err != ERR_NONE) return cli_fail(err), err;
    TRY(cli_load(&data, &o->settings));
    const struct run_config *config = &o->settings.config;
    err = dataset_open(&config->data, true, (uint64_t)config->seed, &o->train);
    if (err == ERR_NONE) err = dataset_open(&config->data, false, (uint64_t)config->seed, &o->val);
    if (err != ERR_NONE) cli_fail(err);
    return err;
}

/* A configuration's file, or a run's folder, or the name or path of a set, which is the same as data=SOURCE. */
static enum error data_source_take(struct cli_config *c, const char *source, struct pool *pool) {
    bool yaml = text_ends(source, ".yaml") || text_ends(source, ".yml") || !strcmp(source, "-");
    const char *config, *run_dir;
    if (yaml || (cli_run_dir(source, pool, &config, &run_dir) == ERR_NONE && run_dir)) {
        c->path = source;
        return ERR_NONE;
    }
    const char *quoted = cli_as_yaml(source, pool);
    /* What --set says changes it. */
    return quoted ? cli_set_first(c, pool_printf(pool, "data=%s", quoted)) : ERR_MEMORY;
}

/* ---- stats ---- */
enum { LOOKS = 10000, SECONDS = 5 };
struct data_look {  /* at a part */
    int64_t *count; /* of each class */
    int32_t *labels;
    void *x;
    float *target;
    int64_t read;
    double seconds;
};

static void look_free(struct data_look *l) {
    free(l->count);
    memory_free(l->labels);
    memory_free(l->x);
    memory_free(l->target);
}

static enum error look_alloc(struct data_look *l, const struct dataset *d) {
    if (!(l->count = calloc((size_t)d->classes + 1, sizeof *l->count)))
        return FAIL(ERR_MEMORY, "no memory to count %lld classes", (long long)d->classes);
    TRY_MEMORY(l->labels = memory_new((size_t)(d->labels + 1) * sizeof *l->labels));
    TRY(memory_alloc(dataset_sample_bytes(d), &l->x));
    TRY_MEMORY(l->target = memory_new((size_t)d->targets * sizeof *l->target));
    return ERR_NONE;
}

/* Samples from everywhere in the part, as many as there are, or as can be read in a moment. */
static enum error look_read(struct data_look *l, struct dataset *d) {
    int64_t n = d->size < LOOKS ? d->size : LOOKS, begin = clock_ns();
    for (int64_t i = 0; i < n && l->seconds < SECONDS; i++) {
        int64_t at = n == d->size ? i : (int64_t)((__int128)i * d->size / n);
        TRY(d->ops->read(d, at, l->x, l->labels, l->target));
        for (int64_t k = 0; k < d->labels; k++) l->count[l->labels[k]]++;
        l->read++;
        l->seconds = clock_seconds(clock_ns() - begin);
    }
    return ERR_NONE;
}

/* "tall", or "3" where classes have no names. */
static const char *data_label_text(const struct dataset *d, int64_t k, char out[256]) {
    const char *name = d->type == SAMPLE_TOKENS ? NULL : dataset_class_name(d, k);
    if (name)
        snprintf(out, 256, "%s", name);
    else
        snprintf(out, 256, "%lld", (long long)k);
    return text_defuse(out, "");
}

static void data_counts_print(const struct data_look *l, const struct dataset *d) {
    enum { SHOWN = 20 };
    int64_t least = INT64_MAX, most = 0, none = 0;
    for (int64_t k = 0; k < d->classes; k++) {
        least = l->count[k] < least ? l->count[k] : least;
        most = l->count[k] > most ? l->count[k] : most;
        none += l->count[k] == 0;
    }
    printf("  of the %lld read:", (long long)l->read);
    for (int64_t k = 0; k < d->classes && k < SHOWN; k++) {
        char shown[256];
        bool named = d->type != SAMPLE_TOKENS && dataset_class_name(d, k);
        printf(named ? "%s %s %lld" : "%s %s:%lld", named && k ? "," : "", data_label_text(d, k, shown),
               (long long)l->count[k]);
    }
    printf("%s\n  least %lld, most %lld; %lld never\n", d->classes > SHOWN ? " ..." : "", (long long)least,
           (long long)most, (long long)none);
}

static void data_text_print(const struct dataset *d, const struct data_look *l) {
    char text[8];
    const int32_t *x = l->x;
    printf("  begins      \"");
    for (int64_t k = 0; k < d->labels && k < 60; k++)
        for (int i = 0, n = dataset_decode(d, x[k], text); i < n; i++)
            if (text[i] == '\n')
                printf("\\n");
            else
                putchar((unsigned char)text[i] < 32 ? '?' : text[i]);
    printf("\"\n");
}

static enum error data_first_print(struct dataset *d, struct data_look *l) {
    enum { SHOWN = 16 };
    printf("  first %s", d->classes ? "labels" : "targets");
    int64_t n = d->labels > 1 ? 1 : d->size < SHOWN ? d->size : SHOWN;
    for (int64_t i = 0; i < n; i++) {
        TRY(d->ops->read(d, i, l->x, l->labels, l->target));
        char shown[256];
        for (int64_t k = 0; k < d->labels && k < SHOWN; k++) printf(" %s", data_label_text(d, l->labels[k], shown));
        for (int64_t k = 0; k < d->targets && k < 4; k++) printf(" %g", (double)l->target[k]);
    }
    printf("\n");
    char text[8];
    if (d->type == SAMPLE_TOKENS && dataset_decode(d, 0, text)) data_text_print(d, l);
    return ERR_NONE;
}

/* "channel 0   ", or the name of a table's column, of which the target's comes after those of the values. */
static void moment_head_print(const struct dataset *d, const char *what, int k, int column) {
    const char *name = d->shape.ndim == 1 ? dataset_column_name(d, column) : NULL;
    char plain[32], defused[64];
    snprintf(plain, sizeof plain, "%s %d", what, k);
    if (name) snprintf(defused, sizeof defused, "%.60s", name);
    printf("  %-11s ", name ? text_defuse(defused, "") : plain);
}

static enum error moments_print(struct dataset *d, const struct data_config *c) {
    struct data_config measured = *c;
    struct normalization n;
    if (d->type == SAMPLE_TOKENS) return ERR_NONE;
    measured.normalize = NULL; /* auto */
    TRY(normalization_find(d, &measured, &n));
    for (int k = 0; k < n.channels; k++) {
        double mean, std;
        normalization_tell(d, &n, k, &mean, &std);
        moment_head_print(d, "channel", k, k);
        printf("mean %.6g  deviation %.6g\n", mean, std);
    }
    for (int k = 0; k < n.targets; k++) {
        moment_head_print(d, "target", k, n.channels + k);
        printf("mean %.6g  deviation %.6g\n", (double)n.target_mean[k], 1 / (double)n.target_scale[k]);
    }
    return ERR_NONE;
}

static enum error part_print(struct dataset *d, const struct data_config *c, const char *what) {
    struct data_look l = {0};
    char shape[96], size[32], all[32], split[64] = "";
    if (!strcmp(what, "validation")) dataset_split_words(d, split);
    printf("%s\n  samples     %s of %s %s, %s in all%s%s\n", what, text_of_count(d->size, size),
           shape_text(&d->shape, shape), sample_types[d->type],
           text_of_bytes((double)d->size * (double)dataset_sample_bytes(d), all), *split ? ", " : "", split);
    enum error err = look_alloc(&l, d);
    if (err == ERR_NONE) err = look_read(&l, d);
    if (err == ERR_NONE && d->classes) {
        printf("  classes     %lld\n", (long long)d->classes);
        data_counts_print(&l, d);
    }
    if (err == ERR_NONE) err = moments_print(d, c);
    if (err == ERR_NONE) err = data_first_print(d, &l);
    if (err == ERR_NONE) printf("  reading     %.0f samples/s, one thread\n", (double)l.read / (l.seconds + 1e-9));
    look_free(&l);
    return err;
}

static enum error data_stats(const struct data_options *asked) {
    struct data_opened o;
    enum error err = opened_open(asked->config, &o);
    if (err == ERR_NONE) {
        const struct data_config *config = &o.settings.config.data;
        dataset_tell(o.train, o.val);
        printf("data '%s'\n", o.train->name);
        err = part_print(o.train, config, "training");
        if (err == ERR_NONE) err = part_print(o.val, config, "validation");
        if (err != ERR_NONE) cli_fail(err);
    }
    opened_close(&o);
    return err;
}

/* ---- check ---- */
/* Asks a set that can leave out what cannot be read to do so: all of that is then known. */
static enum error data_skip_set(struct cli_config *c) {
    struct run_settings s;
    bool skips = false;
    TRY(cli_load(c, &s));
    for (const struct config_field *f = dataset_variants.at(s.config.data.set.index)->fields; f->key; f++)
        skips |= !strcmp(f->key, "on_error");
    run_settings_free(&s);
    return skips ? cli_set(c, "data.on_error=skip") : ERR_NONE;
}

static int64_t data_unreadable_print(const struct unreadable *u) {
    for (int64_t i = 0; i < u->count; i++) printf("  %s\n", u->sample[i].why);
    return u->count;
}

/* Reads each sample of a part where opening the set has not done so. */
static enum error part_check(struct dataset *d, const char *what, int64_t *bad) {
    struct data_look l = {0};
    int64_t before = *bad;
    enum error err = look_alloc(&l, d);
    for (int64_t i = 0; err == ERR_NONE && !d->unreadable && i < d->size; i++) {
        err = d->ops->read(d, i, l.x, l.labels, l.target);
        if (err != ERR_DATA) continue;
        printf("  %s\n", error_message());
        ++*bad;
        err = ERR_NONE;
    }
    look_free(&l);
    if (err == ERR_NONE) printf("%-11s %lld samples can be read\n", what, (long long)(d->size - *bad + before));
    return err;
}

static enum error parts_check(const struct data_opened *o) {
    const struct unreadable *train = o->train->unreadable, *val = o->val->unreadable;
    int64_t bad = 0;
    printf("data '%s'\n", o->train->name);
    if (train) bad += data_unreadable_print(train);
    if (val && val != train) bad += data_unreadable_print(val);
    TRY(part_check(o->train, "training", &bad));
    TRY(part_check(o->val, "validation", &bad));
    fflush(stdout); /* before the error */
    if (!bad) return ERR_NONE;
    return FAIL(ERR_DATA, "%lld of the samples cannot be read%s", (long long)bad,
                train ? "\nremove these files; with data.on_error: skip a run leaves them out" : "");
}

static enum error data_check(const struct data_options *asked) {
    struct cli_config config = asked->config;
    struct data_opened o = {0};
    TRY(data_skip_set(&config));
    enum error err = opened_open(config, &o);
    if (err == ERR_NONE && (err = parts_check(&o)) != ERR_NONE) cli_fail(err);
    opened_close(&o);
    return err;
}

/* ---- prepare ---- */
/* "train: FOLDER/train.bin" with the file's path in quotes where it needs them. */
static const char *prepared_path(const char *key, const char *folder, const char *file, struct pool *pool) {
    const char *path = pool_printf(pool, "%s/%s", folder, file), *quoted = path ? cli_as_yaml(path, pool) : NULL;
    return quoted ? pool_printf(pool, "%s: %s", key, quoted) : NULL;
}

static enum error data_prepared_print(const struct dataset *d, const char *folder, struct pool *pool) {
    bool tokens = d->type == SAMPLE_TOKENS, bytes = tokens && dataset_prepared_bytes(d);
    char text[8];
    const char *train = prepared_path("train", folder, tokens ? "train.bin" : "train-images.npy", pool),
               *val = prepared_path("val", folder, tokens ? "val.bin" : "val-images.npy", pool),
               *characters = bytes ? "characters: bytes" : prepared_path("characters", folder, "characters.txt", pool);
    if (!train || !val || !characters) return ERR_MEMORY;
    printf("data: {set: %s, %s, %s", tokens ? "tokens" : "npy", train, val);
    if (tokens)
        printf(", type: %s, vocabulary: %lld, context: %lld", dataset_prepared_short(d) ? "u16" : "i32",
               (long long)d->classes, (long long)d->labels);
    else if (d->classes)
        printf(", classes: %lld", (long long)d->classes);
    printf("%s%s}\n", dataset_decode(d, 0, text) ? ", " : "", dataset_decode(d, 0, text) ? characters : "");
    return ERR_NONE;
}

static enum error data_prepare(const struct data_options *asked) {
    struct data_opened o;
    const char *folder = asked->folder;
    enum error err = opened_open(asked->config, &o);
    if (err == ERR_NONE) {
        dataset_tell(o.train, o.val);
        err = dataset_prepare(o.train, folder, "train");
        if (err == ERR_NONE) err = dataset_prepare(o.val, folder, "val");
        char some[8];
        if (err == ERR_NONE && dataset_decode(o.train, 0, some) && !dataset_prepared_bytes(o.train))
            err = dataset_prepare_characters(o.train, folder);
        if (err == ERR_NONE) err = data_prepared_print(o.train, folder, o.settings.pool);
        if (err != ERR_NONE) cli_fail(err);
        const struct node *augment = o.settings.config.data.augment;
        if (err == ERR_NONE && augment && (augment->kind != NODE_LIST || augment->count))
            fputs("add its 'augment': only samples without augmentation are written\n", stderr);
    }
    opened_close(&o);
    return err;
}

/* ---- the command ---- */
static int data_with_source(const struct cli *cli) {
    struct data_options *o = cli->options;
    const char *form = cli->form->name;
    enum error (*work)(const struct data_options *) = !strcmp(form, "stats")   ? data_stats
                                                      : !strcmp(form, "check") ? data_check
                                                                               : data_prepare;
    enum error err = o->source ? data_source_take(&o->config, o->source, cli->pool) : ERR_NONE;
    return err == ERR_NONE ? error_exit_code(work(o)) : cli_fail(err);
}

// clang-format off
#define SOURCE "SOURCE", NULL, "a configuration (.yaml), the name of a set, or its file or folder", \
    CONFIG_STRING, AT(source)
#define SET OPTION_SET(config, "changes one key, as in 'engine run': --set data.size=64")
#define BOTH "prepare needs SOURCE and FOLDER"
// clang-format on
static const struct option stats_options[] = {{SOURCE}, SET, {0}};
static const struct option prepare_options[] = {
    {SOURCE, .missing = BOTH}, {"FOLDER", NULL, NULL, CONFIG_STRING, AT(folder), .missing = BOTH}, SET, {0}};
static const struct command forms[] = {
    {"list", "lists the sets", .run = data_list},
    {"stats", "shows samples, shape, classes, mean and deviation, and the reading speed", OPTIONS(stats_options),
     .run = data_with_source},
    {"check", "reads every sample, and names each file that cannot be read: exit code 65 if there is one",
     OPTIONS(stats_options), .run = data_with_source},
    {"prepare",
     "decodes pictures once, at the configuration's size, writes FOLDER/train-images.npy and similar files (train.bin "
     "for tokens), and prints the 'data' section that reads them",
     OPTIONS(prepare_options), .run = data_with_source}};

const struct command command_data = {
    .name = "data",
    .also = "datasets|dataset",
    .summary = "lists data sets, shows what is in one, checks that it can be read, or writes one for fast reading",
    .notes = "exit codes: 0 done, 64 usage, 65 bad data, 66 no such file, 73/74 cannot write, 78\n"
             "bad configuration\n",
    .forms = (const struct command *const[]){forms, forms + 1, forms + 2, forms + 3, NULL},
};
