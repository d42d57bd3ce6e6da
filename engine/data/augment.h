/* 'augment': the random changes of training samples, read from the configuration, and the change of colours. */
#pragma once
#include "engine/config/tree.h"
#include "engine/data/picture.h"

struct jitter { /* PyTorch's ColorJitter: factors of [max(0, 1 - v), 1 + v]; all 0: none */
    double brightness, contrast, saturation;
};
struct augment {
    bool flip;
    int64_t crop; /* pixels of padding; 0: none */
    struct crop_rule resized_crop;
    struct jitter jitter;
};
/* Reads the list (NULL: nothing). On error *at is where it is. */
MUST_CHECK enum error augment_parse(const struct node *node, struct augment *out, const struct node **at);
bool jitter_on(const struct jitter *j);
/* Changes a picture of 1 or 3 planes, whose values are those of bytes, in place. Brightness,
 * contrast and saturation in an order drawn too; each result is kept within [0, 255], and not
 * rounded. */
void jitter_apply(const struct jitter *j, struct rng_key key, uint64_t id, int channels, int64_t plane, float *x);
