/* Sets of pictures that the engine draws itself, so that a run needs no file and no network. A
 * sample is a pure function of (seed, split, number), drawn on first use and kept. */
#pragma once
#include "engine/base/rng.h"
#include "engine/data/dataset.h"

/* ---- randomness: one stream of words a sample ---- */
struct draw {
    struct rng_key key;
    uint64_t sample, block; /* block: the split in its upper half, what was drawn below */
    uint32_t words[4];
    int left;
};

static inline uint32_t draw_word(struct draw *d) {
    if (!d->left) rng_words(d->key, d->sample, d->block++, d->words), d->left = 4;
    return d->words[--d->left];
}

static inline float draw_range(struct draw *d, float low, float high) {
    return low + (high - low) * rng_unit(draw_word(d));
}

static inline int draw_below(struct draw *d, int n) {
    return (int)((uint64_t)draw_word(d) * (uint64_t)n >> 32);
}

/* n random bytes, a multiple of 16; the words drawn so far but not used are lost. */
void draw_bytes(struct draw *d, uint8_t *out, int n);

static inline int drawn_clamp(int v, int low, int high) {
    v = v < low ? low : v;
    return v > high ? high : v;
}

/* ---- the set ---- */
struct drawn_config { /* the keys of such a set */
    int64_t train, val;
};
extern const struct config_field drawn_fields[];
struct drawn_kind {
    struct shape shape; /* of bytes */
    int classes;
    /* Draws one of a class. Only + - * / and square roots of floats, and integers: the same bytes
     * on every machine. */
    void (*draw)(struct draw *d, int label, uint8_t *out);
};
/* The row of such a set. */
#define DRAWN_SET(title, about)                                                                                        \
    {                                                                                                                  \
        .section = {.name = (title), .fields = drawn_fields, .size = sizeof(struct drawn_config), .help = (about)},    \
        .kin = &kind, .open = drawn_open, .read = drawn_read, .label = drawn_label, .close = drawn_close               \
    }
MUST_CHECK enum error drawn_open(const struct dataset_ask *ask, struct dataset **out);
int32_t drawn_label(const struct dataset *d, int64_t i);
enum error drawn_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target);
void drawn_close(struct dataset *d);
