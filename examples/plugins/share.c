/* A share of your own: the median. At a meeting each rank sends its weights to all others, and each weight becomes the
 * median of all ranks' (Yin et al., 2018), which a rank that has gone astray cannot move far, as it moves a mean:
 *
 *     ranks     0.9  1.0  1.1  70        mean 18.25        median 1.05
 *
 * A rank sends (N-1) K bytes in a meeting, where the mean of all by an all-reduce takes 2(N-1)/N K.
 *
 * Build and check it:  engine check share.c
 * Use it:              engine run config.yaml --devices cpu:4 --set 'ddp.sync={every: 4, with: ./share.so}' */
#include "engine_plugin.h"

#include <stdlib.h>
#include <string.h>

/* The median of weight i, which all holds n of, 'apart' floats from each other. The order is the same on all ranks. */
static float median(const float *all, int n, int64_t apart, int64_t i, float *sorted) {
    for (int r = 0; r < n; r++) {
        int at = r;
        for (; at > 0 && sorted[at - 1] > all[r * apart + i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = all[r * apart + i];
    }
    return (sorted[(n - 1) / 2] + sorted[n / 2]) * 0.5f;
}

static int meet(struct engine_call *c, int64_t meeting) {
    int n = c->size, failed = 0;
    float *mine = (float *)(void *)c->buf, *all = malloc(((size_t)c->count + 1) * (size_t)n * sizeof *all);
    (void)meeting;
    if (!all) return -1;
    memcpy(all + c->rank * c->count, mine, (size_t)c->count * sizeof *mine);
    for (int far = 1; far < n && !failed; far++) {
        int to = (c->rank + far) % n, from = (c->rank - far + n) % n;
        struct engine_leg out = {to, ENGINE_COPY, mine, c->count};
        struct engine_leg in = {from, ENGINE_COPY, all + from * c->count, c->count};
        failed = c->exchange(c, &out, &in);
    }
    for (int64_t i = 0; i < c->count && !failed; i++) mine[i] = median(all, n, c->count, i, all + n * c->count);
    free(all);
    return failed;
}

static void plan(int32_t rank, int32_t size, int64_t meeting, int64_t count, struct engine_plan *out) {
    (void)rank, (void)meeting;
    *out = (struct engine_plan){.sent = (size - 1) * count, .received = (size - 1) * count, .steps = size - 1};
}

static const struct engine_share share = {meet, plan};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION,
    .about = "the median of all: (N-1) K each way in a meeting",
    .share = &share,
};
