/* Sets that lie in memory, which the readers of files produce. */
#pragma once
#include "engine/data/part.h"

struct resident {
    struct dataset base;
    size_t sample_bytes;
    unsigned char *x; /* (size, sample) */
    int32_t *labels;  /* (size), or NULL */
    float *target;    /* (size, targets), or NULL */
};
/* Makes room for d->size samples of d's shape and type. */
MUST_CHECK enum error resident_create(const struct dataset *d, struct resident **out);
/* The slots of dataset_ops. */
int32_t resident_label(const struct dataset *d, int64_t i);
enum error resident_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target);
void resident_close(struct dataset *d);

/* The number of classes for labels up to 'largest' if the config has 'classes' (0: the largest label plus one).
 * ERR_DATA if they do not fit. */
MUST_CHECK enum error classes_find(const char *path, int64_t classes, int64_t largest, int64_t *out);
/* Checks that floats are finite. row: the number of floats in a sample; of: the samples of the file that they are, or NULL: all.
 * ERR_DATA names the first bad sample by its number in the file. */
MUST_CHECK enum error floats_check(const char *path, const float *v, int64_t n, int64_t row, const struct part *of);
