/* The data sets there are: the lines of sets.def as a table and as the schema's variants, and what
 * all sets share. */
#include "engine/data/dataset.h"

#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/data/image.h"
#include "engine/data/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SET(name) extern const struct dataset_ops dataset_##name;
#include "engine/data/sets/sets.def"

static const struct dataset_ops *const kinds[] = {
#define SET(name) &dataset_##name,
#include "engine/data/sets/sets.def"
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

const struct dataset_ops *const *dataset_kinds(int *count) {
    *count = KINDS;
    return kinds;
}

static const struct config_section *section_at(int i) {
    return &kinds[i]->section;
}

static void data_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct data_config *c = config;
    data_config_check(c, e);
    if (c->sampling != SAMPLING_ONCE && c->order != DATA_ORDER_ENGINE)
        config_error(e, node_get(at, "order"), true,
                     "samples that are drawn by their weights have no order of the file, nor PyTorch's\nleave it out");
    if (c->weights && c->sampling != SAMPLING_WEIGHTS)
        config_error(e, node_get(at, "weights"), true, "'data.weights' is for data.sampling: weights\nset both");
}

static const struct config_field common_fields[] = {
    {"augment", CONFIG_NODE, offsetof(struct data_config, augment), .standard = "[]",
     .help = "Random changes to training samples: flip (left and right), {crop: 4} (pad by 4, cut at random), "
             "random_resized_crop or {random_resized_crop: {scale: [0.08, 1], ratio: [0.75, 1.333]}}, {rotation: 15} "
             "(degrees to either side), {jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4}}, {erasing: 0.5} (a "
             "part of random area and shape, with this probability), {mixup: 0.2} and {cutmix: 1.0} (two samples each "
             "become one; of both, each batch draws one)",
     .also = "transform|transforms|augmentation"},
    {"normalize", CONFIG_NODE, offsetof(struct data_config, normalize), .standard = "auto",
     .help = "auto: by mean and deviation of each column of a table, and of each channel of a picture in 1000 samples "
             "from everywhere in the training part; off: bytes / 255; or {mean: [..], std: [..]}"},
    {"split", CONFIG_INT, offsetof(struct data_config, split), .standard = "0",
     .help = "Which samples of 'train' are held out for validation: those that this number draws, of each class and "
             "range of targets its share; end: the last ones, as for data in the order of time. Of texts and tokens it "
             "is always the end",
     .max = 4294967295, .choices = "end", .word = SPLIT_END, .also = "split_seed|random_state|val_seed"},
    {"normalize_target", CONFIG_BOOL, offsetof(struct data_config, normalize_target), .standard = "true",
     .help =
         "Whether targets that are values (loss mse) are learned as (value - mean) / deviation of the training part's; "
         "predictions, exported networks and metrics are in the target's own unit either way, and only the loss is not",
     .also = "normalize_targets|scale_target|standardize_target|target_transform"},
    {"limit", CONFIG_INT, offsetof(struct data_config, limit), .standard = "0",
     .help = "Use only this many training samples, drawn as data.split draws (of generated samples, texts and tokens "
             "the first ones); 0: all",
     .max = 1e15},
    {"order", CONFIG_ENUM, offsetof(struct data_config, order),
     .help = "Of training samples: engine (the default), shuffled anew each epoch; file, as they lie; pytorch, as "
             "PyTorch's DistributedSampler(seed=seed) shuffles them. Validation is in the order of the file",
     .choices = "engine|file|pytorch", .also = "shuffle|sampler"},
    {"sampling", CONFIG_ENUM, offsetof(struct data_config, sampling),
     .help = "How the training samples of an epoch are taken: once, each of them (the default); balanced, drawn with "
             "replacement so that each class comes equally often; weights, drawn with replacement by weights. "
             "Validation takes each sample once",
     .choices = "once|balanced|weights", .also = "weighted_sampler|WeightedRandomSampler|oversample|class_balanced"},
    {"weights", CONFIG_PATH, offsetof(struct data_config, weights),
     .help = "For sampling: weights, a file with a number of at least 0 a line: how often each sample of the training "
             "file is drawn, in proportion, in the order of the file",
     .also = "sample_weights"},
    {"workers", CONFIG_INT, offsetof(struct data_config, workers), .standard = "auto",
     .help = "Number of threads that prepare batches, for each rank; auto: added until steps do not wait, at most one "
             "for each core",
     .min = 1, .max = 64, .choices = "auto", .also = "num_workers|dataloader_num_workers"},
    {0},
};
static const struct config_section common = {
    .name = "data",
    .fields = common_fields,
    .size = sizeof(struct data_config),
    .help = "What every set has",
    .check = data_check,
};
const struct config_variants dataset_variants = {.name = "set",
                                                 .count = KINDS,
                                                 .at = section_at,
                                                 .common = &common,
                                                 .besides = ", or a file or folder that is there"};

int dataset_recognise(const char *path) {
    for (int i = 0; i < KINDS; i++)
        if (kinds[i]->recognises && kinds[i]->recognises(path)) return i;
    return -1;
}

enum error dataset_open_like(const struct data_config *c, bool train, uint64_t seed, const struct dataset *like,
                             struct dataset **out) {
    struct dataset *d;
    struct origin origin = {0};
    const struct dataset_ops *ops = kinds[c->set.index];
    struct dataset_ask ask = {.ops = ops,
                              .config = c->set.config,
                              .train = train,
                              .values = c->values && !like,
                              .seed = seed,
                              .split = like ? like->split : c->split,
                              .limit = c->limit,
                              .like = like};
    if (train && c->weights) ask.origin = &origin;
    enum error err = ops->open(&ask, &d);
    if (err != ERR_NONE) memory_free(origin.index);
    TRY(err);
    d->origin = origin;
    d->split = d->type == SAMPLE_TOKENS ? SPLIT_END : ask.split;
    if (train && c->limit > 0 && c->limit < d->size) d->size = c->limit;
    if (d->classes && !d->labels) d->labels = 1;
    return dataset_give(like ? dataset_check_like(d, like) : ERR_NONE, d, out);
}

enum error dataset_open(const struct data_config *c, bool train, uint64_t seed, struct dataset **out) {
    return dataset_open_like(c, train, seed, NULL, out);
}

const char *dataset_class_name(const struct dataset *d, int64_t k) {
    return d->ops->class_name ? d->ops->class_name(d, k) : NULL;
}

enum error dataset_counts(const struct dataset *d, int64_t *counts) {
    if (!d->ops->label || d->labels != 1)
        return FAIL(ERR_CONFIG,
                    "how many samples of each class '%s' has is not known without reading all of them\ngive the "
                    "weights as a list: loss: {name: cross_entropy, weights: [...]}",
                    d->name);
    for (int64_t k = 0; k < d->classes; k++) counts[k] = 0;
    for (int64_t i = 0; i < d->size; i++) counts[d->ops->label(d, i)]++;
    return ERR_NONE;
}

char *dataset_split_words(const struct dataset *d, char out[64]) {
    *out = '\0';
    if (d->held && d->split == SPLIT_END)
        snprintf(out, 64, "the end of the file");
    else if (d->held)
        snprintf(out, 64, "held out by data.split %lld", (long long)d->split);
    return out;
}

/* Warns of classes that 'part' of the set has no sample of; any: and the other part has some. */
static void warn_lacking(const struct dataset *d, const char *part, const int64_t *counts, const int64_t *others,
                         bool any, const char *so) {
    int64_t first = 0, n = 0;
    for (int64_t k = d->classes - 1; k >= 0; k--)
        if (counts[k] == 0 && (others[k] > 0) == any) n++, first = k;
    char name[96], more[64] = "";
    const char *text = dataset_class_name(d, first);
    if (!n) return;
    if (text)
        snprintf(name, sizeof name, "'%.80s'", text);
    else
        snprintf(name, sizeof name, "%lld", (long long)first);
    if (n > 1) snprintf(more, sizeof more, " and of %lld other%s", (long long)n - 1, n > 2 ? "s" : "");
    log_warn("%s no sample of class %s%s: %s", part, text_defuse(name, ""), more, so);
}

/* Warns of classes that only one part has, where both know the classes of their samples. */
static void tell_lacking(const struct dataset *train, const struct dataset *val) {
    if (!train || !val || train->labels != 1 || !train->ops->label || !val->ops->label) return;
    int64_t *counts = calloc((size_t)train->classes, 2 * sizeof *counts);
    int64_t *others = counts ? counts + train->classes : NULL;
    bool known = counts && dataset_counts(train, counts) == ERR_NONE && dataset_counts(val, others) == ERR_NONE;
    if (known) warn_lacking(train, "the training part has", counts, others, true, "the network cannot learn it");
    if (known) warn_lacking(train, "the validation part has", others, counts, true, "its accuracy says nothing of it");
    if (known)
        warn_lacking(train, "the data have", counts, others, false,
                     "classes are counted from 0 (values need loss: mse)");
    free(counts);
}

void dataset_tell(const struct dataset *train, const struct dataset *val) {
    const char *first = train ? train->note : NULL, *second = val ? val->note : NULL;
    if (first) log_warn("%s", first);
    if (second && (!first || strcmp(first, second) != 0)) log_warn("%s", second);
    tell_lacking(train, val);
}

const char *dataset_column_name(const struct dataset *d, int64_t k) {
    return d->ops->column_name ? d->ops->column_name(d, k) : NULL;
}

/* ---- what a network was trained on ---- */
bool dataset_same_name(const char *name, const char *known) {
    for (size_t step; *name; name += step) {
        step = text_utf8(name, strlen(name));
        size_t as = step ? step : 3;
        if (strncmp(known, step ? name : "\xEF\xBF\xBD", as) != 0) return false;
        known += as;
        step = step ? step : 1;
    }
    return !*known;
}

const char *const sample_types[] = {"bytes", "floats", "tokens"};

static enum error check_samples(const struct dataset *d, const struct dataset *like) {
    char is[96], was[96];
    if (!shape_equal(&d->shape, &like->shape) || d->type != like->type)
        return FAIL(ERR_CONFIG, "samples of data '%s' are %s %s, and the network was trained on %s %s", d->name,
                    shape_text(&d->shape, is), sample_types[d->type], shape_text(&like->shape, was),
                    sample_types[like->type]);
    if (d->part != like->part)
        return FAIL(ERR_CONFIG,
                    "data '%s' shows the middle %.4g of a picture's shorter side, and the network was trained with "
                    "%.4g (data.resize)",
                    d->name, d->part, like->part);
    if (d->resample != like->resample)
        return FAIL(ERR_CONFIG,
                    "data '%s' resizes pictures in another way than the network was trained with (data.resample)",
                    d->name);
    if (d->classes == like->classes && d->labels == like->labels && d->targets == like->targets) return ERR_NONE;
    return FAIL(ERR_CONFIG, "data '%s' has %lld %s, and the network was trained on %lld %s", d->name,
                (long long)(d->classes ? d->classes : d->targets), d->classes ? "classes" : "targets",
                (long long)(like->classes ? like->classes : like->targets), like->classes ? "classes" : "targets");
}

typedef const char *(*name_fn)(const struct dataset *d, int64_t k);

/* Names are compared where both have them. Columns count from 1. */
static enum error check_names(const struct dataset *d, const struct dataset *like, const char *what, name_fn name,
                              int64_t count) {
    for (int64_t k = 0; k < count; k++) {
        const char *is = name(d, k), *was = name(like, k);
        if (is && was && !dataset_same_name(is, was))
            return FAIL(ERR_CONFIG, "%s %lld of data '%s' is '%s', and the network knows it as '%s'", what,
                        (long long)(k + (name == dataset_column_name)), d->name, is, was);
    }
    return ERR_NONE;
}

static enum error check_tokens(const struct dataset *d, const struct dataset *like) {
    for (int64_t k = 0; k < d->classes && d->type == SAMPLE_TOKENS; k++) {
        char is[9] = "", was[9] = "";
        int n = dataset_decode(d, (int32_t)k, is), m = dataset_decode(like, (int32_t)k, was);
        if (n == 0 || m == 0 || (n == m && !memcmp(is, was, (size_t)n))) continue;
        return FAIL(ERR_CONFIG,
                    "token %lld of data '%s' is '%s', and the network knows it as '%s': the vocabulary is another",
                    (long long)k, d->name, is, was);
    }
    return ERR_NONE;
}

enum error dataset_check_like(const struct dataset *d, const struct dataset *like) {
    TRY(check_samples(d, like));
    TRY(check_names(d, like, "class", dataset_class_name, d->classes));
    if (d->shape.ndim == 1) TRY(check_names(d, like, "column", dataset_column_name, shape_count(&d->shape) + 1));
    return check_tokens(d, like);
}

enum error dataset_samples(const char *path, const struct dataset *like, struct dataset **out) {
    struct stat st;
    int kind = dataset_recognise(path);
    if (stat(path, &st) != 0) return FAIL(ERR_INPUT, "no file '%s'", path);
    if (image_is_name(path)) return image_sample(path, like, out);
    if (kind < 0 || !kinds[kind]->samples)
        return FAIL(ERR_INPUT,
                    "no data set reads samples without labels from '%s'\ntake an .npy, IDX or CSV file of samples, or "
                    "samples of the data by number: val:0-9",
                    path);
    return kinds[kind]->samples(kinds[kind], path, like, out);
}

void dataset_close(struct dataset *d) {
    if (d) memory_free(d->origin.index);
    if (d) d->ops->close(d);
}

enum error dataset_give(enum error err, struct dataset *d, struct dataset **out) {
    if (err == ERR_NONE)
        *out = d;
    else
        dataset_close(d);
    return err;
}

size_t dataset_sample_bytes(const struct dataset *d) {
    return (size_t)shape_count(&d->shape) * (d->type == SAMPLE_U8 ? 1 : sizeof(float));
}

int dataset_decode(const struct dataset *d, int32_t token, char out[8]) {
    return d->ops->decode && token >= 0 && token < d->classes ? d->ops->decode(d, token, out) : 0;
}

enum error dataset_encode(const struct dataset *d, const char *text, size_t n, int32_t *tokens, int64_t *count) {
    if (!d->ops->encode)
        return FAIL(ERR_CONFIG, "data '%s' has no text, only numbers\nuse 'data: {set: text, ...}'", d->name);
    return d->ops->encode(d, text, n, tokens, count);
}
