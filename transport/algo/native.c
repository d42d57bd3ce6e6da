/* Algorithm "native": the link's own collectives, where it has them (MPI's), to compare ours with. How they add, in
 * which order and in how many steps, is the library's business: this is the one algorithm whose bits nobody promises,
 * so it runs only where it is asked for by name. What the library lacks (other kinds, half floats, bytes, minima that
 * keep a NaN, ranks that give nothing) is done as star does it.
 *
 * The bytes counted are those of a ring; the library does not tell. */
#include "transport/algo/plain.h"

extern const struct algo_ops algo_star;

static enum error native_by_hand(struct collective *c) {
    collective_fn star = algo_star.run[c->kind];
    return star ? star(c) : plain_move(c, c->kind);
}

/* Bytes are not added there either: Open MPI's sum of them stops at 255, where ours wraps. Its minimum and maximum of
 * floats lose a NaN, which ours keep. */
static bool native_can(const struct collective *c) {
    enum dtype t = c->sum.type;
    bool half = t == DTYPE_F16 || t == DTYPE_BF16, adds = c->kind != KIND_BROADCAST;
    bool picks = adds && (c->sum.op == REDOP_MIN || c->sum.op == REDOP_MAX), real = t == DTYPE_F32 || t == DTYPE_F64;
    return !half && !(t == DTYPE_U8 && adds) && !(picks && real) && c->sum.first == 0;
}

static enum error native_run(struct collective *c) {
    if (!native_can(c)) return native_by_hand(c);
    bool all = c->kind == KIND_ALL_REDUCE, has_sum = all || c->rank == c->root;
    int64_t others = c->sum.count * (c->size - 1) / c->size * (all ? 2 : 1);
    const struct native_call call = {c->kind, c->sum.type, c->sum.op, c->root, c->sum.count, c->buf};
    TRY(c->link->ops->native(c->link, c->lane, &call));
    if (c->kind != KIND_BROADCAST && has_sum) sum_complete(&c->sum, c->sum.count, c->buf);
    collective_count(c, others, others);
    return ERR_NONE;
}

const struct algo_ops algo_native = {
    .name = "native",
    .why = "the link's library does it by itself: its order of additions, its bits",
    .orders = {[ORDER_TREE] = true, [ORDER_RING] = true},
    .native = true,
    .run = {[KIND_ALL_REDUCE] = native_run, [KIND_REDUCE] = native_run, [KIND_BROADCAST] = native_run},
};
