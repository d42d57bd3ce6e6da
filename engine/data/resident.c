/* Sets in memory. */
#include "engine/data/resident.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum error resident_create(const struct dataset *d, struct resident **out) {
    size_t bytes, sample = dataset_sample_bytes(d), target_bytes;
    TRY(memory_size((size_t)d->size, sample, d->name, &bytes));
    TRY(memory_size((size_t)d->size, (size_t)d->targets * sizeof(float), d->name, &target_bytes));
    struct resident *r = memory_new(sizeof *r);
    if (!r) return ERR_MEMORY;
    r->base = *d;
    r->sample_bytes = sample;
    enum error err;
    TRY_GOTO(err, memory_alloc(bytes, (void **)&r->x), fail);
    if (d->classes)
        err = memory_alloc((size_t)d->size * sizeof(int32_t), (void **)&r->labels);
    else
        err = memory_alloc(target_bytes, (void **)&r->target);
    if (err != ERR_NONE) goto fail;
    *out = r;
    return ERR_NONE;
fail:
    resident_close(&r->base);
    return err;
}

void resident_close(struct dataset *d) {
    struct resident *r = (struct resident *)d;
    memory_free(r->x);
    memory_free(r->labels);
    memory_free(r->target);
    memory_free(r);
}

enum error resident_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target) {
    const struct resident *r = (const struct resident *)d;
    memcpy(x, r->x + (size_t)i * r->sample_bytes, r->sample_bytes);
    if (r->labels) *label = r->labels[i];
    if (r->target) memcpy(target, r->target + i * d->targets, (size_t)d->targets * sizeof(float));
    return ERR_NONE;
}

int32_t resident_label(const struct dataset *d, int64_t i) {
    return ((const struct resident *)d)->labels[i];
}

enum error classes_find(const char *path, int64_t classes, int64_t largest, int64_t *out) {
    enum { CLASSES_MAX = 1 << 20 };
    int64_t most = classes ? classes : CLASSES_MAX;
    if (largest >= most)
        return FAIL(ERR_DATA, "%s: label %lld, but there are %s%lld classes (labels count from 0)", path,
                    (long long)largest, classes ? "" : "at most ", (long long)most);
    *out = classes ? classes : largest + 1;
    return ERR_NONE;
}

enum error floats_check(const char *path, const float *v, int64_t n, int64_t row, const struct part *of) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(v[i]) <= FLT_MAX))
            return FAIL(ERR_DATA, "%s: sample %lld holds %g\nonly finite numbers that fit a float can be trained on",
                        path, (long long)(of ? part_at(of, i / row) : i / row), (double)v[i]);
    return ERR_NONE;
}
