/* Plain and blocked images: from one to the other, and sums of their channels; numbers in bf16. */
#include "engine/device/cpu/layout.h"
#include "engine/device/bf16.h"
#include "engine/device/cpu/cpu.h"

#include <string.h>

enum { B = LAYOUT_BLOCK };

/* ---- bf16 ----------------------------------------------------------------------------------- */
void bf16_round_all(int64_t n, const float *from, float *to) {
    for (int64_t k = 0; k < n; k++) to[k] = bf16_round(from[k]);
}

/* ---- sums of channels ----------------------------------------------------------------------- */
struct summing {
    const struct op_desc *d;
    const float *image;
    float *sums;
};

/* Adds x (area, B) to the sums, lane by lane. */
static void lanes_add(int64_t area, const float *x, double sums[B]) {
    for (int64_t k = 0; k < area; k++)
        for (int lane = 0; lane < B; lane++) sums[lane] += (double)x[k * B + lane];
}

/* Samples [begin, end) of a block of channels. */
static void sum_block(const struct summing *s, int64_t block, int64_t begin, int64_t end, float *out) {
    int64_t blocks = s->d->y.dim[0] / B, area = s->d->y.dim[1] * s->d->y.dim[2];
    double sums[B] = {0};
    for (int64_t i = begin; i < end; i++) lanes_add(area, s->image + (i * blocks + block) * area * B, sums);
    for (int lane = 0; lane < B; lane++) out[lane] = (float)sums[lane];
}

static void sum_channel(const struct summing *s, int64_t channel, int64_t begin, int64_t end, float *out) {
    int64_t area = s->d->y.dim[1] * s->d->y.dim[2], whole = area / B * B;
    double part[B] = {0}, sum = 0;
    for (int64_t i = begin; i < end; i++) {
        const float *plane = s->image + (i * s->d->y.dim[0] + channel) * area;
        lanes_add(area / B, plane, part);
        for (int64_t k = whole; k < area; k++) sum += (double)plane[k];
    }
    for (int lane = 0; lane < B; lane++) sum += part[lane];
    *out = (float)sum;
}

/* Parts are blocks of channels, or channels. */
static void sum_part(void *ctx, int64_t begin, int64_t end) {
    const struct summing *s = ctx;
    const struct segments all = op_segments(s->d);
    bool blocked = s->d->y_layout == LAYOUT_BLOCKED;
    int wide = blocked ? B : 1;
    for (int64_t k = begin; k < end; k++) {
        float slots[SEGMENT_SLOTS][B];
        for (int i = 0; i < all.count; i++) {
            float *slot = slots[segment_slot(i)];
            (blocked ? sum_block : sum_channel)(s, k, all.begin[i], all.begin[i + 1], slot);
            slots_add(slots[0], B, i, wide);
        }
        memcpy(s->sums + k * wide, slots[0], (size_t)wide * sizeof(float));
    }
}

void channel_sums(const struct device *dev, const struct op_desc *d, const float *image, float *sums) {
    struct summing s = {d, image, sums};
    int64_t parts = d->y_layout == LAYOUT_BLOCKED ? d->y.dim[0] / B : d->y.dim[0];
    cpu_parallel(dev, parts, 1, sum_part, &s);
}
