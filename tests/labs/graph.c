/* A solution of lab 28, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

#include <stdlib.h>

enum { RIGHT, PAIRS_FOR_EVER, SUM, SWAPS };
#ifndef WRONG
#define WRONG RIGHT
#endif

static int meet(struct engine_call *c, int64_t meeting) {
    int n = c->size, turns = 0, far;
    float *mine = (float *)(void *)c->buf, *other = malloc((size_t)c->count * sizeof *other);
    while (1 << (turns + 1) <= n) turns++;
    far = 1 << (WRONG == PAIRS_FOR_EVER ? turns - 1 : (int)(meeting % turns));
    struct engine_leg out = {(c->rank + far) % n, ENGINE_COPY, mine, c->count};
    struct engine_leg in = {(c->rank - far + n) % n, ENGINE_COPY, other, c->count};
    int failed = other ? c->exchange(c, &out, &in) : -1;
    for (int64_t i = 0; i < c->count && !failed; i++)
        mine[i] = WRONG == SUM ? mine[i] + other[i] : WRONG == SWAPS ? other[i] : (mine[i] + other[i]) * 0.5f;
    free(other);
    return failed;
}

static void plan(int32_t rank, int32_t size, int64_t meeting, int64_t count, struct engine_plan *out) {
    (void)rank, (void)size, (void)meeting;
    *out = (struct engine_plan){.sent = count, .received = count, .steps = 1};
}

static const struct engine_share share = {meet, plan};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .share = &share};
