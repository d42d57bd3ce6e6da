/* A share of your own: gossip over an exponential graph (Ying et al., 2021). At meeting m each rank takes the mean of its
 * weights and those of the rank 2^m places before it, in turn 1, 2, 4, ... places:
 *
 *     meeting 0   0 -> 1 -> 2 -> 3 -> 0        each arrow: the weights of one rank go to another, which takes the mean
 *     meeting 1   0 -> 2 -> 0,  1 -> 3 -> 1
 *
 * Of N = 2^k ranks all have the mean of all after k meetings, and a meeting costs each rank one message each way.
 *
 * Build and check it:  engine check share.c
 * Use it:              engine run config.yaml --devices cpu:4 --set 'ddp.sync={every: 4, with: ./share.so}' */
#include "engine_plugin.h"

#include <stdlib.h>

/* How far away the partners of a meeting are. */
static int distance(int size, int64_t meeting) {
    int turns = 0;
    while (1 << (turns + 1) <= size) turns++;
    return 1 << (turns ? (int)(meeting % turns) : 0);
}

static int meet(struct engine_call *c, int64_t meeting) {
    int far = distance(c->size, meeting);
    float *mine = (float *)(void *)c->buf, *other = malloc((size_t)c->count * sizeof *other);
    struct engine_leg out = {(c->rank + far) % c->size, ENGINE_COPY, mine, c->count};
    struct engine_leg in = {(c->rank - far + c->size) % c->size, ENGINE_COPY, other, c->count};
    int failed = other ? c->exchange(c, &out, &in) : -1;
    for (int64_t i = 0; i < c->count && !failed; i++) mine[i] = (mine[i] + other[i]) * 0.5f;
    free(other);
    return failed;
}

static void plan(int32_t rank, int32_t size, int64_t meeting, int64_t count, struct engine_plan *out) {
    (void)rank, (void)size, (void)meeting;
    *out = (struct engine_plan){.sent = count, .received = count, .steps = 1};
}

static const struct engine_share share = {meet, plan};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION,
    .about = "gossip over an exponential graph: K each way in a meeting",
    .share = &share,
};
