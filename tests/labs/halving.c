/* A solution of lab 25's halving and doubling, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

#include <stdlib.h>
#include <string.h>

enum { RIGHT, WHOLE_BUFFERS, FORGETS_THE_OTHERS, ODD_COUNTS, ROUNDS_TWO_WAYS, OVERLAPS };
#ifndef WRONG
#define WRONG RIGHT
#endif
enum { WHOLE = WRONG == WHOLE_BUFFERS || WRONG == OVERLAPS };

struct range {
    int64_t first, end;
};

static struct engine_leg leg_of(const struct engine_call *c, int peer, struct range r, int landing) {
    return engine_leg(c, peer, r.first, r.end - r.first, landing);
}

/* Rank 'id' of p = 2^k, where the first 'extra' of them are pairs of ranks. */
static int meet_all(struct engine_call *c, int id, int p, int extra) {
    struct range have[32] = {{0, WRONG == ODD_COUNTS ? c->count / 2 * 2 : c->count}}; /* by level */
    int level = 0, failed = 0;
    void *copy = WRONG == WHOLE_BUFFERS ? malloc((size_t)(c->count * c->bytes)) : NULL;
    for (int d = 1; d < p && !failed; d *= 2, level++) {
        int upper = (id & d) != 0, other = id ^ d, peer = other < extra ? 2 * other : other + extra;
        struct range all = have[level], low = all, high = all;
        if (!WHOLE) low.end = high.first = (all.first + all.end + (WRONG == ROUNDS_TWO_WAYS && upper)) / 2;
        have[level + 1] = upper ? high : low;
        struct engine_leg out = leg_of(c, peer, upper ? low : high, ENGINE_COPY);
        if (WRONG == WHOLE_BUFFERS) out.data = memcpy(copy, c->buf, (size_t)(c->count * c->bytes));
        struct engine_leg in = leg_of(c, peer, have[level + 1], upper ? ENGINE_ADD_LEFT : ENGINE_ADD_RIGHT);
        failed = c->exchange(c, &out, &in);
    }
    for (int d = p / 2; d && !failed && !WHOLE; d /= 2, level--) {
        int other = id ^ d, peer = other < extra ? 2 * other : other + extra;
        struct range mine = have[level], missing = have[level - 1];
        if (id & d)
            missing.end = mine.first;
        else
            missing.first = mine.end;
        struct engine_leg out = leg_of(c, peer, mine, ENGINE_COPY), in = leg_of(c, peer, missing, ENGINE_COPY);
        failed = c->exchange(c, &out, &in);
    }
    free(copy);
    return failed;
}

static int all_reduce(struct engine_call *c) {
    int r = c->rank, p = 1, failed = 0;
    while (2 * p <= c->size) p *= 2;
    int extra = c->size - p, paired = r < 2 * extra;
    struct engine_leg pair = engine_leg(c, r ^ 1, 0, c->count, ENGINE_ADD_RIGHT), back = pair;
    back.landing = ENGINE_COPY;
    if (paired) failed = r % 2 ? c->exchange(c, &pair, NULL) : c->exchange(c, NULL, &pair);
    if (!failed && (!paired || r % 2 == 0)) failed = meet_all(c, paired ? r / 2 : r - extra, p, extra);
    if (!paired || failed || WRONG == FORGETS_THE_OTHERS) return failed;
    return r % 2 ? c->exchange(c, NULL, &back) : c->exchange(c, &back, NULL);
}

static const struct engine_algorithm halving = {ENGINE_OWN, all_reduce, NULL};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .algorithm = &halving};
