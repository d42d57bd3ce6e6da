/* The way of a call over the host's memory: how the ranks meet, and what they then can reach of each other. */
#include "transport/algo/plain.h"

/* An algorithm that reads its peers' buffers reads copies of a small message in the link's slots,
 * and on one host takes what is out of reach through memory that the link lends. */
static enum error move_run(const struct algo_ops *algo, struct collective *c) {
    const struct link_ops *ops = c->link->ops;
    collective_fn own = algo->run[c->kind];
    bool reads = c->kind != KIND_ALL_TO_ALL && (!own || algo->small_at_once);
    bool several = is_several(c); /* they lie apart: neither copied nor lent to */
    c->staged = reads && !several && link_stages(c->link, c->size, bytes_of(c, c->sum.count));
    if (reads && !several && ops->lend && !c->staged && c->places->hosts == 1) return collective_lent(c, own);
    if (c->staged) collective_stage(c);
    TRY(ops->meet(c->link, c->lane, &c->call, shown_buf(c), c->staged ? c->lists->slots : c->at));
    c->in_place = !c->staged && band_is_in_reach(c, &c->bands->all);
    return own ? own(c) : plain_move(c, c->kind);
}

static const struct algo_ops *move_algo(const struct collective *c) {
    if (c->algo) return c->algo;
    return algo_cheapest(c->terrain, c->sum.order, c->kind, is_several(c), bytes_of(c, c->sum.count));
}

enum error collective_move(struct collective *c) {
    const struct link_ops *ops = c->link->ops;
    if (c->kind == KIND_SEND) return collective_send(c, c->root, c->buf, c->sum.count);
    if (c->kind == KIND_RECV && c->send)
        return collective_exchange(c, (struct leg){c->root, (char *)(uintptr_t)c->send, c->sum.count, LAND_COPY},
                                   (struct leg){c->root, c->buf, c->sum.count, LAND_COPY});
    if (c->kind == KIND_RECV) return collective_receive(c, c->root, c->buf, c->sum.count, LAND_COPY);
    if (collective_moves(c)) return move_run(move_algo(c), c);
    TRY(ops->meet(c->link, c->lane, &c->call, c->buf, c->at));
    return ops->lazy ? ops->sync(c->link, c->lane) : ERR_NONE;
}
