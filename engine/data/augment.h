/* 'augment': the random changes of training samples, read from the configuration, and the change of colours. */
#pragma once
#include "engine/config/tree.h"
#include "engine/data/picture.h"

struct jitter { /* PyTorch's ColorJitter: factors of [max(0, 1 - v), 1 + v]; all 0: none */
    double brightness, contrast, saturation;
};
struct rotation { /* PyTorch's RandomRotation, to the nearest pixel, about the middle */
    bool on;
    double degrees[2], fill; /* fill: what comes in from outside, as a raw value */
};
struct erasing { /* PyTorch's RandomErasing */
    double p;    /* 0: none */
    double scale[2], ratio[2], value;
};
struct augment {
    bool flip;
    int64_t crop; /* pixels of padding; 0: none */
    struct crop_rule resized_crop;
    struct rotation rotation;
    struct jitter jitter;
    struct erasing erasing;
    double mixup, cutmix; /* alpha of each; 0: none */
};
/* Reads the list (NULL: nothing). On error *at is where it is. */
MUST_CHECK enum error augment_parse(const struct node *node, struct augment *out, const struct node **at);
bool jitter_on(const struct jitter *j);
/* Changes a picture of 1 or 3 planes, whose values are those of bytes, in place. Brightness,
 * contrast and saturation in an order drawn too; each result is kept within [0, 255], and not
 * rounded. */
void jitter_apply(const struct jitter *j, struct rng_key key, uint64_t id, int channels, int64_t plane, float *x);

/* Where the pixels of a rotated picture come from, in 65,536ths of a pixel. */
struct turn {
    int64_t xx, xy, x, yx, yy, y;
};
/* A rotation by some degrees against the clock, about the middle of width x height: the pixels that PIL's Image.rotate takes. */
struct turn turn_make(double degrees, int64_t width, int64_t height);
double rotation_draw(const struct rotation *r, struct rng_key key, uint64_t id);
/* The pixel that comes to (x, y); it may lie outside. */
static inline void turn_source(const struct turn *t, int64_t x, int64_t y, int64_t *from_x, int64_t *from_y) {
    *from_x = (t->x + x * t->xx + y * t->xy) >> 16;
    *from_y = (t->y + x * t->yx + y * t->yy) >> 16;
}
/* The part that is erased at a visit, in whole pixels; false: none is. */
bool erasing_draw(const struct erasing *e, struct rng_key key, uint64_t id, int64_t width, int64_t height,
                  struct box *out);
