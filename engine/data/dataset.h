/* A data set: numbered samples that can be read in any order by any thread. One reader a file in sets/, listed in sets.def. */
#pragma once
#include "engine/config/schema.h"
#include "engine/device/ops.h"

enum { SAMPLE_U8, SAMPLE_F32 };
struct dataset;
struct dataset_ops {
    struct config_section section; /* name as in YAML ("digits", "idx", ...) and the keys of its own */
    /* Whether a path looks like this kind ('format: auto'); NULL for generated sets. */
    bool (*recognises)(const char *path);
    /* Opens the training (or validation) part. Everything from outside is checked before anything is allocated by it. */
    enum error (*open)(const void *config, bool train, uint64_t seed, struct dataset **out);
    /* Sample i in [0, size): its raw values (of sample_bytes) and its class or target. Thread-safe, deterministic,
     * and once warm allocates nothing. */
    enum error (*read)(struct dataset *d, int64_t i, void *x, int32_t *label, float *target);
    void (*close)(struct dataset *d);
};
struct dataset { /* embedded first in each reader's own struct */
    const struct dataset_ops *ops;
    int64_t size;
    struct shape shape; /* of one sample */
    int type;           /* SAMPLE_U8 or SAMPLE_F32 */
    int64_t classes;    /* 0: targets are vectors */
    int64_t targets;    /* floats of a target vector (classes == 0) */
    const char *name;
    bool plane; /* height and width make sense (crop, flip) */
};
const struct dataset_ops *const *dataset_kinds(int *count);
extern const struct config_variants dataset_variants;

struct data_config { /* the config's 'data' section, shared by all sets */
    struct config_variant set; /* which, with its own keys */
    struct node *augment;      /* [flip, {crop: 4}] */
    struct node *normalize;    /* auto | off | {mean: [...], std: [...]} */
    int64_t limit;             /* use the first so many training samples; 0: all */
    int64_t workers;           /* loader threads; 0 auto */
};
MUST_CHECK enum error dataset_open(const struct data_config *c, bool train, uint64_t seed, struct dataset **out);
void dataset_close(struct dataset *d);
