/* Gossip with a neighbour that goes wrong in one way: -DWRONG=..., by the numbers below. Right: 0, and then the engine's own
 * (ddp.sync.with: neighbour). */
#include "engine_plugin.h"

#include <stdlib.h>

enum { RIGHT, ADDS, PAST_THE_END, WRONG_BYTES, FORGETS, LEAKS, OTHER_MEETING, CRASH, NOBODY_MEETS };
void *share_leak; /* keeps the compiler from leaving it out */
#ifndef WRONG
#define WRONG RIGHT
#endif

/* Itself: it meets nobody. */
static int partner(int rank, int size, int64_t meeting) {
    int even = (rank + (int)(meeting % 2)) % 2, other = even ? rank - 1 : rank + 1;
    if (size % 2 == 0) return (other + size) % size;
    return other < 0 || other >= size ? rank : other;
}

static int meet(struct engine_call *c, int64_t meeting) {
    static int64_t calls[64];
    int64_t turn = WRONG == OTHER_MEETING ? calls[c->rank % 64]++ : meeting;
    int other = partner(c->rank, c->size, turn), failed;
    float *mine = (float *)(void *)c->buf, *theirs;
    if (other == c->rank) return 0;
    theirs = malloc((size_t)c->count * sizeof *theirs);
    if (WRONG == LEAKS) share_leak = malloc(1000);
    struct engine_leg out = {other, ENGINE_COPY, mine, c->count}, in = {other, ENGINE_COPY, theirs, c->count};
    if (WRONG == CRASH) *(volatile int *)(void *)(uintptr_t)8 = 1;
    failed = c->exchange(c, &out, WRONG == NOBODY_MEETS ? NULL : &in);
    for (int64_t i = 0; i < c->count + (WRONG == PAST_THE_END); i++)
        mine[i] = WRONG == ADDS ? mine[i] + theirs[i] : (mine[i] + theirs[i < c->count ? i : 0]) * 0.5f;
    free(theirs);
    return WRONG == FORGETS ? 7 : failed;
}

static void plan(int32_t rank, int32_t size, int64_t meeting, int64_t count, struct engine_plan *out) {
    int meets = partner(rank, size, meeting) != rank;
    *out = (struct engine_plan){
        .sent = meets ? count / (WRONG == WRONG_BYTES ? 2 : 1) : 0, .received = meets ? count : 0, .steps = meets};
}

static const struct engine_share share = {meet, WRONG == OTHER_MEETING ? NULL : plan};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "gossip", .share = &share};
