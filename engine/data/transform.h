/* From raw values to what the network sees: augmentation and normalisation of one sample. */
#pragma once
#include "engine/data/augment.h"
#include "engine/data/loader.h"
#include "engine/data/mixing.h"

struct transform {
    struct normalization norm;
    struct augment augment;
    struct rng_key key, mixing_key;
};
/* augment: false leaves c's augmentation out. ERR_CONFIG when augmentation or norm do not fit the
 * set. */
MUST_CHECK enum error transform_init(struct transform *t, const struct dataset *d, const struct data_config *c,
                                     const struct normalization *norm, bool augment, uint64_t seed);
/* raw (shape, of the set's type) -> out (shape). id, the visit's counter, is all that chance
 * depends on. */
void transform_apply(const struct transform *t, const struct dataset *d, const void *raw, uint64_t id, float *out);
/* A target that is values, as the network learns it. */
void transform_target(const struct transform *t, float *target, int64_t n);
/* Reads sample i for the visit id: as the set's read, or read_part where a part is drawn. */
MUST_CHECK enum error transform_read(const struct transform *t, struct dataset *d, int64_t i, uint64_t id, void *raw,
                                     int32_t *labels, float *target);
