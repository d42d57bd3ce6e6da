/* engine data: what data sets there are, what is in one, and writing one down so that it needs no
 * decoding. */
#include "cli/cli.h"

#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "engine/data/prepare.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct command command_data;

/* ---- list ---- */
static void field_print(const struct config_field *f) {
    printf("    %-11s %s", f->key, f->help);
    if (f->choices && f->type == CONFIG_ENUM) printf(" (%s)", f->choices);
    if (f->standard) printf("; default %s", f->standard);
    printf("\n");
}

static void section_print(const struct config_section *s) {
    printf("  %s: %s\n", s->name, s->help);
    for (const struct config_field *f = s->fields; f->key; f++) field_print(f);
}

static int list_run(void) {
    printf("data sets (data: NAME, data: PATH, or data: {set: NAME, ...}), and their keys:\n\n");
    for (int i = 0; i < dataset_variants.count; i++) section_print(dataset_variants.at(i));
    printf("\n");
    section_print(dataset_variants.common);
    return 0;
}

/* ---- what stats and prepare share ---- */
struct opened {
    struct run_settings settings;
    struct dataset *train, *val;
};

static void opened_close(struct opened *o) {
    dataset_close(o->train);
    dataset_close(o->val);
    run_settings_free(&o->settings);
}

static enum error opened_open(const struct cli_config *c, struct opened *o) {
    *o = (struct opened){0};
    TRY(cli_load(c, &o->settings));
    const struct run_config *config = &o->settings.config;
    enum error err = dataset_open(&config->data, true, (uint64_t)config->seed, &o->train);
    if (err == ERR_NONE) err = dataset_open(&config->data, false, (uint64_t)config->seed, &o->val);
    if (err != ERR_NONE) cli_fail(err);
    return err;
}

/* A configuration's file, or the name or path of a set, which is the same as data=SOURCE. */
static enum error source_take(struct cli_config *c, const char *source, char text[4096]) {
    size_t n = strlen(source);
    bool yaml = (n > 5 && !strcmp(source + n - 5, ".yaml")) ||
                (n > 4 && !strcmp(source + n - 4, ".yml")) || !strcmp(source, "-");
    if (yaml) {
        c->path = source;
        return ERR_NONE;
    }
    size_t plain = 0;
    while (isalnum((unsigned char)source[plain]) ||
           strchr("_./-", source[plain] ? source[plain] : 1))
        plain++;
    if (n > 2000 || strpbrk(source, "\"\\\n"))
        return FAIL(ERR_USAGE, "'%.60s' is no name of a set or path that can be written in YAML",
                    source);
    snprintf(text, 4096, plain == n ? "data=%s" : "data=\"%s\"", source);
    return cli_set(c, text);
}

/* ---- stats ---- */
enum { LOOKS = 10000, SECONDS = 5 };
struct look {       /* at a part */
    int64_t *count; /* of each class */
    int32_t *labels;
    void *x;
    float *target;
    int64_t read;
    double seconds;
};

static void look_free(struct look *l) {
    free(l->count);
    memory_free(l->labels);
    memory_free(l->x);
    memory_free(l->target);
}

static enum error look_alloc(struct look *l, const struct dataset *d) {
    if (!(l->count = calloc((size_t)d->classes + 1, sizeof *l->count)))
        return FAIL(ERR_MEMORY, "no memory to count %lld classes", (long long)d->classes);
    TRY(memory_alloc((size_t)(d->labels + 1) * sizeof *l->labels, (void **)&l->labels));
    TRY(memory_alloc(dataset_sample_bytes(d), &l->x));
    return memory_alloc((size_t)d->targets * sizeof *l->target, (void **)&l->target);
}

/* Samples from everywhere in the part, as many as there are, or as can be read in a moment. */
static enum error look_read(struct look *l, struct dataset *d) {
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

static void counts_print(const struct look *l, const struct dataset *d) {
    enum { SHOWN = 20 };
    int64_t least = INT64_MAX, most = 0, none = 0;
    for (int64_t k = 0; k < d->classes; k++) {
        least = l->count[k] < least ? l->count[k] : least;
        most = l->count[k] > most ? l->count[k] : most;
        none += l->count[k] == 0;
    }
    printf("  of the %lld read:", (long long)l->read);
    for (int64_t k = 0; k < d->classes && k < SHOWN; k++)
        printf(" %lld:%lld", (long long)k, (long long)l->count[k]);
    printf("%s\n  least %lld, most %lld; %lld never\n", d->classes > SHOWN ? " ..." : "",
           (long long)least, (long long)most, (long long)none);
}

static void text_print(const struct dataset *d, const struct look *l) {
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

static enum error first_print(struct dataset *d, struct look *l) {
    enum { SHOWN = 16 };
    printf("  first %s", d->classes ? "labels" : "targets");
    int64_t n = d->labels > 1 ? 1 : d->size < SHOWN ? d->size : SHOWN;
    for (int64_t i = 0; i < n; i++) {
        TRY(d->ops->read(d, i, l->x, l->labels, l->target));
        for (int64_t k = 0; k < d->labels && k < SHOWN; k++) printf(" %d", l->labels[k]);
        for (int64_t k = 0; k < d->targets && k < 4; k++) printf(" %g", (double)l->target[k]);
    }
    printf("\n");
    char text[8];
    if (d->type == SAMPLE_TOKENS && dataset_decode(d, 0, text)) text_print(d, l);
    return ERR_NONE;
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
        printf("  channel %d   mean %.4f  deviation %.4f%s\n", k, mean, std,
               k ? "" : "  (first 1000 samples)");
    }
    return ERR_NONE;
}

static enum error part_print(struct dataset *d, const struct data_config *c, const char *what) {
    static const char *const types[] = {"bytes", "floats", "tokens"};
    struct look l = {0};
    char shape[96], size[32], all[32];
    printf("%s\n  samples     %s of %s %s, %s in all\n", what, text_of_count(d->size, size),
           shape_text(&d->shape, shape), types[d->type],
           text_of_bytes((double)d->size * (double)dataset_sample_bytes(d), all));
    enum error err = look_alloc(&l, d);
    if (err == ERR_NONE) err = look_read(&l, d);
    if (err == ERR_NONE && d->classes) {
        printf("  classes     %lld\n", (long long)d->classes);
        counts_print(&l, d);
    }
    if (err == ERR_NONE) err = moments_print(d, c);
    if (err == ERR_NONE) err = first_print(d, &l);
    if (err == ERR_NONE)
        printf("  reading     %.0f samples/s, one thread\n", (double)l.read / (l.seconds + 1e-9));
    look_free(&l);
    return err;
}

static enum error stats(const struct cli_config *c) {
    struct opened o;
    enum error err = opened_open(c, &o);
    if (err == ERR_NONE) {
        const struct data_config *config = &o.settings.config.data;
        printf("data '%s'\n", o.train->name);
        err = part_print(o.train, config, "training");
        if (err == ERR_NONE) err = part_print(o.val, config, "validation");
        if (err != ERR_NONE) cli_fail(err);
    }
    opened_close(&o);
    return err;
}

/* ---- prepare ---- */
static void prepared_print(const struct dataset *d, const char *folder) {
    char text[8];
    if (d->type == SAMPLE_TOKENS)
        printf("data: {set: tokens, train: %s/train.bin, val: %s/val.bin, type: %s, vocabulary: "
               "%lld, context: %lld%s%s%s}\n",
               folder, folder, dataset_prepared_short(d) ? "u16" : "i32", (long long)d->classes,
               (long long)d->labels, dataset_decode(d, 0, text) ? ", characters: " : "",
               !dataset_decode(d, 0, text) ? ""
               : dataset_prepared_bytes(d) ? "bytes"
                                           : folder,
               dataset_decode(d, 0, text) && !dataset_prepared_bytes(d) ? "/characters.txt" : "");
    else if (d->classes)
        printf("data: {set: npy, train: %s/train-images.npy, val: %s/val-images.npy, classes: "
               "%lld}\n",
               folder, folder, (long long)d->classes);
    else
        printf("data: {set: npy, train: %s/train-images.npy, val: %s/val-images.npy}\n", folder,
               folder);
}

static enum error prepare(const struct cli_config *c, const char *folder) {
    struct opened o;
    enum error err = opened_open(c, &o);
    if (err == ERR_NONE) {
        err = dataset_prepare(o.train, folder, "train");
        if (err == ERR_NONE) err = dataset_prepare(o.val, folder, "val");
        char some[8];
        if (err == ERR_NONE && dataset_decode(o.train, 0, some) && !dataset_prepared_bytes(o.train))
            err = dataset_prepare_characters(o.train, folder);
        if (err == ERR_NONE)
            prepared_print(o.train, folder);
        else
            cli_fail(err);
        const struct node *augment = o.settings.config.data.augment;
        if (err == ERR_NONE && augment && (augment->kind != NODE_LIST || augment->count))
            fputs("add its 'augment': only samples as they lie are written down\n", stderr);
    }
    opened_close(&o);
    return err;
}

/* ---- the command ---- */
/* The words that are no options. They are found first, as --set changes what the source says. */
static int words_find(int argc, char **argv, const char *words[2], int most) {
    int n = 0;
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], "--set"))
            i++;
        else if (argv[i][0] != '-' || !argv[i][1]) {
            if (n == most) return cli_usage(&command_data, "'%s' is one word too many", argv[i]);
            words[n++] = argv[i];
        }
    return 0;
}

static int options_take(int argc, char **argv, struct cli_config *c) {
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--set")) {
            if (++i == argc) return cli_usage(&command_data, "--set needs KEY=VALUE");
            if (cli_set(c, argv[i]) != ERR_NONE) return cli_fail(ERR_USAGE);
        } else if (argv[i][0] == '-' && argv[i][1])
            return cli_usage(&command_data, "unknown option '%s'", argv[i]);
    }
    return 0;
}

static int data_run(int argc, char **argv) {
    struct cli_config c = {0};
    const char *what = argc > 1 ? argv[1] : "", *words[2] = {0};
    char text[4096];
    bool prepares = !strcmp(what, "prepare");
    if (!strcmp(what, "list") && argc == 2) return list_run();
    if (!*what) return cli_usage(&command_data, "list, stats or prepare?");
    if (!prepares && strcmp(what, "stats"))
        return cli_usage(&command_data, "list, stats or prepare, not '%s'", what);
    int code = words_find(argc, argv, words, prepares ? 2 : 1);
    if (code) return code;
    if (prepares && !words[1]) return cli_usage(&command_data, "prepare needs SOURCE and FOLDER");
    enum error err = words[0] ? source_take(&c, words[0], text) : ERR_NONE;
    if (err != ERR_NONE) return cli_fail(err);
    if ((code = options_take(argc, argv, &c))) return code;
    return error_exit_code(prepares ? prepare(&c, words[1]) : stats(&c));
}

const struct command command_data = {
    .name = "data",
    .arguments = "list | stats [SOURCE] | prepare SOURCE FOLDER  [--set KEY=VALUE]...",
    .summary = "data sets: which there are, what is in one, writing one down for fast reading",
    .help = "  SOURCE           a configuration (.yaml), the name of a set, or its file or folder\n"
            "  --set KEY=VALUE  changes one key, as in 'engine run': --set data.size=64\n"
            "\n"
            "  list             the sets and their keys\n"
            "  stats            samples, shape, classes, mean and deviation, how fast it is read\n"
            "  prepare          writes FOLDER/train-images.npy and its like, or train.bin for\n"
            "                   tokens, and prints the 'data' that reads them: pictures decoded\n"
            "                   once, at the size that the configuration asks for\n"
            "\n"
            "  exit codes: 0 done, 64 usage, 65 bad data, 66 no such file, 73/74 cannot write, 78\n"
            "  bad configuration\n",
    .run = data_run,
};
