/* Mixing samples. A step has two counters of four words each:
 *
 *   (epoch, 2 step)      the part, Beta(alpha, alpha): always the same two numbers of 64 bits
 *   (epoch, 2 step + 1)  the box's middle, column and row; which of the two it is, where both are asked for
 *
 * MixUp    x = part x + (1 - part) partner
 * CutMix   a box of the partner's of 1 - part of the area, about a middle drawn evenly and cut at the picture's edges,
 *          which makes the part that stays 1 - box / picture */
#include "engine/data/mixing.h"

#include "engine/base/vector.h"
#include "engine/base/whole.h"

#include <math.h>
#include <string.h>

/* As torchvision has it, the box is 2 * (int)(half a side) long. */
void mixing_cut(struct mixing *m, int64_t x, int64_t y, int64_t width, int64_t height) {
    double half = 0.5 * sqrt(1 - m->part);
    int64_t w = (int64_t)(half * (double)width), h = (int64_t)(half * (double)height);
    m->box.x = x > w ? x - w : 0;
    m->box.y = y > h ? y - h : 0;
    m->box.w = at_most(x + w, width) - m->box.x;
    m->box.h = at_most(y + h, height) - m->box.y;
    m->part = 1 - (double)(m->box.w * m->box.h) / (double)(width * height);
}

struct mixing mixing_draw(const struct augment *a, struct rng_key key, int64_t epoch, int64_t step,
                          const struct shape *shape) {
    uint32_t words[4];
    if (!mixing_on(a)) return (struct mixing){.kind = MIX_NONE};
    rng_words(key, (uint64_t)epoch, 2 * (uint64_t)step + 1, words);
    bool cuts = a->cutmix > 0 && (!(a->mixup > 0) || words[2] >> 31);
    struct mixing m = {.kind = cuts ? MIX_CUT : MIX_UP};
    m.part = rng_beta(key, (uint64_t)epoch, 2 * (uint64_t)step, cuts ? a->cutmix : a->mixup);
    if (!cuts) return m;
    int64_t width = shape->dim[2], height = shape->dim[1];
    mixing_cut(&m, (int64_t)((uint64_t)words[0] * (uint64_t)width >> 32),
               (int64_t)((uint64_t)words[1] * (uint64_t)height >> 32), width, height);
    return m;
}

VECTORISED static void samples_blend(float *x, const float *partner, float part, float rest, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = partner[i] * rest + x[i] * part;
}

void mixing_blend(const struct mixing *m, float *x, const float *partner, int64_t n) {
    samples_blend(x, partner, (float)m->part, (float)(1 - m->part), n);
}

void mixing_apply(const struct mixing *m, const struct shape *shape, float *x, const float *partner) {
    if (m->kind == MIX_UP) mixing_blend(m, x, partner, shape_count(shape));
    for (int64_t c = 0; m->kind == MIX_CUT && c < shape->dim[0]; c++)
        for (int64_t row = 0; row < m->box.h; row++) {
            int64_t at = (c * shape->dim[1] + m->box.y + row) * shape->dim[2] + m->box.x;
            memcpy(x + at, partner + at, (size_t)m->box.w * sizeof *x);
        }
}
