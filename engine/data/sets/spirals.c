/* spirals: points of the plane on arms that wind around each other, one class an arm. A few numbers
 * a sample, no straight line between the classes: the smallest set that needs a hidden layer. A
 * sample is a pure function of (seed, split, number). */
#include "engine/base/real.h"
#include "engine/base/rng.h"
#include "engine/data/dataset.h"

struct spirals_config {
    int64_t classes, train, val;
    double noise;
};
struct spirals {
    struct dataset base;
    struct rng_key key;
    uint64_t split;
    double noise;
};

static int32_t spirals_label(const struct dataset *d, int64_t i) {
    return (int32_t)(i % d->classes);
}

static enum error spirals_read(struct dataset *base, int64_t i, void *x, int32_t *label, float *target) {
    (void)target;
    const struct spirals *s = (const struct spirals *)base;
    uint64_t sample = (uint64_t)i, draw = s->split << 32;
    double turn = 6.283185307179586, radius = 0.1 + 0.9 * (double)rng_float(s->key, sample, draw);
    *label = spirals_label(base, i);
    double angle = turn * ((double)*label / (double)base->classes + 0.75 * radius);
    angle += s->noise * (double)rng_normal(s->key, sample, draw + 1);
    ((float *)x)[0] = (float)(radius * real_cos(angle));
    ((float *)x)[1] = (float)(radius * real_sin(angle));
    return ERR_NONE;
}

static void spirals_close(struct dataset *d) {
    memory_free(d);
}

static const struct config_field fields[] = {
    {"classes", CONFIG_INT, offsetof(struct spirals_config, classes), .standard = "3",
     .help = "Number of arms, one for each class", .min = 2, .max = 64},
    {"train", CONFIG_INT, offsetof(struct spirals_config, train), .standard = "600",
     .help = "Number of training samples", .min = 1, .max = 1e9},
    {"val", CONFIG_INT, offsetof(struct spirals_config, val), .standard = "300", .help = "Number of validation samples",
     .min = 1, .max = 1e9},
    {"noise", CONFIG_REAL, offsetof(struct spirals_config, noise), .standard = "0.2",
     .help = "Standard deviation of the angle, in radians", .max = 10},
    {0},
};

static enum error spirals_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct spirals_config *c = ask->config;
    struct spirals *s = memory_new(sizeof *s);
    if (!s) return ERR_MEMORY;
    s->base = (struct dataset){.ops = ask->ops,
                               .size = ask->train ? c->train : c->val,
                               .shape = {1, {2}},
                               .type = SAMPLE_F32,
                               .classes = c->classes,
                               .name = "spirals"};
    s->key = rng_key(ask->seed, RNG_DATA);
    s->split = ask->train ? 0 : 1;
    s->noise = c->noise;
    *out = &s->base;
    return ERR_NONE;
}

const struct dataset_ops dataset_spirals = {
    .section = {.name = "spirals",
                .fields = fields,
                .size = sizeof(struct spirals_config),
                .help = "Points on interleaved spiral arms in the plane; needs no file"},
    .open = spirals_open,
    .read = spirals_read,
    .label = spirals_label,
    .close = spirals_close,
};
