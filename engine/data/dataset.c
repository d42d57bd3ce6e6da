/* The data sets there are: the lines of sets.def as a table and as the schema's variants, and what
 * all sets share. */
#include "engine/data/dataset.h"

#include "engine/data/image.h"
#include "engine/data/loader.h"

#include <sys/stat.h>

#define SET(name) extern const struct dataset_ops dataset_##name;
#include "engine/data/sets/sets.def"
#undef SET

static const struct dataset_ops *const kinds[] = {
#define SET(name) &dataset_##name,
#include "engine/data/sets/sets.def"
#undef SET
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

const struct dataset_ops *const *dataset_kinds(int *count) {
    *count = KINDS;
    return kinds;
}

static const struct config_section *section_at(int i) {
    return &kinds[i]->section;
}

static void check(const void *config, const struct node *at, struct config_errors *e) {
    (void)at;
    data_config_check(config, e);
}

static const struct config_field common_fields[] = {
    {"augment", CONFIG_NODE, offsetof(struct data_config, augment), .standard = "[]",
     .help =
         "Random changes to training samples: flip (left and right), {crop: 4} (pad by 4, cut at "
         "random), random_resized_crop or {random_resized_crop: {scale: [0.08, 1], ratio: [0.75, "
         "1.333]}}, {jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4}}"},
    {"normalize", CONFIG_NODE, offsetof(struct data_config, normalize), .standard = "auto",
     .help =
         "auto: by mean and deviation of the first 1000 samples; off: bytes / 255; or {mean: [..], "
         "std: [..]}"},
    {"limit", CONFIG_INT, offsetof(struct data_config, limit), .standard = "0",
     .help = "Use only the first so many training samples; 0: all", .max = 1e15},
    {"workers", CONFIG_INT, offsetof(struct data_config, workers), .standard = "auto",
     .help = "Threads that prepare batches, per rank; auto: as many as keep the step from "
             "waiting, at most one a core",
     .min = 1, .max = 64, .choices = "auto"},
    {0},
};
static const struct config_section common = {
    .name = "data",
    .fields = common_fields,
    .size = sizeof(struct data_config),
    .help = "What every set has",
    .check = check,
};
const struct config_variants dataset_variants = {
    .name = "set", .count = KINDS, .at = section_at, .common = &common};

int dataset_recognise(const char *path) {
    for (int i = 0; i < KINDS; i++)
        if (kinds[i]->recognises && kinds[i]->recognises(path)) return i;
    return -1;
}

enum error dataset_open(const struct data_config *c, bool train, uint64_t seed,
                        struct dataset **out) {
    struct dataset *d;
    const struct dataset_ops *ops = kinds[c->set.index];
    TRY((c->values && ops->open_values ? ops->open_values : ops->open)(c->set.config, train, seed,
                                                                       &d));
    if (train && c->limit > 0 && c->limit < d->size) d->size = c->limit;
    if (d->classes && !d->labels) d->labels = 1;
    *out = d;
    return ERR_NONE;
}

const char *dataset_class_name(const struct dataset *d, int64_t k) {
    return d->ops->class_name ? d->ops->class_name(d, k) : NULL;
}

enum error dataset_samples(const char *path, const struct dataset *like, struct dataset **out) {
    struct stat st;
    int kind = dataset_recognise(path);
    if (stat(path, &st) != 0) return FAIL(ERR_INPUT, "no file '%s'", path);
    if (image_is_name(path)) return image_sample(path, like, out);
    if (kind < 0 || !kinds[kind]->samples)
        return FAIL(ERR_INPUT,
                    "no data set reads samples without labels from '%s'\ntake an .npy or IDX file "
                    "of samples, or "
                    "samples of the data by number: val:0-9",
                    path);
    return kinds[kind]->samples(path, like, out);
}

void dataset_close(struct dataset *d) {
    if (d) d->ops->close(d);
}

size_t dataset_sample_bytes(const struct dataset *d) {
    return (size_t)shape_count(&d->shape) * (d->type == SAMPLE_U8 ? 1 : sizeof(float));
}

int dataset_decode(const struct dataset *d, int32_t token, char out[8]) {
    return d->ops->decode && token >= 0 && token < d->classes ? d->ops->decode(d, token, out) : 0;
}

enum error dataset_encode(const struct dataset *d, const char *text, size_t n, int32_t *tokens,
                          int64_t *count) {
    if (!d->ops->encode)
        return FAIL(ERR_CONFIG, "data '%s' has no text, only numbers\nuse 'data: {set: text, ...}'",
                    d->name);
    return d->ops->encode(d, text, n, tokens, count);
}
