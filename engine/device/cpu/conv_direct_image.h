/* Images whose channels lie in whole blocks, group by group, and copies of images that are not so. */
#pragma once
#include "engine/device/impl.h"

struct grouped { /* (n, groups, blocks, h, w, LAYOUT_BLOCK); lanes beyond a group's channels are zeros */
    int64_t n, groups, channels, blocks, h, w;
    int64_t all;        /* channels of the image */
    bool lanewise;      /* groups are of one channel: a block of them counts as one group */
    bool whole;         /* the op's image is so as it is */
    enum layout layout; /* of the op's */
};
/* s: d's x or y, and its layout. */
struct grouped grouped_of(const struct op_desc *d, const struct shape *s, enum layout layout);
int64_t grouped_floats(const struct grouped *g);
void grouped_from(const struct device *dev, const struct grouped *g, const float *image, float *to);
void grouped_to(const struct device *dev, const struct grouped *g, const float *from, float *image);
/* One float a channel. */
void grouped_row(const struct grouped *g, const float *channels, float *to);
/* Blocks whose elements are pairs of bf16: one place of two samples each (of an odd last one and zeros); and how many
 * elements these are. */
int64_t grouped_pairs(const struct grouped *g);
void grouped_pair(const struct device *dev, const struct grouped *g, const float *from, float *to);
