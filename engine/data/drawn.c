/* Drawn sets. */
#include "engine/data/drawn.h"

#include <stdatomic.h>
#include <string.h>

struct drawn {
    struct dataset base;
    const struct drawn_kind *kind;
    struct rng_key key;
    uint64_t split;
    uint8_t *pixels; /* (size, shape); owns the states too */
    atomic_uchar *state;
};
enum { EMPTY, BUSY, READY };

void draw_bytes(struct draw *d, uint8_t *out, int n) {
    for (int k = 0; k < n; k += 16) {
        rng_words(d->key, d->sample, d->block++, d->words);
        memcpy(out + k, d->words, 16);
    }
}

void drawn_close(struct dataset *base) {
    struct drawn *s = (struct drawn *)base;
    memory_free(s->pixels);
    memory_free(s);
}

/* What sample i is drawn from: its label comes first. */
static struct draw draw_begin(const struct drawn *s, int64_t i) {
    return (struct draw){.key = s->key, .sample = (uint64_t)i, .block = s->split << 32};
}

int32_t drawn_label(const struct dataset *base, int64_t i) {
    const struct drawn *s = (const struct drawn *)base;
    struct draw d = draw_begin(s, i);
    return draw_below(&d, s->kind->classes);
}

enum error drawn_read(struct dataset *base, int64_t i, void *x, int32_t *label, float *target) {
    (void)target;
    struct drawn *s = (struct drawn *)base;
    size_t bytes = dataset_sample_bytes(base);
    uint8_t *kept = s->pixels + (size_t)i * bytes;
    struct draw d = draw_begin(s, i);
    *label = draw_below(&d, s->kind->classes);
    unsigned char state = atomic_load_explicit(&s->state[i], memory_order_acquire);
    if (state == EMPTY && atomic_compare_exchange_strong(&s->state[i], &state, BUSY)) {
        s->kind->draw(&d, *label, kept);
        atomic_store_explicit(&s->state[i], READY, memory_order_release);
        state = READY;
    }
    if (state == READY)
        memcpy(x, kept, bytes);
    else
        s->kind->draw(&d, *label, x); /* another thread is at it: no waiting, the bytes are the same */
    return ERR_NONE;
}

const struct config_field drawn_fields[] = {
    {"train", CONFIG_INT, offsetof(struct drawn_config, train), .standard = "10000", .help = "Training samples to draw",
     .min = 1, .max = 10e6},
    {"val", CONFIG_INT, offsetof(struct drawn_config, val), .standard = "2000", .help = "Validation samples to draw",
     .min = 1, .max = 10e6},
    {0},
};

enum error drawn_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct drawn_kind *kind = ask->ops->kin;
    const struct drawn_config *c = ask->config;
    struct dataset base = {.ops = ask->ops,
                           .size = ask->train ? c->train : c->val,
                           .shape = kind->shape,
                           .type = SAMPLE_U8,
                           .classes = kind->classes,
                           .name = ask->ops->section.name,
                           .plane = true};
    size_t sample = dataset_sample_bytes(&base), bytes;
    TRY(memory_size((size_t)base.size, sample + 1, base.name, &bytes));
    struct drawn *s = memory_new(sizeof *s);
    if (!s) return ERR_MEMORY;
    s->base = base;
    s->kind = kind;
    s->key = rng_key(ask->seed, RNG_DATA);
    s->split = ask->train ? 0 : 1;
    enum error err = memory_alloc_sparse(bytes, (void **)&s->pixels); /* a check opens it, and draws none */
    if (err != ERR_NONE) {
        memory_free(s);
        return err;
    }
    s->state = (atomic_uchar *)(s->pixels + (size_t)base.size * sample);
    *out = &s->base;
    return ERR_NONE;
}
