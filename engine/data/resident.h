/* Sets that lie in memory: what the readers of files end in; and the part of a file that is held
 * out for validation. */
#pragma once
#include "engine/data/dataset.h"

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

struct part { /* samples of a file */
    int64_t first, count;
};
/* Whether 'val' says how many training samples to hold out ("2000", "20%") and not which file to
 * read. */
extern const struct config_path part_path; /* of a field that may be such a text */
bool part_is_held(const char *val);
/* Which of a file's samples are for training, and which are held out at its end. ERR_CONFIG when
 * either would be none. */
MUST_CHECK enum error part_find(const char *val, int64_t samples, bool train, struct part *out);
/* The number of classes for labels up to 'largest' when the config says 'classes' (0: as many as
 * there are). ERR_DATA when they do not fit. */
MUST_CHECK enum error classes_find(const char *path, int64_t classes, int64_t largest, int64_t *out);
/* That floats are finite. row: how many make a sample. ERR_DATA names the first sample that is not.
 */
MUST_CHECK enum error floats_check(const char *path, const float *v, int64_t n, int64_t row);
