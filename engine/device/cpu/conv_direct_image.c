#include "engine/device/cpu/conv_direct_image.h"
#include "engine/device/cpu/conv_direct_product.h"
#include "engine/device/cpu/cpu.h"

enum { B = LAYOUT_BLOCK };

struct grouped grouped_of(const struct op_desc *d, const struct shape *s, enum layout layout) {
    int64_t groups = d->conv.groups, all = s->dim[0];
    bool lanewise = groups > 1 && groups == d->x.dim[0] && groups == d->y.dim[0];
    struct grouped g = {d->n, groups, all / groups, 0, s->dim[1], s->dim[2], all, lanewise, .layout = layout};
    if (lanewise) g.groups = (all + B - 1) / B, g.channels = B;
    g.blocks = (g.channels + B - 1) / B;
    g.whole = layout == LAYOUT_BLOCKED && g.channels % B == 0;
    return g;
}

int64_t grouped_floats(const struct grouped *g) {
    return g->n * g->groups * g->blocks * g->h * g->w * B;
}

/* The channel of a lane of a block of a group; -1: none. */
static int64_t channel_of(const struct grouped *g, int64_t block, int64_t lane) {
    int64_t within = block % g->blocks * B + lane, channel = block / g->blocks * g->channels + within;
    return within < g->channels && channel < g->all ? channel : -1;
}

void grouped_row(const struct grouped *g, const float *channels, float *to) {
    for (int64_t k = 0; k < g->groups * g->blocks * B; k++) {
        int64_t channel = channel_of(g, k / B, k % B);
        to[k] = channel < 0 ? 0 : channels[channel];
    }
}

struct copying {
    const struct grouped *g;
    const float *from;
    float *to;
};

/* The offset of a sample's channel in the op's image, and the distance of its pixels. */
static int64_t channel_at(const struct grouped *g, int64_t sample, int64_t channel, int64_t *step) {
    int64_t area = g->h * g->w, plain = (sample * g->all + channel) * area;
    *step = g->layout == LAYOUT_BLOCKED ? B : 1;
    return g->layout == LAYOUT_BLOCKED ? plain - channel % B * area + channel % B : plain;
}

/* Blocks [begin, end) of all samples. */
static void blocks_from(void *ctx, int64_t begin, int64_t end) {
    const struct copying *c = ctx;
    int64_t area = c->g->h * c->g->w, each = c->g->groups * c->g->blocks, step;
    for (int64_t k = begin; k < end; k++)
        for (int64_t lane = 0; lane < B; lane++) {
            float *to = c->to + k * area * B + lane;
            int64_t channel = channel_of(c->g, k % each, lane);
            const float *from = channel < 0 ? NULL : c->from + channel_at(c->g, k / each, channel, &step);
            for (int64_t p = 0; p < area; p++) to[p * B] = from ? from[p * step] : 0;
        }
}

static void blocks_to(void *ctx, int64_t begin, int64_t end) {
    const struct copying *c = ctx;
    int64_t area = c->g->h * c->g->w, each = c->g->groups * c->g->blocks, step;
    for (int64_t k = begin; k < end; k++)
        for (int64_t lane = 0; lane < B; lane++) {
            int64_t channel = channel_of(c->g, k % each, lane);
            if (channel < 0) continue;
            const float *from = c->from + k * area * B + lane;
            float *to = c->to + channel_at(c->g, k / each, channel, &step);
            for (int64_t p = 0; p < area; p++) to[p * step] = from[p * B];
        }
}

void grouped_from(const struct device *dev, const struct grouped *g, const float *image, float *to) {
    struct copying c = {g, image, to};
    cpu_parallel(dev, g->n * g->groups * g->blocks, 1, blocks_from, &c);
}

void grouped_to(const struct device *dev, const struct grouped *g, const float *from, float *image) {
    struct copying c = {g, from, image};
    cpu_parallel(dev, g->n * g->groups * g->blocks, 1, blocks_to, &c);
}

/* ---- pairs ---------------------------------------------------------------------------------- */
int64_t grouped_pairs(const struct grouped *g) {
    return (g->n + 1) / 2 * g->groups * g->blocks * g->h * g->w * B;
}

/* Blocks [begin, end) of all pairs. */
static void blocks_pair(void *ctx, int64_t begin, int64_t end) {
    const struct copying *c = ctx;
    int64_t each = c->g->groups * c->g->blocks, plane = c->g->h * c->g->w * B;
    const struct direct_row row = {.inside = plane, .all = plane, .how = PACK_PAIRS, .across = true};
    for (int64_t k = begin; k < end; k++) {
        int64_t sample = k / each * 2;
        const float *from = c->from + (sample * each + k % each) * plane;
        direct_row(&row, from, sample + 1 < c->g->n ? from + each * plane : NULL, c->to + k * plane);
    }
}

void grouped_pair(const struct device *dev, const struct grouped *g, const float *from, float *to) {
    struct copying c = {g, from, to};
    cpu_parallel(dev, (g->n + 1) / 2 * g->groups * g->blocks, 1, blocks_pair, &c);
}
