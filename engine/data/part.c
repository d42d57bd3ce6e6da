/* Samples are held out by the seed data.split, and not by the seed of training: all seeds of an experiment
 * share one validation set, and evaluating a run with another seed never takes its training samples for new ones.
 *
 *   1. sort the samples by class, or by target; those of one class are in random order
 *   2. take samples at equal distances in that order, from a random one on
 *
 * So each class, and each range of targets, has its share in both parts, to within one sample, whatever the order of the
 * file. The only sample of a class stays in training. 'split: end' takes the end of the file instead, which is right where
 * the order is that of time; runs from before there was a choice did so. */
#include "engine/data/part.h"

#include "engine/base/rng.h"
#include "engine/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct config_path part_path = {.or = "how many samples"};

void part_free(struct part *p) {
    memory_free(p->index);
    *p = (struct part){0};
}

bool part_is_held(const char *val) {
    size_t n = strspn(val, "0123456789.");
    return n > 0 && (val[n] == '\0' || (val[n] == '%' && val[n + 1] == '\0'));
}

static bool held_count(const char *val, int64_t samples, int64_t *out) {
    char number[32];
    double percent;
    size_t n = strlen(val);
    if (val[n - 1] != '%') return text_int(val, out);
    if (n > sizeof number) return false;
    snprintf(number, sizeof number, "%.*s", (int)n - 1, val);
    if (!text_real(number, &percent) || percent > 100) return false;
    *out = (int64_t)((double)samples * percent / 100);
    return true;
}

enum error part_cut(const char *val, int64_t samples, bool train, struct part *out) {
    int64_t held;
    if (!held_count(val, samples, &held))
        return FAIL(ERR_CONFIG, "data.val: '%s' is neither a number of samples nor a percentage nor a file", val);
    if (held < 1 || held >= samples)
        return FAIL(ERR_CONFIG, "data.val: holding out %s of %lld samples leaves none to %s", val, (long long)samples,
                    held < 1 ? "validate on" : "train on");
    *out = train ? (struct part){0, samples - held, .held = held} : (struct part){samples - held, held, .held = held};
    return ERR_NONE;
}

/* ---- drawing ---- */

enum use { TRAINING, ALONE, VALIDATION, KEPT };
struct drawn_place { /* of a sample, in the order in which samples are taken */
    float key;
    uint32_t drawn;
    enum use use;
    int64_t at;
};

static int part_by_key(const void *x, const void *y) {
    const struct drawn_place *a = x, *b = y;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    if (a->drawn != b->drawn) return a->drawn < b->drawn ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int part_by_number(const void *x, const void *y) {
    const int64_t *a = x, *b = y;
    return *a < *b ? -1 : *a > *b;
}

static float key_of(const struct strata *s, int64_t i) {
    return s->label ? (float)s->label[i] : s->value ? s->value[i * s->stride] : 0;
}

static enum error places_sort(const struct strata *s, struct rng_key key, struct drawn_place **out) {
    size_t bytes;
    TRY(memory_size((size_t)s->count, sizeof **out, "the order of the samples", &bytes));
    struct drawn_place *p = *out = memory_new(bytes);
    if (!p) return ERR_MEMORY;
    for (int64_t i = 0; i < s->count; i++)
        p[i] = (struct drawn_place){key_of(s, i), (uint32_t)rng_u64(key, (uint64_t)i, 0), TRAINING, i};
    qsort(p, (size_t)s->count, sizeof *p, part_by_key);
    return ERR_NONE;
}

/* The only samples of their class are set aside, unless too few are left. Returns how many are not. */
static int64_t places_spare(const struct strata *s, struct drawn_place *p, int64_t held) {
    int64_t n = s->count, able = n;
    for (int64_t i = 0; i < n && (s->label || s->classes); i++) {
        bool alone = (i == 0 || p[i - 1].key != p[i].key) && (i + 1 == n || p[i + 1].key != p[i].key);
        if (!alone) continue;
        p[i].use = ALONE;
        able--;
    }
    if (able > held) return able;
    for (int64_t i = 0; i < n; i++) p[i].use = TRAINING;
    return n;
}

/* Takes 'take' of the 'of' places for training, at equal distances, for another use. */
static void places_take(struct drawn_place *p, int64_t n, int64_t of, int64_t take, int64_t start, enum use to) {
    for (int64_t i = 0, seen = 0, taken = 0; i < n && taken < take; i++) {
        if (p[i].use != TRAINING || seen++ != (int64_t)(((__int128)taken * of + start) / take)) continue;
        p[i].use = to;
        taken++;
    }
}

/* The part's samples, in the order of the file. */
static enum error places_list(const struct drawn_place *p, int64_t n, enum use wanted, struct part *out) {
    TRY_MEMORY(out->index = memory_new((size_t)out->count * sizeof *out->index));
    for (int64_t i = 0, k = 0; i < n; i++)
        if (p[i].use == wanted) out->index[k++] = p[i].at;
    qsort(out->index, (size_t)out->count, sizeof *out->index, part_by_number);
    return ERR_NONE;
}

static enum error strata_draw(const struct dataset_ask *ask, const struct strata *s, struct drawn_place *p,
                              struct rng_key key, struct part *out) {
    int64_t n = s->count, training = n - out->held;
    if (out->held) {
        int64_t able = places_spare(s, p, out->held);
        places_take(p, n, able, out->held, (int64_t)rng_below(key, 0, 1, (uint64_t)able), VALIDATION);
    }
    for (int64_t i = 0; i < n; i++)
        if (p[i].use == ALONE) p[i].use = TRAINING;
    out->count = ask->train ? training : out->held;
    if (!ask->train) return places_list(p, n, VALIDATION, out);
    if (!ask->limit || ask->limit >= training) return places_list(p, n, TRAINING, out);
    out->count = ask->limit;
    places_take(p, n, training, ask->limit, (int64_t)rng_below(key, 1, 1, (uint64_t)training), KEPT);
    return places_list(p, n, KEPT, out);
}

static enum error part_choose(const struct dataset_ask *ask, const char *held, const struct strata *s,
                              struct part *out) {
    struct rng_key key = rng_key((uint64_t)ask->split, RNG_SPLIT);
    struct drawn_place *places;
    *out = (struct part){0, s->count};
    if (held) TRY(part_cut(held, s->count, ask->train, out));
    bool few = ask->train && ask->limit && ask->limit < out->count;
    if (ask->split == SPLIT_END || (!held && !few)) return ERR_NONE;
    TRY(places_sort(s, key, &places));
    out->first = 0;
    enum error err = strata_draw(ask, s, places, key, out);
    memory_free(places);
    return err;
}

static enum error part_tell(const struct part *p, int64_t of, struct origin *out) {
    memory_free(out->index);
    *out = (struct origin){of, p->first, NULL};
    if (!p->index) return ERR_NONE;
    TRY_MEMORY(out->index = memory_new((size_t)p->count * sizeof *p->index));
    memcpy(out->index, p->index, (size_t)p->count * sizeof *p->index);
    return ERR_NONE;
}

enum error part_draw(const struct dataset_ask *ask, const char *held, const struct strata *s, struct part *out) {
    TRY(part_choose(ask, held, s, out));
    return ask->origin && ask->train ? part_tell(out, s->count, ask->origin) : ERR_NONE;
}
