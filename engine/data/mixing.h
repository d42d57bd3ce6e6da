/* 'mixup' and 'cutmix': every sample of a batch is mixed with the one before it in the batch (the first with the last),
 * as torchvision.transforms.v2's MixUp and CutMix do. How is drawn once a step, by its place in the run alone. */
#pragma once
#include "engine/data/augment.h"
#include "engine/device/ops.h"

enum mix_kind { MIX_NONE, MIX_UP, MIX_CUT };
struct mixing {
    enum mix_kind kind;
    double part; /* of a sample that stays its own; the rest is its partner's */
    struct {
        int64_t x, y, w, h;
    } box; /* of MIX_CUT: what is the partner's */
};
static inline bool mixing_on(const struct augment *a) {
    return a->mixup > 0 || a->cutmix > 0;
}
/* step: of the epoch; shape: of a sample, of MIX_CUT a picture. */
struct mixing mixing_draw(const struct augment *a, struct rng_key key, int64_t epoch, int64_t step,
                          const struct shape *shape);
/* For MIX_CUT, sets the box about this pixel of a picture for the part that is asked for, and the part that it leaves. */
void mixing_cut(struct mixing *m, int64_t x, int64_t y, int64_t width, int64_t height);
/* The position whose sample is mixed with that at 'at', in a batch of n samples. */
static inline int64_t mixing_partner(int64_t at, int64_t n) {
    return at > 0 ? at - 1 : n - 1;
}
/* x becomes the mixture; both are (shape). */
void mixing_apply(const struct mixing *m, const struct shape *shape, float *x, const float *partner);
/* x = part of x and the rest of partner. */
void mixing_blend(const struct mixing *m, float *x, const float *partner, int64_t n);
