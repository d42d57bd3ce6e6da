/* Which samples of a training file are for training, and which of them are held out for validation. All readers of files
 * ask here, so every kind of data is held out by the same rule (part.c). */
#pragma once
#include "engine/data/dataset.h"

struct part {
    int64_t first, count;
    int64_t *index; /* (count), ascending; NULL: first, first + 1, ... */
    int64_t held;   /* samples of the file that are held out; 0: validation has separate files */
};
static inline int64_t part_at(const struct part *p, int64_t i) {
    return p->index ? p->index[i] : p->first + i;
}
void part_free(struct part *p);

/* What the samples of a file are, by which each part gets its share: a class or a target each. */
struct strata {
    int64_t count;        /* samples */
    const int32_t *label; /* (count); NULL: 'value' is the target */
    const float *value;   /* sample i's class or target is value[i * stride]; NULL: nothing is known */
    int64_t stride;
    bool classes; /* the values are classes */
};

/* Whether 'val' says how many training samples to hold out ("2000", "20%") and not which file to
 * read. */
extern const struct config_path part_path; /* of a field that may be such a text */
bool part_is_held(const char *val);
/* The samples of the part that is asked for, and at most ask->limit of those for training. held: how many samples are
 * held out, as 'val' says it; NULL: none, and the file is all of the part. ERR_CONFIG if either part would be empty. */
MUST_CHECK enum error part_draw(const struct dataset_ask *ask, const char *held, const struct strata *s,
                                struct part *out);
/* The same of a sequence, whose order means something: validation is its end. */
MUST_CHECK enum error part_cut(const char *held, int64_t samples, bool train, struct part *out);
