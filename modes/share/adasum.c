/* Adasum (Maleki et al. 2020, arXiv:2006.02924): two gradients a and b of a layer do not become their mean but
 *
 *     (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
 *
 * which is a + b where they are orthogonal, as if the steps were made one after the other, and a where they are equal:
 * what both say counts once. More than two are joined two by two, and the order is part of the result: with N ranks, P
 * the largest power of two up to N and e = N - P,
 *
 *     before    ranks 1, 3, 5, ... below 2e send all to their left, which joins: P are left
 *     d = 1     each of these and the one beside it swap what they have, and both join it: (0,1) (2,3) ...
 *     d = 2, 4  the same with those 2, 4, ... places away: ((0,1),(2,3)) ...
 *     after     those that were joined before receive the result
 *
 * Neighbours come first, as in the engine's tree, so that what differs least in place is joined first, and hosts last.
 * Where N is no power of two, the 2e ranks that are joined once more weigh less against gradients like theirs.
 *
 * log2(P) messages and log2(P) K bytes each way for each rank, and K more for the 2e. (The authors' form halves buffers
 * and adds up dot products in parts: 2(P-1)/P K bytes in more than twice the messages.) Here each rank has all of both
 * gradients: dot products are summed in double in an order that neither buckets nor links change, both ranks compute the
 * same, and so the bits depend on N alone. They do depend on that. */
#include "engine/base/plugin.h"
#include "engine/base/vector.h"
#include "modes/share/share.h"

VECTORISED static void adasum_combine(float *to, const float *a, double ca, const float *b, double cb, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)(ca * (double)a[i] + cb * (double)b[i]);
}

/* What is zero says nothing against the other. */
static double adasum_part(double dot, double square) {
    return square > 0 ? 1 - dot / (2 * square) : 1;
}

/* c->buf becomes the sum of a and b, one of which it is. */
static void adasum_join(const struct engine_call *c, const float *a, const float *b) {
    float *to = (float *)(void *)c->buf;
    for (int32_t i = 0; i < c->tensors; i++) {
        int64_t at = c->tensor[i], n = c->tensor[i + 1] - at;
        double dot = products_sum(a + at, b + at, n);
        double ca = adasum_part(dot, squares_sum(a + at, n)), cb = adasum_part(dot, squares_sum(b + at, n));
        adasum_combine(to + at, a + at, ca, b + at, cb, n);
    }
}

static int adasum_pairs(int size) {
    int p = 1;
    while (2 * p <= size) p *= 2;
    return p;
}

/* All of the buffer goes to one rank, or what one has comes to c->room; -1: nobody. */
static int adasum_move(struct engine_call *c, int to, int from, void *into) {
    struct engine_leg out = {to, ENGINE_COPY, c->buf, c->count}, in = {from, ENGINE_COPY, into, c->count};
    return c->exchange(c, to < 0 ? NULL : &out, from < 0 ? NULL : &in);
}

static int adasum_meet(struct engine_call *c, int64_t step) {
    float *mine = (float *)(void *)c->buf, *other = c->room;
    int p = adasum_pairs(c->size), twice = 2 * (c->size - p), failed = 0;
    bool once_more = c->rank < twice, right = once_more && c->rank % 2;
    int place = once_more ? c->rank / 2 : c->rank - twice / 2;
    (void)step;
    if (right) return (failed = adasum_move(c, c->rank - 1, -1, NULL)) || adasum_move(c, -1, c->rank - 1, mine);
    if (once_more && !(failed = adasum_move(c, -1, c->rank + 1, other))) adasum_join(c, mine, other);
    for (int d = 1; d < p && !failed; d *= 2) {
        int peer = place ^ d;
        peer = peer < twice / 2 ? 2 * peer : peer + twice / 2;
        failed = adasum_move(c, peer, peer, other);
        if (!failed) adasum_join(c, place & d ? other : mine, place & d ? mine : other);
    }
    return failed || !once_more ? failed : adasum_move(c, c->rank + 1, -1, NULL);
}

static void adasum_plan(int32_t rank, int32_t size, int64_t step, int64_t count, struct engine_plan *out) {
    int p = adasum_pairs(size), rounds = 0;
    bool once_more = rank < 2 * (size - p);
    (void)step;
    while (1 << rounds < p) rounds++;
    if (once_more && rank % 2) rounds = 0;
    *out = (struct engine_plan){.sent = (rounds + once_more) * count,
                                .received = (rounds + once_more) * count,
                                .steps = rounds + 2 * once_more};
}

static const struct engine_share adasum = {adasum_meet, adasum_plan};
static const struct engine_plugin adasum_part_of = {.about = "Adasum", .share = &adasum};
const struct plugin mixer_adasum = {.path = "adasum", .of = &adasum_part_of};

const struct share_row share_adasum = {
    .plan = {.nbefore = 1, .before = {{MOVE_PAIRS, .doing = "Adasum of the gradients"}}, .update = UPDATE_BY_ALL},
    .keys = {"ddp.reduce"},
    .without = "sum",
    .ops = MIXED_OPS};
